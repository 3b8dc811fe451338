"""One pause for all who call a provider: while it wants to be left alone, nobody knocks."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from app.clock import monotonic_s
from app.errors import ProviderBusyError, ProviderError

_GROWTH: Final = 1.5
_JITTER: Final = 0.2


class ProviderGate:
    """Closed for a while after a failure, longer after each further one, open again after a success.

    Calls that were under way when the gate closed neither lengthen the pause nor end it: ten calls refused by
    one rate limit are one failure.

    Args:
        monotonic: seconds from an arbitrary start.
    """

    def __init__(self, monotonic: Callable[[], float] = monotonic_s) -> None:
        self._monotonic = monotonic
        self._open_at_s = -float("inf")
        self._closed_at_s = -float("inf")
        self._failures = 0
        self._kind: type[ProviderError] = ProviderError
        self._message = ""

    def enter(self) -> float:
        """Begin a call; the time of its start, for what is told the gate at its end.

        Raises:
            ProviderError: of the kind that closed the gate, with the rest of the pause.
        """
        now_s = self._monotonic()
        if now_s < self._open_at_s:
            raise self._kind(self._message, retry_after_s=self._open_at_s - now_s)
        return now_s

    def succeed(self, started_s: float) -> None:
        """Tell that a call was answered, so that the next pause is a first one."""
        if started_s >= self._closed_at_s:
            self._failures = 0

    def fail(
        self, error: ProviderError, *, started_s: float, first_s: float, limit_s: float
    ) -> ProviderError:
        """Close the gate after a failed call; the error to raise, which knows the pause.

        Args:
            error: its kind and message are what callers get while the gate is closed; its `retry_after_s` is
                the pause, where it has one.
            started_s: what `enter` gave.
            first_s: the pause after a first failure; each further one is 1.5 times as long, up to `limit_s`.
            limit_s: longest pause, unless the error asks for more.
        """
        now_s = self._monotonic()
        if started_s >= self._closed_at_s:
            self._failures += 1
            self._closed_at_s = now_s
            pause_s = error.retry_after_s
            if pause_s is None:
                pause_s = min(limit_s, first_s * _GROWTH ** min(self._failures - 1, 30))
                # Several processes that were refused together must not come back together.
                pause_s *= 1 + random.uniform(0, _JITTER)  # noqa: S311 - not for secrecy
            self._open_at_s = now_s + pause_s
            self._kind, self._message = type(error), str(error)
        error.retry_after_s = max(0.0, self._open_at_s - now_s)
        return error


async def wait_out(error: ProviderBusyError, *, until_s: float) -> None:
    """Sleep for the pause that the provider wants, or fail with it where it ends too late."""
    pause_s = error.retry_after_s or 0.0
    if monotonic_s() + pause_s >= until_s:
        raise error
    await asyncio.sleep(pause_s)
