"""How long a turn is kept, by its score. Pure."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

MAX_SCORE: Final = 100


class Retention(StrEnum):
    """How long; the values are those of the HTTP contract."""

    NONE = "none"
    ONE_DAY = "one_day"
    ONE_WEEK = "one_week"
    ONE_MONTH = "one_month"
    FOREVER = "forever"


# The highest score of each band, and how long it is kept. Source: the specification's section 7.3.
_BANDS: Final = (
    (20, Retention.NONE),
    (40, Retention.ONE_DAY),
    (70, Retention.ONE_WEEK),
    (90, Retention.ONE_MONTH),
    (MAX_SCORE, Retention.FOREVER),
)
_KEPT_FOR: Final = {
    Retention.NONE: timedelta(0),
    Retention.ONE_DAY: timedelta(days=1),
    Retention.ONE_WEEK: timedelta(days=7),
    Retention.ONE_MONTH: timedelta(days=30),
}


def retention_of(score: int) -> Retention:
    """The band that a score falls into.

    Args:
        score: 0 to 100.

    Raises:
        ValueError: it is outside.
    """
    if not 0 <= score <= MAX_SCORE:
        raise ValueError(f"a score is 0 to {MAX_SCORE}, not {score}")
    return next(retention for highest, retention in _BANDS if score <= highest)


def expires_at(score: int, created_at: datetime) -> datetime | None:
    """When what was said at `created_at` expires; None: never.

    What is not to be stored at all expires as it is said.

    Args:
        score: 0 to 100.
        created_at: aware.

    Raises:
        ValueError: the score is outside.
    """
    kept_for = _KEPT_FOR.get(retention_of(score))
    return None if kept_for is None else created_at + kept_for
