from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation.retention import Retention, expires_at, retention_of

NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
SCORES = st.integers(0, 100)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001

# The table of the HTTP contract's section 4.
TABLE = [
    (0, 20, "none", timedelta(0)),
    (21, 40, "one_day", timedelta(days=1)),
    (41, 70, "one_week", timedelta(days=7)),
    (71, 90, "one_month", timedelta(days=30)),
    (91, 100, "forever", None),
]


@pytest.mark.parametrize(("low", "high", "retention", "kept_for"), TABLE)
def test_the_table(low: int, high: int, retention: str, kept_for: timedelta | None) -> None:
    for score in range(low, high + 1):
        assert retention_of(score) == retention
        assert expires_at(score, NOON) == (None if kept_for is None else NOON + kept_for)


def test_every_score_has_a_band_and_every_band_a_score() -> None:
    assert {retention_of(score) for score in range(101)} == set(Retention)


@pytest.mark.parametrize("score", [-1, 101, 1000])
def test_what_is_no_score_has_no_band(score: int) -> None:
    with pytest.raises(ValueError, match=str(score)):
        retention_of(score)
    with pytest.raises(ValueError, match=str(score)):
        expires_at(score, NOON)


@given(lower=SCORES, higher=SCORES, moment=MOMENTS)
def test_a_higher_score_never_expires_sooner(lower: int, higher: int, moment: datetime) -> None:
    lower, higher = sorted((lower, higher))
    never = datetime.max.replace(tzinfo=UTC)
    assert (expires_at(lower, moment) or never) <= (expires_at(higher, moment) or never)


@given(score=SCORES, moment=MOMENTS, later=st.timedeltas(timedelta(0), timedelta(days=1000)))
def test_the_time_kept_does_not_depend_on_when(score: int, moment: datetime, later: timedelta) -> None:
    expiry, later_expiry = expires_at(score, moment), expires_at(score, moment + later)
    if expiry is None or later_expiry is None:
        assert expiry is later_expiry
    else:
        assert later_expiry - expiry == later
        assert expiry.tzinfo is UTC
