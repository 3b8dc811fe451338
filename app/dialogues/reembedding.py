"""Gives every message a vector of the model that is set, while services go on searching.

The record is copied beside itself with the new vectors, and the copy takes its place when it is complete:
until then every search finds the old vectors. What is left to do is written in the database, so a run that
was killed is taken up by the next.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import asyncpg
import numpy as np
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.clients.embedding import CachedEmbedder, Vector
from app.database.engine import Database, WriteSession
from app.dialogues import embedding_store, renewal_store
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.embedding_store import Waiting
from app.dialogues.indexed_text import indexed_text
from app.dialogues.renewal_store import Renewal
from app.errors import ProviderError, ProviderRejectedError, UnavailableError
from app.telemetry import get_logger

log = get_logger(__name__)

_T = TypeVar("_T")

_TRIAL_TEXT: Final = "你好"
_BATCH: Final = 500
_QUEUED_AT_MOST: Final = 2000
_POLL_S: Final = 0.1
_LOCK_TRIES: Final = 20
# So few are copied while everybody waits, without vectors; these are made right after.
_COPIED_LAST: Final = 2 * _BATCH
# What is left longer than a start may take is left to the command.
_TAKEN_OVER_AT_MOST: Final = 10_000
_TAKE_OVER_LIMIT_S: Final = 120.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_INDEX_TIMEOUT_S: Final = 4 * 3600.0
# The advisory lock of whoever renews the record.
_RENEWAL_LOCK: Final = 7_204_119_052

_STALE = {True: "embedding_status = 'failed'", False: "embedding_model_id <> :model_id"}
# A lock that was not to be had in time, or somebody who waited for what we hold.
_IN_THE_WAY = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some entries of the queue, and what the model made of the texts that lacked a vector."""

    changes: list[tuple[int, int]]
    made: list[tuple[Waiting, Vector]]
    rejected: list[tuple[Waiting, str]]


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is to do.

    Attributes:
        width: of the vector column, in dimensions.
        other_models: vectors by the name of the other model that made them; with another width all of them.
        is_live: the model that is set is the one whose vectors services search already.
        renewal: for the model that is set, begun and not finished.
    """

    width: int
    is_live: bool
    renewal: Renewal | None
    other_models: dict[str, int]
    failed: int
    pending: int


class Reembedding:
    """The work of `temporal-memory reembed`."""

    def __init__(self, *, url: str, database: Database, embedder: CachedEmbedder, workers: int) -> None:
        """Changes nothing yet.

        Args:
            url: of the same database, SQLAlchemy form, for a connection that is held all the time.
            database: where the messages are.
            embedder: of the model that is set.
            workers: how many claims are worked on at once.
        """
        self._url = url
        self._database = database
        self._embedder = embedder
        self._workers = workers

    @property
    def model(self) -> str:
        """The name of the model that is set."""
        return self._embedder.name

    @property
    def width(self) -> int:
        """The dimensions of its vectors."""
        return self._embedder.dimensions

    async def try_model(self) -> None:
        """Have the model make one vector: before old ones are given up, it must be known to answer.

        Raises:
            ProviderError: it does not, or makes none.
        """
        outcome = (await self._embedder.embed_documents([_TRIAL_TEXT]))[0]
        if isinstance(outcome, ProviderRejectedError):
            raise outcome

    async def survey(self) -> Survey:
        """Look at what there is to do."""
        model_id = await self._model_id()
        async with self._database.read() as session:
            queue = await embedding_store.read_queue_facts(session)
            renewal = await renewal_store.read_renewal(session)
            return Survey(
                is_live=await embedding_store.read_live_model(session) == model_id,
                renewal=renewal if renewal and renewal.model_id == model_id else None,
                width=await embedding_store.read_column_dimensions(session),
                other_models=await embedding_store.count_other_models(session, model_id),
                failed=queue.failed,
                pending=queue.pending,
            )

    async def renew(self, *, change_over: bool = True) -> AsyncGenerator[Renewal, None]:
        """Copy the record with vectors of the model that is set, and let the copy take its place in the end.

        A renewal for this model that was broken off is gone on with, one for another model is thrown away.

        Args:
            change_over: False: stop before the end, which `take_over` does at a start with the new settings.

        Yields:
            How far it has come, again and again.

        Raises:
            UnavailableError: another process is at it, or the tables were in use all the time.
        """
        async with self._alone():
            model_id = await self._model_id()
            begun = await self._begin(model_id)
            yield begun
            is_indexed = False
            while True:
                async for left in self._copy(model_id):
                    yield replace(begun, left=left)
                if not is_indexed:
                    await self._index()
                    is_indexed = True
                elif not change_over or await self._cut_over(model_id):
                    return

    async def take_over(self) -> None:
        """Finish what `renew` has prepared for the model that is set; else do nothing.

        To be called before anybody searches. Another process that is at it is waited for.
        """
        model_id = await self._model_id()
        try:
            async with asyncio.timeout(_TAKE_OVER_LIMIT_S):
                while await self._is_prepared(model_id):
                    try:
                        async for _ in self.renew():
                            pass
                    except UnavailableError:
                        await asyncio.sleep(_POLL_S)
                    else:
                        log.info("changed over to another embedding model", model=self.model)
        except TimeoutError:
            log.warning("not changed over in time: temporal-memory reembed does it", model=self.model)

    async def _is_prepared(self, model_id: int) -> bool:
        async with self._database.read() as reading:
            found = await renewal_store.read_renewal(reading)
            return (
                found is not None
                and found.model_id == model_id
                and found.left <= _TAKEN_OVER_AT_MOST
                and not await renewal_store.index_statements(reading)
            )

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Nobody else renews while this is open; the lock is gone with the process."""
        engine = create_async_engine(self._url, poolclass=NullPool)
        try:
            async with engine.connect() as connection:
                if not await connection.scalar(
                    text("SELECT pg_try_advisory_lock(:key)"), {"key": _RENEWAL_LOCK}
                ):
                    raise UnavailableError("another temporal-memory reembed is running")
                await connection.commit()
                yield
        finally:
            await engine.dispose()

    async def _begin(self, model_id: int) -> Renewal:
        async def begin(session: WriteSession) -> None:
            await renewal_store.abandon(session)
            await renewal_store.begin(session, model_id=model_id, dimensions=self.width)

        async with self._database.read() as reading:
            found = await renewal_store.read_renewal(reading)
        if found is not None and found.model_id == model_id:
            return found
        await self._with_lock(begin)
        async with self._database.read() as reading:
            begun = await renewal_store.read_renewal(reading)
        if begun is None:
            raise UnavailableError("the renewal that has just begun was thrown away by somebody else")
        return begun

    async def _with_lock(self, work: Callable[[WriteSession], Awaitable[_T]]) -> _T:
        """Do in one transaction what needs a lock on the record.

        Whoever waits for such a lock makes all others wait behind it: better to step back, and try again.
        """
        for _ in range(_LOCK_TRIES):
            try:
                async with self._database.transaction() as session:
                    return await work(session)
            except DBAPIError as error:
                if not isinstance(error.orig.__cause__ if error.orig else None, _IN_THE_WAY):
                    raise
            await asyncio.sleep(1)
        raise UnavailableError("the table is in use all the time: try again when less is going on")

    async def _copy(self, model_id: int) -> AsyncIterator[int]:
        """Copy nearly all that is in the queue; while a batch is written the next is embedded."""
        making = asyncio.create_task(self._make(model_id, after=0))
        try:
            is_last = False
            while not is_last:
                batch = await making
                # Somebody may write all the time; what comes now is copied when nobody can.
                is_last = len(batch.changes) < _BATCH
                if not is_last:
                    making = asyncio.create_task(self._make(model_id, after=batch.changes[-1][0]))
                async with self._database.transaction() as session:
                    await renewal_store.copy_messages(
                        session, batch.changes, made=batch.made, rejected=batch.rejected, model_id=model_id
                    )
                async with self._database.read() as reading:
                    yield await renewal_store.count_changes(reading)
        finally:
            making.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await making

    async def _make(self, model_id: int, *, after: int) -> _Batch:
        """The next entries of the queue with the vectors that they lack; an outage is waited for."""
        pause_s = _FIRST_PAUSE_S
        while True:
            async with self._database.read() as reading:
                changes = await renewal_store.read_changes(reading, after=after, limit=_BATCH)
                ids = [dialogue_id for _, dialogue_id in changes]
                waiting = await renewal_store.read_texts(reading, ids, model_id=model_id)
            try:
                outcomes = await self._embedder.embed_documents(
                    [indexed_text(item.content, item.sender_name) for item in waiting], background=True
                )
            except ProviderError as error:
                log.warning("renewal paused", reason=str(error), kind=type(error).__name__, wait_s=pause_s)
                await asyncio.sleep(max(pause_s, getattr(error, "retry_after_s", None) or 0.0))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            batch = _Batch(changes, [], [])
            for item, outcome in zip(waiting, outcomes, strict=True):
                if isinstance(outcome, ProviderRejectedError):
                    batch.rejected.append((item, str(outcome)[:500]))
                else:
                    batch.made.append((item, np.asarray(outcome, dtype=np.float32)))
            return batch

    async def _index(self) -> None:
        """Give the copy its indexes, and let PostgreSQL know it, while everybody goes on writing."""
        async with self._database.outside_transaction() as session:
            driver: Any = (await session.get_raw_connection()).driver_connection
            for statement in await renewal_store.index_statements(session):
                await driver.execute(statement, timeout=_INDEX_TIMEOUT_S)
            await driver.execute("VACUUM (ANALYZE) dialogues_next", timeout=_INDEX_TIMEOUT_S)

    async def _cut_over(self, model_id: int) -> bool:
        """Let the copy take the record's place; False: there is too much to copy first."""

        async def take_its_place(session: WriteSession) -> bool:
            await renewal_store.lock_record(session)
            last = await renewal_store.read_changes(session, after=0, limit=_COPIED_LAST + 1)
            if len(last) > _COPIED_LAST:
                return False
            await renewal_store.copy_messages(session, last, made=[], rejected=[], model_id=model_id)
            await renewal_store.cut_over(session, model_id=model_id)
            return True

        return await self._with_lock(take_its_place)

    async def run(self, *, only_failed: bool) -> AsyncIterator[int]:
        """Embed what failed, or else what has another model's vector, and what waits when this begins.

        Yields:
            How many messages have left the queue since the start, again and again.
        """
        model_id = await self._model_id()
        pipeline = EmbeddingPipeline(
            database=self._database, embedder=self._embedder, model_id=model_id, workers=self._workers
        )
        enqueued, after, more = 0, 0, True
        # What comes while this runs is not waited for: there may always be some.
        async with self._database.read() as reading:
            last = await embedding_store.read_last_id(reading)
            at_start = waiting = await embedding_store.count_jobs(reading, up_to=last)
        loop = asyncio.create_task(pipeline.run())
        try:
            while more or waiting:
                if more and waiting < _QUEUED_AT_MOST:
                    async with self._database.transaction() as session:
                        count, after = await _enqueue_batch(
                            session, model_id, only_failed=only_failed, after=after
                        )
                    enqueued, more = enqueued + count, count == _BATCH
                    pipeline.wake()
                else:
                    await asyncio.sleep(_POLL_S)
                async with self._database.read() as reading:
                    waiting = await embedding_store.count_jobs(reading, up_to=last)
                yield max(0, at_start + enqueued - waiting)
        finally:
            loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await loop

    async def _model_id(self) -> int:
        async with self._database.transaction() as session:
            return await embedding_store.register_model(session, name=self.model, dimensions=self.width)


async def _enqueue_batch(
    session: WriteSession, model_id: int, *, only_failed: bool, after: int
) -> tuple[int, int]:
    """Put the next stale messages into the queue; how many, and the last one's id."""
    values: dict[str, Any] = {"after": after, "limit": _BATCH}
    if not only_failed:
        values["model_id"] = model_id
    row = (
        await session.execute(
            text(
                f"""
                WITH stale AS MATERIALIZED (
                    SELECT id FROM dialogues WHERE id > :after AND {_STALE[only_failed]}
                    ORDER BY id LIMIT :limit FOR NO KEY UPDATE
                ), emptied AS (
                    UPDATE dialogues d
                    SET embedding = NULL, embedding_model_id = NULL, embedding_error = NULL,
                        embedding_status = 'pending'
                    FROM stale WHERE d.id = stale.id RETURNING d.id
                ), jobs AS (
                    INSERT INTO embedding_jobs (dialogue_id) SELECT id FROM emptied
                    ON CONFLICT (dialogue_id) DO UPDATE SET available_at = now(), attempts = 0
                )
                SELECT count(*) AS emptied, coalesce(max(id), :after) AS last FROM emptied
                """
            ),
            values,
        )
    ).one()
    return row.emptied, row.last
