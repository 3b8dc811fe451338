"""The specification's Python class: the memory inside a program of one's own, without HTTP.

    with TemporalMemory(db_config={}, embedding_config={}) as memory:
        memory.add_dialogue(123456789, "user", "我的订单号是ORD123456", sender_name="小明")
        memories = memory.get_contextual_memory(123456789, "订单号是多少？")

Source: the specification, sections 4.2, 6.2 and 9.
"""

import asyncio
import atexit
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Annotated, Any, Final, Self, TypeVar
from urllib.parse import quote
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, ValidationError

from app.api.dialogues import DialogueRequest
from app.api.fields import MAX_TOKENS, GroupId, Query, UserId, whole
from app.dialogues.records import NewDialogue, Session
from app.errors import ProviderRejectedError
from app.recall.records import Memory, SearchQuery
from app.services import Services, open_services
from app.settings import Settings, load_settings
from app.telemetry import log_to_standard_logging

_NAMESPACE: Final = "default"
_ADDRESS_KEYS: Final = frozenset({"host", "port", "user", "password", "dbname", "database"})
_EMBEDDING_KEYS: Final = {
    "api_key": "embedding_api_key",
    "base_url": "embedding_base_url",
    "api_url": "embedding_base_url",
    "model": "embedding_model",
    "dimensions": "embedding_dimensions",
    "batch_size": "embedding_batch_size",
    "timeout_s": "embedding_timeout_s",
    "cache_size": "embedding_cache_size",
}

_T = TypeVar("_T")
_Shape = TypeVar("_Shape", bound=BaseModel)

LlmCallback = Callable[..., str]
"""Answers as the model would: `callback(messages)`, or `callback(memories, user_input)`."""


class _Question(BaseModel):
    """What a search is given, checked as the HTTP API checks it."""

    model_config = ConfigDict(extra="forbid")

    user_id: UserId
    query: Query
    group_id: GroupId = None
    top_n: Annotated[int, whole(ge=0, le=100)]
    window_size: Annotated[int, whole(ge=0, le=10)]
    max_memory_tokens: Annotated[int, whole(ge=0, le=MAX_TOKENS)] | None = None


@dataclass(frozen=True)
class _Running:
    """The services, and the loop whose thread they live in."""

    loop: asyncio.AbstractEventLoop
    services: Services
    stop: asyncio.Event


