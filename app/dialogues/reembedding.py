"""Gives every message a vector of the model that is set, while services go on searching.

What is left to do is written in the rows: a run that was killed is taken up by the next. A row loses its old
vector only shortly before its turn comes, and its words find it meanwhile. Vectors of another width need
other columns; then all rows lose theirs at once, and the table is written anew in one transaction.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.clients.embedding import CachedEmbedder
from app.database.engine import Database, WriteSession
from app.dialogues import embedding_store
from app.dialogues.embedding import EmbeddingPipeline
from app.errors import ProviderRejectedError, UnavailableError

_TRIAL_TEXT: Final = "你好"
_BATCH: Final = 500
_QUEUED_AT_MOST: Final = 2000
_POLL_S: Final = 0.1
_LOCK_TRIES: Final = 20
_WIDEST_IN_LINE: Final = 3500
_PAGE_BYTES: Final = 8168
_FIXED_BYTES: Final = 340
_SHORT_TEXT_BYTES: Final = 200

_STALE = {
    True: "embedding_status = 'failed'",
    False: "(embedding_status = 'failed' OR embedding_model_id <> :model_id)",
}


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is to do.

    Attributes:
        width: of the vector column, in dimensions.
        other_models: vectors by the name of the other model that made them; with another width all of them.
    """

    width: int
    other_models: dict[str, int]
    failed: int
    pending: int


class Reembedding:
    """The work of `temporal-memory reembed`."""

    def __init__(self, *, url: str, database: Database, embedder: CachedEmbedder, workers: int) -> None:
        """Changes nothing yet.

        Args:
            url: of the same database, SQLAlchemy form; a change of width takes longer than a pool waits.
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
            return Survey(
                width=await embedding_store.read_column_dimensions(session),
                other_models=await embedding_store.count_other_models(session, model_id),
                failed=queue.failed,
                pending=queue.pending,
            )

    async def change_width(self) -> None:
        """Make the vector columns as wide as the model's vectors; every message waits for a new one then."""
        engine = create_async_engine(self._url, poolclass=NullPool)
        try:
            for _ in range(_LOCK_TRIES):
                try:
                    async with engine.begin() as connection:
                        await _rebuild_columns(WriteSession(connection), self.width)
                except DBAPIError as error:
                    # Whoever waits for the lock makes all others wait behind it: better to step back.
                    if not isinstance(
                        error.orig.__cause__ if error.orig else None, asyncpg.LockNotAvailableError
                    ):
                        raise
                    await asyncio.sleep(1)
                else:
                    return
        finally:
            await engine.dispose()
        raise UnavailableError("the table is in use all the time: try again when less is going on")

    async def run(self, *, only_failed: bool) -> AsyncIterator[int]:
        """Embed what failed, and unless `only_failed` what has another model's vector, and all that waits.

        Yields:
            How many messages have left the queue since the start, again and again.
        """
        model_id = await self._model_id()
        pipeline = EmbeddingPipeline(
            database=self._database, embedder=self._embedder, model_id=model_id, workers=self._workers
        )
        enqueued, after, more = 0, 0, True
        at_start = waiting = (await pipeline.queue_facts()).pending
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
                waiting = (await pipeline.queue_facts()).pending
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


_DEPENDENT = text(
    """
    WITH columns AS (
        SELECT attrelid, attnum FROM pg_attribute
        WHERE attrelid = 'dialogues'::regclass AND attname IN ('embedding', 'embedding_bits')
    )
    SELECT DISTINCT pg_get_indexdef(indexrelid) AS statement
    FROM pg_index JOIN columns ON indrelid = attrelid AND attnum = ANY(indkey)
    UNION ALL
    SELECT DISTINCT format('ALTER TABLE dialogues ADD CONSTRAINT %I %s', conname, pg_get_constraintdef(oid))
    FROM pg_constraint JOIN columns ON conrelid = attrelid AND attnum = ANY(conkey)
    """
)


async def _rebuild_columns(session: WriteSession, dimensions: int) -> None:
    """Make the vector's columns anew, and what goes with them, as the migrations would make them."""
    storage = "PLAIN" if dimensions <= _WIDEST_IN_LINE else "EXTERNAL"
    await session.execute(text("SET LOCAL lock_timeout = '3s'"))
    await session.execute(text("LOCK TABLE dialogues IN ACCESS EXCLUSIVE MODE"))
    dependent = list((await session.execute(_DEPENDENT)).scalars())
    for statement in (
        # One statement, so that the table is written once.
        f"""
        ALTER TABLE dialogues
            DROP COLUMN embedding_bits,
            DROP COLUMN embedding,
            ALTER COLUMN embedding_status TYPE text COLLATE "C" USING 'pending',
            ALTER COLUMN embedding_error TYPE text USING NULL,
            ALTER COLUMN embedding_model_id TYPE smallint USING CAST(NULL AS smallint),
            ADD COLUMN embedding halfvec({dimensions}),
            ADD COLUMN embedding_bits bit({dimensions})
                GENERATED ALWAYS AS (CAST(binary_quantize(embedding) AS bit({dimensions}))) STORED
        """,
        f"ALTER TABLE dialogues ALTER COLUMN embedding SET STORAGE {storage}",
        f"ALTER TABLE dialogues SET (toast_tuple_target = {_row_target(dimensions)})",
        *dependent,
        """
        INSERT INTO embedding_jobs (dialogue_id) SELECT id FROM dialogues
        ON CONFLICT (dialogue_id) DO UPDATE SET available_at = now(), attempts = 0
        """,
    ):
        await session.execute(text(statement))


def _row_target(dimensions: int) -> int:
    """The size above which a row's text is moved out of line, in bytes: what fills a page without waste."""
    if dimensions > _WIDEST_IN_LINE:
        return 2040
    rows_a_page = max(1, _PAGE_BYTES // (dimensions * 2 + dimensions // 8 + _FIXED_BYTES + _SHORT_TEXT_BYTES))
    return max(128, min(8160, (_PAGE_BYTES // rows_a_page - 4) // 8 * 8))
