"""The only place that asks what time it is; everyone else is told, or given a `Clock`."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Returns the present as an aware datetime in UTC."""


def utc_now() -> datetime:
    """The present, aware, in UTC."""
    return datetime.now(UTC)


def monotonic_s() -> float:
    """Seconds from an arbitrary start, never running backwards: for durations."""
    return time.monotonic()
