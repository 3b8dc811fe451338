"""The daily sweep: once a day however many processes run, after downtime, after a kill."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from app.database.engine import Database
from app.database.preflight import normalise_url
from app.forgetting.sweep import SweepService
from app.services import Services, open_services
from app.settings import Settings
from app.telemetry import Metrics
from tests.forgetting.conftest import SetClock
from tests.live import eventually
from tests.recall.planting import Planted, World

_REPOSITORY = Path(__file__).parents[2]
_DAY = date(2026, 11, 30)
# Noon in Shanghai; the sweep of half past three is due since 8.5 hours.
_NOON = datetime(2026, 11, 30, 4, 0, tzinfo=UTC)


@pytest.fixture
async def others(
    make_settings: Callable[..., Settings], services: Services, clock: SetClock
) -> AsyncIterator[list[Services]]:
    """Three more processes' worth of services on the same memory; the first has migrated it."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(open_services(make_settings(), clock=clock, background=False))
            for _ in range(3)
        ]


async def _plant_expired(world: World, number: int, *, now: datetime = _NOON) -> None:
    await world.plant([Planted(f"第{place}条", expires_at=now) for place in range(number)])


async def _rows(world: World) -> list[tuple[date, bool, int, int]]:
    rows = await world.connection.fetch("SELECT * FROM sweeps ORDER BY day")
    return [(row["day"], row["finished_at"] is not None, row["expired"], row["unretrieved"]) for row in rows]


async def _left(world: World) -> int:
    return int(await world.connection.fetchval("SELECT count(*) FROM dialogues"))


async def test_many_processes_sweep_once(world: World, others: list[Services]) -> None:
    await _plant_expired(world, 2500)
    everybody = [world.services, *others]
    did = await asyncio.gather(*(one.sweep.sweep_if_due() for one in everybody))
    assert sorted(did) == [False, False, False, True]
    assert await _rows(world) == [(_DAY, True, 2500, 0)]
    assert not any(await asyncio.gather(*(one.sweep.sweep_if_due() for one in everybody)))
    counted = [
        one.metrics.registry.get_sample_value("memory_forgotten_total", {"reason": "expired"}) or 0
        for one in everybody
    ]
    assert sum(counted) == 2500


async def test_each_day_has_its_sweep_and_days_of_downtime_have_one_together(
    world: World, clock: SetClock
) -> None:
    sweep = world.services.sweep
    assert await sweep.sweep_if_due()
    clock.now = datetime(2026, 11, 30, 19, 29, 59, tzinfo=UTC)
    assert not await sweep.sweep_if_due()
    clock.advance(seconds=1)
    await _plant_expired(world, 3, now=clock.now)
    assert await sweep.sweep_if_due()
    assert await _left(world) == 0
    clock.advance(days=5)
    assert await sweep.sweep_if_due()
    assert not await sweep.sweep_if_due()
    days = [row[0] for row in await _rows(world)]
    assert days == [_DAY, _DAY + timedelta(days=1), _DAY + timedelta(days=6)]


async def test_after_downtime_the_loop_sweeps_by_itself(
    make_settings: Callable[..., Settings], world: World, clock: SetClock
) -> None:
    await _plant_expired(world, 2)
    forgetting = make_settings().forgetting
    database_url = make_settings().database.url
    assert database_url is not None
    database = Database(normalise_url(database_url.get_secret_value()))
    sweep = SweepService(
        database=database,
        clock=clock,
        metrics=Metrics(),
        at=forgetting.at,
        zone=ZoneInfo("Asia/Shanghai"),
        unretrieved_days=forgetting.unretrieved_days,
        first_look_s=0,
    )
    running = asyncio.create_task(sweep.run())

    async def done() -> bool:
        return await _rows(world) == [(_DAY, True, 2, 0)]

    await eventually(done)
    running.cancel()
    await asyncio.wait([running])
    await database.aclose()


async def test_what_somebody_is_doing_is_left_to_him_until_he_is_dead(world: World) -> None:
    await _plant_expired(world, 1)
    await world.connection.execute(
        "INSERT INTO sweeps (day, started_at, available_at) VALUES ($1, $2, now() + interval '1 minute')",
        _DAY,
        _NOON,
    )
    assert not await world.services.sweep.sweep_if_due()
    assert await _left(world) == 1
    await world.connection.execute("UPDATE sweeps SET available_at = now()")
    assert await world.services.sweep.sweep_if_due()
    assert await _left(world) == 0


@asynccontextmanager
async def _last_one_locked(world: World, *, of: int) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
    """While this is open, no sweep gets past the last of these many messages; whether one has come to it."""
    await _plant_expired(world, of)

    async def has_come() -> bool:
        return bool(await world.connection.fetchval("SELECT sum(expired) FROM sweeps") == of - 1000)

    async with world.connection.transaction():
        await world.connection.execute("SELECT FROM dialogues ORDER BY id DESC LIMIT 1 FOR UPDATE")
        yield has_come


_SWEEPER = """
import asyncio
from datetime import UTC, datetime

from app.services import open_services
from app.settings import load_settings


async def main():
    settings = load_settings({"log_level": "WARNING"})
    clock = lambda: datetime(2026, 11, 30, 4, 0, tzinfo=UTC)
    async with open_services(settings, clock=clock, background=False) as services:
        print("open", flush=True)
        await services.sweep.sweep_if_due()


asyncio.run(main())
"""


async def test_a_stopped_sweep_is_taken_up_at_once(world: World, others: list[Services]) -> None:
    async with _last_one_locked(world, of=3000) as has_come:
        task = asyncio.create_task(world.services.sweep.sweep_if_due())
        await eventually(has_come)
        task.cancel()
        await asyncio.wait([task])
    assert await others[0].sweep.sweep_if_due()
    assert await _rows(world) == [(_DAY, True, 3000, 0)]


async def test_a_killed_sweep_is_done_by_another(
    world: World, make_settings: Callable[..., Settings], tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = make_settings().database.url
    assert url is not None
    async with _last_one_locked(world, of=3000) as has_come:
        process = subprocess.Popen(  # noqa: ASYNC220 - it is waited for in a thread
            [sys.executable, "-c", _SWEEPER],
            env=os.environ | {"DATABASE_URL": url.get_secret_value(), "PYTHONPATH": str(_REPOSITORY)},
            cwd=tmp_path_factory.mktemp("sweeper"),
        )
        await eventually(has_come)
        process.kill()
        await asyncio.to_thread(process.wait)
    assert await _rows(world) == [(_DAY, False, 2000, 0)]
    assert await _left(world) == 1000
    # The dead one's claim runs out by itself; here it need not be waited for.
    await world.connection.execute("UPDATE sweeps SET available_at = now()")
    assert await world.services.sweep.sweep_if_due()
    assert await _left(world) == 0
    assert await _rows(world) == [(_DAY, True, 3000, 0)]
