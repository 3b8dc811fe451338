"""Search: read the query, ask the database, rank, choose, write lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from asyncpg import DataError
from sqlalchemy.exc import DBAPIError

from app.clients.embedding import CachedEmbedder, Vector
from app.clients.reranker import MOST_DOCUMENTS, Reranker
from app.clock import Clock, monotonic_s
from app.database.engine import Database, ReadSession
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.indexed_text import indexed_text
from app.dialogues.records import Dialogue
from app.dialogues.terms import signature
from app.errors import ProviderError
from app.recall import store
from app.recall.calibration import Calibration
from app.recall.calibration_service import CalibrationService
from app.recall.confidence import BEST_HITS, NO_MATCH_BELOW, confidence, coverage, rarities
from app.recall.decay import decay, resists_decay
from app.recall.lexical import HitFinder, TermHits, is_telling, query_terms
from app.recall.lines import memory_block
from app.recall.neighbourhoods import adjacent, cut_neighbourhoods, windows
from app.recall.ranking import Own, Ranked, Ranker
from app.recall.records import Candidate, Language, Memory, SearchQuery, SearchResult
from app.recall.reranking import rerank
from app.recall.selection import Chosen, select
from app.recall.store import Probe
from app.recall.succession import newer_first
from app.recall.time_words import TimeRange, read_time_range
from app.recall.writing import Frame, LineBook, cut_to_budget, lines_cost, write_line, write_memory
from app.telemetry import Metrics, get_logger

log = get_logger(__name__)

_QUERY_PATIENCE_S = 5.0
_PENDING_PATIENCE_S = 1.5
_PENDING_AT_ONCE = 64
_CANDIDATES = 100
# What a message says is said by then; a pasted book must not hold up everybody's searches.
_SCORED_CHARS = 4_000
# Ranking is arithmetic over what the first look brought; more hits than these never become anchors.
_LOOK_AROUND = 20
_SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class DecayRule:
    """How relevance falls with age; see `app.recall.decay`."""

    grace_days: float
    horizon_days: float
    floor: float


@dataclass(frozen=True, slots=True)
class _Asked:
    """A search on its way: what was asked, and what it was turned into.

    Attributes:
        calibration: of the model of the query's vector; None: there is no vector, or no calibration yet.
    """

    query: SearchQuery
    terms: dict[str, float]
    probe: Probe
    time_range: TimeRange | None
    calibration: Calibration | None

    @property
    def preferred(self) -> tuple[datetime, datetime] | None:
        """The time that the query asks for, half open; None: it names none."""
        return (self.time_range.since, self.time_range.until) if self.time_range else None

    def match(self, one: Candidate) -> float | None:
        """How well the message fits the query; None where that cannot be told."""
        if self.calibration is None or one.similarity is None:
            return None
        return self.calibration.match(self.query.query, one.dialogue.content, one.similarity)


@dataclass(frozen=True, slots=True)
class _Found:
    """What may be an anchor, best first, the messages around each that may, and how sure it is an answer."""

    ranked: list[Ranked]
    windows: dict[int, list[Dialogue]]
    confidence: float


class RecallService:
    """Finds what matters for the next answer, inside one session or group."""

    def __init__(
        self,
        *,
        database: Database,
        embedder: CachedEmbedder,
        pipeline: EmbeddingPipeline,
        calibrations: CalibrationService,
        reranker: Reranker | None,
        model_id: int,
        other_models: bool,
        decay_rule: DecayRule,
        clock: Clock,
        metrics: Metrics,
        note_retrieved: Callable[[Sequence[int]], None],
    ) -> None:
        """Open nothing.

        Args:
            database: where the messages are.
            embedder: makes the query's vector.
            pipeline: makes vectors that are still missing.
            calibrations: tells what the model's cosines mean.
            reranker: has a say in the order of what was found; None: none.
            model_id: the embedder's number in `embedding_models`.
            other_models: whether there are vectors of other models.
            decay_rule: how relevance falls with age.
            clock: tells what has expired, whatever time a query is asked for.
            metrics: where searches are counted.
            note_retrieved: is told the ids of what each search gives back; returns at once.
        """
        self._database = database
        self._embedder = embedder
        self._pipeline = pipeline
        self._calibrations = calibrations
        self._reranker = reranker
        self._model_id = model_id
        self._other_models = other_models
        self._decay_rule = decay_rule
        self._clock = clock
        self._metrics = metrics
        self._note_retrieved = note_retrieved

    async def search(self, namespace: str, query: SearchQuery) -> SearchResult:
        """The messages that matter for the query, in order of time, as lines ready for a prompt.

        A failing embedding model makes the answer `degraded` (by words alone), not an error.
        """
        started = monotonic_s()
        vector, degraded = await self._embed(query)
        asked = await self._prepare(_by_words(query) if degraded else query, vector)
        try:
            found = await self._find(namespace, asked)
        except (DataError, DBAPIError) as error:
            cause = error.orig.__cause__ if isinstance(error, DBAPIError) and error.orig else error
            if vector is None or not isinstance(cause, DataError):
                raise
            # The column holds vectors of another width: somebody has switched the model under us.
            log.warning(
                "vectors have another width: restart with their model, or run temporal-memory reembed"
            )
            degraded = True
            asked = await self._prepare(_by_words(query), None)
            found = await self._find(namespace, asked)
        if self._reranker is not None and query.mode != "keyword" and found.ranked:
            found = await self._rerank(self._reranker, asked, found)
        if query.decay:
            found = replace(found, ranked=newer_first(found.ranked))
        result = self._answer(asked, found, degraded=degraded)
        self._note_retrieved([memory.dialogue.id for memory in result.memories])
        self._metrics.search_duration.observe(monotonic_s() - started)
        return result

    async def last_message_at(
        self, namespace: str, query: SearchQuery, *, before: datetime
    ) -> datetime | None:
        """When the session's last message before that time was said; None where there is none."""
        async with self._database.read() as session:
            return await store.read_last_message_at(session, namespace, query, before=before)

    async def recite(
        self,
        namespace: str,
        dialogue_ids: Sequence[int],
        *,
        now: datetime,
        zone: ZoneInfo,
        language: Language,
    ) -> list[Memory]:
        """These messages as lines, in order of time; those that are gone, or have expired, are left out."""
        async with self._database.read() as session:
            found = await store.read_messages(
                session, namespace, dialogue_ids, visible_at=self._visible_at(now)
            )
        frame = Frame(now, zone, language)
        memories = []
        for dialogue in found:
            chosen = Chosen(dialogue, None, is_anchor=False)
            line = write_line(dialogue, frame)
            memories.append(write_memory(chosen, frame, line=line, match=None, explain=False))
        return memories

    async def _embed(self, query: SearchQuery) -> tuple[Vector | None, bool]:
        """The query's vector (None: no vector side is wanted, or can be had), and whether that failed."""
        if query.mode == "keyword":
            return None, False
        try:
            return await self._embedder.embed_query(query.query, patience_s=_QUERY_PATIENCE_S), False
        except ProviderError as error:
            # The embedder tells of its outage once; here it would be a line a search.
            log.debug("search by words alone", reason=type(error).__name__)
            self._metrics.searches_degraded.inc()
            return None, True

    async def _prepare(self, query: SearchQuery, vector: Vector | None) -> _Asked:
        terms = query_terms(query.query) if query.mode != "vector" else {}
        return _Asked(
            query,
            terms,
            _probe(vector, self._model_id, terms),
            read_time_range(query.query, now=query.now.astimezone(query.zone), zone=query.zone),
            None if vector is None else await self._calibrations.current(),
        )

    async def _find(self, namespace: str, asked: _Asked) -> _Found:
        async with self._database.read() as session:
            found = await self._candidates(session, namespace, asked)
            pending = [one.dialogue.id for one in found if one.dialogue.embedding_status == "pending"]
            if not pending or asked.probe.vector is None:
                return await self._rank(session, namespace, asked, found)
        # Read your writes: what was posted last is embedded first, if that does not take too long.
        newest = sorted(pending, reverse=True)[:_PENDING_AT_ONCE]
        await self._pipeline.embed_now(newest, patience_s=_PENDING_PATIENCE_S)
        async with self._database.read() as session:
            found = await self._candidates(session, namespace, asked)
            return await self._rank(session, namespace, asked, found)

    async def _candidates(self, session: ReadSession, namespace: str, asked: _Asked) -> list[Candidate]:
        query = asked.query
        return await store.find_candidates(
            session,
            namespace,
            query,
            asked.probe,
            limit=_candidate_limit(query),
            preferred=asked.preferred,
            visible_at=self._visible_at(query.now),
        )

    async def _rank(
        self, session: ReadSession, namespace: str, asked: _Asked, found: list[Candidate]
    ) -> _Found:
        query = asked.query
        ranker = Ranker(
            found,
            terms=asked.terms,
            mode=query.mode,
            preferred=asked.preferred,
            hits_of=_hits_of(asked.terms),
            decays_of=partial(self._decays, query),
            may_be=partial(_may_be_anchor, asked),
        )
        # Neighbours only add: whoever can become an anchor is among the best of what may, or beside one.
        hits = ranker.best(max(_LOOK_AROUND, query.top_n))
        radius = query.window_size + 1
        if not hits or self._is_whole_conversation(found, query, asked.probe):
            hoods = cut_neighbourhoods(found, hits=hits, radius=radius)
        else:
            hoods = await store.find_neighbours(
                session,
                namespace,
                query,
                asked.probe,
                known={one.dialogue.id: one for one in found},
                hits=hits,
                radius=radius,
                visible_at=self._visible_at(query.now),
            )
        around = [one for hood in hoods for one in hood.around]
        ranked = ranker.rank(around, beside=adjacent(hoods))
        worth = rarities(asked.terms, ranker.frequencies, documents=len(found))
        return _Found(
            ranked,
            windows(hoods, window_size=query.window_size, without=query.excludes),
            confidence(
                (asked.match(one.own.candidate), coverage(ranker.terms_of(one.dialogue.id), worth))
                for one in ranked[:BEST_HITS]
            ),
        )

    @staticmethod
    async def _rerank(reranker: Reranker, asked: _Asked, found: _Found) -> _Found:
        """The order with the model's say in it; as it was where the model fails."""
        # What becomes an anchor comes with its window.
        shown = [one.dialogue for one in found.ranked if one.dialogue.id in found.windows][:MOST_DOCUMENTS]
        texts = [indexed_text(one.content, one.sender_name) for one in shown]
        try:
            scores = await reranker.score(asked.query.query, texts)
        except ProviderError as error:
            # The reranker tells of its outage once; here it would be a line a search.
            log.debug("search without reranking", reason=type(error).__name__)
            return found
        by_id = {one.id: score for one, score in zip(shown, scores, strict=True)}
        return replace(found, ranked=rerank(found.ranked, by_id))

    def _is_whole_conversation(self, found: Sequence[Candidate], query: SearchQuery, probe: Probe) -> bool:
        """Whether the candidates are all that the session holds: then their neighbours are known, too."""
        vectorless = sum(one.dialogue.embedding_status != "ready" for one in found)
        return (
            probe.vector is not None
            and not self._other_models
            and len(found) - vectorless < _candidate_limit(query)
            and vectorless < store.VECTORLESS_AT_MOST
            and not (query.role or query.kind or query.since or query.until or query.keywords)
        )

    def _visible_at(self, now: datetime) -> datetime:
        """A question asked of the past does not bring back what has expired since."""
        return max(now, self._clock())

    def _decays(self, query: SearchQuery, dialogues: Sequence[Dialogue]) -> list[float]:
        if not query.decay:
            return [1.0] * len(dialogues)
        rule = self._decay_rule
        ages_days = [(query.now - one.created_at).total_seconds() / _SECONDS_A_DAY for one in dialogues]
        return [
            1.0
            if age_days <= rule.grace_days or resists_decay(score=one.score, pinned=one.pinned, kind=one.kind)
            else decay(age_days, grace_days=rule.grace_days, horizon_days=rule.horizon_days, floor=rule.floor)
            for one, age_days in zip(dialogues, ages_days, strict=True)
        ]

    def _answer(self, asked: _Asked, found: _Found, *, degraded: bool) -> SearchResult:
        query = asked.query
        frame = Frame(query.now, query.zone, query.language)
        lines = LineBook(frame)
        selection = select(
            found.ranked,
            top_n=query.top_n,
            windows=found.windows,
            budget_tokens=query.budget_tokens,
            fill_budget=query.fill_budget,
            cost_of=lines.cost,
            cut_to=partial(cut_to_budget, frame=frame),
        )
        memories = [
            write_memory(
                one,
                frame,
                line=lines.line(one.dialogue),
                match=asked.match(one.ranked.own.candidate) if one.ranked else None,
                explain=query.explain,
            )
            for one in selection.chosen
        ]
        texts = [memory.line for memory in memories]
        return SearchResult(
            session=query.session,
            now=query.now,
            memories=memories,
            prompt=memory_block(texts, now=query.now, zone=query.zone, language=query.language),
            token_count=lines_cost(texts),
            truncated=selection.truncated,
            time_range=asked.time_range,
            degraded=degraded,
            confidence=found.confidence,
            no_match=found.confidence < NO_MATCH_BELOW,
        )


