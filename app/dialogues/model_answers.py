"""What a chat model wraps its answer in when it is asked for one plain thing. Pure."""

import re
from typing import Final

_OPENING: Final = re.compile(r"(?i)<think(?:ing)?>")
_CLOSING: Final = re.compile(r"(?i)</think(?:ing)?>")
_FENCE: Final = re.compile(r"(`{3,}|~{3,})[^\n`~]*\Z")


def strip_thinking(answer: str) -> str:
    """Returns the answer without its think blocks.

    A block that is not closed goes to the end. One that is not opened (chat templates of reasoning models
    open it in the prompt) begins with the answer.
    """
    kept: list[str] = []
    rest = answer
    while opening := _OPENING.search(rest):
        kept.append(rest[: opening.start()])
        closing = _CLOSING.search(rest, opening.end())
        rest = rest[closing.end() :] if closing else ""
    return _CLOSING.split("".join(kept) + rest)[-1].strip()


def strip_fence(answer: str) -> str:
    """Returns what stands in the code fence if the answer is nothing but one, else the answer."""
    first, *lines = answer.strip().split("\n")
    fence = _FENCE.match(first.rstrip())
    if fence and lines and lines[-1].strip() == fence.group(1):
        return "\n".join(lines[:-1]).strip()
    return answer.strip()
