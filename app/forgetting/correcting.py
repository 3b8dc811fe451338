"""Reads what users said for what it corrects, and lets what was corrected be found no more."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from app.clock import Clock
from app.database.engine import Database
from app.database.work_loop import LEASE_S, WorkLoop, holding
from app.forgetting import correction_store as store
from app.forgetting.correction_store import Earlier, Statement
from app.forgetting.corrections import find_corrected, read_correction
from app.telemetry import get_logger

log = get_logger(__name__)

_BATCH: Final = 200
_MOST_ATTEMPTS: Final = 5
_NEAREST: Final = 30
_NEWEST: Final = 20
_WAIT_S: Final = 1.0
# Without its vector a correction is told from the messages' words alone.
_WITHOUT_VECTOR_AFTER: Final = timedelta(minutes=1)
_WITHOUT_THE_MISSING_AFTER: Final = timedelta(minutes=10)


class CorrectionService:
    """The background loop that marks what users have taken back as outdated."""

    def __init__(self, *, database: Database, clock: Clock) -> None:
        """Start nothing; `run` is the loop.

        Args:
            database: where the messages are.
            clock: what time it is.
        """
        self._database = database
        self._clock = clock
        self._loop = WorkLoop("corrections", self.work_once)

    async def run(self) -> None:
        """Read messages until cancelled."""
        await self._loop.run()

    async def work_once(self) -> bool:
        """Read the messages that wait for it now; whether there were any."""
        async with self._database.transaction() as session:
            statements = await store.claim(
                session, now=self._clock(), limit=_BATCH, lease_s=LEASE_S, most_attempts=_MOST_ATTEMPTS
            )
        if not statements:
            return False
        ids = [one.id for one in statements]
        async with holding(self._database, lambda session, s: store.extend(session, ids, seconds=s)):
            corrections = await asyncio.to_thread(_only_corrections, statements)
            others = set(ids) - {one.id for one in corrections}
            async with self._database.transaction() as session:
                await store.finish(session, sorted(others))
            for statement in corrections:
                await self._correct(statement)
        return True

    async def _correct(self, statement: Statement) -> None:
        now = self._clock()
        waited = now - statement.stored_at
        async with self._database.read() as reading:
            missing = await store.is_something_missing(reading, statement)
            if (missing and waited < _WITHOUT_THE_MISSING_AFTER) or (
                statement.embedding_status == "pending" and waited < _WITHOUT_VECTOR_AFTER
            ):
                earlier = None
            else:
                earlier = await store.read_earlier(
                    reading, statement, now=now, nearest=_NEAREST, newest=_NEWEST
                )
        corrected = await asyncio.to_thread(_find, statement, earlier) if earlier else None
        async with self._database.transaction() as session:
            if earlier is None or (
                corrected and not await store.mark_outdated(session, corrected, statement, now=now)
            ):
                await store.postpone(session, statement.id, seconds=_WAIT_S)
                return
            await store.finish(session, [statement.id])
        if corrected:
            log.info("message outdated", dialogue_id=corrected.id, corrected_by=statement.id)


def _only_corrections(statements: Sequence[Statement]) -> list[Statement]:
    return [one for one in statements if read_correction(one.content) is not None]


def _find(statement: Statement, earlier: Sequence[Earlier]) -> Earlier | None:
    place = find_corrected(
        statement.content, [one.content for one in earlier], [one.similarity for one in earlier]
    )
    return None if place is None else earlier[place]
