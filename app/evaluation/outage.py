"""Whether the evaluator is asked at all: while it is out of reach, one call now and then finds out. Pure."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from app.errors import ProviderBusyError, ProviderDeniedError, ProviderError, ProviderTimeoutError
from app.telemetry import get_logger

log = get_logger(__name__)

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
# One turn may take the evaluator too long; two in a row say that it is not the turns.
_TIMEOUTS_OF_AN_OUTAGE: Final = 2
# What is to be asked while somebody is trying, looks again soon.
_WHILE_TRYING_S: Final = 1.0

State = Literal["reachable", "to_be_tried", "away"]


class EvaluatorAwayError(ProviderError):
    """Nobody was asked: the evaluator is out of reach; `retry_after_s` says when it is tried again."""


class Outage:
    """What is known of the evaluator's outage, if there is one.

    Out of reach is who cannot be connected to, answers 429 or 5xx, or refuses our key, balance or model; and
    who twice in a row does not answer in time. An answer that nobody can read is an answer. Calls that were
    under way when the outage began neither prolong nor end it. One warning tells of its beginning, one line
    of its end.

    Args:
        monotonic: seconds from an arbitrary start.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began_s: float | None = None
        self._next_try_s = 0.0
        self._tries = 0
        self._timeouts = 0
        self._is_trying = False

    @property
    def state(self) -> State:
        """`to_be_tried`: the next call, and no other, is to find out whether the outage is over."""
        if self._began_s is None:
            return "reachable"
        return "away" if self._is_trying or self._monotonic() < self._next_try_s else "to_be_tried"

    @property
    def wait_s(self) -> float:
        """How long it makes no sense to ask."""
        return (
            max(_WHILE_TRYING_S, self._next_try_s - self._monotonic()) if self._began_s is not None else 0.0
        )

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask in this block; what comes of it is noted.

        Raises:
            EvaluatorAwayError: there is no sense in it now.
        """
        state = self.state
        if state == "away":
            raise EvaluatorAwayError("the evaluator is out of reach", retry_after_s=self.wait_s)
        started_s = self._monotonic()
        is_try = state == "to_be_tried"
        self._is_trying |= is_try
        try:
            yield
        except ProviderTimeoutError as error:
            self._timeouts += 1
            if is_try or self._timeouts >= _TIMEOUTS_OF_AN_OUTAGE:
                self._fail(error, started_s=started_s)
            raise
        except (ProviderBusyError, ProviderDeniedError) as error:
            self._fail(error, started_s=started_s)
            raise
        except ProviderError:
            self._succeed(started_s=started_s)
            raise
        else:
            self._succeed(started_s=started_s)
        finally:
            if is_try:
                self._is_trying = False

    def _fail(self, error: ProviderError, *, started_s: float) -> None:
        now_s = self._monotonic()
        if self._began_s is None:
            self._began_s = now_s
            log.warning(
                "evaluator out of reach: turns are kept, and wait for their score",
                reason=str(error),
                kind=type(error).__name__,
            )
        elif started_s < self._began_s:
            return
        wait_s = max(FIRST_WAIT_S * 2 ** min(self._tries, 30), error.retry_after_s or 0.0)
        self._tries += 1
        self._next_try_s = now_s + min(wait_s, LONGEST_WAIT_S)

    def _succeed(self, *, started_s: float) -> None:
        self._timeouts = 0
        if self._began_s is None or started_s < self._began_s:
            return
        log.info(
            "evaluator answers again", after_s=round(self._monotonic() - self._began_s, 1), tries=self._tries
        )
        self._began_s, self._tries = None, 0