class TemporalMemory:
    """Stores dialogues and recalls what matters, for synchronous code; any thread may call any method.

    The database and the model run in a thread of this object's own, until `close`. Calls block their
    thread; a coroutine makes them through `asyncio.to_thread`, or else holds up its own loop.
    """

    def __init__(self, db_config: dict[str, Any], embedding_config: dict[str, Any]) -> None:
        """Open the database and the embedding model.

        Args:
            db_config: `{"url": …}`; or `host`, `port`, `user`, `password`, `dbname` (or `database`); or
                `{"data_dir": …}` or `{}` for an embedded PostgreSQL.
            embedding_config: `api_key`, `base_url` (or `api_url`, which may end in `/embeddings`), `model`,
                `dimensions`, `batch_size`, `timeout_s`, `cache_size`; `{}` for the bundled offline model.

        Raises:
            ValueError: a key is unknown, or contradicts another.
            StartupError: something cannot be opened; its text is one line that says what to do.
        """
        # HOST is of no concern where nothing listens, but a setting of the environment might be refused.
        settings = load_settings(
            {"host": "127.0.0.1"} | _database_settings(db_config) | _embedding_settings(embedding_config)
        )
        log_to_standard_logging()
        self._closing = threading.Lock()
        started: Future[_Running] = Future()
        self._thread = threading.Thread(
            target=_live, args=(settings, started), name="temporal-memory", daemon=True
        )
        self._thread.start()
        self._running: _Running | None = started.result()
        atexit.register(self.close)

    def add_dialogue(  # noqa: PLR0917 - the specification's signature
        self,
        user_id: int,
        role: str,
        content: str,
        group_id: int | None = None,
        sender_name: str | None = None,
        message_id: int | None = None,
    ) -> None:
        """Store one message; its vector is made in the background, and before the next search needs it.

        Raises:
            ValueError: a value is out of its range.
            DatabaseUnavailableError: PostgreSQL does not answer.
        """
        checked = _validate(
            DialogueRequest,
            user_id=user_id,
            role=role,
            content=content,
            group_id=group_id,
            sender_name=sender_name,
            message_id=message_id,
        )
        new = NewDialogue(
            user_id=checked.user_id,
            role=checked.role,
            content=checked.content,
            group_id=checked.group_id,
            sender_name=checked.sender_name,
            message_id=checked.message_id,
        )
        self._run(lambda services: services.dialogues.add(_NAMESPACE, new))

    def get_contextual_memory(
        self,
        user_id: int,
        query: str,
        group_id: int | None = None,
        top_n: int = 3,
        window_size: int = 2,
    ) -> list[dict[str, Any]]:
        """What this session holds about the query: the best hits and their neighbours, in order of time.

        The query itself, where it has just been stored, is not its own memory.

        Returns:
            A dict a message: the fields of `POST /memory/search`'s `memories`, times as aware datetimes in
            the service's zone; `line` is ready for a prompt.

        Raises:
            ValueError: a value is out of its range.
            DatabaseUnavailableError: PostgreSQL does not answer.
        """
        question = _validate(
            _Question, user_id=user_id, query=query, group_id=group_id, top_n=top_n, window_size=window_size
        )
        return self._run(lambda services: _recall(services, question))

    def chat_with_temporal_memory(
        self,
        user_id: int,
        user_input: str,
        group_id: int | None = None,
        llm_callback: LlmCallback | None = None,
        max_memory_tokens: int = 1000,
    ) -> str:
        """One turn: store what the user says, recall, ask the model through the callback, store its reply.

        Args:
            user_id: who speaks.
            user_input: what they say.
            group_id: None in private.
            llm_callback: with one positional parameter it is given the messages for a chat model
                (`[{"role", "content"}, …]`: system with the memory, the current conversation, the user's
                input); with two, the memories (as `get_contextual_memory` gives them) and the input.
                Called in the caller's thread. When it raises, the user's message is kept, and no reply is.
            max_memory_tokens: most tokens of memory lines, 0 to 131072.

        Raises:
            ValueError: no callback, or a value is out of its range.
            TypeError: the callback does not return a string.
        """
        if llm_callback is None:
            raise ValueError(
                "llm_callback is needed: a function that is given the messages and returns the reply"
            )
        defaults = self._opened().services.settings.recall
        question = _validate(
            _Question,
            user_id=user_id,
            query=user_input,
            group_id=group_id,
            top_n=defaults.top_n,
            window_size=defaults.window_size,
            max_memory_tokens=max_memory_tokens,
        )
        self.add_dialogue(user_id, "user", user_input, group_id=group_id)
        if _takes_memories(llm_callback):
            reply = llm_callback(self._run(lambda services: _recall(services, question)), user_input)
        else:
            reply = llm_callback(self._run(lambda services: _compose(services, question)))
        if not isinstance(reply, str):
            raise TypeError(f"llm_callback returned {type(reply).__name__}, not str")
        self.add_dialogue(user_id, "assistant", reply, group_id=group_id)
        return reply

    @staticmethod
    def generate_session_key(user_id: int, group_id: int | None = None) -> str:
        """`user_id` in private, `group_id:user_id` in a group."""
        return f"{group_id}:{user_id}" if group_id else str(user_id)

    def close(self) -> None:
        """Stop the loops, close the database and end the thread; a second call does nothing."""
        with self._closing:
            running, self._running = self._running, None
            if running is not None:
                atexit.unregister(self.close)
                running.loop.call_soon_threadsafe(running.stop.set)
                self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get_embedding(self, text: str) -> list[float]:
        """The vector of a text, as it is made for a stored message."""

        async def embed(services: Services) -> list[float]:
            vector = (await services.embedder.embed_documents([text]))[0]
            if isinstance(vector, ProviderRejectedError):
                raise vector
            return [float(number) for number in vector]

        return self._run(embed)

    def _opened(self) -> _Running:
        if self._running is None:
            raise RuntimeError("this TemporalMemory is closed")
        return self._running

    def _run(self, work: Callable[[Services], Coroutine[Any, Any, _T]]) -> _T:
        running = self._opened()
        waiting = asyncio.run_coroutine_threadsafe(work(running.services), running.loop)
        try:
            return waiting.result()
        except BaseException:
            # Ctrl-C interrupts the waiting only; the work is given up, too.
            waiting.cancel()
            raise


def _live(settings: Settings, started: "Future[_Running]") -> None:
    """Hold the services open in this thread until told to stop."""

    async def hold() -> None:
        async with open_services(settings) as services:
            stop = asyncio.Event()
            started.set_result(_Running(asyncio.get_running_loop(), services, stop))
            await stop.wait()

    try:
        asyncio.run(hold())
    except BaseException as error:
        if not started.done():
            started.set_exception(error)
        elif threading.main_thread().is_alive():
            raise
        # Else the interpreter is ending and starts no threads, which closing needs; the process ends it all.


