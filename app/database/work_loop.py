"""What every queue of ours has in common: rows are claimed for a while, worked on, finished or given back.

A claim moves `available_at` ahead by a lease, renewed while the work goes on, so what a killed process had
claimed is free again when the lease has run out. Several processes may work on one queue.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from app.database.engine import Database, WriteSession
from app.errors import ProviderError, UnavailableError
from app.telemetry import get_logger

log = get_logger(__name__)

LEASE_S = 15.0
_POLL_S = 1.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class WorkLoop:
    """Does one kind of work for as long as there is some, and looks again now and then, or when woken."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Awaitable[bool]],
        *,
        workers: int = 1,
        poll_s: float = _POLL_S,
        gather_s: float = 0.0,
    ) -> None:
        """Start nothing; `run` is the loop.

        Args:
            name: of the work, for logs.
            work: does one piece of it; returns whether there was any. A ProviderError or UnavailableError
                makes the loop pause, longer each time.
            workers: how many pieces are worked on at once.
            poll_s: how often it looks for work of other processes.
            gather_s: how long it waits after it was woken: what comes shortly after is one piece with it.
        """
        self._name = name
        self._work = work
        self._workers = workers
        self._poll_s = poll_s
        self._gather_s = gather_s
        self._idle: deque[asyncio.Future[None]] = deque()
        self._told = False
        self._gathering = False
        self._pauses = 0

    def wake(self) -> None:
        """Tell the loop that there is new work; of several workers that are idle one looks for it."""
        if self._gathering:
            # Who was woken before has not looked yet, and will find this, too.
            return
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._gathering = self._gather_s > 0
                return
        self._told = True

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work_forever())

    async def _work_forever(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            # Cleared before the look: what is told during it is not missed.
            self._told = False
            try:
                is_more = await self._work()
                self._tell_end_of_pauses()
                if is_more:
                    pause_s = _FIRST_PAUSE_S
                    continue
                await self._wait_for_work()
            except (ProviderError, UnavailableError) as error:
                wait_s = max(pause_s, getattr(error, "retry_after_s", None) or 0.0)
                # One line for an outage, however many workers meet it, and however often.
                tell = log.debug if self._pauses else log.warning
                self._pauses += 1
                tell("work_paused", work=self._name, cause=str(error), kind=type(error).__name__)
                # Jitter spreads what several processes ask of one provider that has just come back.
                await asyncio.sleep(wait_s * random.uniform(1.0, 1.25))  # noqa: S311 - no secret
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            except Exception:
                # A fault of ours must not end the loop for good: it is logged, and the rows come free again.
                log.exception("work failed unexpectedly", work=self._name)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _tell_end_of_pauses(self) -> None:
        if self._pauses:
            log.warning("work_goes_on", work=self._name, pauses=self._pauses)
            self._pauses = 0

    async def _wait_for_work(self) -> None:
        if not self._told:
            waiter = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            try:
                async with asyncio.timeout(self._poll_s):
                    await waiter
            except TimeoutError:
                if not waiter.cancelled():
                    self._gathering = False
                return
            finally:
                with suppress(ValueError):
                    self._idle.remove(waiter)
        try:
            await asyncio.sleep(self._gather_s)
        finally:
            self._gathering = False


@asynccontextmanager
async def holding(
    database: Database, extend: Callable[[WriteSession, float], Awaitable[None]]
) -> AsyncIterator[None]:
    """Keep a claim while the block runs; give it back at once where the block fails.

    Args:
        database: where the queue is.
        extend: moves the end of the claim to so many seconds from now; 0 frees it.
    """

    async def set_end(lease_s: float) -> None:
        try:
            async with database.transaction() as session:
                await extend(session, lease_s)
        except UnavailableError:
            # The lease may run out then; the worst that comes of it is the same work done twice.
            log.debug("claim not moved", lease_s=lease_s)
        except Exception:
            # Neither may a fault of ours end the renewal, nor hide what the block failed by.
            log.exception("claim not moved", lease_s=lease_s)

    async def renew() -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            await set_end(LEASE_S)

    renewal = asyncio.create_task(renew())
    try:
        yield
    except BaseException:
        renewal.cancel()
        await asyncio.shield(set_end(0))
        raise
    finally:
        renewal.cancel()
