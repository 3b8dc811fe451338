"""The tables beside this file: what is read, and what is not, on Wednesday 2026-03-11 15:30 in Shanghai."""

import os
import signal
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.recall.festivals import FESTIVALS
from app.recall.numerals import Amount, chinese_amount, chinese_number, english_amount
from app.recall.time_words import TimeRange, read_time_range

HERE = Path(__file__).parent
SHANGHAI = ZoneInfo("Asia/Shanghai")
NEW_YORK = ZoneInfo("America/New_York")
NOW = datetime(2026, 3, 11, 15, 30, tzinfo=SHANGHAI)
EXPRESSIONS = [line.split("\t") for line in (HERE / "time_expressions.tsv").read_text("utf-8").splitlines()]
FALSE_FRIENDS = (HERE / "time_false_friends.txt").read_text("utf-8").splitlines()


def read(text: str, now: datetime = NOW) -> TimeRange | None:
    zone = now.tzinfo
    assert isinstance(zone, ZoneInfo)
    return read_time_range(text, now=now, zone=zone)


def local(written: str, zone: ZoneInfo = SHANGHAI) -> datetime:
    return datetime.fromisoformat(written).replace(tzinfo=zone)


def bounds(text: str, now: datetime = NOW) -> tuple[str, str] | None:
    found = read(text, now)
    if found is None:
        return None
    since, until = (f"{bound:%Y-%m-%d %H:%M}".removesuffix(" 00:00") for bound in (found.since, found.until))
    return since, until


@pytest.mark.parametrize(
    ("text", "words", "since", "until"), EXPRESSIONS, ids=[row[0] for row in EXPRESSIONS]
)
def test_an_expression_is_read(text: str, words: str, since: str, until: str) -> None:
    assert read(text) == TimeRange(words, local(since), local(until))


@pytest.mark.parametrize("text", FALSE_FRIENDS)
def test_a_false_friend_is_not_read(text: str) -> None:
    assert read(text) is None


def test_case_does_not_matter() -> None:
    english = [row[0] for row in EXPRESSIONS if row[0].isascii()]
    assert len(english) > 100
    assert [text for text in english if bounds(text.lower()) != bounds(text.upper())] == []


# Expressions that other parsers were measured on, each with an instant it must hold; None: not to be read.
MEASURED = [
    ("昨天", "2026-03-10 12:00"),
    ("前天", "2026-03-09 12:00"),
    ("大前天", "2026-03-08 12:00"),
    ("今天", "2026-03-11 12:00"),
    ("明天", None),
    ("三天前", "2026-03-08 15:30"),
    ("3天前", "2026-03-08 15:30"),
    ("两周前", "2026-02-25 15:30"),
    ("半年前", "2025-09-11 15:30"),
    ("一个月前", "2026-02-11 15:30"),
    ("上周三", "2026-03-04 12:00"),
    ("上周", "2026-03-05 12:00"),
    ("上个月", "2026-02-14 12:00"),
    ("去年", "2025-07-01 12:00"),
    ("前年夏天", "2024-07-15 12:00"),
    ("刚才", "2026-03-11 15:25"),
    ("十分钟前", "2026-03-11 15:20"),
    ("两小时前", "2026-03-11 13:30"),
    ("半小时前", "2026-03-11 15:00"),
    ("前天晚上八点", "2026-03-09 20:00"),
    ("昨天下午三点半", "2026-03-10 15:30"),
    ("今天早上", "2026-03-11 08:00"),
    ("上个星期五晚上", "2026-03-06 20:00"),
    ("3月5号", "2026-03-05 12:00"),
    ("去年国庆节", "2025-10-01 12:00"),
    ("凌晨两点", "2026-03-11 02:00"),
    ("最近", None),
    ("yesterday", "2026-03-10 12:00"),
    ("the day before yesterday", "2026-03-09 12:00"),
    ("last Tuesday", "2026-03-10 12:00"),
    ("two weeks ago", "2026-02-25 15:30"),
    ("3 days ago", "2026-03-08 15:30"),
    ("last week", "2026-03-05 12:00"),
    ("last month", "2026-02-14 12:00"),
    ("last year", "2025-07-01 12:00"),
    ("in May 2023", "2023-05-14 12:00"),
    ("on March 5", "2026-03-05 12:00"),
    ("half an hour ago", "2026-03-11 15:00"),
    ("just now", "2026-03-11 15:25"),
    ("this morning", "2026-03-11 08:00"),
    ("last night", "2026-03-10 22:00"),
    ("last summer", "2025-07-15 12:00"),
]


