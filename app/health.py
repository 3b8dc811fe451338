"""Whether the service can do its work, and the gauges that say how far behind it is."""

from dataclasses import dataclass

from app.database.engine import Database
from app.dialogues.embedding import EmbeddingPipeline
from app.errors import UnavailableError
from app.evaluation.worker import EvaluationWorker
from app.telemetry import Metrics

_LAG_LIMIT_S = 300.0


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

    async def check_ready(self) -> Readiness:
        """Ask the database, now."""
        details: dict[str, int | float | str | None] = {"embedding_model": self._embedding_model}
        try:
            revision = await self._database.read_revision()
            facts = await self._pipeline.queue_facts()
            turns = await self._evaluation.queue_facts()
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
            facts = await self._pipeline.queue_facts()
            turns = await self._evaluation.queue_facts()
        except UnavailableError:
            return
        self._metrics.embeddings_pending.set(facts.pending)
        self._metrics.embeddings_failed.set(facts.failed)
        self._metrics.embedding_lag.set(facts.lag_s)
        self._metrics.evaluation_lag.set(turns.lag_s)
