"""Whether what was found is likely to hold an answer at all. Pure.

    evidence   = (match + coverage) / 2         of one message; one side alone where the other is missing
    confidence = evidence of the best of the first hits, with the evidence that questions with an answer reach
                 in 19 of 20 cases put at 1/2

Source of the weights and places: benchmarks/no_match.py; docs/retrieval.md has the figures.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

BEST_HITS: Final = 3
NO_MATCH_BELOW: Final = 0.5
# Evidence of both sides, of the match alone, of the words alone.
_OF_BOTH: Final = 0.36
_OF_MATCH: Final = 0.56
_OF_WORDS: Final = 0.17
# In a session of two messages every word would be common: rarity is judged as in one of so many.
_FEWEST_DOCUMENTS: Final = 100


def rarities(
    terms: Mapping[str, float], frequencies: Mapping[str, int], *, documents: int
) -> dict[str, float]:
    """What each of a query's terms is worth: its weight times how rare it is among the candidates.

    Source: the idf of `app.recall.lexical.Bm25`.

    Args:
        terms: term to weight.
        frequencies: in how many candidates a term occurs; what is not there occurs in none.
        documents: how many candidates there are.
    """
    total = max(_FEWEST_DOCUMENTS, documents)
    return {
        term: weight * math.log1p((total - frequencies.get(term, 0) + 0.5) / (frequencies.get(term, 0) + 0.5))
        for term, weight in terms.items()
    }


def coverage(found: Iterable[str], worth: Mapping[str, float]) -> float | None:
    """Which share of what a query's terms are worth a message has, 0 to 1; None where it has no terms."""
    whole = sum(worth.values())
    return sum(worth[term] for term in found) / whole if whole > 0 else None


def confidence(hits: Iterable[tuple[float | None, float | None]]) -> float:
    """How sure it is that one of the messages answers, 0 to 1; 0 for none. Below 1/2 it hardly does.

    Args:
        hits: the match and the coverage of each, None where that side has no say.
    """
    return max((_confidence(match, covered) for match, covered in hits), default=0.0)


def _confidence(match: float | None, covered: float | None) -> float:
    if match is None:
        return _centred(covered or 0.0, _OF_WORDS)
    if covered is None:
        return _centred(match, _OF_MATCH)
    return _centred((match + covered) / 2, _OF_BOTH)


def _centred(evidence: float, middle: float) -> float:
    """Evidence in [0, 1] with `middle` brought to 1/2."""
    if evidence < middle:
        return 0.5 * evidence / middle
    return 0.5 + 0.5 * (evidence - middle) / (1 - middle)