@pytest.mark.parametrize(("text", "instant"), MEASURED)
def test_the_measured_expressions_hold_their_instant(text: str, instant: str | None) -> None:
    found = read(text)
    if instant is None:
        assert found is None
    else:
        assert found is not None
        assert found.since <= local(instant) < found.until


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        # Just after midnight.
        ("2026-03-11 00:30", "昨天", ("2026-03-10", "2026-03-11")),
        ("2026-03-11 00:30", "今天", ("2026-03-11", "2026-03-12")),
        ("2026-03-11 00:30", "昨晚", ("2026-03-10 18:00", "2026-03-11 02:00")),
        ("2026-03-11 00:30", "今晚", ("2026-03-10 18:00", "2026-03-11 02:00")),
        ("2026-03-11 00:30", "今早", None),
        ("2026-03-11 00:30", "刚才", ("2026-03-11", "2026-03-11 00:30")),
        ("2026-03-11 00:10", "半小时前", ("2026-03-10 23:25", "2026-03-10 23:55")),
        ("2026-03-11 00:00", "昨天", ("2026-03-10", "2026-03-11")),
        ("2026-03-11 21:00", "今晚", ("2026-03-11 18:00", "2026-03-12 02:00")),
        ("2026-03-11 21:00", "tonight", ("2026-03-11 18:00", "2026-03-12 02:00")),
        # Ends of months and years.
        ("2026-03-31 12:00", "上个月", ("2026-02-01", "2026-03-01")),
        ("2026-03-31 12:00", "一个月前", ("2026-02-13", "2026-03-16")),
        ("2026-01-01 12:00", "昨天", ("2025-12-31", "2026-01-01")),
        ("2026-01-01 12:00", "上个月", ("2025-12-01", "2026-01-01")),
        ("2026-01-01 12:00", "上周", ("2025-12-22", "2025-12-29")),
        ("2025-12-31 12:00", "去年", ("2024-01-01", "2025-01-01")),
        ("2026-01-05 12:00", "12月25号", ("2025-12-25", "2025-12-26")),
        ("2026-01-15 12:00", "今年冬天", ("2025-12-01", "2026-03-01")),
        ("2026-01-15 12:00", "去年冬天", ("2025-12-01", "2026-03-01")),
        ("2026-01-15 12:00", "last winter", ("2024-12-01", "2025-03-01")),
        ("2026-03-05 12:00", "31号那天", ("2026-01-31", "2026-02-01")),
        # Leap days.
        ("2024-03-01 12:00", "昨天", ("2024-02-29", "2024-03-01")),
        ("2025-02-28 12:00", "去年今天", ("2024-02-28", "2024-02-29")),
        ("2024-02-29 12:00", "去年今天", ("2023-02-28", "2023-03-01")),
        ("2026-03-11 15:30", "2月29号", ("2024-02-29", "2024-03-01")),
        ("2024-02-29 09:00", "2月29日", ("2024-02-29", "2024-03-01")),
        ("2026-03-11 15:30", "去年2月29日", None),
        # The same day of the week, and of the year.
        ("2026-03-11 15:30", "周三", ("2026-03-04", "2026-03-05")),
        ("2026-03-11 15:30", "这周三", ("2026-03-11", "2026-03-12")),
        ("2026-03-11 15:30", "last Wednesday", ("2026-03-04", "2026-03-05")),
        ("2026-03-11 15:30", "3月11号", ("2026-03-11", "2026-03-12")),
        ("2026-03-11 15:30", "3月12号", ("2025-03-12", "2025-03-13")),
        # Sundays and Mondays.
        ("2026-03-15 12:00", "这周日", ("2026-03-15", "2026-03-16")),
        ("2026-03-15 12:00", "上周日", ("2026-03-08", "2026-03-09")),
        ("2026-03-15 12:00", "周末", ("2026-03-14", "2026-03-16")),
        ("2026-03-15 12:00", "上周末", ("2026-03-07", "2026-03-09")),
        ("2026-03-15 12:00", "上周一到周三", ("2026-03-02", "2026-03-05")),
        ("2026-03-16 12:00", "上周一", ("2026-03-09", "2026-03-10")),
        ("2026-03-16 12:00", "last weekend", ("2026-03-14", "2026-03-16")),
        # An hour that is past is preferred to one that is to come.
        ("2026-03-11 10:00", "今天三点", ("2026-03-11 02:30", "2026-03-11 03:30")),
        ("2026-03-11 15:30", "今天三点", ("2026-03-11 14:30", "2026-03-11 15:30")),
        ("2026-03-11 10:00", "下午三点", ("2026-03-10 14:30", "2026-03-10 15:30")),
        # Festivals before and after theirs.
        ("2026-02-16 12:00", "春节", ("2025-01-29", "2025-02-05")),
        ("2026-02-17 12:00", "春节", ("2026-02-17", "2026-02-24")),
        ("2026-09-25 12:00", "中秋节", ("2026-09-25", "2026-09-26")),
    ],
)
def test_the_present_decides(now: str, text: str, expected: tuple[str, str] | None) -> None:
    assert bounds(text, local(now)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("上周说的3月5号的会", "上周"),
        ("上个月聊的2023年5月的计划", "上个月"),
        ("今天想问昨天说的事", "昨天"),
        ("今年和我上周说的一样吗", "上周"),
        ("去年买的，前天晚上我丢的", "前天晚上"),
        ("What did I tell you yesterday about the March 5 event?", "yesterday"),
        ("Today I wonder where we went in May 2023", "May 2023"),
        ("昨天你提醒我明天下午三点开会", "昨天"),
    ],
)
def test_of_several_expressions_one_is_chosen(text: str, words: str) -> None:
    found = read(text)
    assert found is not None
    assert found.text == words


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("週三晚上八點", "周三晚上八点"),
        ("剛才", "刚才"),
        ("兩個月前", "两个月前"),
        ("３月５號", "3月5号"),
        ("上個禮拜", "上个礼拜"),
        ("去年國慶節", "去年国庆节"),
        ("１５：２０的時候", "15:20的时候"),
    ],
)
def test_traditional_script_and_full_width_digits_are_the_same(text: str, same: str) -> None:
    one, other = read(text), read(same)
    assert one is not None
    assert other is not None
    assert (one.since, one.until) == (other.since, other.until)
    assert one.text in text


