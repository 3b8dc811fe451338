"""Of two messages that say about the same, the newer first. Pure.

Decay alone would have to be strong to bring "the port is 9090" before the older "the port is 8080" that
happens to fit a little better; so strong that it takes other old messages their place (docs/retrieval.md).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from app.dialogues.records import Dialogue
from app.dialogues.utterances import fold, is_question
from app.recall.ranking import KIND_WEIGHTS, Ranked

# Of messages further down nobody reads the order.
_AMONG_FIRST: Final = 10
_LEAST_SHARE_OF_RELEVANCE: Final = 0.9
_LEAST_LIKENESS: Final = 0.65
# A statement and what replaces it are short.
_COMPARED_CHARS: Final = 400


def newer_first(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The same messages, in which a newer one has changed places with an older one that it is like.

    They are alike where the same person says it, in about the same words, and where they are about equally
    relevant. Each takes the other's relevance, so that the order stays that of relevance.

    Args:
        ranked: best first.
    """
    order = list(ranked)
    pairs: dict[int, frozenset[str]] = {}

    def signs(one: Ranked) -> frozenset[str]:
        if one.dialogue.id not in pairs:
            pairs[one.dialogue.id] = _pairs_of_signs(one.dialogue.content)
        return pairs[one.dialogue.id]

    for place in range(min(_AMONG_FIRST, len(order))):
        for later in range(place + 1, min(_AMONG_FIRST, len(order))):
            better, other = order[place], order[later]
            if other.relevance < better.relevance * _LEAST_SHARE_OF_RELEVANCE:
                break
            if _may_succeed(better.dialogue, other.dialogue) and (
                likeness(signs(better), signs(other)) >= _LEAST_LIKENESS
                and _says_as_much(better.dialogue, other.dialogue)
            ):
                order[place] = other._replace(relevance=better.relevance)
                order[later] = better._replace(relevance=other.relevance)
    return order


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of what two texts are made of that both have, 0 to 1.

    Source: Dice 1945, on pairs of signs.
    """
    return 2 * len(one & other) / max(1, len(one) + len(other))


def _may_succeed(older: Dialogue, newer: Dialogue) -> bool:
    return (
        older.created_at < newer.created_at
        and older.role == newer.role
        and older.session == newer.session
        and KIND_WEIGHTS.get(newer.kind, 1.0) >= KIND_WEIGHTS.get(older.kind, 1.0)
        and not older.pinned
    )


def _says_as_much(older: Dialogue, newer: Dialogue) -> bool:
    """Whoever asks whether the port is 9090 does not say that it is."""
    return _asks(older) or not _asks(newer)


def _asks(message: Dialogue) -> bool:
    folded = fold(message.content[:_COMPARED_CHARS])
    return "?" in folded or is_question(folded)


def _pairs_of_signs(text: str) -> frozenset[str]:
    """Letters and digits only, two by two; case does not count."""
    plain = "".join(filter(str.isalnum, text[:_COMPARED_CHARS].casefold()))
    return frozenset(map("".join, pairwise(plain))) or frozenset({plain})
