"""What is recalled lives longer; it is written down beside the search, and not lost on the way."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import asyncpg

from app.database.embedded import EmbeddedPostgres
from app.dialogues.records import NewDialogue, Session
from app.forgetting.sweep import Forgotten
from app.recall.records import SearchQuery
from app.services import Services, open_services
from app.settings import Settings
from tests.conftest import LiveFactory
from tests.forgetting.conftest import SetClock
from tests.live import add, eventually, fetch, search
from tests.recall.planting import NOW, Planted, World


def _question(query: str) -> SearchQuery:
    return SearchQuery(
        session=Session(1),
        query=query,
        now=NOW,
        zone=ZoneInfo("Asia/Shanghai"),
        language="zh",
        top_n=1,
        window_size=1,
    )


async def _written(world: World) -> dict[int, datetime]:
    rows = await world.connection.fetch("SELECT * FROM retrievals")
    return {row["dialogue_id"]: row["retrieved_at"] for row in rows}


async def test_a_retrieval_extends_life_that_of_a_neighbour_too(world: World, clock: SetClock) -> None:
    added = [
        (await world.services.dialogues.add("default", NewDialogue(1, "user", content))).dialogue.id
        for content in ("早上好", "我的订单号是ORD123456", "今天天气不错", "我想吃火锅", "明天见")
    ]
    clock.advance(days=60)
    await world.services.recall.search("default", _question("订单号"))
    recalled_at = clock.now
    await world.services.retrievals.flush()
    assert await _written(world) == dict.fromkeys(added[:3], recalled_at)
    clock.advance(days=31)
    # A message said to be a fact outlives them all; nothing here rests on that rule.
    await world.connection.execute("UPDATE dialogues SET kind = 'chat'")
    assert await world.services.sweep.forget(None) == Forgotten(0, 2)
    clock.advance(days=59)
    assert await world.services.sweep.forget(None) == Forgotten(0, 0)
    clock.advance(microseconds=1)
    assert await world.services.sweep.forget(None) == Forgotten(0, 3)
    assert await _written(world) == {}


async def test_the_latest_retrieval_counts_whoever_writes_last(world: World, clock: SetClock) -> None:
    (key,) = await world.plant([Planted("话")])
    recorder = world.services.retrievals
    recorder.note([key])
    clock.advance(days=-1)
    await recorder.flush()
    recorder.note([key])
    await recorder.flush()
    assert await _written(world) == {key: clock.now + timedelta(days=1)}


async def test_what_was_erased_leaves_no_retrieval(world: World) -> None:
    kept, erased = await world.plant([Planted("话"), Planted("话", user_id=2)])
    world.services.retrievals.note([kept, erased, 999_999])
    await world.services.erasure.erase_user("default", 2)
    await world.services.retrievals.flush()
    assert set(await _written(world)) == {kept}
    # Written in the very moment of the erasure it would stay; the daily sweep finds it.
    await world.connection.execute("INSERT INTO retrievals VALUES ($1, now())", erased)
    await world.services.sweep.sweep_if_due()
    assert set(await _written(world)) == {kept}


async def test_what_is_erased_while_its_retrieval_is_being_written_leaves_none(
    world: World, postgres: EmbeddedPostgres, database_name: str
) -> None:
    erased, kept = await world.plant([Planted("话", user_id=2), Planted("话")])
    world.services.retrievals.note([erased, kept])
    writer = await asyncpg.connect(postgres.dsn_for(database_name))
    async with writer.transaction():
        # Another process writes the same row: ours waits for it, with the other one written already.
        await writer.execute("INSERT INTO retrievals VALUES ($1, now())", kept)
        writing = asyncio.create_task(world.services.retrievals.flush())

        async def waits() -> bool:
            return bool(await world.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

        await eventually(waits)
        await world.services.erasure.erase_user("default", 2)
    await writing
    await writer.close()
    assert set(await _written(world)) == {erased, kept}, "the race did not come about"
    await world.services.retrievals.flush()
    assert set(await _written(world)) == {kept}


async def test_many_are_written_together(world: World, clock: SetClock) -> None:
    keys = await world.plant([Planted(f"第{number}条") for number in range(2100)])
    for start in range(0, 2100, 7):
        world.services.retrievals.note(keys[start : start + 50])
    await world.services.retrievals.flush()
    assert await _written(world) == dict.fromkeys(keys, clock.now)


async def test_recording_does_not_touch_the_message(world: World) -> None:
    (key,) = await world.plant([Planted("话")])
    query = "SELECT ctid::text, xmin::text, xmax::text FROM dialogues"
    before = await world.connection.fetch(query)
    world.services.retrievals.note([key])
    await world.services.retrievals.flush()
    assert await world.connection.fetch(query) == before


async def test_closing_writes_what_was_noted(
    make_settings: Callable[..., Settings], services: Services, world: World, clock: SetClock
) -> None:
    (key,) = await world.plant([Planted("话")])
    async with open_services(make_settings(), clock=clock, background=False) as other:
        await other.recall.search("default", _question("话"))
        assert await _written(world) == {}
    assert await _written(world) == {key: clock.now}


async def test_search_and_prompt_are_recorded_by_the_running_service(
    serve: LiveFactory, postgres: EmbeddedPostgres, database_name: str
) -> None:
    async with serve() as live:
        found = await add(live, "我的订单号是ORD123456", created_at="2024-01-16T10:00:00", wait=True)
        asked = await add(live, "我女儿叫小美", user_id=2, created_at="2024-01-16T10:00:00", wait=True)
        await search(live, "订单号", now="2024-02-01")
        answer = await live.client.post("/memory/prompt", json={"user_id": 2, "query": "我女儿叫什么"})
        assert [one["id"] for one in answer.json()["memories"]] == [asked["id"]]

        async def recorded() -> bool:
            rows = await fetch(postgres, database_name, "SELECT dialogue_id FROM retrievals")
            return {row["dialogue_id"] for row in rows} == {found["id"], asked["id"]}

        await eventually(recorded)
