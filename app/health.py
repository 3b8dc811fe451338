"""Whether the service can do its work, and the gauges that say how far behind it is."""

import asyncio
from dataclasses import dataclass

from app.database.engine import Database
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.embedding_store import QueueFacts
from app.errors import UnavailableError
from app.evaluation.counts_store import QueueFacts as TurnQueueFacts
from app.evaluation.worker import EvaluationWorker
from app.telemetry import Metrics

_LAG_LIMIT_S = 300.0
# Whoever asks gives up soon after; a database that has not answered by then is of no use to anybody.
_PATIENCE_S = 3.0


_Facts = tuple[str | None, QueueFacts, TurnQueueFacts]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Attributes: `reasons`: what is wrong, in words; `details`: numbers and versions for an operator."""

    ready: bool
    reasons: list[str]
    details: dict[str, int | float | str | None]


class HealthService:
    """Looks at the database, the schema and the queues."""

    def __init__(
        self,
        *,
        database: Database,
        pipeline: EmbeddingPipeline,
        evaluation: EvaluationWorker,
        metrics: Metrics,
        revision: str,
        embedding_model: str,
        other_models: dict[str, int],
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._evaluation = evaluation
        self._metrics = metrics
        self._revision = revision
        self._embedding_model = embedding_model
        self._other_models = other_models
        self._asking: set[asyncio.Task[_Facts]] = set()

    async def check_ready(self) -> Readiness:
        """Ask the database, now."""
        details: dict[str, int | float | str | None] = {"embedding_model": self._embedding_model}
        try:
            revision, facts, turns = await self._ask_in_time()
        except UnavailableError as error:
            return Readiness(ready=False, reasons=[str(error)], details=details)
        details |= {
            "revision": revision,
            "embeddings_pending": facts.pending,
            "embeddings_failed": facts.failed,
            "embedding_lag_s": round(facts.lag_s, 1),
            "turns_pending": turns.pending,
            "evaluation_lag_s": round(turns.lag_s, 1),
            "vectors_of_other_models": sum(self._other_models.values()),
        }
        reasons = []
        if revision != self._revision:
            reasons.append(
                f"the database is at migration {revision}, this version needs {self._revision}:"
                " run temporal-memory migrate"
            )
        if facts.lag_s > _LAG_LIMIT_S:
            reasons.append(
                f"{facts.pending} messages wait for their vector, the oldest for {facts.lag_s:.0f} s:"
                " the embedding model fails or is too slow"
            )
        return Readiness(ready=not reasons, reasons=reasons, details=details)

    async def refresh_gauges(self) -> None:
        """Bring the queues' gauges up to date; what cannot be asked stays as it was."""
        try:
            _, facts, turns = await self._ask_in_time()
        except UnavailableError:
            return
        self._metrics.embeddings_pending.set(facts.pending)
        self._metrics.embeddings_failed.set(facts.failed)
        self._metrics.embedding_lag.set(facts.lag_s)
        self._metrics.evaluation_lag.set(turns.lag_s)

    async def _read_all(self) -> _Facts:
        return (
            await self._database.read_revision(),
            await self._pipeline.queue_facts(),
            await self._evaluation.queue_facts(),
        )

    async def _ask_in_time(self) -> _Facts:
        """What the database tells.

        Raises:
            UnavailableError: it does not answer, or not in time.
        """
        task = asyncio.create_task(self._read_all())
        self._asking.add(task)
        task.add_done_callback(self._forget)
        done, _ = await asyncio.wait([task], timeout=_PATIENCE_S)
        if not done:
            # Not waited for: to hang up on a server that is frozen takes its time, too.
            task.cancel()
            raise UnavailableError(f"the database has not answered within {_PATIENCE_S:g} s")
        return task.result()

    def _forget(self, task: asyncio.Task[_Facts]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be waiting any more
