"""Memories as lines of text, each with its time and its speaker, and the block that they make. Pure.

What was said is quoted so that it cannot leave its place: only lines of ours start in column 0. A line break
inside a message (of any kind that Unicode knows) is followed by an indent, so a message can imitate neither
another memory nor a fence such as `--- 相关记忆 ---`; a name holds none of the signs that end it; and `<|`,
which opens the control tokens of chat models (`<|im_end|>`), is broken up.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from app.dialogues.records import Role
from app.recall.records import Language
from app.recall.relative_time import absolute_time, relative_time

_INDENT: Final = "  "
_NAME_SIGNS: Final = str.maketrans("()[]:", "（）［］：")
_WEEKDAYS: Final[dict[Language, tuple[str, ...]]] = {
    "zh": ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"),
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}
_PRESENT: Final[dict[Language, str]] = {"zh": "当前时间：", "en": "Current time: "}
_MEMORIES: Final[dict[Language, str]] = {"zh": "--- 相关记忆 ---", "en": "--- Relevant memories ---"}
_NO_MEMORIES: Final[dict[Language, str]] = {"zh": "（没有相关记忆）", "en": "(no relevant memories)"}


def memory_line(
    *,
    created_at: datetime,
    now: datetime,
    zone: ZoneInfo,
    language: Language,
    role: Role,
    sender_name: str | None,
    content: str,
) -> str:
    """Returns `[YYYY-MM-DD HH:MM:SS] (relative) role(sender_name): content`, further lines indented."""
    name = _quote_name(sender_name or "")
    speaker = f"{role}({name})" if name else role
    when = f"[{absolute_time(created_at, zone)}] ({relative_time(created_at, now, language=language)})"
    return f"{when} {speaker}: {quote(content)}"


def quote(text: str) -> str:
    """Returns recalled text with all lines but its first indented, and without control tokens."""
    return f"\n{_INDENT}".join(text.replace("<|", "< |").strip().splitlines())


def _quote_name(name: str) -> str:
    return " ".join(name.replace("<|", "< |").translate(_NAME_SIGNS).split())


def present_line(now: datetime, *, zone: ZoneInfo, language: Language) -> str:
    """Returns `当前时间：2024-01-16 16:00:00 (星期二, Asia/Shanghai, UTC+08:00)`, or the same in English."""
    local = now.astimezone(zone)
    weekday = _WEEKDAYS[language][local.weekday()]
    offset = local.isoformat(timespec="seconds")[19:]
    return f"{_PRESENT[language]}{absolute_time(now, zone)} ({weekday}, {zone.key}, UTC{offset})"


def memory_section(lines: Sequence[str], *, language: Language) -> str:
    """Returns the lines under their heading, or the heading and that there are none."""
    return "\n".join((_MEMORIES[language], *(lines or (_NO_MEMORIES[language],))))


def memory_block(lines: Sequence[str], *, now: datetime, zone: ZoneInfo, language: Language) -> str:
    """Returns the current time and the lines under their heading, ready to stand in a prompt."""
    return f"{present_line(now, zone=zone, language=language)}\n\n{memory_section(lines, language=language)}"
