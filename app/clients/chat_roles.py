"""What some chat templates do not take: one role twice in a row, a start by the assistant, `system`.

Mistral's and Gemma's refuse such prompts (vLLM, llama.cpp, LM Studio pass the complaint on); all others read
them as they are. So a prompt takes another shape only after a model has asked for it. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

Rule = Literal["alternate", "no_system"]

_COMPLAINTS: Final[Mapping[Rule, re.Pattern[str]]] = {
    "alternate": re.compile(
        r"(?i)roles? (?:must|should|need to) (?:strictly )?alternate|alternat\w+ (?:between )?user|"
        r"after the optional system message|(?:first|initial) message (?:must|should) be.{0,20}\buser\b"
    ),
    "no_system": re.compile(
        r"(?i)system (?:role|messages?|prompts?)\b.{0,20}\b(?:not supported|unsupported|not allowed)|"
        r"not support.{0,20}\bsystem (?:role|messages?|prompts?)|"
        r"only user(?:,| and) assistant\b.{0,20}\broles"
    ),
}
_BREAK: Final = "\n\n"
# Stands for what was said before the assistant's first words, and is left out of what is sent.
_BEFORE: Final = "…"


def rules_of(complaint: str) -> frozenset[Rule]:
    """What a provider's error message says about roles; empty where it is about something else."""
    return frozenset(rule for rule, pattern in _COMPLAINTS.items() if pattern.search(complaint))


def reshape(messages: Sequence[Mapping[str, str]], rules: frozenset[Rule]) -> list[dict[str, str]]:
    """The same prompt in a shape that keeps these rules; the same again if it keeps them already.

    Args:
        messages: `{"role", "content"}` each; `system` only at the beginning.
        rules: `no_system` puts the system text before the first user's message; `alternate` joins neighbours
            of one role, with an empty line between them, and lets a user begin.
    """
    shaped = [dict(message) for message in messages]
    if "no_system" in rules:
        for message in shaped:
            if message["role"] == "system":
                message["role"] = "user"
        rules |= {"alternate"}
    if "alternate" not in rules:
        return shaped
    joined: list[dict[str, str]] = []
    for message in shaped:
        before = joined[-1]["role"] if joined else "system"
        if before == message["role"] and joined:
            joined[-1]["content"] += _BREAK + message["content"]
            continue
        if before == "system" and message["role"] == "assistant":
            joined.append({"role": "user", "content": _BEFORE})
        joined.append(message)
    return joined
