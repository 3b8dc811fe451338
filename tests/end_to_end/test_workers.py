"""`serve --workers`: several processes behind one address, stopped and replaced by their parent."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.live import add, add_batch, eventually, listed, message, search
from tests.processes import COMMAND, ServiceProcess, StartService, environment


def workers_of(parent: int) -> list[int]:
    """The processes of a service that serve."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_text()
            parent_of = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent_of == parent and "spawn_main" in command:
            found.append(int(entry.name))
    return sorted(found)


def is_running(pid: int) -> bool:
    """Whether it is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def requests_counted(live: ServiceProcess) -> float:
    """How many messages were stored, as the metrics have it, whichever worker is asked."""
    text = (await live.client.get("/metrics")).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "http_requests_total" and sample.labels["route"] == "/dialogues"
    )


async def add_over_new_connections(live: ServiceProcess, count: int) -> None:
    """Messages over a connection each, so that every worker takes some."""

    async def add_one(number: int) -> None:
        async with httpx.AsyncClient(base_url=live.url, timeout=60, trust_env=False) as client:
            answer = await client.post("/dialogues", json=message(f"第{number}句", message_id=number))
            assert answer.status_code in {200, 201}, answer.text

    await asyncio.gather(*(add_one(number) for number in range(count)))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
async def test_a_signal_to_the_parent_stops_workers_and_database(
    run_service: StartService,
    with_provider: dict[str, object],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    data_dir = tmp_path / "data"
    async with run_service("--workers", "2", **with_provider, data_dir=data_dir) as live:
        workers = workers_of(live.process.pid)
        assert len(workers) == 2
        await add(live, "我的订单号是ORD123456")
        # As a terminal does it: Ctrl-C reaches everybody.
        os.killpg(live.process.pid, number)
        assert await asyncio.to_thread(live.process.wait, 60) == code
        assert not any(map(is_running, workers))
    assert list(data_dir.rglob("postmaster.pid")) == []
    assert "Traceback" not in (tmp_path / "service0.log").read_text()


async def test_a_killed_worker_is_replaced_and_nothing_is_lost(
    run_service: StartService, with_provider: dict[str, object], tmp_path: Path
) -> None:
    async with run_service("--workers", "2", **with_provider, data_dir=tmp_path / "data") as live:
        await add_batch(live, [message(f"第{number}条要嵌入的话") for number in range(40)])
        await add_over_new_connections(live, 20)
        counted = await requests_counted(live)
        assert counted == 20
        before = workers_of(live.process.pid)
        os.kill(before[0], signal.SIGKILL)

        async def is_replaced() -> bool:
            now = workers_of(live.process.pid)
            return before[0] not in now and len(now) == 2

        await eventually(is_replaced)
        async with httpx.AsyncClient(base_url=live.url, timeout=60, trust_env=False) as client:
            found = await client.get("/dialogues", params={"user_id": 1, "limit": 200})
        assert len(found.json()["dialogues"]) == 60
        os.kill(workers_of(live.process.pid)[0], signal.SIGKILL)
        async with httpx.AsyncClient(base_url=live.url, timeout=60, trust_env=False) as client:
            fresh = ServiceProcess(live.url, client, live.process)
            # What the dead have counted still counts.
            assert await requests_counted(fresh) >= counted

            async def all_embedded() -> bool:
                return {one["embedding_status"] for one in await listed(fresh)} == {"ready"}

            await eventually(all_embedded)
            assert (await search(fresh, "第7条", mode="keyword"))["memories"]


async def test_workers_whose_parent_was_killed_end_and_stop_the_database(
    run_service: StartService, with_provider: dict[str, object], tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    async with run_service("--workers", "2", **with_provider, data_dir=data_dir) as live:
        workers = workers_of(live.process.pid)
        live.kill()

        async def all_gone() -> bool:
            return not any(map(is_running, workers)) and not list(data_dir.rglob("postmaster.pid"))

        await eventually(all_gone)


async def test_what_keeps_workers_from_starting_is_told_once(
    run_service: StartService, with_provider: dict[str, object], tmp_path: Path
) -> None:
    settings = with_provider | {"data_dir": tmp_path / "data", "log_level": "ERROR"}
    async with run_service(**settings) as live:
        assert await asyncio.to_thread(live.interrupt) == 130
    ended = subprocess.run(  # noqa: ASYNC221 - nothing else has to go on meanwhile
        [COMMAND, "serve", "--port", "0", "--workers", "2"],
        cwd=tmp_path,
        env=environment(settings | {"embedding_dimensions": 32}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "temporal-memory reembed" in ended.stderr
    assert list((tmp_path / "data").rglob("postmaster.pid")) == []
