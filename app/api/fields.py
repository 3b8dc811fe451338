"""Field types of the wire: ids, times and text as the HTTP contract's section 1 reads them. Pure.

A pydantic float or int would take `true`, `1e3`, `" 12 "` and `1_000`; a pydantic datetime would take a bare
number as one thing only. So ids and times are read by functions of this module, and pydantic carries them.
A time without offset stays naive until `at_zone` gives it the service's zone: the types know no settings.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    StrictBool,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from app.dialogues.records import Session
from app.dialogues.text import clean_text, is_blank

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
MAX_CONTENT_CHARS: Final = 100_000
MAX_QUERY_CHARS: Final = 8_000
MAX_NAME_CHARS: Final = 200
MAX_TOKENS: Final = 131_072

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_FIRST_YEAR = 2000
_TOO_LATE_FROM_YEAR = 9000
# 1e11 seconds is the year 5138, 1e11 milliseconds is 1973: no time from 2000 on can be mistaken.
_FIRST_MILLISECONDS = 100_000_000_000
_LAST_MILLISECONDS = 253_402_300_800_000

_ID = re.compile(r"-?[0-9]{1,40}")
_NUMBER = re.compile(r"-?[0-9]{9,20}(\.[0-9]{1,9})?")
_ISO = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8})"
    r"(?:[Tt ](?P<time>[0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2}(?:[.,][0-9]{1,9})?)?)?)"
    r"(?P<offset>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_SESSION_KEY = re.compile(r"(?:(?P<group>-?[1-9][0-9]{0,18}):)?(?P<user>[1-9][0-9]{0,18})")
_COUNT = re.compile(r"-?[0-9]{1,9}")
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,64}")
# In a query string an unescaped `+08:00` arrives as ` 08:00`.
_LOST_PLUS = re.compile(r"(:[0-9]{2}(?:[.,][0-9]+)?) ([0-9]{2}:?[0-9]{2})$")

_BEFORE_2000 = "must not be before 2000-01-01"
_NOT_A_TIME = (
    "must be a time: ISO 8601 such as 2024-01-16T10:30:15+08:00, or Unix seconds or milliseconds as a number"
)


def read_int64(value: object) -> int:
    """A JSON integer, or a string of decimal digits, as a 64-bit signed integer.

    Raises:
        ValueError: it is anything else; a boolean is not an integer here.
    """
    if isinstance(value, str) and _ID.fullmatch(value):
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise ValueError("must be an integer, or a string of decimal digits")
    if not INT64_MIN <= number <= INT64_MAX:
        raise ValueError("must fit in 64 bits, signed")
    return number


def read_user_id(value: object) -> int:
    number = read_int64(value)
    if number <= 0:
        raise ValueError("must be greater than 0")
    return number


def read_group_id(value: object) -> int | None:
    """A group's number, or None for a private chat."""
    if value is None:
        return None
    number = read_int64(value)
    if number == 0:
        raise ValueError("must not be 0; leave it out for a private chat")
    return number


def read_message_id(value: object) -> int | None:
    return None if value is None else read_int64(value)


def read_session_key(value: object) -> Session:
    """The session of a key: `123`, or `-100:123` in a group.

    Raises:
        ValueError: it is no key as this service writes them; `*` and the like erase nothing.
    """
    match = _SESSION_KEY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be user_id, or group_id:user_id")
    return Session(read_user_id(match["user"]), read_group_id(match["group"]))


