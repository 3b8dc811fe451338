"""Warm memory: what leaves a window that is over its budget is compressed to a summary, in the background."""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from zoneinfo import ZoneInfo

from app.clients.chat_model import ChatModel
from app.clock import Clock, monotonic_s
from app.database.engine import Database, WriteSession
from app.database.work_loop import LEASE_S, WorkLoop, holding
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.preparation import prepare
from app.dialogues.records import NewDialogue, Session
from app.dialogues.tokens import count_tokens, cut_to_tokens
from app.dialogues.writing_store import insert_dialogues
from app.errors import (
    ProviderBusyError,
    ProviderDeniedError,
    ProviderError,
    ProviderRejectedError,
    ProviderTimeoutError,
    TemporalMemoryError,
)
from app.telemetry import Metrics, get_logger
from app.tiers import summary_store
from app.tiers.records import Summary
from app.tiers.summary_prompt import MAX_ANSWER_TOKENS, fit_summary, summary_messages
from app.tiers.summary_store import Stretch, StretchGoneError

log = get_logger(__name__)

_MOST_ATTEMPTS = 5
# Of a model that is away; by the waits between them about a day, and nothing presses meanwhile.
_MOST_ATTEMPTS_AWAY = 290
# Rows become visible when their transaction ends, not in the order of their numbers.
_LATE_ROWS_S = 60.0
# One slow answer must not hold up every session.
_AT_ONCE = 4
_POLL_S = 5.0
_FIRST_WAIT_S = 5.0
_LONGEST_WAIT_S = 300.0
_MOST_CHARS_AT_ONCE = 20_000
_REMEMBERED_SESSIONS = 2_000
_RECENT = 3


class _Looked:
    """Up to which row all windows have been looked at: a look at all of them is made once, at the start."""

    def __init__(self) -> None:
        self.since_row = 0
        self._next: tuple[float, int] | None = None

    def note(self, last_row: int, *, now_s: float) -> None:
        """A look found nothing more to do, when this row was the last to be seen."""
        if self._next is None:
            self._next = now_s, last_row
        elif now_s - self._next[0] >= _LATE_ROWS_S:
            self.since_row = self._next[1]
            self._next = now_s, last_row


