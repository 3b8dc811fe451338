"""Work in the background goes on after what nobody foresaw, and its end does not go unseen."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from structlog.testing import capture_logs

from app import services as composition
from app.database.work_loop import WorkLoop, holding
from app.evaluation import store, worker
from app.services import Services
from app.settings import load_settings


class Unlucky:
    """Work that fails in ways that nobody foresaw, one after the other, and then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.done = asyncio.Event()

    async def work(self) -> bool:
        if self._failures:
            raise self._failures.pop(0)
        self.done.set()
        return False


async def test_the_embedded_server_is_looked_after_whatever_failed_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    loop = asyncio.get_running_loop()
    tried = asyncio.Event()
    failures: list[Exception] = [OSError("no space left"), OSError("no space left"), KeyError("pid")]

    class Server:
        """As far as looking after it goes."""

        def url_for(self, database: str) -> str:
            return database

        def revive(self) -> None:
            if failures:
                raise failures.pop(0)
            loop.call_soon_threadsafe(tried.set)

        def close(self) -> None:
            pass

    monkeypatch.setattr(composition, "start_embedded", lambda _: Server())
    monkeypatch.setattr(composition, "_REVIVE_EVERY_S", 0.01)
    with capture_logs() as logs:
        async with composition.open_database_url(load_settings({"data_dir": tmp_path}).database):
            async with asyncio.timeout(30):
                await tried.wait()
    assert [log["reason"] for log in logs] == ["no space left", "'pid'"]


async def test_a_loop_that_ends_is_told() -> None:
    async def ends() -> None:
        raise ValueError("unforeseen")

    with capture_logs() as logs:
        async with composition._running(ends()):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert [(log["event"], log["log_level"]) for log in logs] == [("background loop ended", "critical")]
    assert "ends" in logs[0]["loop"]


async def test_work_goes_on_after_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.database.work_loop._FIRST_PAUSE_S", 0.01)
    unlucky = Unlucky(KeyError("a"), ValueError("b"), RuntimeError("c"))
    running = asyncio.create_task(WorkLoop("test", unlucky.work).run())
    with capture_logs() as logs:
        async with asyncio.timeout(30):
            await unlucky.done.wait()
    running.cancel()
    assert [log["event"] for log in logs] == ["work failed unexpectedly"] * 3


@pytest.mark.parametrize("gather_s", [0.0, 0.01])
async def test_of_idle_workers_one_looks_for_what_it_was_told_of(gather_s: float) -> None:
    looks = 0
    work: list[str] = []
    done = asyncio.Event()

    async def look() -> bool:
        nonlocal looks
        looks += 1
        if not work:
            return False
        if work.pop() == "last":
            done.set()
        return True

    loop = WorkLoop("test", look, workers=4, poll_s=1000, gather_s=gather_s)
    running = asyncio.create_task(loop.run())
    try:
        for _ in range(10):
            await asyncio.sleep(0)
        assert looks == 4
        work.append("last")
        loop.wake()
        async with asyncio.timeout(30):
            await done.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        # Found it, and then nothing more.
        assert looks == 6
    finally:
        running.cancel()


@given(bursts=st.lists(st.integers(1, 5), min_size=1, max_size=8), workers=st.integers(1, 4))
@settings(deadline=None, max_examples=30)
async def test_nothing_that_a_loop_was_told_of_waits_for_the_next_poll(
    bursts: list[int], workers: int
) -> None:
    waiting = 0
    empty = asyncio.Event()

    async def look() -> bool:
        nonlocal waiting
        found = min(waiting, 1)
        waiting -= found
        # Whoever writes goes on while this one looks.
        await asyncio.sleep(0)
        if not waiting:
            empty.set()
        return bool(found)

    loop = WorkLoop("test", look, workers=workers, poll_s=1000, gather_s=0.001)
    running = asyncio.create_task(loop.run())
    try:
        for burst in bursts:
            for _ in range(burst):
                waiting += 1
                empty.clear()
                loop.wake()
                await asyncio.sleep(0)
            async with asyncio.timeout(30):
                await empty.wait()
            assert waiting == 0
    finally:
        running.cancel()


async def test_turns_are_judged_whatever_befalls_the_look_for_abandoned_ones(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Unlucky(KeyError("a"), ValueError("b"))

    async def look(_session: object, *, after_s: float) -> list[Any]:
        assert after_s > 0
        await looks.work()
        return []

    monkeypatch.setattr("app.database.work_loop._FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(store, "lock_abandoned", look)
    evaluation = worker.EvaluationWorker(
        database=services.dialogues._database,
        evaluator=None,
        pipeline=services.dialogues._embedding,
        clock=services.clock,
        metrics=services.metrics,
        concurrency=1,
        batch_size=1,
    )
    running = asyncio.create_task(evaluation.run())
    async with asyncio.timeout(30):
        await looks.done.wait()
    assert not running.done()
    running.cancel()


async def test_a_claim_is_renewed_whatever_failed_before(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.database.work_loop.LEASE_S", 0.03)
    renewals = 0
    renewed = asyncio.Event()

    async def extend(session: Any, _lease_s: float) -> None:
        nonlocal renewals
        renewals += 1
        if renewals == 1:
            await session.execute(text("SELECT 1 / 0"))
        renewed.set()

    async with holding(services.dialogues._database, extend), asyncio.timeout(30):
        await renewed.wait()
    assert renewals > 1
