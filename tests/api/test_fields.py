"""Ids, times, text and session keys as the wire gives them."""

import re
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from app.api import fields
from app.dialogues.records import Session

SHANGHAI = ZoneInfo("Asia/Shanghai")
INT64 = st.integers(fields.INT64_MIN, fields.INT64_MAX)


@given(INT64)
def test_an_id_is_read_as_number_and_as_digits(number: int) -> None:
    assert fields.read_int64(number) == number
    assert fields.read_int64(str(number)) == number


@pytest.mark.parametrize("text", ["-2147482433", "3425462029", "7672696335120716277"])
def test_ids_that_others_lost_are_read_exactly(text: str) -> None:
    assert str(fields.read_message_id(text)) == text


@given(st.one_of(st.integers(max_value=fields.INT64_MIN - 1), st.integers(min_value=fields.INT64_MAX + 1)))
def test_what_does_not_fit_in_64_bits_is_refused(number: int) -> None:
    for value in (number, str(number)):
        with pytest.raises(ValueError, match="must"):
            fields.read_int64(value)


NOT_IDS: list[object] = [
    True,
    False,
    1.0,
    123.5,
    float("nan"),
    "",
    " ",
    " 123",
    "123 ",
    "123\n",
    "1e3",
    "1_000",
    "1.0",
    "+1",
    "--1",
    "0x10",
    "１２３",
    "٣",
    "\ud83d",
    [],
    {},
]


@pytest.mark.parametrize("value", NOT_IDS)
def test_what_only_looks_like_an_id_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be an integer"):
        fields.read_int64(value)


@pytest.mark.parametrize("value", [0, -1, "0", "-5"])
def test_a_user_is_numbered_above_zero(value: object) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        fields.read_user_id(value)


def test_a_group_is_any_number_but_zero_and_may_be_absent() -> None:
    assert fields.read_group_id(-1001234567890) == -1001234567890
    assert fields.read_group_id(None) is None
    with pytest.raises(ValueError, match="must not be 0"):
        fields.read_group_id("0")


@given(st.datetimes(datetime(2000, 1, 2), datetime(9000, 1, 1)), st.integers(-23 * 60, 23 * 60))  # noqa: DTZ001
def test_a_time_with_offset_is_that_instant(naive: datetime, offset_min: int) -> None:
    aware = naive.replace(tzinfo=timezone(timedelta(minutes=offset_min)))
    assert fields.at_zone(fields.read_time(aware.isoformat()), SHANGHAI) == aware


@given(st.datetimes(datetime(2000, 1, 1), datetime(9000, 1, 1)))  # noqa: DTZ001
def test_a_time_without_offset_is_read_in_the_zone(naive: datetime) -> None:
    for text in (naive.isoformat(), naive.isoformat(sep=" ")):
        assert fields.at_zone(fields.read_time(text), SHANGHAI) == naive.replace(tzinfo=SHANGHAI)


@given(st.integers(946_684_800, 99_999_999_999))
def test_seconds_and_milliseconds_are_the_same_instant(seconds: int) -> None:
    expected = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert fields.read_time(seconds) == expected
    assert fields.read_time(float(seconds)) == expected
    assert fields.read_time(seconds * 1000) == expected
    assert fields.read_query_time(str(seconds)) == expected
    assert fields.read_query_time(str(seconds * 1000)) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2024-01-16T10:30:15+08:00", datetime(2024, 1, 16, 2, 30, 15, tzinfo=UTC)),
        ("2024-01-16T02:30:15Z", datetime(2024, 1, 16, 2, 30, 15, tzinfo=UTC)),
        ("2024-01-16t02:30:15z", datetime(2024, 1, 16, 2, 30, 15, tzinfo=UTC)),
        ("2024-01-16 10:30", datetime(2024, 1, 16, 2, 30, tzinfo=UTC)),
        ("20240116T103015+0800", datetime(2024, 1, 16, 2, 30, 15, tzinfo=UTC)),
        ("2024-01-16", datetime(2024, 1, 15, 16, tzinfo=UTC)),
        ("2024-01-16T10:30:15.123456789+08", datetime(2024, 1, 16, 2, 30, 15, 123456, tzinfo=UTC)),
        ("2000-01-01T00:00:00", datetime(1999, 12, 31, 16, tzinfo=UTC)),
        (1705372215.5, datetime(2024, 1, 16, 2, 30, 15, 500000, tzinfo=UTC)),
        ("9999-12-31T23:59:59-12:00", datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_forms_of_a_time(written: object, expected: datetime) -> None:
    assert fields.at_zone(fields.read_time(written), SHANGHAI) == expected


def test_a_plus_that_a_query_string_lost_is_found_again() -> None:
    assert fields.read_query_time("2024-01-16T10:30:15 08:00") == datetime(2024, 1, 16, 2, 30, 15, tzinfo=UTC)
    with pytest.raises(ValueError, match="must be a time"):
        fields.read_time("2024-01-16T10:30:15 08:00")


NOT_TIMES: list[object] = [
    True,
    None,
    [],
    float("nan"),
    float("inf"),
    float("-inf"),
    1e308,
    10**400,
    -1,
    0,
    946_684_799,
    "",
    "昨天",
    "now",
    "1705372215",
    "2024-13-01",
    "2024-02-30T00:00:00Z",
    "2024-01-16T25:00:00Z",
    "2024-01-16T10:30:15+25:00",
    "1999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+23:59",
    "２０２４-01-16",
    "2024-01-16T10:30:15Z\n",
    "2024-W03-2",
    "\ud83d",
]


@pytest.mark.parametrize("value", NOT_TIMES)
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"must|is not|is too large"):
        fields.read_time(value)


