"""Embeds what waits for a vector: claims rows of the queue, asks the model with no session held, stores.

Several processes may do this at once: a claim moves `available_at` ahead by a lease, renewed while the
model works, so what a killed process had claimed is free again when the lease has run out.
"""

import asyncio
import random
from collections.abc import Sequence

import numpy as np

from app.clients.embedding import CachedEmbedder, Vector
from app.database.engine import Database
from app.dialogues import embedding_store as store
from app.dialogues.embedding_store import QueueFacts, Waiting
from app.dialogues.indexed_text import indexed_text
from app.errors import ProviderError, ProviderRejectedError, UnavailableError
from app.telemetry import get_logger

log = get_logger(__name__)

_LEASE_S = 15.0
_POLL_S = 1.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_CLAIM_BATCHES = 4
_VACUUM_AFTER = 5_000


class EmbeddingPipeline:
    """The background loop, and the same work on demand."""

    def __init__(self, *, database: Database, embedder: CachedEmbedder, model_id: int, workers: int) -> None:
        """Starts nothing; `run` is the loop.

        Args:
            database: where the queue is.
            embedder: makes the vectors.
            model_id: the embedder's number in `embedding_models`.
            workers: how many claims are worked on at once.
        """
        self._database = database
        self._embedder = embedder
        self._model_id = model_id
        self._workers = workers
        self._claim_size = embedder.batch_size * _CLAIM_BATCHES
        self._work = asyncio.Event()
        self._stored_since_vacuum = 0

    def wake(self) -> None:
        """Tell the loop that there is new work."""
        self._work.set()

    async def run(self) -> None:
        """Embed what is pending until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work_forever())

    async def embed_now(self, dialogue_ids: Sequence[int], *, patience_s: float | None = None) -> bool:
        """Embed these messages now, whoever else has claimed them; whether it could be done in time.

        What fails in passing stays in the queue, and is not an error here.
        """
        if not dialogue_ids:
            return True
        try:
            async with asyncio.timeout(patience_s):
                async with self._database.read() as session:
                    waiting = await store.read_waiting(session, dialogue_ids)
                await self._embed_and_store(waiting)
        except (TimeoutError, ProviderError) as error:
            log.debug("embedding on demand put off", reason=type(error).__name__, messages=len(dialogue_ids))
            return False
        return True

    async def queue_facts(self) -> QueueFacts:
        """How many wait, how long the oldest has waited, how many have failed."""
        async with self._database.read() as session:
            return await store.read_queue_facts(session)

    async def _work_forever(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                if await self._work_once():
                    pause_s = _FIRST_PAUSE_S
                    continue
                await self._wait_for_work()
            except (ProviderError, UnavailableError) as error:
                wait_s = max(pause_s, getattr(error, "retry_after_s", None) or 0.0)
                log.warning(
                    "embedding paused", reason=str(error), kind=type(error).__name__, wait_s=round(wait_s, 1)
                )
                # Jitter spreads what several processes ask of one provider that has just come back.
                await asyncio.sleep(wait_s * random.uniform(1.0, 1.25))  # noqa: S311 - no secret
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            except Exception:
                # A fault of ours must not end the loop for good: it is logged, and the rows come free again.
                log.exception("embedding failed unexpectedly")
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _wait_for_work(self) -> None:
        self._work.clear()
        try:
            async with asyncio.timeout(_POLL_S):
                await self._work.wait()
        except TimeoutError:
            pass

    async def _work_once(self) -> bool:
        async with self._database.transaction() as session:
            waiting = await store.claim(session, limit=self._claim_size, lease_s=_LEASE_S)
        if not waiting:
            await self._tidy()
            return False
        renewal = asyncio.create_task(self._renew([item.dialogue_id for item in waiting]))
        try:
            await self._embed_and_store(waiting)
        except BaseException:
            renewal.cancel()
            await asyncio.shield(self._release(waiting))
            raise
        finally:
            renewal.cancel()
        return True

    async def _embed_and_store(self, waiting: Sequence[Waiting]) -> None:
        if not waiting:
            return
        outcomes = await self._embedder.embed_documents(
            [indexed_text(item.content, item.sender_name) for item in waiting]
        )
        made: list[tuple[Waiting, Vector]] = []
        rejected: list[tuple[Waiting, str]] = []
        for item, outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome, ProviderRejectedError):
                rejected.append((item, str(outcome)[:500]))
            else:
                made.append((item, np.asarray(outcome, dtype=np.float32)))
        async with self._database.transaction() as session:
            await store.store_outcomes(session, made=made, rejected=rejected, model_id=self._model_id)
        self._stored_since_vacuum += len(made)
        for item, reason in rejected:
            log.warning("message can not be embedded", dialogue_id=item.dialogue_id, reason=reason)

    async def _tidy(self) -> None:
        """After a long queue, vacuum: an index is read alone only where its pages are marked visible."""
        if self._stored_since_vacuum < _VACUUM_AFTER:
            return
        self._stored_since_vacuum = 0
        async with self._database.outside_transaction() as session:
            await store.vacuum(session)

    async def _renew(self, dialogue_ids: list[int]) -> None:
        while True:
            await asyncio.sleep(_LEASE_S / 3)
            try:
                async with self._database.transaction() as session:
                    await store.extend_claims(session, dialogue_ids, lease_s=_LEASE_S)
            except UnavailableError:
                # The lease may run out then; the worst that comes of it is the same vector made twice.
                log.debug("claims not renewed", messages=len(dialogue_ids))

    async def _release(self, waiting: Sequence[Waiting]) -> None:
        try:
            async with self._database.transaction() as session:
                await store.extend_claims(session, [item.dialogue_id for item in waiting], lease_s=0)
        except UnavailableError:
            log.debug("claims not released", messages=len(waiting))
