"""Writes what was chosen as memories: times, lines, and a text that is too long cut to what fits. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from app.dialogues.records import Dialogue
from app.dialogues.tokens import count_tokens, cut_to_tokens
from app.recall.lines import memory_line
from app.recall.records import Language, Memory
from app.recall.relative_time import absolute_time, relative_time
from app.recall.selection import Chosen


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
    return count_tokens(line + "\n")


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
