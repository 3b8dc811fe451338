import re
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.recall.records import Language
from app.recall.relative_time import absolute_time, relative_time

NOW = datetime(2026, 3, 11, 7, 30, tzinfo=UTC)
SHANGHAI = ZoneInfo("Asia/Shanghai")
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
STEP = timedelta.resolution


@pytest.mark.parametrize(
    ("elapsed", "chinese", "english"),
    [
        (-DAY, "刚刚", "just now"),
        (-3 * MINUTE, "刚刚", "just now"),
        (timedelta(0), "刚刚", "just now"),
        (timedelta(seconds=59), "刚刚", "just now"),
        (MINUTE - STEP, "刚刚", "just now"),
        (MINUTE, "1分钟前", "1 minute ago"),
        (2 * MINUTE - STEP, "1分钟前", "1 minute ago"),
        (2 * MINUTE, "2分钟前", "2 minutes ago"),
        (59 * MINUTE, "59分钟前", "59 minutes ago"),
        (HOUR - STEP, "59分钟前", "59 minutes ago"),
        (HOUR, "1小时前", "1 hour ago"),
        (2 * HOUR, "2小时前", "2 hours ago"),
        (DAY - STEP, "23小时前", "23 hours ago"),
        (DAY, "1天前", "1 day ago"),
        (26 * HOUR, "1天前", "1 day ago"),
        (6 * DAY, "6天前", "6 days ago"),
        (30 * DAY - STEP, "29天前", "29 days ago"),
        (30 * DAY, "1个月前", "1 month ago"),
        (35 * DAY, "1个月前", "1 month ago"),
        (60 * DAY - STEP, "1个月前", "1 month ago"),
        (60 * DAY, "2个月前", "2 months ago"),
        (200 * DAY, "6个月前", "6 months ago"),
        (360 * DAY, "12个月前", "12 months ago"),
        (365 * DAY - STEP, "12个月前", "12 months ago"),
        (365 * DAY, "1年前", "1 year ago"),
        (730 * DAY - STEP, "1年前", "1 year ago"),
        (730 * DAY, "2年前", "2 years ago"),
    ],
)
def test_elapsed_time_is_rounded_down_to_one_unit(elapsed: timedelta, chinese: str, english: str) -> None:
    assert relative_time(NOW - elapsed, NOW, language="zh") == chinese
    assert relative_time(NOW - elapsed, NOW, language="en") == english


def test_elapsed_time_is_that_of_instants_not_of_wall_clocks() -> None:
    new_york = ZoneInfo("America/New_York")
    before = datetime(2026, 3, 8, 1, 30, tzinfo=new_york)
    after = datetime(2026, 3, 8, 3, 30, tzinfo=new_york)
    assert relative_time(before, after, language="en") == "1 hour ago"


_ZH_S = {"分钟前": 60, "小时前": 3_600, "天前": 86_400, "个月前": 30 * 86_400, "年前": 365 * 86_400}
_EN_S = {"minute": 60, "hour": 3_600, "day": 86_400, "month": 30 * 86_400, "year": 365 * 86_400}


def _least_s(words: str) -> int:
    """The shortest time, in seconds, that the words can stand for."""
    if words in {"刚刚", "just now"}:
        return 0
    if chinese := re.fullmatch(r"(\d+)([^ -~]+)", words):
        return int(chinese[1]) * _ZH_S[chinese[2]]
    english = re.fullmatch(r"(\d+) ([a-z]+?)(s?) ago", words)
    assert english is not None
    assert bool(english[3]) == (english[1] != "1")
    return int(english[1]) * _EN_S[english[2]]


_ELAPSED = st.timedeltas(min_value=timedelta(days=-400), max_value=timedelta(days=9_000))


@given(elapsed=_ELAPSED, language=st.sampled_from(("zh", "en")))
def test_the_words_never_claim_more_time_than_has_passed(elapsed: timedelta, language: Language) -> None:
    words = relative_time(NOW - elapsed, NOW, language=language)
    assert 0 <= _least_s(words) <= max(0.0, elapsed.total_seconds())


@given(one=_ELAPSED, other=_ELAPSED, language=st.sampled_from(("zh", "en")))
def test_what_is_older_never_sounds_younger(one: timedelta, other: timedelta, language: Language) -> None:
    younger, older = sorted((one, other))
    assert _least_s(relative_time(NOW - younger, NOW, language=language)) <= _least_s(
        relative_time(NOW - older, NOW, language=language)
    )


@given(
    then=st.datetimes(min_value=datetime(2000, 1, 2), max_value=datetime(2200, 1, 1)),  # noqa: DTZ001
    offset_h=st.integers(-12, 14),
)
def test_zones_of_the_arguments_do_not_matter(then: datetime, offset_h: int) -> None:
    moment = then.replace(tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=offset_h)))
    assert relative_time(moment, NOW, language="zh") == relative_time(elsewhere, NOW, language="zh")
    assert absolute_time(moment, SHANGHAI) == absolute_time(elsewhere, SHANGHAI)


@pytest.mark.parametrize(
    ("then", "zone", "written"),
    [
        (datetime(2024, 1, 16, 2, 30, 15, 999_999, tzinfo=UTC), "Asia/Shanghai", "2024-01-16 10:30:15"),
        (datetime(2024, 1, 16, 20, 0, tzinfo=UTC), "Asia/Shanghai", "2024-01-17 04:00:00"),
        (datetime(2026, 3, 8, 7, 0, tzinfo=UTC), "America/New_York", "2026-03-08 03:00:00"),
        (datetime(812, 5, 6, 7, 8, 9, tzinfo=UTC), "UTC", "0812-05-06 07:08:09"),
    ],
)
def test_absolute_time_is_the_wall_clock_of_the_zone(then: datetime, zone: str, written: str) -> None:
    assert absolute_time(then, ZoneInfo(zone)) == written
