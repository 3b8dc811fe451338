"""Sessions as a whole: their list, and their hot windows."""

from collections.abc import Sequence

from app.clock import Clock
from app.database.engine import Database
from app.dialogues import overview_store
from app.dialogues.records import Session, SessionOverview, WindowMessage
from app.tiers import store
from app.tiers.windows import within_budget


class SessionService:
    """Sessions of a namespace."""

    def __init__(self, *, database: Database, hot_window_tokens: int, clock: Clock) -> None:
        self._database = database
        self._hot_window_tokens = hot_window_tokens
        self._clock = clock

    async def list_page(
        self, namespace: str, *, limit: int, after: Session | None
    ) -> tuple[list[SessionOverview], Session | None]:
        """A page of the namespace's sessions, and the session after which the next page starts."""
        async with self._database.read() as session:
            found = await overview_store.list_sessions(
                session, namespace, limit=limit + 1, after=after, now=self._clock()
            )
        page = found[:limit]
        return page, page[-1].session if len(found) > limit else None

    async def window(self, namespace: str, of: Session) -> list[WindowMessage]:
        """The conversation that is going on, oldest first, within the window's budget."""
        return self.fit(await self.read(namespace, of))

    async def read(self, namespace: str, of: Session) -> list[WindowMessage]:
        """The conversation that is going on, oldest first, what is still to be compressed included."""
        async with self._database.read() as session:
            return await store.read_window(session, namespace, of, now=self._clock())

    def fit(self, messages: Sequence[WindowMessage]) -> list[WindowMessage]:
        """The newest of some messages, oldest first, that fit into a window."""
        return within_budget(messages, self._hot_window_tokens)
