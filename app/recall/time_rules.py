"""Tables of patterns and what they mean, run over a text in one pass. Pure."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.recall.time_meanings import Meaning

Handler = Callable[[re.Match[str]], Sequence[Meaning]]
"""Meanings of a match; empty: a false friend, to be stepped over."""

# A question has a few. A long text of nothing else shall not cost more than a long text.
_MOST_WORDS: Final = 64


@dataclass(frozen=True, slots=True)
class TimeWord:
    """A piece of text that means something about time."""

    start: int
    end: int
    meanings: tuple[Meaning, ...]


class RuleTable:
    """Patterns tried in their order at each place of a text; every repetition in them is bounded."""

    def __init__(self, rules: Sequence[tuple[str, Handler]], *, starts_with: str, flags: int = 0) -> None:
        """Compile the table.

        Args:
            rules: patterns with groups numbered from 1 each, and their handlers.
            starts_with: pattern that must hold where any rule matches; a cheap way to step over most places.
            flags: of `re`.
        """
        self._rules: Final = [(re.compile(pattern, flags), handler) for pattern, handler in rules]
        alternatives = "|".join(f"(?P<rule_{number}>{pattern})" for number, (pattern, _) in enumerate(rules))
        self._all: Final = re.compile(f"{starts_with}(?:{alternatives})", flags)

    def words(self, text: str) -> list[TimeWord]:
        """Time words of a text, in order, not overlapping; of a text that is full of them, the first 64."""
        found: list[TimeWord] = []
        for match in self._all.finditer(text):
            # The rule's own group closes last. It is matched again alone, so that its groups count from 1.
            pattern, handler = self._rules[int((match.lastgroup or "").removeprefix("rule_"))]
            own = pattern.match(text, match.start())
            meanings = handler(own) if own is not None else ()
            if meanings:
                found.append(TimeWord(match.start(), match.end(), tuple(meanings)))
                if len(found) == _MOST_WORDS:
                    break
        return found
