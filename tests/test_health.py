"""Health is told in time, whatever state the database is in."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from app import health
from app.database import server_process
from app.database.embedded import EmbeddedPostgres, start_embedded
from tests.conftest import LiveFactory
from tests.live import eventually


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """These processes stand still meanwhile."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def processes(server: EmbeddedPostgres) -> list[int]:
    """The server's, the one that starts the others first."""
    first = server_process.postmaster(server._cluster)
    assert first is not None
    connection = await asyncpg.connect(server.dsn_for("postgres"))
    rows = await connection.fetch("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    await connection.close()
    return [first, *(row["pid"] for row in rows)]


async def test_a_database_that_stands_still_is_told_in_time(
    serve: LiveFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with await asyncio.to_thread(start_embedded, tmp_path / "data", durable=False) as server:
        async with serve(database_url=server.url) as live:
            assert (await live.client.get("/health/ready")).status_code == 200
            monkeypatch.setattr(health, "_PATIENCE_S", 0.5)
            with frozen(await processes(server)):
                ready, metrics = await asyncio.gather(
                    live.client.get("/health/ready"), live.client.get("/metrics")
                )
            assert ready.status_code == 503
            assert ready.json()["detail"] == "the database has not answered within 0.5 s"
            assert metrics.status_code == 200
            monkeypatch.setattr(health, "_PATIENCE_S", 30.0)

            async def is_ready() -> bool:
                return (await live.client.get("/health/ready")).status_code == 200

            await eventually(is_ready)
