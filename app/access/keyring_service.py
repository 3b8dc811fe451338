"""The keys that open, kept in memory for two seconds, and when each was last used."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.access import store
from app.access.callers import Caller
from app.access.keys import KeyRecord, digest_key
from app.clock import Clock, monotonic_s
from app.database.engine import Database
from app.database.work_loop import WorkLoop
from app.errors import DatabaseUnavailableError, UnavailableError
from app.telemetry import get_logger

log = get_logger(__name__)

# How long a key that was revoked by another process may still open.
MAX_AGE_S: Final = 2.0
# A key that is not known may have been made a moment ago; who guesses keys does not make us ask more often.
_RETRY_AGE_S: Final = 0.25
_PATIENCE_S: Final = 5.0
_FLUSH_EVERY_S: Final = 60.0


_Used = dict[int, datetime]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the database said.

    Attributes:
        keys: those that open, by digest.
        is_keyed: there has been a key at some time: nobody enters without one.
        read_at_s: when it was asked, by the monotonic clock.
    """

    keys: dict[bytes, KeyRecord]
    is_keyed: bool
    read_at_s: float


class KeyringService:
    """Finds the caller of a key; what cannot be looked up opens nothing."""

    def __init__(self, *, database: Database, clock: Clock) -> None:
        """Ask nothing yet; `run` is the loop that writes down when keys were used.

        Args:
            database: where keys are.
            clock: what time it is.
        """
        self._database = database
        self._clock = clock
        self._known: _Known | None = None
        self._asking: asyncio.Task[_Known] | None = None
        self._used = _Used()
        self._loop = WorkLoop("key_use", self._work_once, poll_s=_FLUSH_EVERY_S)

    async def find(self, key: str) -> Caller | None:
        """Whose key this is; None: nobody's, or a revoked one.

        Raises:
            UnavailableError: the keys cannot be looked up now.
        """
        digest = digest_key(key)
        known = await self._look(MAX_AGE_S)
        if digest not in known.keys:
            known = await self._look(_RETRY_AGE_S)
        record = known.keys.get(digest)
        if record is None:
            return None
        self._used[record.id] = self._clock()
        return Caller(record.namespace, record.role, record.prefix)

    async def is_keyed(self) -> bool:
        """Whether there has ever been a key: from then on nobody enters without one.

        Raises:
            UnavailableError: the keys cannot be looked up now.
        """
        return (await self._look(MAX_AGE_S)).is_keyed

    async def run(self) -> None:
        """Write down when keys were used, once a minute, until cancelled."""
        await self._loop.run()

    async def flush(self) -> None:
        """Write down when keys were used; what cannot be written now is kept for the next time."""
        used, self._used = self._used, _Used()
        if not used:
            return
        try:
            async with self._database.transaction() as session:
                await store.record_use(session, sorted(used.items()))
        except UnavailableError as error:
            log.warning("use of keys not recorded yet", reason=str(error), keys=len(used))
            self._used = used | self._used

    async def _work_once(self) -> bool:
        await self.flush()
        return False

    async def _look(self, max_age_s: float) -> _Known:
        known = self._known
        if known is not None and monotonic_s() - known.read_at_s <= max_age_s:
            return known
        if self._asking is None:
            self._asking = asyncio.create_task(self._read())
            self._asking.add_done_callback(self._end_asking)
        # All that come meanwhile wait for one look, and no longer than it; one that hangs up ends none.
        return await asyncio.shield(self._asking)

    async def _read(self) -> _Known:
        read_at_s = monotonic_s()
        try:
            async with asyncio.timeout(_PATIENCE_S), self._database.read() as session:
                keys, is_keyed = await store.read_digests(session)
        except TimeoutError:
            raise DatabaseUnavailableError(f"keys could not be looked up within {_PATIENCE_S:g} s") from None
        self._known = _Known(keys, is_keyed, read_at_s)
        return self._known

    def _end_asking(self, task: asyncio.Task[_Known]) -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # nobody may be waiting any more
