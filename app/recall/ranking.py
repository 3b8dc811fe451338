"""How relevant each candidate is: two sides on one scale, then what a conversation adds. Pure.

    fused     = 1/2 vector + 1/2 lexical        each rescaled over the candidates
    own       = fused + time boost
    score     = own + smoothing x max(own of the message before, own of the message after)   (hybrid only)
    relevance = score x weight of the kind x decay, brought to [0, 1]

Source of the parts and their weights: docs/retrieval.md, measured on conversations with labelled evidence.
"""

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from operator import add
from types import MappingProxyType
from typing import NamedTuple

from app.dialogues.records import Dialogue, Kind
from app.recall.lexical import Bm25, Numbers, TermHits
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
        rerank: what a reranker scored it; None where none was asked.
    """

    own: Own
    neighbour: float
    relevance: float
    rerank: float | None = None

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
        return Explanation(own.vector, own.lexical, self.neighbour, own.boost, self.rerank)


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
        hits_of: Callable[[Sequence[Candidate]], TermHits],
        decays_of: Callable[[Sequence[Dialogue]], list[float]],
        may_be: Callable[[Own], bool],
    ) -> None:
        """Learn the scale, and measure these candidates.

        Args:
            candidates: each once.
            terms: the query's terms and their weights.
            mode: which sides have a say.
            preferred: a time range, half open; messages in it come first, unless none is in it.
            hits_of: which of the query's terms messages have.
            decays_of: of each message the decay, in [0, 1].
            may_be: which of them count; the others still lend their neighbours what they are worth.
        """
        self._terms = terms
        self._mode = mode
        self._decays_of = decays_of
        self._may_be = may_be
        self._hits_of = hits_of
        self._preferred = preferred
        similarities = [one.similarity for one in candidates if one.similarity is not None]
        self._best = max(similarities, default=0.0)
        self._span = max(self._best - min(similarities, default=0.0), _SMALLEST_SPAN)
        hits = hits_of(candidates)
        self._bm25 = Bm25(terms.values(), hits)
        scores = self._bm25.scores(hits)
        self._highest_bm25 = max(scores, default=0.0)
        boosted = preferred is not None and any(self._is_preferred(one.dialogue) for one in candidates)
        self._boost = TIME_BOOST if boosted else 0.0
        kinds = {one.dialogue.kind for one in candidates}
        heaviest = max((KIND_WEIGHTS.get(kind, 1.0) for kind in kinds), default=1.0)
        smoothed = 1 + SMOOTHING if mode == "hybrid" else 1
        self._highest = (1 + self._boost) * smoothed * heaviest
        self._own: dict[int, Own] = {}
        self._counting: list[Own] = []
        self._counts: dict[int, Numbers] = {}
        self._measure(candidates, hits, scores)

    @property
    def frequencies(self) -> Mapping[str, int]:
        """In how many of the first candidates each of the query's terms occurs."""
        return dict(zip(self._terms, self._bm25.frequencies, strict=True))

    def terms_of(self, dialogue_id: int) -> list[str]:
        """Which of the query's terms a ranked message has."""
        return [term for term, count in zip(self._terms, self._counts[dialogue_id], strict=True) if count]

    def best(self, count: int) -> list[Dialogue]:
        """At most so many of those that count, worth most by themselves; of equal ones the newer."""
        worth = []
        for own in self._counting:
            dialogue = own.candidate.dialogue
            total = own.total * KIND_WEIGHTS.get(dialogue.kind, 1.0) * own.decay
            worth.append((total, dialogue.created_at, dialogue.id, dialogue))
        return [dialogue for _, _, _, dialogue in heapq.nlargest(count, worth)]

    def rank(self, more: Sequence[Candidate], *, beside: Mapping[int, Collection[int]]) -> list[Ranked]:
        """All candidates that count, best first; of two equally relevant ones the newer.

        Args:
            more: candidates beside the first ones; one that is among these already is not taken again.
            beside: which messages (by id) stand right before and after each in its conversation.
        """
        known = self._own
        new = list({one.dialogue.id: one for one in more if one.dialogue.id not in known}.values())
        hits = self._hits_of(new)
        self._measure(new, hits, self._bm25.scores(hits))
        smoothing = SMOOTHING if self._mode == "hybrid" else 0.0
        ranked = []
        for own in self._counting:
            dialogue = own.candidate.dialogue
            smoothed = 0.0
            if dialogue.id in beside:
                smoothed = smoothing * max(
                    [known[other].total for other in beside[dialogue.id] if other in known], default=0.0
                )
            relevance = (
                (own.total + smoothed) * KIND_WEIGHTS.get(dialogue.kind, 1.0) / self._highest * own.decay
            )
            one = Ranked(own, smoothed, min(relevance, 1.0))
            ranked.append((one.relevance, dialogue.created_at, dialogue.id, one))
        ranked.sort(reverse=True)
        return [one for _, _, _, one in ranked]

    def _measure(self, candidates: Sequence[Candidate], hits: TermHits, scores: Sequence[float]) -> None:
        vectors = self._rescale_similarities(candidates)
        lexicals = self._rescale_scores(scores)
        boosts = [0.0] * len(candidates)
        if self._boost:
            boosts = [self._boost if self._is_preferred(one.dialogue) else 0.0 for one in candidates]
        totals = [
            # One side has no say; a message without a vector yet is judged by its words alone.
            (lexical or 0.0 if vector is None else vector)
            if vector is None or lexical is None
            else VECTOR_WEIGHT * vector + (1 - VECTOR_WEIGHT) * lexical
            for vector, lexical in zip(vectors, lexicals, strict=True)
        ]
        totals = list(map(add, totals, boosts))
        decays = self._decays_of([one.dialogue for one in candidates])
        measured = zip(candidates, vectors, scores, lexicals, boosts, totals, decays, strict=True)
        owns = list(map(Own._make, measured))
        ids = [one.dialogue.id for one in candidates]
        self._own.update(zip(ids, owns, strict=True))
        self._counts.update(zip(ids, hits.counts, strict=True))
        self._counting += filter(self._may_be, owns)

    def _rescale_similarities(self, candidates: Sequence[Candidate]) -> list[float | None]:
        if self._mode == "keyword":
            return [None] * len(candidates)
        best, span = self._best, self._span
        return [
            None if one.similarity is None else max(0.0, 1 - (best - one.similarity) / span)
            for one in candidates
        ]

    def _rescale_scores(self, scores: Sequence[float]) -> list[float | None]:
        if self._mode == "vector":
            return [None] * len(scores)
        if self._highest_bm25 <= 0:
            return [0.0] * len(scores)
        return [min(1.0, score / self._highest_bm25) for score in scores]

    def _is_preferred(self, dialogue: Dialogue) -> bool:
        if self._preferred is None:
            return False
        since, until = self._preferred
        return since <= dialogue.created_at < until