class SummaryService:
    """Summaries of sessions, and the loop that makes them."""

    def __init__(
        self,
        *,
        database: Database,
        model: ChatModel | None,
        pipeline: EmbeddingPipeline,
        clock: Clock,
        metrics: Metrics,
        zone: ZoneInfo,
        hot_window_tokens: int,
        max_chars: int,
    ) -> None:
        """Start nothing; `run` is the loop.

        Args:
            database: where windows and summaries are.
            model: writes the summaries; None: windows are kept within their budget by leaving out the oldest.
            pipeline: is told of each stored summary.
            clock: what time it is.
            metrics: where outcomes are counted.
            zone: of the people who speak.
            hot_window_tokens: the budget of a window.
            max_chars: of a summary.
        """
        self._database = database
        self._model = model
        self._pipeline = pipeline
        self._clock = clock
        self._metrics = metrics
        self._zone = zone
        self._budget = hot_window_tokens
        self._max_chars = max_chars
        self._looked = _Looked()
        self._known: OrderedDict[tuple[str, Session], list[Summary]] = OrderedDict()
        self._loop = WorkLoop("compression", self.work_once, workers=_AT_ONCE, poll_s=_POLL_S)

    def note_window(self, tokens: int) -> None:
        """Tell the loop how many tokens a window holds; it looks at once if they are too many."""
        if tokens > self._budget:
            self._loop.wake()

    async def run(self) -> None:
        """Compress windows that are over their budget, until cancelled."""
        await self._loop.run()

    async def list_all(self, namespace: str, of: Session) -> list[Summary]:
        """All summaries of a session, oldest first."""
        async with self._database.read() as session:
            return await summary_store.read_summaries(session, namespace, of, now=self._clock(), limit=None)

    async def recent(self, namespace: str, of: Session) -> list[Summary]:
        """The newest three summaries of a session, oldest first; served from memory while they are the same.

        Another process may store, change or erase one: their ids, a look at one index, tell.
        """
        now = self._clock()
        async with self._database.read() as session:
            ids = await summary_store.read_newest_ids(session, namespace, of, now=now, limit=_RECENT)
            known = self._known.get((namespace, of), [])
            if [one.id for one in known] != ids:
                known = await summary_store.read_summaries(session, namespace, of, now=now, limit=_RECENT)
                self._remember(namespace, of, known)
        return known

    async def find(self, namespace: str, of: Session, ids: Sequence[int]) -> list[Summary]:
        """These summaries of a session, oldest first; those that are gone are left out."""
        if not ids:
            return []
        wanted = frozenset(ids)
        return [one for one in await self.list_all(namespace, of) if one.id in wanted]

    def forget(self, namespace: str, of: Session | int) -> None:
        """Drop what is remembered of a session, or of all sessions of a user."""
        for key in list(self._known):
            if key[0] == namespace and of in (key[1], key[1].user_id):
                del self._known[key]

    def _remember(self, namespace: str, of: Session, known: list[Summary]) -> None:
        self._known[(namespace, of)] = known
        self._known.move_to_end((namespace, of))
        while len(self._known) > _REMEMBERED_SESSIONS:
            self._known.popitem(last=False)

    async def work_once(self) -> bool:
        """Compress one window that is over its budget; whether there was one."""
        async with self._database.transaction() as session:
            last_row = await summary_store.read_last_row(session)
            claimed = await summary_store.claim_window(
                session, budget_tokens=self._budget, lease_s=LEASE_S, since_row=self._looked.since_row
            )
        if claimed is None:
            self._looked.note(last_row, now_s=monotonic_s())
            return False
        # Where there is one, there may be more: another worker looks.
        self._loop.wake()
        namespace, of = claimed
        async with holding(
            self._database,
            lambda session, s: summary_store.postpone_compression(session, namespace, of, seconds=s),
        ):
            await self._compress(namespace, of)
        return True

    async def _compress(self, namespace: str, of: Session) -> None:
        """Compress the older half of a window; where that fails for good, leave the oldest messages out."""
        async with self._database.transaction() as session:
            await summary_store.drop_expired(session, namespace, of, now=self._clock())
            stretch = await summary_store.read_stretch(
                session, namespace, of, budget_tokens=self._budget, keep_tokens=self._budget // 2
            )
            attempts = await summary_store.read_attempts(session, namespace, of)
        if not stretch.ids or self._model is None or not self._budget:
            await self._leave_out(namespace, of)
            return
        stretch = stretch.head(_MOST_CHARS_AT_ONCE)
        if not stretch.told:
            async with self._database.transaction() as session:
                await summary_store.drop_messages(session, stretch.ids)
                await summary_store.finish_compression(session, namespace, of, budget_tokens=self._budget)
            return
        try:
            text = await self._write(self._model, stretch)
            await self._store(namespace, of, stretch, text)
        except ProviderError as error:
            await self._put_off(namespace, of, error, attempts=attempts)
        except TemporalMemoryError:
            raise
        except Exception as error:
            # A fault of ours puts off this window and no other.
            log.exception("summary not stored", messages=len(stretch.ids))
            await self._put_off(namespace, of, error, attempts=attempts)

    async def _put_off(self, namespace: str, of: Session, error: Exception, *, attempts: int) -> None:
        """Try again later, longer each time; for good, leave the oldest messages out."""
        self._metrics.summaries.labels("failed").inc()
        reason = str(error) if isinstance(error, ProviderError) else type(error).__name__
        is_away = isinstance(error, ProviderBusyError | ProviderTimeoutError | ProviderDeniedError)
        most = _MOST_ATTEMPTS_AWAY if is_away else _MOST_ATTEMPTS
        if attempts >= most or isinstance(error, ProviderRejectedError):
            log.warning("compression given up, the oldest messages leave the window", reason=reason)
            await self._leave_out(namespace, of)
            return
        wait_s = min(_FIRST_WAIT_S * 2 ** min(attempts - 1, 30), _LONGEST_WAIT_S)
        log.info("compression put off", reason=reason, wait_s=wait_s)
        async with self._database.transaction() as session:
            await summary_store.postpone_compression(session, namespace, of, seconds=wait_s)

    async def _write(self, model: ChatModel, stretch: Stretch) -> str:
        completion = await model.complete(
            summary_messages(stretch.told, max_chars=self._max_chars, zone=self._zone),
            max_tokens=MAX_ANSWER_TOKENS,
            temperature=0.0,
        )
        text = fit_summary(completion.text, self._max_chars)
        if not text:
            raise ProviderError("the model wrote no summary")
        return text

    async def _store(self, namespace: str, of: Session, stretch: Stretch, content: str) -> None:
        now = self._clock()
        since, until = stretch.messages[0].created_at, stretch.messages[-1].created_at
        new = NewDialogue(
            user_id=of.user_id,
            group_id=of.group_id,
            role="assistant",
            content=content,
            created_at=until + timedelta(microseconds=1),
            kind="summary",
        )
        try:
            async with self._database.transaction() as session:
                stored = await insert_dialogues(
                    session, namespace, prepare([new], now=now), now=now, live_since=None
                )
                summary = Summary(0, content, since, until, len(stretch.ids), now)
                await summary_store.replace_stretch(
                    session, namespace, of, stretch, summary=summary, dialogue_id=stored[0].id
                )
        except StretchGoneError:
            log.info("a window changed while its summary was written: the summary is dropped")
        else:
            self._metrics.summaries.labels("stored").inc()
            self._pipeline.wake()
            log.info("window compressed", messages=len(stretch.ids), characters=len(content))
        async with self._database.transaction() as session:
            await summary_store.finish_compression(session, namespace, of, budget_tokens=self._budget)

    async def _leave_out(self, namespace: str, of: Session) -> None:
        async with self._database.transaction() as session:
            excess = await summary_store.read_stretch(
                session, namespace, of, budget_tokens=self._budget, keep_tokens=self._budget
            )
            await summary_store.drop_messages(session, excess.ids)
            await self._shorten_newest(session, namespace, of)
            await summary_store.finish_compression(session, namespace, of, budget_tokens=self._budget)

    async def _shorten_newest(self, session: WriteSession, namespace: str, of: Session) -> None:
        """A newest message that is longer than the whole window is held cut: it must not empty the window."""
        newest = await summary_store.read_newest(session, namespace, of)
        if newest is None or newest[2] <= self._budget:
            return
        content = cut_to_tokens(newest[1], self._budget)
        if content:
            await summary_store.shorten_message(
                session, newest[0], content=content, token_count=count_tokens(content)
            )
        else:
            await summary_store.drop_messages(session, [newest[0]])