def _candidate_limit(query: SearchQuery) -> int:
    """How many each side names: enough for the anchors, beside those that must not come back."""
    return max(_CANDIDATES, query.top_n * 4) + len(query.exclude_ids) + len(query.exclude_said)


def _by_words(query: SearchQuery) -> SearchQuery:
    return replace(query, mode="keyword", min_similarity=None)


def _probe(vector: Vector | None, model_id: int, terms: dict[str, float]) -> Probe:
    telling = [term for term in terms if is_telling(term)]
    return Probe(
        vector=vector,
        model_id=model_id,
        signature=signature(terms) if terms else None,
        telling=signature(telling) if 0 < len(telling) < len(terms) else None,
        term_count=len(terms),
    )


def _may_be_anchor(asked: _Asked, one: Own) -> bool:
    query, candidate = asked.query, one.candidate
    if not candidate.eligible or query.excludes(candidate.dialogue):
        return False
    if query.mode == "keyword":
        return one.bm25 > 0
    if candidate.similarity is None:
        # What has no vector yet cannot be measured; its words speak for it.
        return query.mode == "hybrid" and (query.min_similarity is None or one.bm25 > 0)
    if query.min_similarity is None:
        return True
    match = asked.match(candidate)
    return (candidate.similarity if match is None else match) >= query.min_similarity


def _hits_of(terms: dict[str, float]) -> Callable[[Sequence[Candidate]], TermHits]:
    find = HitFinder(terms).find

    def hits_of(candidates: Sequence[Candidate]) -> TermHits:
        said = (one.dialogue for one in candidates)
        return find([indexed_text(one.content[:_SCORED_CHARS], one.sender_name) for one in said])

    return hits_of
