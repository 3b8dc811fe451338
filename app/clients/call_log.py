"""What comes of calls to a provider, told once: a line when an outage begins, a line when it is over."""

from collections.abc import Callable
from typing import Final

from app.clock import monotonic_s
from app.errors import ProviderError, ProviderRejectedError
from app.telemetry import get_logger

# A provider that fails every other call has one outage, not hundreds.
QUIET_S: Final = 5.0

_log = get_logger(__name__)


class CallLog:
    """Tells of the outages of one provider, however many calls fail in one.

    An outage begins with a call that fails, and is over when a call succeeds after some seconds without a
    failure. The calls between are counted, and each is told at debug level. That one input was refused is no
    outage: whoever had sent it is told.

    Args:
        provider: what is called, in words for an operator.
        monotonic: seconds from an arbitrary start.
    """

    def __init__(self, provider: str, *, monotonic: Callable[[], float] = monotonic_s) -> None:
        self._provider = provider
        self._monotonic = monotonic
        self._failures = 0
        self._began_s = 0.0
        self._failed_at_s = 0.0

    def succeed(self) -> None:
        """Note a call that was answered."""
        if self._failures == 0 or self._monotonic() - self._failed_at_s < QUIET_S:
            return
        _log.warning(
            "provider_answers_again",
            provider=self._provider,
            failed_calls=self._failures,
            lasted_s=round(self._failed_at_s - self._began_s, 1),
        )
        self._failures = 0

    def fail(self, error: ProviderError) -> None:
        """Note a call that failed."""
        tell = _log.debug
        if not isinstance(error, ProviderRejectedError):
            self._failed_at_s = self._monotonic()
            if self._failures == 0:
                self._began_s = self._failed_at_s
                tell = _log.warning
            self._failures += 1
        tell("provider_fails", provider=self._provider, outcome=error.outcome, cause=str(error))
