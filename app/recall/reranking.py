"""What the scores of a reranker change about the order of what was found. Pure.

    relevance = 1/2 relevance + 1/2 score x decay

Half and half: the model reads a message alone, and knows nothing of what was said around it and when. A
message that it was not shown counts as one that it found irrelevant.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from app.recall.ranking import Ranked

SCORE_WEIGHT: Final = 0.5


def rerank(ranked: Sequence[Ranked], scores: Mapping[int, float]) -> list[Ranked]:
    """The same messages, best first; of two equally relevant ones the newer.

    Args:
        ranked: in any order.
        scores: 0 to 1, by id, of those that the model was shown.
    """
    scored = [_blend(one, scores.get(one.dialogue.id, 0.0)) for one in ranked]
    return sorted(
        scored, key=lambda one: (one.relevance, one.dialogue.created_at, one.dialogue.id), reverse=True
    )


def _blend(one: Ranked, score: float) -> Ranked:
    relevance = (1 - SCORE_WEIGHT) * one.relevance + SCORE_WEIGHT * score * one.own.decay
    return one._replace(relevance=min(1.0, relevance), rerank=score)
