"""Notes which messages were recalled, and when, beside the search and not in its way.

What was noted in the last moments before a process is killed is lost; it delays nothing but forgetting.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.clock import Clock
from app.database.engine import Database
from app.database.work_loop import WorkLoop
from app.errors import UnavailableError
from app.forgetting import store
from app.telemetry import get_logger

log = get_logger(__name__)

_FLUSH_EVERY_S: Final = 2.0
_BATCH: Final = 1000

_Noted = dict[int, datetime]


class RetrievalRecorder:
    """Remembers what was recalled until it is written, all of it together, every two seconds."""

    def __init__(self, *, database: Database, clock: Clock) -> None:
        """Start nothing; `run` is the loop.

        Args:
            database: where retrievals are written.
            clock: what time it is.
        """
        self._database = database
        self._clock = clock
        self._noted = _Noted()
        self._unchecked: set[int] = set()
        self._loop = WorkLoop("retrievals", self._work_once, poll_s=_FLUSH_EVERY_S)

    def note(self, dialogue_ids: Sequence[int]) -> None:
        """Remember that these messages were recalled now."""
        self._noted |= dict.fromkeys(dialogue_ids, self._clock())

    async def run(self) -> None:
        """Write what was noted, every now and then, until cancelled."""
        await self._loop.run()

    async def flush(self) -> None:
        """Write what was noted; what cannot be written now is kept for the next time."""
        noted, self._noted = self._noted, _Noted()
        unchecked, self._unchecked = self._unchecked, set()
        # In the order of ids: two processes that write the same rows do not wait for each other in a ring.
        pending = sorted(noted.items())
        try:
            if unchecked:
                # An erasure did not see what was being written at that moment, nor did the writing see it.
                async with self._database.transaction() as session:
                    await store.delete_orphans(session, sorted(unchecked))
                unchecked = set()
            while pending:
                async with self._database.transaction() as session:
                    await store.record_retrievals(session, pending[:_BATCH])
                self._unchecked.update(dialogue_id for dialogue_id, _ in pending[:_BATCH])
                del pending[:_BATCH]
        except UnavailableError as error:
            log.warning("retrievals not recorded yet", reason=str(error), messages=len(pending))
        finally:
            self._noted = dict(pending) | self._noted
            self._unchecked |= unchecked

    async def _work_once(self) -> bool:
        await self.flush()
        return False
