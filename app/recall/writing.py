"""Writes what was chosen as memories: times, lines, and a text that is too long cut to what fits. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from app.dialogues.records import Dialogue
from app.dialogues.tokens import count_tokens, cut_to_tokens
from app.recall.lines import memory_line
from app.recall.records import Language, Memory
from app.recall.relative_time import absolute_time, relative_time
from app.recall.selection import Chosen

_TIME_SIGNS: Final = len("[2024-01-16 10:30:15]")
# Characters; what many searches bring back is short, and a cache of books would be large.
_LONGEST_REMEMBERED: Final = 500


@dataclass(frozen=True, slots=True)
class Frame:
    """How times are told: from when, where, and in which language."""

    now: datetime
    zone: ZoneInfo
    language: Language


def write_line(dialogue: Dialogue, frame: Frame) -> str:
    """The message's line, as a prompt holds it."""
    return memory_line(
        created_at=dialogue.created_at,
        now=frame.now,
        zone=frame.zone,
        language=frame.language,
        role=dialogue.role,
        sender_name=dialogue.sender_name,
        content=dialogue.content,
    )


def line_cost(line: str) -> int:
    """The tokens that a line takes, its line break included."""
    return _count(line, "\n")


def lines_cost(lines: Sequence[str]) -> int:
    """The tokens of the lines together, with a line break between them."""
    return sum(line_cost(line) for line in lines[:-1]) + sum(_count(line, "") for line in lines[-1:])


def _count(line: str, end: str) -> int:
    # The tokenizer always splits before the blank after a colon, before the bracket that opens a line, and at
    # every digit: what a line begins with is counted once for all times, its text once for all searches.
    head, _, said = line.partition(": ")
    if len(said) > _LONGEST_REMEMBERED:
        return _head_tokens(head[_TIME_SIGNS:]) + count_tokens(f" {said}{end}")
    return _head_tokens(head[_TIME_SIGNS:]) + _said_tokens(f" {said}{end}")


@lru_cache(maxsize=1 << 10)
def _head_tokens(rest: str) -> int:
    return count_tokens(f"[0000-00-00 00:00:00]{rest}:")


@lru_cache(maxsize=1 << 12)
def _said_tokens(text: str) -> int:
    return count_tokens(text)


class LineBook:
    """Writes each message's line once, and counts those whose cost is asked for once."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        # A message that was cut to what fits has another text than the whole one.
        self._lines: dict[tuple[int, str], str] = {}
        self._costs: dict[tuple[int, str], int] = {}

    def line(self, dialogue: Dialogue) -> str:
        """The message's line."""
        key = (dialogue.id, dialogue.content)
        if key not in self._lines:
            self._lines[key] = write_line(dialogue, self._frame)
        return self._lines[key]

    def cost(self, dialogue: Dialogue) -> int:
        """The tokens of the message's line."""
        key = (dialogue.id, dialogue.content)
        if key not in self._costs:
            self._costs[key] = line_cost(self.line(dialogue))
        return self._costs[key]


def cut_to_budget(dialogue: Dialogue, budget_tokens: int, *, frame: Frame) -> Dialogue | None:
    """The message with as much of its text as its line may hold; None where not even a word fits."""
    room = budget_tokens - line_cost(write_line(replace(dialogue, content=""), frame))
    while room > 0:
        cut = replace(dialogue, content=cut_to_tokens(dialogue.content, room))
        # Line breaks inside the text are indented in the line, which costs a token each.
        excess = line_cost(write_line(cut, frame)) - budget_tokens
        if excess <= 0:
            return cut if cut.content else None
        room -= excess
    return None


def write_memory(chosen: Chosen, frame: Frame, *, line: str, match: float | None, explain: bool) -> Memory:
    """What is given back of a chosen message."""
    dialogue, ranked = chosen.dialogue, chosen.ranked
    return Memory(
        dialogue=dialogue,
        absolute_time=absolute_time(dialogue.created_at, frame.zone),
        relative_time=relative_time(dialogue.created_at, frame.now, language=frame.language),
        line=line,
        is_anchor=chosen.is_anchor,
        similarity=ranked.similarity if ranked else None,
        match=match,
        decay=ranked.own.decay if ranked else None,
        relevance=ranked.relevance if ranked else None,
        explanation=ranked.explain() if ranked and explain else None,
    )