@pytest.mark.parametrize(
    ("now", "text", "hours"),
    [
        ("2026-03-09 12:00", "yesterday", 23),
        ("2025-11-03 12:00", "yesterday", 25),
        ("2026-03-16 12:00", "last week", 7 * 24),
        ("2026-03-09 12:00", "last week", 7 * 24 - 1),
        ("2025-11-03 12:00", "last week", 7 * 24 + 1),
    ],
)
def test_days_are_those_of_the_calendar_when_clocks_change(now: str, text: str, hours: int) -> None:
    found = read(text, local(now, NEW_YORK))
    assert found is not None
    assert found.until.astimezone(UTC) - found.since.astimezone(UTC) == timedelta(hours=hours)
    assert (found.since.hour, found.until.hour) == (0, 0)


def test_hours_are_counted_through_a_change_of_clocks() -> None:
    now = datetime(2025, 11, 2, 6, 15, tzinfo=UTC)
    found = read_time_range("半小时前", now=now, zone=NEW_YORK)
    assert found is not None
    assert found.since.astimezone(UTC) == now - timedelta(minutes=45)
    assert found.until.astimezone(UTC) == now - timedelta(minutes=15)


def test_an_hour_that_the_clocks_skip_does_not_break() -> None:
    found = read("今天凌晨两点半", local("2026-03-08 12:00", NEW_YORK))
    assert found is not None
    assert found.since.astimezone(UTC) < found.until.astimezone(UTC)


def test_a_day_that_a_zone_skipped_is_not_read() -> None:
    apia = ZoneInfo("Pacific/Apia")
    assert read("昨天", local("2011-12-31 12:00", apia)) is None
    assert bounds("前天", local("2011-12-31 12:00", apia)) == ("2011-12-29", "2011-12-31")


