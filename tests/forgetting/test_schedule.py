"""When the daily sweep is due."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.forgetting.schedule import due_day

SHANGHAI = ZoneInfo("Asia/Shanghai")
BERLIN = ZoneInfo("Europe/Berlin")
HALF_PAST_THREE = time(3, 30)


@pytest.mark.parametrize(
    ("now", "zone", "at", "day"),
    [
        (datetime(2026, 11, 29, 19, 29, 59, tzinfo=UTC), SHANGHAI, HALF_PAST_THREE, date(2026, 11, 29)),
        (datetime(2026, 11, 29, 19, 30, tzinfo=UTC), SHANGHAI, HALF_PAST_THREE, date(2026, 11, 30)),
        (datetime(2026, 11, 30, 15, 59, tzinfo=UTC), SHANGHAI, HALF_PAST_THREE, date(2026, 11, 30)),
        (datetime(2026, 11, 30, 16, 0, tzinfo=UTC), SHANGHAI, time(0), date(2026, 12, 1)),
        # 02:30 does not exist on this day: the clocks go from 02:00 to 03:00.
        (datetime(2026, 3, 29, 0, 59, tzinfo=UTC), BERLIN, time(2, 30), date(2026, 3, 28)),
        (datetime(2026, 3, 29, 1, 0, tzinfo=UTC), BERLIN, time(2, 30), date(2026, 3, 29)),
    ],
)
def test_due(now: datetime, zone: ZoneInfo, at: time, day: date) -> None:
    assert due_day(now, at=at, zone=zone) == day


@given(
    minute=st.integers(0, 100 * 366 * 24 * 60),
    at=st.times(),
    zone=st.sampled_from([SHANGHAI, BERLIN, ZoneInfo("America/New_York"), ZoneInfo("Pacific/Kiritimati")]),
)
def test_each_day_becomes_due_once_and_in_order(minute: int, at: time, zone: ZoneInfo) -> None:
    now = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    days = [due_day(now + timedelta(minutes=20 * step), at=at, zone=zone) for step in range(80)]
    assert max(days) - days[0] in {timedelta(days=1), timedelta(days=2)}
    assert all(later - earlier <= timedelta(days=1) for earlier, later in pairwise(days))
