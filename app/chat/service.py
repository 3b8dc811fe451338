"""One turn of conversation: recall, compose, ask, record.

A turn runs in a task of its own: a client that hangs up does not end it, and one that asks again with the
same message_uuid gets the same turn. No database session is held while the model speaks.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from app.chat.composer import ComposedPrompt, PromptService
from app.chat.events import ChatEvent, ChatRequest, Delta, Done, Failed, Recalled, Usage, scrub_request
from app.chat.retelling import retell
from app.clients.chat_model import ChatModel, Completion
from app.clock import Clock, monotonic_s
from app.database.engine import Database, WriteSession
from app.database.work_loop import LEASE_S, holding
from app.dialogues import store as dialogue_store
from app.dialogues.preparation import prepare, time_ordered_uuid
from app.dialogues.records import NewDialogue, PreparedDialogue
from app.dialogues.scrubbing import ScrubMode, scrub_text
from app.dialogues.tokens import count_tokens
from app.dialogues.writing_service import compute_apart
from app.errors import (
    ChatModelNotConfiguredError,
    ConflictError,
    NotFoundError,
    ProviderError,
    TemporalMemoryError,
    UnavailableError,
)
from app.evaluation import store
from app.evaluation.keeping_store import keep_unanswered
from app.evaluation.turns import Answer, NewTurn, Recollection, Turn
from app.evaluation.worker import EvaluationWorker
from app.recall.records import SearchQuery
from app.telemetry import get_logger
from app.tiers import store as tier_store
from app.tiers.summary_service import SummaryService

log = get_logger(__name__)

_FIRST_LOOK_S = 0.1
_LONGEST_LOOK_S = 1.0
_INSTANT = timedelta(microseconds=1)
_LONGEST_FAREWELL_S = 10.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A message to be answered, on its way into a turn."""

    namespace: str
    request: ChatRequest
    message: PreparedDialogue

    def new_turn(self) -> NewTurn:
        return NewTurn(
            turn_id=time_ordered_uuid(self.request.now),
            session=self.request.session,
            message_uuid=self.message.message_uuid,
            message_id=self.request.message_id,
            written_hash=self.message.written_hash,
            sender_name=self.request.sender_name,
            assistant_name=self.request.assistant_name,
            user_content=self.request.user_input,
            created_at=self.request.now,
        )


