"""Services as processes: two on one database, killed, restarted, interrupted."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.database.embedded import EmbeddedPostgres
from tests.conftest import execute
from tests.doubles.fixtures import EmbeddingProvider
from tests.live import add, add_batch, eventually, fetch, listed, message, search
from tests.processes import ServiceProcess, StartService


@pytest.fixture
async def shared_database(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """The URL of an empty database that nobody here starts or stops."""
    await execute(postgres, "CREATE DATABASE shared")
    yield postgres.url_for("shared").replace("+asyncpg", "", 1)
    await execute(postgres, "DROP DATABASE shared WITH (FORCE)")


def servers_of(data_dir: Path) -> list[str]:
    """The PostgreSQL processes that work in the data directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").resolve().is_relative_to(data_dir):
                found.append((entry / "comm").read_text().strip())
        except OSError:
            continue
    return found


async def nothing_waits(live: ServiceProcess) -> bool:
    details = (await live.client.get("/health/ready")).json()["details"]
    return bool(details["embeddings_pending"] == 0)


async def leave_twenty_in_flight(live: ServiceProcess, provider: EmbeddingProvider) -> None:
    provider.reset()
    provider.control(delay_s=120)
    await add_batch(live, [message(f"第{number}条要嵌入的话") for number in range(20)])

    async def is_asked() -> bool:
        return int(provider.requests()["count"]) > 0

    await eventually(is_asked)


async def test_two_processes_on_one_database_are_one_memory(
    run_service: StartService,
    embedding_provider: EmbeddingProvider,
    with_provider: dict[str, object],
    shared_database: str,
) -> None:
    settings = with_provider | {"database_url": shared_database}
    async with run_service(**settings) as first, run_service(**settings) as second:
        stored = await add(first, "我的订单号是ORD123456", message_id=1)
        again = await second.client.post("/dialogues", json=message("我的订单号是ORD123456", message_id=1))
        assert (again.status_code, again.json()["id"]) == (200, stored["id"])
        for mode in ("vector", "keyword", "hybrid"):
            found = await search(second, "订单号ORD123456", mode=mode)
            assert [one["id"] for one in found["memories"]] == [stored["id"]]
            assert found["degraded"] is False
        window = (await second.client.get("/sessions/1/window")).json()
        assert [one["content"] for one in window["messages"]] == ["我的订单号是ORD123456"]

        await leave_twenty_in_flight(first, embedding_provider)
        first.kill()
        embedding_provider.control()
        await eventually(lambda: nothing_waits(second))
        assert {one["embedding_status"] for one in await listed(second)} == {"ready"}
        assert (await second.client.delete("/users/1")).json()["erased"]["dialogues"] == 21


async def test_an_interrupted_service_gives_its_work_back_at_once(
    run_service: StartService,
    embedding_provider: EmbeddingProvider,
    with_provider: dict[str, object],
    postgres: EmbeddedPostgres,
    shared_database: str,
) -> None:
    settings = with_provider | {"database_url": shared_database}
    async with run_service(**settings) as first:
        await leave_twenty_in_flight(first, embedding_provider)
        waiting = asyncio.create_task(
            first.client.post("/dialogues", json=message("等到嵌入为止", wait=True))
        )
        await eventually(lambda: is_stored(first, 21))
        assert await asyncio.to_thread(first.interrupt) == 130
        # Its client may lose the answer, the message is kept.
        await asyncio.gather(waiting, return_exceptions=True)
    jobs = await fetch(
        postgres,
        "shared",
        "SELECT count(*) AS jobs, count(*) FILTER (WHERE available_at <= now()) AS free FROM embedding_jobs",
    )
    assert (jobs[0]["jobs"], jobs[0]["free"]) == (21, 21)


async def is_stored(live: ServiceProcess, messages: int) -> bool:
    return len(await listed(live)) == messages


async def test_a_killed_service_comes_up_with_all_data_and_leaves_nothing_behind(
    run_service: StartService,
    embedding_provider: EmbeddingProvider,
    with_provider: dict[str, object],
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    settings = with_provider | {"data_dir": data_dir}
    async with run_service(**settings) as first, run_service(**settings) as second:
        await add(first, "我的订单号是ORD123456", wait=True)
        assert (await search(second, "ORD123456", mode="keyword"))["memories"]
        await leave_twenty_in_flight(second, embedding_provider)
        first.kill()
        second.kill()
    embedding_provider.control()
    async with run_service(**settings) as third:
        assert (await search(third, "ORD123456", mode="keyword"))["memories"]
        await eventually(lambda: nothing_waits(third))
        found = await listed(third)
        assert [one["embedding_status"] for one in found] == ["ready"] * 21
        assert "postgres" in servers_of(data_dir)
        assert third.interrupt() == 130
        assert servers_of(data_dir) == []
