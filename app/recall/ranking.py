"""How relevant each candidate is: two sides on one scale, then what a conversation adds. Pure.

    fused     = 1/2 vector + 1/2 lexical        each rescaled over the candidates
    own       = fused + time boost
    score     = own + smoothing x max(own of the message before, own of the message after)   (hybrid only)
    relevance = score x weight of the kind x decay, brought to [0, 1]

Source of the parts and their weights: docs/retrieval.md, measured on conversations with labelled evidence.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from app.dialogues.records import Dialogue, Kind
from app.recall.lexical import Bm25, TermHits
from app.recall.records import Candidate, Explanation, Mode

VECTOR_WEIGHT = 0.5
SMOOTHING = 0.3
TIME_BOOST = 0.5
KIND_WEIGHTS: Mapping[Kind, float] = MappingProxyType({"preference": 1.05, "decision": 1.05})
# Cosines of one model lie close together; a span smaller than this says that nothing stands out.
_SMALLEST_SPAN = 0.04


class Own(NamedTuple):
    """What a message is worth by itself; `vector` and `lexical` are on one scale, `bm25` is not."""

    candidate: Candidate
    vector: float | None
    bm25: float
    lexical: float | None
    boost: float
    total: float
    decay: float

    @property
    def similarity(self) -> float | None:
        """Cosine clamped to [0, 1]; None where the message has no vector to compare."""
        similarity = self.candidate.similarity
        return None if similarity is None else min(1.0, max(0.0, similarity))


class Ranked(NamedTuple):
    """A candidate with its scores.

    Attributes:
        neighbour: what the better of the messages right before and after it adds.
        relevance: in [0, 1], decay included.
    """

    own: Own
    neighbour: float
    relevance: float

    @property
    def dialogue(self) -> Dialogue:
        return self.own.candidate.dialogue

    @property
    def similarity(self) -> float | None:
        """Cosine clamped to [0, 1]; None where the message has no vector to compare."""
        return self.own.similarity

    def explain(self) -> Explanation:
        """How the relevance came about."""
        own = self.own
        return Explanation(own.vector, own.lexical, self.neighbour, own.boost)


class Ranker:
    """Ranks messages on the scale of a first set of candidates.

    The scale (the span of similarities, how rare terms are, whether anything is in the preferred time) is
    learnt once; neighbours that are looked up later are measured by it.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        terms: Mapping[str, float],
        mode: Mode,
        preferred: tuple[datetime, datetime] | None,
        hits_of: Callable[[Dialogue], TermHits],
        decay_of: Callable[[Dialogue], float],
    ) -> None:
        """Learn the scale, and measure these candidates.

        Args:
            candidates: each once.
            terms: the query's terms and their weights.
            mode: which sides have a say.
            preferred: a time range, half open; messages in it come first, unless none is in it.
            hits_of: which of the query's terms a message has.
            decay_of: a message's decay, in [0, 1].
        """
        self._mode = mode
        self._decay_of = decay_of
        self._hits_of = hits_of
        self._preferred = preferred
        similarities = [one.similarity for one in candidates if one.similarity is not None]
        self._best = max(similarities, default=0.0)
        self._span = max(self._best - min(similarities, default=0.0), _SMALLEST_SPAN)
        hits = [hits_of(one.dialogue) for one in candidates]
        self._bm25 = Bm25(terms, hits)
        scores = [self._bm25.score(one) for one in hits]
        self._highest_bm25 = max(scores, default=0.0)
        boosted = any(self._is_preferred(one.dialogue) for one in candidates)
        self._boost = TIME_BOOST if boosted else 0.0
        heaviest = max((_weight(one.dialogue) for one in candidates), default=1.0)
        smoothed = 1 + SMOOTHING if mode == "hybrid" else 1
        self._highest = (1 + self._boost) * smoothed * heaviest
        self._own = {
            one.dialogue.id: self._measure(one, score) for one, score in zip(candidates, scores, strict=True)
        }

    @property
    def frequencies(self) -> Mapping[str, int]:
        """In how many of the first candidates each of the query's terms occurs."""
        return self._bm25.frequencies

    def best(self, count: int, *, may_be: Callable[[Own], bool]) -> list[Dialogue]:
        """The candidates that are worth most by themselves, of equal ones the newer.

        Args:
            count: how many at most.
            may_be: which of them count.
        """
        fit = [own for own in self._own.values() if may_be(own)]
        fit.sort(key=_own_order, reverse=True)
        return [own.candidate.dialogue for own in fit[:count]]

    def rank(
        self,
        more: Sequence[Candidate],
        *,
        beside: Mapping[int, Collection[int]],
        may_be: Callable[[Own], bool],
    ) -> list[Ranked]:
        """All candidates that count, best first; of two equally relevant ones the newer.

        Args:
            more: candidates beside the first ones; one that is among these already is not taken again.
            beside: which messages (by id) stand right before and after each in its conversation.
            may_be: which of them count; the others still lend their neighbours what they are worth.
        """
        for one in more:
            if one.dialogue.id not in self._own:
                score = self._bm25.score(self._hits_of(one.dialogue))
                self._own[one.dialogue.id] = self._measure(one, score)
        ranked = [self._finish(own, beside.get(key, ())) for key, own in self._own.items() if may_be(own)]
        ranked.sort(key=_ranked_order, reverse=True)
        return ranked

    def _finish(self, own: Own, beside: Collection[int]) -> Ranked:
        near = 0.0
        if self._mode == "hybrid":
            near = max((self._own[other].total for other in beside if other in self._own), default=0.0)
        smoothed = SMOOTHING * near
        score = (own.total + smoothed) * _weight(own.candidate.dialogue)
        return Ranked(own, smoothed, min(1.0, score / self._highest * own.decay))

    def _measure(self, one: Candidate, bm25: float) -> Own:
        vector = None
        if self._mode != "keyword" and one.similarity is not None:
            vector = max(0.0, 1 - (self._best - one.similarity) / self._span)
        lexical = None
        if self._mode != "vector":
            lexical = min(1.0, bm25 / self._highest_bm25) if self._highest_bm25 > 0 else 0.0
        boost = self._boost if self._is_preferred(one.dialogue) else 0.0
        total = self._fuse(vector, lexical) + boost
        return Own(one, vector, bm25, lexical, boost, total, self._decay_of(one.dialogue))

    @staticmethod
    def _fuse(vector: float | None, lexical: float | None) -> float:
        if vector is None or lexical is None:
            # One side has no say; a message without a vector yet is judged by its words alone.
            return (lexical or 0.0) if vector is None else vector
        return VECTOR_WEIGHT * vector + (1 - VECTOR_WEIGHT) * lexical

    def _is_preferred(self, dialogue: Dialogue) -> bool:
        if self._preferred is None:
            return False
        since, until = self._preferred
        return since <= dialogue.created_at < until


def _own_order(own: Own) -> tuple[float, datetime, int]:
    dialogue = own.candidate.dialogue
    return own.total * _weight(dialogue) * own.decay, dialogue.created_at, dialogue.id


def _ranked_order(one: Ranked) -> tuple[float, datetime, int]:
    dialogue = one.own.candidate.dialogue
    return one.relevance, dialogue.created_at, dialogue.id


def _weight(dialogue: Dialogue) -> float:
    return KIND_WEIGHTS.get(dialogue.kind, 1.0)
