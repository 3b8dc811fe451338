"""What chats do to memory: what they recall lives on, what was taken back is told no more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from app.chat.events import ChatRequest
from app.database.embedded import EmbeddedPostgres
from app.dialogues.records import NewDialogue, Session
from app.services import Services, open_services
from app.settings import Settings
from tests.conftest import LiveFactory, execute
from tests.doubles.chat_fixtures import ChatProvider
from tests.forgetting.conftest import SetClock
from tests.live import Live, add_batch, eventually, listed, message
from tests.processes import StartService, run_service
from tests.talk import chat_settings, judged, prompts, say, spoken

__all__ = ["run_service"]

_OLD = "我住在北京朝阳区"
_ECHO = "好的，记下了：你住在北京朝阳区"
_NEW = "不对，我搬家了，现在住在上海浦东"


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def timed(
    make_settings: Callable[..., Settings], chat_provider: ChatProvider, clock: SetClock
) -> AsyncIterator[Services]:
    """The services on a clock that tests set, without their loops."""
    settings = make_settings(**chat_settings(chat_provider))
    async with open_services(settings, clock=clock, background=False) as opened:
        yield opened


async def test_what_a_chat_recalls_is_not_forgotten_after_ninety_days(
    timed: Services, clock: SetClock, postgres: EmbeddedPostgres, database_name: str
) -> None:
    said_at = clock.now - timedelta(hours=2)
    asked_for, unwanted = [
        (await timed.dialogues.add("default", NewDialogue(user, "user", text, created_at=said_at), wait=True))
        .dialogue.id
        for user, text in ((1, "我的订单号是ORD123456"), (2, "今天天气不错"))
    ]  # fmt: skip
    connection = await asyncpg.connect(postgres.dsn_for(database_name))
    try:
        # A fact outlives them all; nothing here rests on that rule.
        await connection.execute("UPDATE dialogues SET kind = 'chat'")
        clock.advance(days=60)
        request = ChatRequest(
            session=Session(1), user_input="我的订单号是多少？", now=clock.now,
            zone=ZoneInfo("Asia/Shanghai"),
            language="zh", top_n=3, window_size=0, max_memory_tokens=1000,
        )  # fmt: skip
        done = await timed.chat.chat("default", request)
        assert [memory.dialogue.id for memory in done.memories] == [asked_for]
        await timed.retrievals.flush()
        clock.advance(days=31)
        await timed.sweep.forget(None)
        assert await connection.fetchval("SELECT array_agg(id) FROM dialogues") == [asked_for]
        clock.advance(days=60)
        await timed.sweep.forget(None)
        assert await connection.fetchval("SELECT count(*) FROM dialogues") == 0
    finally:
        await connection.close()
    assert unwanted != asked_for


async def test_what_was_corrected_in_a_chat_is_told_to_no_later_one(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        said_at = datetime.now(UTC) - timedelta(hours=5)
        await add_batch(
            live,
            [
                message(_OLD, created_at=said_at.isoformat()),
                message(_ECHO, role="assistant", created_at=(said_at + timedelta(seconds=2)).isoformat()),
            ],
        )
        before = await say(live, "我住在哪里？")
        assert {_OLD, _ECHO} <= {memory["content"] for memory in before["memories"]}
        await judged(live, (await say(live, _NEW))["turn_id"])

        async def are_outdated() -> bool:
            found = {one["content"] for one in await listed(live) if one["outdated"]}
            return {_OLD, _ECHO} <= found

        await eventually(are_outdated)
        after = await say(live, "我住在哪里？", top_n=20)
        told = {memory["content"] for memory in after["memories"]}
        assert not {_OLD, _ECHO} & told
        system, *window = prompts(chat_provider)[-1]
        assert _OLD not in system["content"]
        assert _ECHO not in system["content"]
        assert any(_NEW in one["content"] for one in window) or _NEW in system["content"]


async def summaries_of(live: Live) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await live.client.get("/sessions/1/summaries")).json()["summaries"]
    return found


@pytest.fixture
async def own_database(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """An empty database that nobody here starts or stops."""
    await execute(postgres, "CREATE DATABASE two_processes")
    yield "two_processes"
    await execute(postgres, "DROP DATABASE two_processes WITH (FORCE)")


async def test_two_processes_share_window_and_summaries(
    run_service: StartService, chat_provider: ChatProvider, postgres: EmbeddedPostgres, own_database: str
) -> None:
    settings = chat_settings(chat_provider, database_url=postgres.dsn_for(own_database), log_level="WARNING",
                             hot_window_tokens=400, evaluation_enabled=False)  # fmt: skip
    chat_provider.control({"only": "chat", "reply": f"好的{'，我们接着说' * 8}", "times": None})
    async with run_service(**settings) as one, run_service(**settings) as other:
        texts = [f"我的第{number}个爱好是下棋{'，还有很多话' * 8}" for number in range(10)]
        for number, text in enumerate(texts):
            await say((one, other)[number % 2], text)

        async def is_settled() -> bool:
            found = await summaries_of(one)
            return bool(found) and sum(of["messages"] for of in found) + len(await spoken(one)) == 20

        await eventually(is_settled)
        # What one of them remembers is what the other has stored.
        assert await summaries_of(other) == await summaries_of(one)
        assert await spoken(other) == await spoken(one)
        said = [content for role, content in await spoken(other) if role == "user"]
        assert said == texts[-len(said) :]
        roles = [role for role, _ in await spoken(other)]
        assert all(left != right for left, right in pairwise(roles))
        kept = await summaries_of(one)
        for service in (one, other):
            done = await say(service, "在吗")
            told = [summary["id"] for summary in done["summaries"]]
            assert told
            assert {summary["id"] for summary in kept[-3:]} & set(told)
        assert await asyncio.to_thread(prompts, chat_provider, "summary")
