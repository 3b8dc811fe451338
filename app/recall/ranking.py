"""How relevant each candidate is: two sides on one scale, then what a conversation adds. Pure.

    fused   = 1/2 vector + 1/2 lexical                     each rescaled over the candidates
    own     = fused - question penalty + time boost
    score   = own + smoothing x max(own of the message before, own of the message after)
    relevance = score x decay, brought to [0, 1]

Source of the parts and their weights: docs/retrieval.md, measured on conversations with labelled evidence.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.dialogues.records import Dialogue
from app.recall.lexical import bm25_scores
from app.recall.records import Candidate, Explanation, Mode

VECTOR_WEIGHT = 0.5
SMOOTHING = 0.3
TIME_BOOST = 0.5
QUESTION_PENALTY = 0.1
# Cosines of one model lie close together; a span smaller than this says that nothing stands out.
_SMALLEST_SPAN = 0.04
_QUESTION_ENDINGS = ("?", "？", "吗", "呢", "吗。", "呢。")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its scores.

    Attributes:
        similarity: cosine clamped to [0, 1]; None where the message has no vector to compare.
        lexical: BM25, 0 where no term occurs.
        relevance: in [0, 1], decay included.
    """

    candidate: Candidate
    similarity: float | None
    lexical: float
    decay: float
    relevance: float
    explanation: Explanation

    @property
    def dialogue(self) -> Dialogue:
        return self.candidate.dialogue


def rank(
    candidates: Sequence[Candidate],
    *,
    terms: Mapping[str, float],
    mode: Mode,
    time_range: tuple[datetime, datetime] | None,
    beside: Mapping[int, Collection[int]],
    decay_of: Callable[[Dialogue], float],
    terms_of: Callable[[Dialogue], Mapping[str, int]],
) -> list[Ranked]:
    """The candidates, best first; of two equally relevant ones the newer.

    Args:
        candidates: each once.
        terms: the query's terms and their weights.
        mode: which sides have a say.
        time_range: half open; messages in it are preferred, unless none is in it.
        beside: which candidates (by message id) stand right before and after each in its conversation.
        decay_of: a message's decay, in [0, 1].
        terms_of: a message's terms and how often each occurs.
    """
    if not candidates:
        return []
    lexical = (
        bm25_scores(terms, [terms_of(one.dialogue) for one in candidates])
        if terms
        else [0.0] * len(candidates)
    )
    lexical_side = _rescale_lexical(lexical)
    vector_side = _rescale_similarities([one.similarity for one in candidates])
    boosts = _time_boosts(candidates, time_range)
    penalties = [_question_penalty(one.dialogue.content) for one in candidates]
    own = [
        _fuse(vector, word, mode) - penalty + boost
        for vector, word, penalty, boost in zip(vector_side, lexical_side, penalties, boosts, strict=True)
    ]
    places = {one.dialogue.id: place for place, one in enumerate(candidates)}
    highest = 1 + (TIME_BOOST if any(boosts) else 0)
    highest *= 1 + SMOOTHING
    ranked = []
    for place, one in enumerate(candidates):
        near_own = [own[places[near]] for near in beside.get(one.dialogue.id, ()) if near in places]
        smoothed = SMOOTHING * max(0.0, *near_own, 0.0)
        decay = decay_of(one.dialogue)
        relevance = max(0.0, own[place] + smoothed) / highest * decay
        ranked.append(
            Ranked(
                candidate=one,
                similarity=None if one.similarity is None else min(1.0, max(0.0, one.similarity)),
                lexical=lexical[place],
                decay=decay,
                relevance=min(1.0, relevance),
                explanation=Explanation(
                    vector=vector_side[place] if mode != "keyword" else None,
                    lexical=lexical_side[place] if mode != "vector" else None,
                    neighbour=smoothed,
                    time_boost=boosts[place],
                    question_penalty=penalties[place],
                ),
            )
        )
    ranked.sort(key=lambda one: (one.relevance, one.dialogue.created_at, one.dialogue.id), reverse=True)
    return ranked


def _fuse(vector: float | None, lexical: float, mode: Mode) -> float:
    if mode == "keyword":
        return lexical
    if mode == "vector":
        return vector or 0.0
    # A message without a vector yet is judged by its words alone.
    return lexical if vector is None else VECTOR_WEIGHT * vector + (1 - VECTOR_WEIGHT) * lexical


def _rescale_similarities(similarities: Sequence[float | None]) -> list[float | None]:
    known = [value for value in similarities if value is not None]
    if not known:
        return [None] * len(similarities)
    best = max(known)
    span = max(best - min(known), _SMALLEST_SPAN)
    return [None if value is None else 1 - (best - value) / span for value in similarities]


def _rescale_lexical(scores: Sequence[float]) -> list[float]:
    best = max(scores, default=0.0)
    return [score / best if best > 0 else 0.0 for score in scores]


def _time_boosts(
    candidates: Sequence[Candidate], time_range: tuple[datetime, datetime] | None
) -> list[float]:
    if time_range is None:
        return [0.0] * len(candidates)
    since, until = time_range
    return [TIME_BOOST if since <= one.dialogue.created_at < until else 0.0 for one in candidates]


def _question_penalty(content: str) -> float:
    """Questions resemble the query more than their answers do, and answer nothing."""
    return QUESTION_PENALTY if content.rstrip().endswith(_QUESTION_ENDINGS) else 0.0
