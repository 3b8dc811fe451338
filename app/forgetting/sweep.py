"""The sweep: deletes what has expired and what nobody has asked for in a long time, daily and on demand."""

import asyncio
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from asyncpg import PostgresError
from sqlalchemy.exc import DBAPIError

from app.clock import Clock
from app.database.deadlocks import is_deadlock
from app.database.engine import Database
from app.database.work_loop import LEASE_S, WorkLoop, holding
from app.errors import UnavailableError
from app.evaluation.store import delete_old_turns
from app.forgetting import store
from app.forgetting.schedule import due_day
from app.forgetting.store import Limits, Reason
from app.telemetry import Metrics, get_logger

log = get_logger(__name__)

_REASONS: Final[tuple[Reason, ...]] = ("expired", "unretrieved")
_BATCH: Final = 1000
_POLL_S: Final = 30.0
_VACUUM_TIMEOUT_S: Final = 3600.0
# A judged turn tells what became of a message, and answers a client that asks again; not for ever.
_TURNS_KEPT: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many messages went, or would go, for each reason."""

    expired: int
    unretrieved: int


class SweepService:
    """Forgets, and the loop that does so once a day however many processes run it."""

    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        metrics: Metrics,
        at: time,
        zone: ZoneInfo,
        unretrieved_days: int,
        first_look_s: float = _POLL_S,
    ) -> None:
        """Start nothing; `run` is the loop.

        Args:
            database: where the memory is.
            clock: what time it is.
            metrics: where what is forgotten is counted.
            at: the time of day of the daily sweep, by the clocks of `zone`.
            zone: whose days are counted.
            unretrieved_days: what was not retrieved for more days than these is forgotten; 0: never.
            first_look_s: how long after its start the loop looks first; a start has enough to do.
        """
        self._database = database
        self._clock = clock
        self._metrics = metrics
        self._at = at
        self._zone = zone
        self._unretrieved_days = unretrieved_days
        self._first_look_s = first_look_s
        self._done_day: date | None = None
        self._vacuum_due = False
        self._loop = WorkLoop("sweep", self._work_once, poll_s=_POLL_S)

    async def run(self) -> None:
        """Sweep whenever a day's sweep is due and nobody has done it, until cancelled."""
        await asyncio.sleep(self._first_look_s)
        await self._loop.run()

    async def count(self, namespace: str | None) -> Forgotten:
        """What a sweep of a namespace, or of all, would delete now."""
        limits = self._limits(namespace)
        async with self._database.read() as session:
            counts = [await store.count_forgettable(session, reason, limits) for reason in _REASONS]
        return Forgotten(*counts)

    async def forget(self, namespace: str | None) -> Forgotten:
        """Sweep a namespace, or all, now; the running loop then cleans up what deleting leaves behind."""
        forgotten = await self._sweep(self._limits(namespace), day=None)
        if namespace is None:
            await self._tidy()
        if self._vacuum_due:
            self._loop.wake()
        return forgotten

    async def last_sweep_at(self) -> datetime | None:
        """When the last daily sweep was finished, by whatever process; None: there was none yet."""
        async with self._database.read() as session:
            return await store.read_last_sweep(session)

    async def sweep_if_due(self) -> bool:
        """Do the daily sweep where it is due and nobody has done it, or is doing it; whether it was done."""
        now = self._clock()
        day = due_day(now, at=self._at, zone=self._zone)
        if day == self._done_day:
            return False
        async with self._database.transaction() as session:
            claimed = await store.claim_day(session, day, now=now, lease_s=LEASE_S)
        if not claimed:
            async with self._database.read() as reading:
                if await store.is_day_done(reading, day):
                    self._done_day = day
            return False
        async with holding(
            self._database, lambda session, seconds: store.extend_day(session, day, seconds=seconds)
        ):
            forgotten = await self._sweep(self._limits(None), day=day)
            await self._tidy()
            async with self._database.transaction() as session:
                await store.finish_day(session, day, now=self._clock())
        self._done_day = day
        log.info(
            "daily sweep done",
            day=day.isoformat(),
            expired=forgotten.expired,
            unretrieved=forgotten.unretrieved,
        )
        return True

    async def vacuum(self) -> None:
        """Let PostgreSQL clean up after what was deleted: without it each search reads the rows it skips."""
        if not self._vacuum_due:
            return
        self._vacuum_due = False
        try:
            async with self._database.outside_transaction() as session:
                # Past SQLAlchemy, whose timeout is that of short statements.
                driver: Any = (await session.get_raw_connection()).driver_connection
                await driver.execute(
                    "VACUUM (ANALYZE false, SKIP_LOCKED) dialogues", timeout=_VACUUM_TIMEOUT_S
                )
        except (UnavailableError, DBAPIError, PostgresError) as error:
            # Autovacuum does the same, later.
            log.info("not vacuumed", reason=str(error))

    async def _work_once(self) -> bool:
        swept = await self.sweep_if_due()
        await self.vacuum()
        return swept

    def _limits(self, namespace: str | None) -> Limits:
        now = self._clock()
        days = self._unretrieved_days
        return Limits(namespace, now, now - timedelta(days=days) if days else None)

    async def _sweep(self, limits: Limits, *, day: date | None) -> Forgotten:
        return Forgotten(*[await self._delete_all(reason, limits, day=day) for reason in _REASONS])

    async def _delete_all(self, reason: Reason, limits: Limits, *, day: date | None) -> int:
        """Delete batch by batch, each whole in a transaction of its own: a sweep may end anywhere."""
        deleted, place = 0, store.FIRST
        while True:
            try:
                async with self._database.transaction() as session:
                    batch = await store.delete_batch(session, reason, limits, after=place, size=_BATCH)
                    if day is not None and batch.deleted:
                        await store.note_progress(session, day, reason, batch.deleted)
            except DBAPIError as error:
                # Whoever had locked some of them in another order has gone on; this batch goes again.
                if is_deadlock(error):
                    continue
                raise
            if batch.deleted:
                deleted += batch.deleted
                self._vacuum_due = True
                self._metrics.forgotten.labels(reason).inc(batch.deleted)
            if batch.last is None:
                return deleted
            place = batch.last

    async def _tidy(self) -> None:
        """Delete what no message and no client has any use for any more."""
        before, gone = self._clock() - _TURNS_KEPT, 1
        while gone:
            async with self._database.transaction() as session:
                gone = await delete_old_turns(session, before=before, limit=_BATCH)
        async with self._database.transaction() as session:
            await store.delete_orphans(session)
