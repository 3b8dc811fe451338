"""Search: read the query, ask the database, rank, choose, write lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from asyncpg import DataError
from sqlalchemy.exc import DBAPIError

from app.clients.embedding import CachedEmbedder, Vector
from app.clock import Clock, monotonic_s
from app.database.engine import Database
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.indexed_text import indexed_text
from app.dialogues.records import Dialogue
from app.dialogues.terms import signature
from app.dialogues.tokens import count_tokens
from app.errors import ProviderError
from app.recall import store
from app.recall.decay import decay, resists_decay
from app.recall.lexical import HitFinder, TermHits, is_telling, query_terms
from app.recall.lines import memory_block
from app.recall.neighbourhoods import adjacent, cut_neighbourhoods, windows
from app.recall.ranking import Own, Ranked, Ranker
from app.recall.records import Candidate, Language, Memory, SearchQuery, SearchResult
from app.recall.selection import Chosen, select
from app.recall.store import Probe
from app.recall.time_words import TimeRange, read_time_range
from app.recall.writing import Frame, LineBook, cut_to_budget, write_line, write_memory
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
_NO_HITS = TermHits(0, {})


@dataclass(frozen=True, slots=True)
class DecayRule:
    """How relevance falls with age; see `app.recall.decay`."""

    grace_days: float
    horizon_days: float
    floor: float


@dataclass(frozen=True, slots=True)
class _Found:
    """What may be an anchor, best first, and the messages around each that may."""

    ranked: list[Ranked]
    windows: dict[int, list[Dialogue]]


class RecallService:
    """Finds what matters for the next answer, inside one session or group."""

    def __init__(
        self,
        *,
        database: Database,
        embedder: CachedEmbedder,
        pipeline: EmbeddingPipeline,
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
        if degraded:
            query = _by_words(query)
        terms = query_terms(query.query) if query.mode != "vector" else {}
        probe = _probe(vector, self._model_id, terms)
        time_range = read_time_range(query.query, now=query.now.astimezone(query.zone), zone=query.zone)
        try:
            found = await self._find(namespace, query, probe, terms=terms, time_range=time_range)
        except (DataError, DBAPIError) as error:
            cause = error.orig.__cause__ if isinstance(error, DBAPIError) and error.orig else error
            if probe.vector is None or not isinstance(cause, DataError):
                raise
            # The column holds vectors of another width: somebody has switched the model under us.
            log.warning(
                "vectors have another width: restart with their model, or run temporal-memory reembed"
            )
            query, degraded = _by_words(query), True
            terms = query_terms(query.query)
            probe = _probe(None, self._model_id, terms)
            found = await self._find(namespace, query, probe, terms=terms, time_range=time_range)
        result = self._answer(query, found, time_range=time_range, degraded=degraded)
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
            memories.append(write_memory(chosen, frame, line=write_line(dialogue, frame), explain=False))
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

    async def _find(
        self,
        namespace: str,
        query: SearchQuery,
        probe: Probe,
        *,
        terms: dict[str, float],
        time_range: TimeRange | None,
    ) -> _Found:
        preferred = (time_range.since, time_range.until) if time_range else None
        found = await self._candidates(namespace, query, probe, preferred=preferred)
        ranker = Ranker(
            found,
            terms=terms,
            mode=query.mode,
            preferred=preferred,
            hits_of=_hits_of(terms),
            decay_of=partial(self._decay, query),
        )
        may_be = partial(_may_be_anchor, query)
        # Neighbours only add: whoever can become an anchor is among the best of what may, or beside one.
        hits = ranker.best(max(_LOOK_AROUND, query.top_n), may_be=may_be)
        radius = query.window_size + 1
        if self._is_whole_conversation(found, query, probe):
            hoods = cut_neighbourhoods(found, hits=hits, radius=radius)
        else:
            async with self._database.read() as session:
                hoods = await store.find_neighbours(
                    session,
                    namespace,
                    query,
                    probe,
                    known={one.dialogue.id: one for one in found},
                    hits=hits,
                    radius=radius,
                    visible_at=self._visible_at(query.now),
                )
        around = [one for hood in hoods for one in hood.around]
        return _Found(
            ranker.rank(around, beside=adjacent(hoods), may_be=may_be),
            windows(hoods, window_size=query.window_size, without=query.excludes),
        )

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

    async def _candidates(
        self, namespace: str, query: SearchQuery, probe: Probe, *, preferred: tuple[datetime, datetime] | None
    ) -> list[Candidate]:
        limit = _candidate_limit(query)

        async def find() -> list[Candidate]:
            async with self._database.read() as session:
                return await store.find_candidates(
                    session,
                    namespace,
                    query,
                    probe,
                    limit=limit,
                    preferred=preferred,
                    visible_at=self._visible_at(query.now),
                )

        found = await find()
        pending = [one.dialogue.id for one in found if one.dialogue.embedding_status == "pending"]
        if pending and probe.vector is not None:
            # Read your writes: what was posted last is embedded first, if that does not take too long.
            newest = sorted(pending, reverse=True)[:_PENDING_AT_ONCE]
            await self._pipeline.embed_now(newest, patience_s=_PENDING_PATIENCE_S)
            found = await find()
        return found

    def _visible_at(self, now: datetime) -> datetime:
        """A question asked of the past does not bring back what has expired since."""
        return max(now, self._clock())

    def _decay(self, query: SearchQuery, dialogue: Dialogue) -> float:
        rule = self._decay_rule
        age_days = (query.now - dialogue.created_at).total_seconds() / _SECONDS_A_DAY
        if (
            not query.decay
            or age_days <= rule.grace_days
            or resists_decay(score=dialogue.score, pinned=dialogue.pinned, kind=dialogue.kind)
        ):
            return 1.0
        return decay(age_days, grace_days=rule.grace_days, horizon_days=rule.horizon_days, floor=rule.floor)

    def _answer(
        self,
        query: SearchQuery,
        found: _Found,
        *,
        time_range: TimeRange | None,
        degraded: bool,
    ) -> SearchResult:
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
            write_memory(one, frame, line=lines.line(one.dialogue), explain=query.explain)
            for one in selection.chosen
        ]
        texts = [memory.line for memory in memories]
        return SearchResult(
            session=query.session,
            now=query.now,
            memories=memories,
            prompt=memory_block(texts, now=query.now, zone=query.zone, language=query.language),
            token_count=count_tokens("\n".join(texts)),
            truncated=selection.truncated,
            time_range=time_range,
            degraded=degraded,
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


def _may_be_anchor(query: SearchQuery, one: Own) -> bool:
    candidate = one.candidate
    if not candidate.eligible or query.excludes(candidate.dialogue):
        return False
    if query.mode == "keyword":
        return one.bm25 > 0
    if query.mode == "vector":
        return one.similarity is not None and one.similarity >= (query.min_similarity or 0.0)
    if query.min_similarity is None:
        return True
    # What has no vector yet cannot be measured; its words speak for it.
    return one.bm25 > 0 if candidate.similarity is None else candidate.similarity >= query.min_similarity


def _hits_of(terms: dict[str, float]) -> Callable[[Dialogue], TermHits]:
    if not terms:
        return lambda _dialogue: _NO_HITS
    find = HitFinder(terms).find
    return lambda dialogue: find(indexed_text(dialogue.content[:_SCORED_CHARS], dialogue.sender_name))
