"""Whether the service can do its work, and the gauges that say how far behind it is."""

import asyncio
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from app.database.engine import Database
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.embedding_store import QueueFacts
from app.dialogues.renewal_store import Renewal
from app.errors import UnavailableError
from app.evaluation.counts_store import QueueFacts as TurnQueueFacts
from app.evaluation.worker import EvaluationWorker
from app.forgetting.sweep import SweepService
from app.telemetry import Metrics

_LAG_LIMIT_S = 300.0
# Whoever asks gives up soon after; a database that has not answered by then is of no use to anybody.
_PATIENCE_S = 3.0


_Facts = tuple[str | None, QueueFacts, TurnQueueFacts, datetime | None, Renewal | None]


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
        sweep: SweepService,
        metrics: Metrics,
        revision: str,
        embedding_model: str,
        other_models: dict[str, int],
        data_dir: Path | None,
    ) -> None:
        """Ask nothing yet.

        Args:
            database: the one that all depends on.
            pipeline: the queue of vectors.
            evaluation: the queue of scores.
            sweep: the daily one.
            metrics: whose gauges are kept up to date.
            revision: the migration that this version needs.
            embedding_model: its name.
            other_models: vectors that other models made, by model.
            data_dir: where the embedded database lives; None: the database is another machine's affair.
        """
        self._database = database
        self._pipeline = pipeline
        self._evaluation = evaluation
        self._sweep = sweep
        self._metrics = metrics
        self._data_dir = data_dir
        self._revision = revision
        self._embedding_model = embedding_model
        self._other_models = other_models
        self._asking: set[asyncio.Task[_Facts]] = set()

    async def check_ready(self) -> Readiness:
        """Ask the database, now."""
        details: dict[str, int | float | str | None] = {"embedding_model": self._embedding_model}
        try:
            revision, facts, turns, _, renewal = await self._ask_in_time()
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
        if renewal is not None:
            details |= {
                "renewal_model": renewal.model,
                "renewal_messages": renewal.total,
                "renewal_left": renewal.left,
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
        """Bring the gauges up to date; what cannot be asked stays as it was."""
        if self._data_dir is not None:
            disk = await asyncio.to_thread(shutil.disk_usage, self._data_dir)
            self._metrics.disk_free.labels("data_dir").set(disk.free)
            self._metrics.disk_size.labels("data_dir").set(disk.total)
        try:
            _, facts, turns, swept_at, renewal = await self._ask_in_time()
        except UnavailableError:
            self._metrics.database_up.set(0)
            return
        self._metrics.database_up.set(1)
        self._metrics.embeddings_pending.set(facts.pending)
        self._metrics.embeddings_failed.set(facts.failed)
        self._metrics.embedding_lag.set(facts.lag_s)
        self._metrics.renewal_messages.set(renewal.total if renewal else 0)
        self._metrics.renewal_left.set(renewal.left if renewal else 0)
        self._metrics.turns_pending.set(turns.pending)
        self._metrics.evaluation_lag.set(turns.lag_s)
        self._metrics.last_sweep.set(swept_at.timestamp() if swept_at else 0)

    async def _read_all(self) -> _Facts:
        return (
            await self._database.read_revision(),
            await self._pipeline.queue_facts(),
            await self._evaluation.queue_facts(),
            await self._sweep.last_sweep_at(),
            await self._pipeline.renewal(),
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
