"""Embeds what waits for a vector: claims rows of the queue, asks the model with no session held, stores."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from asyncpg import UndefinedTableError
from sqlalchemy.exc import DBAPIError

from app.clients.embedding import CachedEmbedder, Vector
from app.clock import monotonic_s
from app.database.engine import Database
from app.database.work_loop import LEASE_S, WorkLoop, holding
from app.dialogues import embedding_store as store
from app.dialogues import renewal_store
from app.dialogues.embedding_store import QueueFacts, Waiting
from app.dialogues.indexed_text import indexed_text
from app.dialogues.renewal_store import Renewal
from app.errors import ProviderError, ProviderRejectedError
from app.telemetry import get_logger

log = get_logger(__name__)

_VACUUM_AFTER = 5_000
# Nobody waits for the background: messages that come one by one share a claim and a request to the model.
_GATHER_S = 0.03
# Of many messages that are written at once the next follow soon; but who writes all day is not waited for.
_GIVES_WAY_S = 0.1
_GIVES_WAY_AT_MOST_S = 2.0


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
        # One batch: a text that is claimed shares its batch's place in the queue to the model, and somebody
        # may be waiting for it.
        self._claim_size = embedder.batch_size
        self._loop = WorkLoop("embedding", self._work_once, workers=workers, gather_s=_GATHER_S)
        self._stored_since_vacuum = 0
        self._writers = 0
        self._written_at_s = -_GIVES_WAY_S

    def wake(self) -> None:
        """Tell the loop that there is new work."""
        self._loop.wake()

    @contextmanager
    def giving_way(self) -> Iterator[None]:
        """While this is open, and shortly after, the loop leaves the processor to whoever writes."""
        self._writers += 1
        try:
            yield
        finally:
            self._writers -= 1
            self._written_at_s = monotonic_s()

    async def run(self) -> None:
        """Embed what is pending until cancelled."""
        await self._loop.run()

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

    async def renewal(self) -> Renewal | None:
        """How far the record has been copied for another model; None: nobody is at it."""
        try:
            async with self._database.read() as session:
                return await renewal_store.read_renewal(session)
        except DBAPIError as error:
            # It came to its end between two looks.
            if isinstance(error.orig.__cause__ if error.orig else None, UndefinedTableError):
                return None
            raise

    async def _let_writers_pass(self) -> None:
        since_s = monotonic_s()
        while self._writers or monotonic_s() - self._written_at_s < _GIVES_WAY_S:
            if monotonic_s() - since_s > _GIVES_WAY_AT_MOST_S:
                return
            await asyncio.sleep(_GIVES_WAY_S / 2)

    async def _work_once(self) -> bool:
        await self._let_writers_pass()
        async with self._database.transaction() as session:
            waiting = await store.claim(session, limit=self._claim_size, lease_s=LEASE_S)
        if not waiting:
            await self._tidy()
            return False
        if len(waiting) == self._claim_size:
            # There may be more than one worker's claim.
            self._loop.wake()
        ids = [item.dialogue_id for item in waiting]
        async with holding(self._database, lambda session, s: store.extend_claims(session, ids, lease_s=s)):
            await self._embed_and_store(waiting, background=True)
        return True

    async def _embed_and_store(self, waiting: Sequence[Waiting], *, background: bool = False) -> None:
        if not waiting:
            return
        outcomes = await self._embedder.embed_documents(
            [indexed_text(item.content, item.sender_name) for item in waiting], background=background
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
