"""What the database under the service says: versions, what waits, and bytes on disk."""

import asyncio
import sys
import time
from dataclasses import dataclass

import asyncpg
from tqdm import tqdm

_EMBED_LIMIT_S = 7200
_VACUUM_LIMIT_S = 120
_VISIBLE_SHARE = 0.9


@dataclass(frozen=True)
class TableSize:
    """Bytes of one table on disk."""

    name: str
    heap: int
    toast: int
    indexes: int

    @property
    def total(self) -> int:
        return self.heap + self.toast + self.indexes


async def server_versions(dsn: str) -> str:
    """The versions of PostgreSQL and pgvector."""
    connection = await asyncpg.connect(dsn)
    try:
        server = await connection.fetchval("SHOW server_version")
        vector = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    finally:
        await connection.close()
    return f"PostgreSQL {server} · pgvector {vector}"


async def wait_until_embedded(dsn: str) -> tuple[int, float]:
    """How many messages waited for their vector, and the seconds until none did."""
    connection = await asyncpg.connect(dsn)
    try:
        begun = time.perf_counter()
        first = waiting = await _count_jobs(connection)
        with tqdm(total=first, unit="vector", file=sys.stderr, disable=None) as bar:
            while waiting:
                if time.perf_counter() - begun > _EMBED_LIMIT_S:
                    raise RuntimeError(f"{waiting} messages still wait for their vector")
                await asyncio.sleep(0.25)
                waiting = await _count_jobs(connection)
                bar.update(first - waiting - bar.n)
        taken_s = time.perf_counter() - begun
        failed = await connection.fetchval("SELECT count(*) FROM dialogues WHERE embedding_status <> 'ready'")
        if failed:
            raise RuntimeError(f"{failed} messages have no vector")
        return first, taken_s
    finally:
        await connection.close()


async def _count_jobs(connection: asyncpg.Connection) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM embedding_jobs"))


async def wait_until_vacuumed(dsn: str) -> float:
    """Wait for autovacuum after a load, at most two minutes; the share of pages it has marked all-visible.

    An index-only search reads the heap for every page that is not marked yet.
    """
    connection = await asyncpg.connect(dsn)
    try:
        deadline = time.monotonic() + _VACUUM_LIMIT_S
        while True:
            share = float(
                await connection.fetchval(
                    "SELECT relallvisible::float / greatest(relpages, 1) FROM pg_class"
                    " WHERE oid = 'dialogues'::regclass"
                )
            )
            if share > _VISIBLE_SHARE or time.monotonic() > deadline:
                return share
            await asyncio.sleep(1)
    finally:
        await connection.close()


async def measure_storage(dsn: str) -> tuple[int, list[TableSize]]:
    """How many messages are stored, and the size of every table, largest first."""
    connection = await asyncpg.connect(dsn)
    try:
        stored = int(await connection.fetchval("SELECT count(*) FROM dialogues"))
        rows = await connection.fetch(
            """
            SELECT relname,
                   pg_relation_size(c.oid) AS heap,
                   pg_table_size(c.oid) - pg_relation_size(c.oid) AS toast,
                   pg_indexes_size(c.oid) AS indexes
            FROM pg_class c
            JOIN pg_namespace n ON n.oid = relnamespace
            WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema')
            ORDER BY pg_total_relation_size(c.oid) DESC
            """
        )
    finally:
        await connection.close()
    return stored, [TableSize(row["relname"], row["heap"], row["toast"], row["indexes"]) for row in rows]
