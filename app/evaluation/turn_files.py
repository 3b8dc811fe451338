"""Turns in files: pairs of `user` and `assistant`, or messages of an export, paired again. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from app.dialogues.text import clean_text, is_blank
from app.dialogues.transfer import Entry
from app.evaluation.evaluator_prompt import Turn


@dataclass(frozen=True, slots=True)
class FiledTurn:
    """A turn of a file, or why an entry is none.

    Attributes:
        place: where it ends: `line 3`, or `item 3`.
        turn: None where there is a fault.
    """

    place: str
    turn: Turn | None
    fault: str | None = None


def read_turns(entries: Iterable[Entry]) -> Iterator[FiledTurn]:
    """Pair what a file holds; what the user said since the last reply of a session belongs to the next one.

    A message without a reply after it is no turn, and neither is a reply that nothing was said before.
    """
    waiting: dict[tuple[Any, Any], list[str]] = {}
    for entry in entries:
        if entry.fault is not None:
            yield FiledTurn(entry.place, None, entry.fault)
            continue
        value = entry.value
        if not isinstance(value, dict):
            yield FiledTurn(entry.place, None, "is not a JSON object")
            continue
        texts = [value[name] for name in ("user", "assistant", "content") if name in value]
        if not texts or any(not isinstance(text, str) or is_blank(text) for text in texts):
            yield FiledTurn(entry.place, None, "holds no text")
        elif {"user", "assistant"} <= value.keys():
            yield FiledTurn(entry.place, Turn(clean_text(value["user"]), clean_text(value["assistant"])))
        elif value.get("role") not in {"user", "assistant"} or "content" not in value:
            yield FiledTurn(entry.place, None, "has neither user and assistant, nor role and content")
        else:
            session = (value.get("user_id"), value.get("group_id"))
            content = clean_text(value["content"])
            if value["role"] == "user":
                waiting.setdefault(session, []).append(content)
            elif said := waiting.pop(session, []):
                yield FiledTurn(entry.place, Turn("\n".join(said), content))
