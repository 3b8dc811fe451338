"""Sessions as a whole: their list, their hot windows, their erasure."""

import asyncio
import contextlib
from dataclasses import replace

from app.clock import Clock
from app.database.engine import Database
from app.dialogues import overview_store
from app.dialogues import store as dialogue_store
from app.dialogues.records import Erased, Session, SessionOverview, WindowMessage
from app.dialogues.tokens import count_tokens, cut_to_tokens
from app.errors import UnavailableError
from app.telemetry import get_logger
from app.tiers import store

log = get_logger(__name__)

_TRIM_EVERY_S = 30.0


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
        """The conversation that is going on, oldest first, within the window's budget.

        A newest message that is longer than the whole budget is cut to it.
        """
        async with self._database.read() as session:
            messages = await store.read_window(
                session, namespace, of, budget_tokens=self._hot_window_tokens, now=self._clock()
            )
        if messages and messages[-1].token_count > self._hot_window_tokens:
            content = cut_to_tokens(messages[-1].content, self._hot_window_tokens)
            cut = replace(messages[-1], content=content, token_count=count_tokens(content))
            messages = [*messages[:-1], cut] if content else messages[:-1]
        return messages

    async def erase_session(self, namespace: str, of: Session) -> Erased:
        """Delete everything of a session; what is in flight finds nothing to come back to."""
        return await self._erase(namespace, of)

    async def erase_user(self, namespace: str, user_id: int) -> Erased:
        """Delete everything of a user, in private and in every group."""
        return await self._erase(namespace, user_id)

    async def _erase(self, namespace: str, of: Session | int) -> Erased:
        async with self._database.transaction() as session:
            dialogues = await dialogue_store.erase_dialogues(session, namespace, of)
            window_messages = await store.erase_window(session, namespace, of)
        log.info("erased", dialogues=dialogues, window_messages=window_messages)
        return Erased(dialogues, window_messages)

    async def run(self) -> None:
        """Keep windows within their budget, until cancelled.

        Reading never shows more than the budget; this only keeps the table small, off the path of writing.
        """
        while True:
            await asyncio.sleep(_TRIM_EVERY_S)
            with contextlib.suppress(UnavailableError):
                async with self._database.transaction() as session:
                    await store.trim_windows(session, budget_tokens=self._hot_window_tokens)