class ChatService:
    """Chats with memory."""

    def __init__(
        self,
        *,
        database: Database,
        prompts: PromptService,
        model: ChatModel | None,
        evaluation: EvaluationWorker,
        summaries: SummaryService,
        clock: Clock,
        timeout_s: float,
        scrub: ScrubMode = "off",
    ) -> None:
        """Open nothing.

        Args:
            database: where turns and windows are.
            prompts: recalls and composes.
            model: None: no model is configured, and every chat is refused.
            evaluation: is told of each answered turn.
            summaries: is told of each message that has entered a window.
            clock: what time it is.
            timeout_s: of the model; how long a turn that another request is answering is waited for.
            scrub: what is done with secrets and personal data. The model is sent what is kept; its reply,
                which nobody can refuse, is told as it is and kept with marks.
        """
        self._scrub = scrub
        self._database = database
        self._prompts = prompts
        self._model = model
        self._evaluation = evaluation
        self._summaries = summaries
        self._clock = clock
        self._timeout_s = timeout_s
        self._running: set[asyncio.Task[None]] = set()

    async def chat(self, namespace: str, request: ChatRequest) -> Done:
        """Answer a message, whole; the user's message is kept whatever happens.

        Raises:
            ChatModelNotConfiguredError: there is no model.
            ConflictError: the message_uuid belongs to another message.
            InvalidInputError: the message holds what is not kept here.
            ProviderTimeoutError: the model was too slow.
            ProviderError: the model failed.
        """
        last: ChatEvent | None = None
        async with aclosing(self.stream(namespace, request)) as events:
            async for event in events:
                last = event
        if isinstance(last, Failed):
            raise last.error
        assert isinstance(last, Done)  # noqa: S101 - a stream ends with one or the other
        return last

    async def stream(self, namespace: str, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Answer a message as the model speaks: Recalled, Deltas, then Done; or Failed, at any time.

        Raises:
            ChatModelNotConfiguredError: there is no model.
            ConflictError: the message_uuid belongs to another message.
            InvalidInputError: the message holds what is not kept here.
        """
        request = scrub_request(request, self._scrub)
        message = NewDialogue(
            user_id=request.session.user_id,
            group_id=request.session.group_id,
            role="user",
            content=request.user_input,
            sender_name=request.sender_name,
            message_id=request.message_id,
            message_uuid=request.message_uuid,
        )
        (prepared,) = await compute_apart(
            partial(prepare, [message], now=request.now), chars=len(request.user_input)
        )
        asked = _Asked(namespace, request, prepared)
        turn, is_mine = await self._begin(asked)
        if not is_mine:
            for event in await self._retell(turn, request):
                yield event
            return
        if self._model is None:
            await self._keep(turn)
            raise ChatModelNotConfiguredError("CHAT_BASE_URL and CHAT_MODEL are not set")
        events: asyncio.Queue[ChatEvent] = asyncio.Queue()
        task = asyncio.create_task(self._run(turn, request, self._model, events))
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
        """Let the turns that are being answered end, for a while; who asks again has the others answered."""
        running = list(self._running)
        if running:
            await asyncio.wait(running, timeout=min(self._timeout_s, _LONGEST_FAREWELL_S))
        self.give_up()
        await asyncio.gather(*running, return_exceptions=True)

    def give_up(self) -> None:
        """End the turns that are being answered: who listens is told, who asks again has them answered."""
        for task in self._running:
            task.cancel()

    async def _begin(self, asked: _Asked) -> tuple[Turn, bool]:
        """Claim the turn, its user's message entering the window; or wait for who has claimed it.

        Returns:
            The turn, and whether it is ours to answer.
        """
        new = asked.new_turn()
        patience_ends_s = monotonic_s() + self._timeout_s + LEASE_S
        wait_s = _FIRST_LOOK_S
        waited = False
        while True:
            async with self._database.transaction() as session:
                # Whoever waited for an answer that did not come is told so, and does not ask the model again.
                found = await store.begin_turn(
                    session, asked.namespace, new, lease_s=LEASE_S, take_failed=not waited
                )
                if found is not None:
                    turn, is_mine = found
                    if (turn.written_hash, turn.session) != (new.written_hash, new.session):
                        raise _conflict(new.message_uuid)
                    if is_mine:
                        await self._enter_window(session, turn, asked)
            if found is not None and (is_mine or turn.reply is not None):
                return turn, is_mine
            if found is not None and turn.status == "failed":
                raise ProviderError("the model gave no answer to the same message, asked a moment ago")
            if monotonic_s() >= patience_ends_s:
                raise UnavailableError("the same message is being answered already", retry_after_s=2)
            waited = True
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, _LONGEST_LOOK_S)

    async def _enter_window(self, session: WriteSession, turn: Turn, asked: _Asked) -> None:
        """Enter the user's message, unless the bot has stored it itself: then it stands there already."""
        stored = await dialogue_store.find_by_uuid(session, asked.namespace, [turn.message_uuid])
        present = stored.get(turn.message_uuid)
        if present is not None:
            same_text = present.written_hash == turn.written_hash or (
                present.dialogue.content == turn.user_content
            )
            if present.dialogue.session != turn.session or not same_text:
                raise _conflict(turn.message_uuid)
            if await tier_store.adopt_window_message(
                session, dialogue_id=present.dialogue.id, turn_id=turn.turn_id
            ):
                return
        await tier_store.append_to_window(
            session,
            asked.namespace,
            turn.session,
            turn_id=turn.turn_id,
            role="user",
            content=turn.user_content,
            sender_name=turn.sender_name,
            token_count=asked.message.token_count,
            created_at=turn.created_at,
        )

    async def _run(
        self, turn: Turn, request: ChatRequest, model: ChatModel, events: asyncio.Queue[ChatEvent]
    ) -> None:
        """Answer a turn, to the end, whoever still listens."""

        async def extend(session: WriteSession, seconds: float) -> None:
            await store.extend_answering(session, turn, seconds=seconds)

        try:
            async with holding(self._database, extend):
                last = await self._answer_or_keep(turn, request, model, events)
        except asyncio.CancelledError:
            events.put_nowait(Failed(UnavailableError("the service is stopping")))
            raise
        except UnavailableError as error:
            last = Failed(error)
        except Exception:
            # Whoever listens is told, whatever fails; what looks after abandoned turns keeps the message.
            log.exception("turn not kept", turn_id=turn.turn_id)
            last = Failed(TemporalMemoryError("the turn could not be answered"))
        events.put_nowait(last)
        if isinstance(last, Done):
            self._evaluation.wake()

    async def _answer_or_keep(
        self, turn: Turn, request: ChatRequest, model: ChatModel, events: asyncio.Queue[ChatEvent]
    ) -> Done | Failed:
        try:
            prompt = await self._compose(turn, request)
            events.put_nowait(Recalled(prompt.memories, prompt.summaries, prompt.no_match))
            completion = await self._ask(model, prompt, events)
            return await self._record(turn, prompt, completion)
        except TemporalMemoryError as error:
            log.warning("turn not answered", turn_id=turn.turn_id, reason=str(error))
            failed = Failed(error)
        except Exception:
            log.exception("turn failed unexpectedly", turn_id=turn.turn_id)
            failed = Failed(TemporalMemoryError("the turn could not be answered"))
        # What the database does not take now, it takes later: a turn that nobody answers is kept, too.
        await self._keep(turn)
        return failed

    async def _keep(self, turn: Turn) -> None:
        async with self._database.transaction() as session:
            await keep_unanswered(session, turn, now=self._clock())

    async def _compose(self, turn: Turn, request: ChatRequest) -> ComposedPrompt:
        return await self._prompts.compose(
            turn.namespace,
            SearchQuery(
                session=turn.session,
                query=turn.user_content,
                now=request.now,
                zone=request.zone,
                language=request.language,
                top_n=request.top_n,
                window_size=request.window_size,
                budget_tokens=request.max_memory_tokens,
                fill_budget=True,
            ),
            persona=request.persona,
            turn_id=turn.turn_id,
        )

    @staticmethod
    async def _ask(model: ChatModel, prompt: ComposedPrompt, events: asyncio.Queue[ChatEvent]) -> Completion:
        async with model.stream(prompt.messages) as answer:
            async for text in answer:
                events.put_nowait(Delta(text))
            return answer.completion

    async def _record(self, turn: Turn, prompt: ComposedPrompt, completion: Completion) -> Done:
        # The reply stands behind what it answers, whatever the clock does meanwhile.
        replied_at = max(self._clock(), turn.created_at + _INSTANT)
        kept = completion.text if self._scrub == "off" else scrub_text(completion.text, "mask")
        reply_tokens = await compute_apart(partial(count_tokens, kept), chars=len(kept))
        usage = Usage(
            prompt_tokens=completion.prompt_tokens or prompt.token_count,
            completion_tokens=completion.completion_tokens or reply_tokens,
            memory_tokens=prompt.recalled.token_count if prompt.recalled else 0,
        )
        answer = Answer(
            reply=kept,
            replied_at=replied_at,
            memories=tuple(
                Recollection(
                    memory.dialogue.id,
                    memory.is_anchor,
                    memory.similarity,
                    memory.decay,
                    memory.relevance,
                    memory.match,
                )
                for memory in prompt.memories
            ),
            summary_ids=tuple(summary.id for summary in prompt.summaries),
            no_match=prompt.no_match,
            degraded=prompt.degraded,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            memory_tokens=usage.memory_tokens,
        )
        async with self._database.transaction() as session:
            # An erased turn does not come back: then nothing enters the window.
            if await store.answer_turn(session, turn, answer):
                await tier_store.append_to_window(
                    session,
                    turn.namespace,
                    turn.session,
                    turn_id=turn.turn_id,
                    role="assistant",
                    content=kept,
                    sender_name=turn.assistant_name,
                    token_count=reply_tokens,
                    created_at=replied_at,
                )
            else:
                log.warning(
                    "reply told but not kept: the turn was erased or answered meanwhile", turn_id=turn.turn_id
                )
            window_tokens = await tier_store.count_window_tokens(session, turn.namespace, turn.session)
        self._summaries.note_window(window_tokens)
        return Done(
            turn.turn_id,
            turn.session,
            completion.text,
            prompt.memories,
            prompt.summaries,
            answer.no_match,
            answer.degraded,
            usage,
        )

    async def _retell(self, turn: Turn, request: ChatRequest) -> list[ChatEvent]:
        """The stored turn, for a client that asks again; what was erased meanwhile is not told."""
        recited = await self._prompts.recite(
            turn.namespace,
            [one.dialogue_id for one in turn.memories],
            now=turn.created_at,
            zone=request.zone,
            language=request.language,
        )
        summaries = await self._summaries.find(turn.namespace, turn.session, turn.summary_ids)
        return retell(turn, recited, summaries)


def _conflict(message_uuid: str) -> ConflictError:
    return ConflictError(f"message_uuid {message_uuid} was used with other content or in another session")