def read_time(value: object) -> datetime:
    """A time of the wire; naive where it came without offset.

    Raises:
        ValueError: it is no time, or before 2000-01-01 both as it is written and in UTC.
    """
    if isinstance(value, str):
        return _from_iso(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _from_number(value)
    raise ValueError(_NOT_A_TIME)


def read_time_before_9000(value: object) -> datetime:
    """Like `read_time`, for a time that is computed with or stored: neither may run out of the calendar."""
    written = read_time(value)
    if written.year >= _TOO_LATE_FROM_YEAR:
        raise ValueError(f"must be before the year {_TOO_LATE_FROM_YEAR}")
    return written


def read_query_time(value: object) -> datetime:
    """Like `read_time`, and a number may come as a string: a query string holds nothing else."""
    if isinstance(value, str):
        if _NUMBER.fullmatch(value):
            return _from_number(float(value) if "." in value else int(value))
        return _from_iso(_LOST_PLUS.sub(r"\1+\2", value))
    return read_time(value)


def _from_iso(text: str) -> datetime:
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(_NOT_A_TIME)
    date, time, offset = match["date"], match["time"] or "00", (match["offset"] or "").upper()
    if "-" not in date:
        date = f"{date[:4]}-{date[4:6]}-{date[6:]}"
    try:
        written = datetime.fromisoformat(f"{date}T{time}{offset}")
    except ValueError:
        raise ValueError("is not a time of the calendar") from None
    if _is_before_2000(written):
        raise ValueError(_BEFORE_2000)
    return written


def _is_before_2000(written: datetime) -> bool:
    if written.tzinfo is None or written.year != _FIRST_YEAR - 1:
        return written.year < _FIRST_YEAR
    return written.astimezone(UTC).year < _FIRST_YEAR


def _from_number(number: float) -> datetime:
    # Written so that NaN fails, too.
    if not 0 <= number < _LAST_MILLISECONDS:
        raise ValueError(_BEFORE_2000 if number < 0 else "is too large to be a time")
    is_milliseconds = number >= _FIRST_MILLISECONDS
    instant = _EPOCH + (timedelta(milliseconds=number) if is_milliseconds else timedelta(seconds=number))
    if instant.year < _FIRST_YEAR:
        raise ValueError(_BEFORE_2000)
    return instant


def at_zone(written: datetime, zone: ZoneInfo) -> datetime:
    """The instant in UTC; a naive time is read in `zone`, what UTC cannot hold becomes its last moment."""
    aware = written if written.tzinfo is not None else written.replace(tzinfo=zone)
    try:
        return aware.astimezone(UTC)
    except OverflowError:
        return _LATEST


def refuse_before_2000(instant: datetime, zone: ZoneInfo) -> None:
    """Refuse an instant that an export, whose times are in `zone`, could not give back to `read_time`.

    Raises:
        ValueError: it is before 2000-01-01 both in the zone and in UTC.
    """
    if instant.year < _FIRST_YEAR and instant.astimezone(zone).year < _FIRST_YEAR:
        raise ValueError(_BEFORE_2000)


def read_zone(value: object) -> ZoneInfo:
    """The zone of an IANA name.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        if isinstance(value, str) and _ZONE.fullmatch(value):
            return ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # A folder of the zone database, such as Asia, is an OSError.
        pass
    raise ValueError("must be an IANA time zone such as Asia/Shanghai")


def _clean(value: object) -> object:
    return clean_text(value) if isinstance(value, str) else value


def _refuse_blank(text: str) -> str:
    if is_blank(text):
        raise ValueError("must not be blank")
    return text


def _blank_is_none(value: object) -> object:
    cleaned = _clean(value)
    return None if isinstance(cleaned, str) and is_blank(cleaned) else cleaned


_POSITIVE = r"([1-9][0-9]{0,17}|[1-8][0-9]{18})"
_DIGITS = f"0*{_POSITIVE}"
_INT64 = {"type": "integer", "format": "int64"}
_USER_ID = {
    "anyOf": [
        _INT64 | {"minimum": 1, "maximum": INT64_MAX},
        {"type": "string", "pattern": f"^{_DIGITS}$"},
    ],
    "description": "A number, or a string of its decimal digits; greater than 0.",
}
_GROUP_ID = {
    "anyOf": [
        _INT64 | {"minimum": INT64_MIN, "maximum": -1},
        _INT64 | {"minimum": 1, "maximum": INT64_MAX},
        {"type": "string", "pattern": f"^-?{_DIGITS}$"},
    ],
    "description": "A number, or a string of its decimal digits; not 0. Absent: a private chat.",
}
_MESSAGE_ID = {
    "anyOf": [
        _INT64 | {"minimum": INT64_MIN, "maximum": INT64_MAX},
        {"type": "string", "pattern": r"^-?([0-9]{1,18}|[1-8][0-9]{18})$"},
    ],
    "description": "A number, or a string of its decimal digits.",
}
_TIME = {
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {"type": "number", "minimum": 946_684_800, "exclusiveMaximum": _LAST_MILLISECONDS},
    ],
    "description": "ISO 8601 (without offset: in the service's zone), or Unix seconds, or Unix milliseconds.",
}
SESSION_KEY_SCHEMA: dict[str, Any] = {
    "pattern": f"^(-?{_POSITIVE}:)?{_POSITIVE}$",
    "description": "`user_id` in private, `group_id:user_id` in a group.",
}
_TIME_BEFORE_9000 = _TIME | {
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {"type": "number", "minimum": 946_684_800, "exclusiveMaximum": 221_845_392_000_000},
    ]
}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return schema | {"anyOf": [*schema["anyOf"], {"type": "null"}]}


UserId = Annotated[int, PlainValidator(read_user_id), WithJsonSchema(_USER_ID)]
GroupId = Annotated[int | None, PlainValidator(read_group_id), WithJsonSchema(_nullable(_GROUP_ID))]
MessageId = Annotated[int | None, PlainValidator(read_message_id), WithJsonSchema(_nullable(_MESSAGE_ID))]
# Parameters of a path or a query string cannot be null.
QueryGroupId = Annotated[int | None, PlainValidator(read_group_id), WithJsonSchema(_GROUP_ID)]
DialogueId = Annotated[int, PlainValidator(read_int64), WithJsonSchema(_MESSAGE_ID)]

Time = Annotated[datetime, PlainValidator(read_time), WithJsonSchema(_TIME)]
TimeBefore9000 = Annotated[datetime, PlainValidator(read_time_before_9000), WithJsonSchema(_TIME_BEFORE_9000)]
QueryTime = Annotated[datetime, PlainValidator(read_query_time), WithJsonSchema(_TIME)]
Zone = Annotated[
    ZoneInfo,
    PlainValidator(read_zone),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^{_ZONE.pattern}$",
            "description": "An IANA time zone such as Asia/Shanghai.",
        }
    ),
]

Content = Annotated[
    str,
    BeforeValidator(_clean),
    AfterValidator(_refuse_blank),
    Field(min_length=1, max_length=MAX_CONTENT_CHARS),
]
Query = Annotated[
    str,
    BeforeValidator(_clean),
    AfterValidator(_refuse_blank),
    Field(min_length=1, max_length=MAX_QUERY_CHARS),
]
ShortText = Annotated[
    str,
    BeforeValidator(_clean),
    AfterValidator(_refuse_blank),
    Field(min_length=1, max_length=MAX_NAME_CHARS),
]
SenderName = Annotated[
    Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None, BeforeValidator(_blank_is_none)
]
Persona = Annotated[
    Annotated[str, Field(max_length=MAX_CONTENT_CHARS)] | None, BeforeValidator(_blank_is_none)
]
MessageUuid = Annotated[
    str,
    BeforeValidator(_clean),
    AfterValidator(_refuse_blank),
    Field(
        min_length=1,
        max_length=200,
        description="Your own name for the message; it makes writing idempotent.",
    ),
]
Flag = StrictBool


class OptionalNotNull:
    """Marks `X | None` for a field that may be left out, but whose schema has no null.

    As `X | SkipJsonSchema[None]` it would be a union, and each fault in it told once for each member.
    """

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        [of_value] = [one for one in handler(schema)["anyOf"] if one != {"type": "null"}]
        return dict(of_value)


def whole(*, ge: int, le: int) -> Any:
    """A JSON integer in a range: `true` and `3.0` are none."""
    return Field(strict=True, ge=ge, le=le)


def _read_count(value: object) -> object:
    # pydantic would take " 5 " and 1_0, too.
    if isinstance(value, str) and not _COUNT.fullmatch(value):
        raise ValueError("must be a whole number")
    return value


Limit = Annotated[int, BeforeValidator(_read_count), Field(ge=1, le=200)]