def _database_settings(config: Mapping[str, Any]) -> dict[str, object]:
    _refuse_unknown("db_config", config, {"url", "data_dir", *_ADDRESS_KEYS})
    given = {key for key, value in config.items() if value is not None}
    forms = [form for form in ({"url"}, {"data_dir"}, _ADDRESS_KEYS) if given & form]
    if len(forms) > 1 or {"dbname", "database"} <= given:
        raise ValueError(f"db_config: {', '.join(sorted(given))} contradict each other")
    settings: dict[str, object] = {"database_url": None}
    if "url" in given:
        settings["database_url"] = str(config["url"])
    elif "data_dir" in given:
        settings["data_dir"] = config["data_dir"]
    elif given:
        settings["database_url"] = _database_url({key: config[key] for key in given})
    return settings


def _database_url(config: Mapping[str, Any]) -> str:
    user = quote(str(config.get("user", "postgres")), safe="")
    password = f":{quote(str(config['password']), safe='')}" if "password" in config else ""
    host, port = str(config.get("host", "localhost")), config.get("port", 5432)
    name = quote(str(config.get("dbname", config.get("database", "temporal_memory"))), safe="")
    if host.startswith("/"):
        # A folder with the server's socket.
        return f"postgresql://{user}{password}@/{name}?host={quote(host, safe='/')}&port={port}"
    return f"postgresql://{user}{password}@{f'[{host}]' if ':' in host else host}:{port}/{name}"


def _embedding_settings(config: Mapping[str, Any]) -> dict[str, object]:
    _refuse_unknown("embedding_config", config, _EMBEDDING_KEYS)
    if config.get("base_url") is not None and config.get("api_url") is not None:
        raise ValueError("embedding_config: base_url and api_url contradict each other")
    # Without a key and an address of its own it is the offline model, whatever the environment says.
    settings: dict[str, object] = {"embedding_base_url": None, "embedding_api_key": None}
    settings |= {_EMBEDDING_KEYS[key]: value for key, value in config.items() if value is not None}
    address = settings["embedding_base_url"]
    if isinstance(address, str):
        settings["embedding_base_url"] = address.rstrip("/").removesuffix("/embeddings")
    return settings


def _refuse_unknown(name: str, config: Mapping[str, Any], known: "set[str] | dict[str, str]") -> None:
    for key in config:
        if key not in known:
            raise ValueError(f"{name}: unknown key {key!r}; known are {', '.join(sorted(known))}")


def _validate(shape: type[_Shape], **values: object) -> _Shape:
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None


def _takes_memories(callback: LlmCallback) -> bool:
    """Whether it has the specification's two parameters; where that cannot be seen, it is taken to have."""
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in kinds and one.default is inspect.Parameter.empty]
    if needed:
        return len(needed) > 1
    return any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)


def _query(services: Services, question: _Question, *, exclude_ids: frozenset[int]) -> SearchQuery:
    recall = services.settings.recall
    return SearchQuery(
        session=Session(question.user_id, question.group_id),
        query=question.query,
        now=services.clock(),
        zone=recall.zone,
        language=recall.language,
        top_n=question.top_n,
        window_size=question.window_size,
        budget_tokens=question.max_memory_tokens,
        fill_budget=question.max_memory_tokens is not None,
        exclude_ids=exclude_ids,
    )


async def _recall(services: Services, question: _Question) -> list[dict[str, Any]]:
    session = Session(question.user_id, question.group_id)
    window = await services.sessions.window(_NAMESPACE, session)
    last = window[-1] if window else None
    asked = last is not None and last.role == "user" and last.content.strip() == question.query.strip()
    itself = frozenset({last.dialogue_id}) if asked and last and last.dialogue_id else frozenset()
    found = await services.recall.search(_NAMESPACE, _query(services, question, exclude_ids=itself))
    if itself and not found.memories:
        # There is nothing else in this session yet.
        found = await services.recall.search(_NAMESPACE, _query(services, question, exclude_ids=frozenset()))
    return [_as_dict(memory, services.settings.recall.zone) for memory in found.memories]


async def _compose(services: Services, question: _Question) -> list[dict[str, str]]:
    query = _query(services, question, exclude_ids=frozenset())
    return (await services.prompts.compose(_NAMESPACE, query, persona=None)).messages


def _as_dict(memory: Memory, zone: ZoneInfo) -> dict[str, Any]:
    dialogue = memory.dialogue
    return asdict(dialogue) | {
        "created_at": dialogue.created_at.astimezone(zone),
        "expires_at": dialogue.expires_at and dialogue.expires_at.astimezone(zone),
        "session_key": dialogue.session.key,
        "chat_type": dialogue.session.chat_type,
        "absolute_time": memory.absolute_time,
        "relative_time": memory.relative_time,
        "line": memory.line,
        "similarity": memory.similarity,
        "match": memory.match,
        "decay": memory.decay,
        "relevance": memory.relevance,
        "is_anchor": memory.is_anchor,
    }
