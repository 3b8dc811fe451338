"""One turn of conversation: recall, compose, ask, record.

A turn runs in a task of its own: a client that hangs up does not end it, and one that asks again with the
same message_uuid gets the same turn. No database session is held while the model speaks.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from app.chat.composer import ComposedPrompt, PromptService
from app.chat.events import ChatEvent, ChatRequest, Delta, Done, Failed, Recalled, Usage
from app.clients.chat_model import ChatModel
from app.clients.chat_wire import Completion
from app.clock import Clock
from app.database.engine import Database, WriteSession
from app.database.work_loop import LEASE_S, holding
from app.dialogues.preparation import time_ordered_uuid, written_hash
from app.dialogues.tokens import count_tokens
from app.errors import (
    ChatModelNotConfiguredError,
    ConflictError,
    NotFoundError,
    ProviderError,
    TemporalMemoryError,
    UnavailableError,
)
from app.evaluation import store
from app.evaluation.turns import Answer, NewTurn, Turn
from app.evaluation.worker import EvaluationWorker, keep_unanswered
from app.recall.records import SearchQuery
from app.telemetry import get_logger
from app.tiers import store as tier_store

log = get_logger(__name__)

_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class _Begun:
    turn: Turn
    mine: bool


class ChatService:
    """Chats with memory."""

    def __init__(
        self,
        *,
        database: Database,
        prompts: PromptService,
        model: ChatModel | None,
        evaluation: EvaluationWorker,
        clock: Clock,
        timeout_s: float,
    ) -> None:
        """Open nothing.

        Args:
            database: where turns and windows are.
            prompts: recalls and composes.
            model: None: no model is configured, and every chat is refused.
            evaluation: is told of each answered turn.
            clock: what time it is.
            timeout_s: how long a turn that another request is answering is waited for.
        """
        self._database = database
        self._prompts = prompts
        self._model = model
        self._evaluation = evaluation
        self._clock = clock
        self._timeout_s = timeout_s
        self._running: set[asyncio.Task[None]] = set()

    async def chat(self, namespace: str, request: ChatRequest) -> Done:
        """Answer a message, whole.

        Raises:
            ChatModelNotConfiguredError: there is no model.
            ConflictError: the message_uuid belongs to another message.
            ProviderError: the model failed; the user's message is kept.
        """
        last: ChatEvent | None = None
        async with aclosing(self.stream(namespace, request)) as events:
            async for event in events:
                last = event
        if isinstance(last, Failed):
            raise last.error
        if not isinstance(last, Done):
            raise ProviderError("the turn ended without an answer")
        return last

    async def stream(self, namespace: str, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Answer a message as the model speaks: Recalled, Deltas, then Done or Failed.

        Raises:
            ChatModelNotConfiguredError: there is no model.
            ConflictError: the message_uuid belongs to another message.
        """
        if self._model is None:
            raise ChatModelNotConfiguredError("CHAT_BASE_URL and CHAT_MODEL are not set")
        begun = await self._begin(namespace, request)
        if not begun.mine:
            yield await self._retell(namespace, begun.turn, request)
            return
        events: asyncio.Queue[ChatEvent] = asyncio.Queue()
        task = asyncio.create_task(self._run(namespace, begun.turn, request, self._model, events))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        while True:
            event = await events.get()
            yield event
            if isinstance(event, Done | Failed):
                return

    async def find_turn(self, namespace: str, turn_id: str) -> Turn:
        """A turn, whatever became of it.

        Raises:
            NotFoundError: the namespace has none with this id.
        """
        async with self._database.read() as session:
            turn = await store.find_turn(session, namespace, turn_id)
        if turn is None:
            raise NotFoundError(f"there is no turn {turn_id}")
        return turn

    async def aclose(self) -> None:
        """Wait for the turns that are being answered."""
        if self._running:
            await asyncio.wait(self._running, timeout=self._timeout_s)
        for task in list(self._running):
            task.cancel()

    async def _begin(self, namespace: str, request: ChatRequest) -> _Begun:
        """Claim the turn, its user's message entering the window; or wait for who has claimed it."""
        turn_id = time_ordered_uuid(request.now)
        new = NewTurn(
            turn_id=turn_id,
            session=request.session,
            message_uuid=request.message_uuid or f"{turn_id}:message",
            message_id=request.message_id,
            written_hash=written_hash("user", request.user_input),
            sender_name=request.sender_name,
            assistant_name=request.assistant_name,
            user_content=request.user_input,
            created_at=request.now,
        )
        tokens = count_tokens(request.user_input)
        patience_ends = self._clock() + timedelta(seconds=self._timeout_s)
        while True:
            now = self._clock()
            async with self._database.transaction() as session:
                turn, mine = await store.begin_turn(
                    session, namespace, new, now=now, lease_until=now + timedelta(seconds=LEASE_S)
                )
                if (turn.written_hash, turn.session) != (new.written_hash, new.session):
                    raise ConflictError(
                        f"message_uuid {new.message_uuid} was used with other content or in another session"
                    )
                if mine:
                    await tier_store.append_to_window(
                        session,
                        namespace,
                        turn.session,
                        turn_id=turn.turn_id,
                        role="user",
                        content=turn.user_content,
                        sender_name=turn.sender_name,
                        token_count=tokens,
                        created_at=turn.created_at,
                    )
            if mine or turn.reply is not None:
                return _Begun(turn, mine)
            if now >= patience_ends:
                raise UnavailableError("the same message is being answered already", retry_after_s=2)
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _run(
        self,
        namespace: str,
        turn: Turn,
        request: ChatRequest,
        model: ChatModel,
        events: asyncio.Queue[ChatEvent],
    ) -> None:
        try:
            events.put_nowait(await self._answer(namespace, turn, request, model, events))
            self._evaluation.wake()
        except asyncio.CancelledError:
            events.put_nowait(Failed(UnavailableError("the service is stopping")))
            raise
        except TemporalMemoryError as error:
            events.put_nowait(Failed(error))
            log.warning("turn not answered", turn_id=turn.turn_id, reason=str(error))
        except Exception:
            events.put_nowait(Failed(TemporalMemoryError("the turn could not be answered")))
            log.exception("turn failed unexpectedly", turn_id=turn.turn_id)

    async def _answer(
        self,
        namespace: str,
        turn: Turn,
        request: ChatRequest,
        model: ChatModel,
        events: asyncio.Queue[ChatEvent],
    ) -> Done:
        async def extend(session: WriteSession, seconds: float) -> None:
            await store.extend_answering(
                session, turn.turn_id, until=self._clock() + timedelta(seconds=seconds)
            )

        try:
            async with holding(self._database, extend):
                prompt = await self._compose(namespace, turn, request)
                memories = prompt.recalled.memories if prompt.recalled else []
                events.put_nowait(Recalled(memories, prompt.summaries))
                completion = await self._ask(model, prompt, events)
        except ProviderError:
            async with self._database.transaction() as session:
                await keep_unanswered(session, turn, now=self._clock())
            raise
        return await self._record(namespace, turn, prompt, completion)

    async def _compose(self, namespace: str, turn: Turn, request: ChatRequest) -> ComposedPrompt:
        return await self._prompts.compose(
            namespace,
            SearchQuery(
                session=request.session,
                query=request.user_input,
                now=turn.created_at,
                zone=request.zone,
                language=request.language,
                top_n=request.top_n,
                window_size=request.window_size,
                budget_tokens=request.max_memory_tokens,
                fill_budget=True,
            ),
            persona=request.persona,
        )

    @staticmethod
    async def _ask(model: ChatModel, prompt: ComposedPrompt, events: asyncio.Queue[ChatEvent]) -> Completion:
        async with model.stream(prompt.messages) as answer:
            async for text in answer:
                events.put_nowait(Delta(text))
            return answer.completion

    async def _record(
        self, namespace: str, turn: Turn, prompt: ComposedPrompt, completion: Completion
    ) -> Done:
        replied_at = max(self._clock(), turn.created_at + timedelta(microseconds=1))
        recalled = prompt.recalled
        usage = Usage(
            prompt_tokens=completion.prompt_tokens or prompt.token_count,
            completion_tokens=completion.completion_tokens or count_tokens(completion.text),
            memory_tokens=recalled.token_count if recalled else 0,
        )
        memories = recalled.memories if recalled else []
        answer = Answer(
            reply=completion.text,
            replied_at=replied_at,
            memory_ids=tuple(memory.dialogue.id for memory in memories),
            degraded=bool(recalled and recalled.degraded),
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            memory_tokens=usage.memory_tokens,
        )
        async with self._database.transaction() as session:
            # An erased turn does not come back: then nothing enters the window.
            if await store.answer_turn(session, turn.turn_id, answer):
                await tier_store.append_to_window(
                    session,
                    namespace,
                    turn.session,
                    turn_id=turn.turn_id,
                    role="assistant",
                    content=completion.text,
                    sender_name=turn.assistant_name,
                    token_count=count_tokens(completion.text),
                    created_at=replied_at,
                )
        return Done(
            turn.turn_id, turn.session, completion.text, memories, prompt.summaries, answer.degraded, usage
        )

    async def _retell(self, namespace: str, turn: Turn, request: ChatRequest) -> Done:
        """The stored turn, for a client that asks again."""
        memories = await self._prompts.recite(
            namespace, turn.memory_ids, now=turn.created_at, zone=request.zone, language=request.language
        )
        return Done(
            turn.turn_id,
            turn.session,
            turn.reply or "",
            memories,
            [],
            turn.degraded,
            Usage(turn.prompt_tokens or 0, turn.completion_tokens or 0, turn.memory_tokens or 0),
        )
