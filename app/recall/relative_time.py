"""How long ago, in words, and when exactly."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from app.recall.records import Language

# Seconds of a unit, the largest first; months and years are counted as 30 and 365 days, so that the
# wording depends on the elapsed time alone and never jumps with the calendar.
_UNITS: tuple[tuple[int, str, str], ...] = (
    (365 * 86_400, "年前", "year"),
    (30 * 86_400, "个月前", "month"),
    (86_400, "天前", "day"),
    (3_600, "小时前", "hour"),
    (60, "分钟前", "minute"),
)
_JUST_NOW: dict[Language, str] = {"zh": "刚刚", "en": "just now"}


def relative_time(then: datetime, now: datetime, *, language: Language) -> str:
    """Say how long before `now` something happened, rounded down to one unit.

    Under a minute, and in the future, it is 刚刚 or `just now`: clocks of two machines differ a little.

    Args:
        then: aware.
        now: aware.
        language: of the words.
    """
    elapsed_s = (now.astimezone(UTC) - then.astimezone(UTC)).total_seconds()
    for unit_s, chinese, english in _UNITS:
        count = int(elapsed_s // unit_s)
        if count >= 1:
            if language == "zh":
                return f"{count}{chinese}"
            return f"{count} {english}{'s' if count > 1 else ''} ago"
    return _JUST_NOW[language]


def absolute_time(then: datetime, zone: ZoneInfo) -> str:
    """Write an instant as `YYYY-MM-DD HH:MM:SS` on the clock of `zone`.

    Args:
        then: aware.
        zone: of the reader.
    """
    # Not strftime: its %Y does not pad years below 1000 on every platform.
    return then.astimezone(zone).replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