def test_the_zone_given_is_meant_whatever_the_zone_of_now() -> None:
    now = datetime(2026, 3, 10, 20, 0, tzinfo=UTC)
    for given_now in (now, now.astimezone(NEW_YORK)):
        assert read_time_range("昨天", now=given_now, zone=SHANGHAI) == TimeRange(
            "昨天", local("2026-03-10"), local("2026-03-11")
        )


def test_the_zone_of_the_process_does_not_matter() -> None:
    script = (
        "from datetime import UTC, datetime; from zoneinfo import ZoneInfo\n"
        "from app.recall.time_words import read_time_range\n"
        "for text in ('昨天下午三点', '3小时前', 'last night'):\n"
        "    now = datetime(2026, 3, 10, 20, tzinfo=UTC)\n"
        "    print(read_time_range(text, now=now, zone=ZoneInfo('Asia/Shanghai')))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "TZ": zone, "PYTHONIOENCODING": "utf-8"},
            cwd=HERE.parents[1],
            capture_output=True,
            check=True,
        ).stdout
        for zone in ("America/Los_Angeles", "Pacific/Kiritimati")
    }
    assert len(outputs) == 1
    assert b"None" not in outputs.pop()


PIECES = st.sampled_from(
    [row[0] for row in EXPRESSIONS]
    + FALSE_FRIENDS
    + list("到至和的前后半个年月日号点时分秒周天上下今昨一二三十〇1230:-/. ，。T")
    + [
        "之前",
        "以来",
        " to ",
        " and ",
        "before ",
        "since ",
        "last ",
        "of ",
        "99999年前",
        "9999年",
        "0点",
        "31日",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(PIECES, max_size=6).map("".join),
    st.lists(PIECES, max_size=6).map(" ".join),
)
MOMENTS = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
ZONES = st.sampled_from(
    ["Asia/Shanghai", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC"]
).map(ZoneInfo)


@given(text=TEXTS, now=MOMENTS, zone=ZONES)
@example(text="9999年底", now=NOW, zone=SHANGHAI)
@example(text="200年前", now=NOW, zone=SHANGHAI)
@example(text="早上八点过去24小时", now=NOW, zone=SHANGHAI)
def test_a_range_is_sound_whatever_the_text(text: str, now: datetime, zone: ZoneInfo) -> None:
    found = read_time_range(text, now=now, zone=zone)
    if found is None:
        return
    assert found.text
    assert found.text in text
    assert found.since.tzinfo is zone
    assert found.until.tzinfo is zone
    assert found.since.astimezone(UTC) < found.until.astimezone(UTC)
    assert found.since.astimezone(UTC) <= now
    assert found.until.astimezone(UTC) > datetime(2000, 1, 1, tzinfo=UTC)


@given(days=st.integers(1, 60), now=MOMENTS)
def test_days_ago_hold_the_moment_counted_back(days: int, now: datetime) -> None:
    wall = (now.astimezone(SHANGHAI).replace(tzinfo=None) - timedelta(days=days)).replace(tzinfo=SHANGHAI)
    for text in (f"{days}天前", f"{days} days ago"):
        found = read_time_range(text, now=now, zone=SHANGHAI)
        if found is not None:
            assert found.since <= wall < found.until
        else:
            assert wall.year < 2000


@given(minutes=st.integers(1, 600), now=MOMENTS)
def test_minutes_ago_hold_the_instant(minutes: int, now: datetime) -> None:
    for text in (f"{minutes}分钟前", f"{minutes} minutes ago"):
        found = read_time_range(text, now=now, zone=NEW_YORK)
        if found is not None:
            assert found.since <= now - timedelta(minutes=minutes) < found.until
        else:
            assert now - timedelta(minutes=minutes) < datetime(2000, 1, 1, 0, 10, tzinfo=UTC)


@given(day=st.dates(date(2000, 1, 1), date(2026, 3, 11)))
def test_written_dates_are_their_day(day: date) -> None:
    expected = (local(f"{day}"), local(f"{day + timedelta(days=1)}"))
    english = f"{day:%B} {day.day}, {day.year}"
    for text in (
        f"{day}",
        f"{day.year}年{day.month}月{day.day}日",
        f"{day.year}/{day.month}/{day.day}",
        english,
    ):
        found = read(text)
        assert found is not None
        assert (found.since, found.until) == expected


ADVERSARIAL = [
    "昨天", "一", "第", "三天", "5月", "从", "半", "零", "年", "前", "1:", "三点", "最近",
    "昨天到", "三天到", "1", " ", "the ", "a ", "3 days ", "2023-05-", "in the ", "last ", "may ",
    "half a ", "before ", "，", "的", "yesterday ", "new  ", "may ,", "一个半", "昨天和", "1 ",
    "5th ", "and a half ", "0",
]  # fmt: skip


@pytest.mark.parametrize("piece", ADVERSARIAL)
def test_no_text_makes_a_pattern_backtrack_for_long(piece: str) -> None:
    """Each takes milliseconds; the alarm is a thousand times that, and a quadratic pattern runs into it."""

    def stop(_signal: int, _frame: object) -> None:
        pytest.fail(f"{piece!r} repeated takes too long")

    long = piece * (8_000 // len(piece))
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    try:
        for text in (long, "昨天" + long, "may" + long + "昨天"):
            found = read(text)
            assert found is None or found.text in text
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("十", 10),
        ("十二", 12),
        ("二十", 20),
        ("二十三", 23),
        ("一百零五", 105),
        ("两百", 200),
        ("二〇二三", 2023),
        ("07", 7),
        ("百十百", None),
    ],
)
def test_chinese_numbers(text: str, number: int | None) -> None:
    assert chinese_number(text) == number


@given(number=st.integers(1, 999))
def test_chinese_numbers_are_read_back(number: int) -> None:
    digits = "零一二三四五六七八九"
    hundreds, tens, ones = number // 100, number // 10 % 10, number % 10
    written = f"{digits[hundreds]}百" if hundreds else ""
    if tens:
        written += f"{digits[tens]}十"
    elif hundreds and ones:
        written += "零"
    written += digits[ones] if ones else ""
    assert chinese_number(written) == number
    assert chinese_number(str(number)) == number


def test_amounts_may_be_vague() -> None:
    assert chinese_amount("两三") == Amount(2, 3)
    assert chinese_amount("半") == Amount(0.5, 0.5)
    assert chinese_amount("三十") == Amount(30, 30)
    assert english_amount("a couple of") == Amount(2, 3)
    assert english_amount("half an") == Amount(0.5, 0.5)
    assert english_amount("12") == Amount(12, 12)


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("spring_festival", "2015-02-19"),
        ("spring_festival", "2020-01-25"),
        ("spring_festival", "2024-02-10"),
        ("spring_festival", "2033-01-31"),
        ("spring_festival", "2035-02-08"),
        ("lunar_new_year_eve", "2024-02-09"),
        ("lantern", "2024-02-24"),
        ("clear_bright", "2024-04-04"),
        ("dragon_boat", "2023-06-22"),
        ("lovers", "2023-08-22"),
        ("mid_autumn", "2020-10-01"),
        ("mid_autumn", "2025-10-06"),
        ("double_ninth", "2023-10-23"),
        ("easter", "2024-03-31"),
        ("easter", "2025-04-20"),
        ("mother", "2025-05-11"),
        ("father", "2025-06-15"),
        ("thanksgiving", "2023-11-23"),
        ("black_friday", "2023-11-24"),
        ("memorial", "2025-05-26"),
        ("labor_us", "2025-09-01"),
    ],
)
def test_movable_feasts(name: str, day: str) -> None:
    days = FESTIVALS[name](int(day[:4]))
    assert days is not None
    assert days[0] == date.fromisoformat(day)


@given(year=st.integers(2000, 2040))
def test_lunar_feasts_keep_their_distance(year: int) -> None:
    """The first day of a lunar month is a new moon: feasts lie whole lunations apart."""
    first = FESTIVALS["spring_festival"](year)
    assert first is not None
    for name, day_of_month in (("dragon_boat", 5), ("lovers", 7), ("mid_autumn", 15), ("double_ninth", 9)):
        days = FESTIVALS[name](year)
        assert days is not None
        elapsed = (days[0] - first[0]).days - (day_of_month - 1)
        assert abs(elapsed - 29.530588 * round(elapsed / 29.530588)) < 2


def test_lunar_feasts_outside_the_table_are_not_read() -> None:
    assert FESTIVALS["mid_autumn"](1999) is None
    assert FESTIVALS["mid_autumn"](2041) is None
    assert read("2041年中秋", local("2045-01-01 00:00")) is None