@given(st.one_of(st.text(), st.floats(), st.integers(), st.binary(), st.none(), st.booleans()))
def test_reading_anything_as_a_time_gives_an_instant_or_a_value_error(value: object) -> None:
    for read in (fields.read_time, fields.read_query_time):
        try:
            written = read(value)
        except ValueError:
            continue
        assert fields.at_zone(written, SHANGHAI).utcoffset() == timedelta(0)


@given(st.integers(1, fields.INT64_MAX), st.one_of(st.none(), INT64.filter(bool)))
def test_a_session_key_is_read_back(user_id: int, group_id: int | None) -> None:
    session = Session(user_id, group_id)
    assert fields.read_session_key(session.key) == session


JUNK_KEYS = [
    "*",
    "0",
    "-1",
    "",
    " ",
    "1:",
    ":1",
    "1:0",
    "0:1",
    "1:2:3",
    "01",
    "1 ",
    "1:-2",
    "null",
    "%",
    "१",
    str(2**63),
]


@pytest.mark.parametrize("key", JUNK_KEYS)
def test_junk_is_no_session_key(key: str) -> None:
    with pytest.raises(ValueError, match="must"):
        fields.read_session_key(key)


@pytest.mark.parametrize("name", ["Asia/Shanghai", "UTC", "America/New_York", "Etc/GMT+8"])
def test_zones_by_their_iana_names(name: str) -> None:
    assert fields.read_zone(name).key == name


@pytest.mark.parametrize(
    "name", ["", "Asia", "../etc/passwd", "/etc/localtime", "北京", "Mars/Base", "\0", "\ud83d", 8]
)
def test_what_is_no_zone_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match="must be an IANA time zone"):
        fields.read_zone(name)


CONTENT: TypeAdapter[str] = TypeAdapter(fields.Content)
SENDER: TypeAdapter[str | None] = TypeAdapter(fields.SenderName)


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        ("早\0安", "早安"),
        ("a\ud83d", "a\ufffd"),
        ("\ud83d\ude00", "😀"),
        (" 好 ", " 好 "),
        ("👨‍👩‍👧", "👨‍👩‍👧"),
    ],
)
def test_text_is_cleaned_and_else_kept(given_text: str, kept: str) -> None:
    assert CONTENT.validate_python(given_text) == kept


@pytest.mark.parametrize("text", ["", " ", "\0", "\u200b", "\u3000\n\t", "\ufeff"])
def test_blank_text_is_refused_and_a_blank_name_is_null(text: str) -> None:
    with pytest.raises(ValidationError):
        CONTENT.validate_python(text)
    assert SENDER.validate_python(text) is None


def test_the_longest_texts() -> None:
    assert len(CONTENT.validate_python("字" * 100_000)) == 100_000
    assert SENDER.validate_python("名" * 200) == "名" * 200
    for adapter, text in ((CONTENT, "字" * 100_001), (SENDER, "名" * 201)):
        with pytest.raises(ValidationError, match="at most"):
            adapter.validate_python(text)


MIDNIGHT_2000 = datetime(2000, 1, 1, tzinfo=UTC)
ZONES = st.sampled_from(["UTC", "Asia/Shanghai", "America/New_York", "Pacific/Kiritimati", "Etc/GMT+12"])


@given(
    st.datetimes(datetime(1999, 12, 30), datetime(2000, 1, 2)),  # noqa: DTZ001
    st.one_of(st.none(), st.integers(-14 * 60, 14 * 60)),
    ZONES.map(ZoneInfo),
)
def test_a_time_that_is_stored_is_read_again_from_an_export(
    naive: datetime, offset_min: int | None, zone: ZoneInfo
) -> None:
    offset = None if offset_min is None else timezone(timedelta(minutes=offset_min))
    try:
        instant = fields.at_zone(fields.read_time(naive.replace(tzinfo=offset).isoformat()), zone)
        fields.refuse_before_2000(instant, zone)
    except ValueError:
        assert naive.year < 2000 if offset is None else naive.replace(tzinfo=offset) < MIDNIGHT_2000
        return
    exported = instant.astimezone(zone).isoformat(timespec="microseconds")
    assert fields.at_zone(fields.read_time(exported), zone) == instant
    assert instant.astimezone(zone).year >= 2000 or instant >= MIDNIGHT_2000


@given(st.integers(-8_999_999_999_999_999_999, 8_999_999_999_999_999_999))
def test_the_patterns_of_the_schemas_take_every_id_of_19_digits(number: int) -> None:
    of_id = TypeAdapter(fields.DialogueId).json_schema()["anyOf"][1]["pattern"]
    assert re.search(of_id, str(number))
    if number:
        key = f"{number}:{abs(number)}"
        assert re.search(fields.SESSION_KEY_SCHEMA["pattern"], key)
        assert fields.read_session_key(key).key == key
        assert re.search(TypeAdapter(fields.GroupId).json_schema()["anyOf"][2]["pattern"], str(number))


@given(ZONES.map(ZoneInfo))
def test_a_time_in_another_zones_2000_only_is_refused_where_it_is_stored(zone: ZoneInfo) -> None:
    first = fields.at_zone(fields.read_time("2000-01-01T00:00:00+14:00"), zone)
    if zone.key == "Pacific/Kiritimati":
        fields.refuse_before_2000(first, zone)
    else:
        with pytest.raises(ValueError, match="must not be before 2000"):
            fields.refuse_before_2000(first, zone)
