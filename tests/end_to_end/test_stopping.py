"""A service that is told to stop: nothing new is taken, and whoever waits is told so, within a limit."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.commands.serving import GRACE_S
from app.database.embedded import EmbeddedPostgres
from tests.conftest import execute
from tests.doubles.chat_fixtures import ChatProvider
from tests.doubles.fixtures import EmbeddingProvider
from tests.live import eventually, listed, message
from tests.processes import ServiceProcess, StartService
from tests.talk import asked, chat_settings, judged, read_events, say, spoken

# Besides the grace: what is open is closed.
_CLOSING_S = 20


@pytest.fixture
async def database(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """The URL of an empty database that nobody here starts or stops."""
    await execute(postgres, "CREATE DATABASE stopping")
    yield postgres.dsn_for("stopping")
    await execute(postgres, "DROP DATABASE stopping WITH (FORCE)")


async def stream(live: ServiceProcess, text: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a turn, whatever the last one is."""
    async with live.client.stream("POST", "/chat", json=asked(text, stream=True, **more)) as answer:
        return read_events((await answer.aread()).decode())


async def is_refused(live: ServiceProcess) -> bool:
    """Whether a new connection is refused, and not left to wait."""
    try:
        async with httpx.AsyncClient(base_url=live.url, timeout=5, trust_env=False) as client:
            await client.get("/health/live")
    except httpx.ConnectError:
        return True
    return False


async def test_who_waits_longer_than_the_grace_is_told_and_nothing_is_lost(
    run_service: StartService,
    chat_provider: ChatProvider,
    embedding_provider: EmbeddingProvider,
    with_provider: dict[str, object],
    database: str,
) -> None:
    settings = chat_settings(chat_provider, **with_provider, database_url=database, chat_timeout_s=120)
    settings |= {"embedding_timeout_s": 120}
    chat_provider.control({"only": "chat", "drip_s": 120, "piece_chars": 1, "times": None})
    embedding_provider.control(delay_s=120)
    async with run_service(**settings) as live:
        whole = asyncio.create_task(live.client.post("/chat", json=asked("我住在杭州", message_uuid="u-1")))
        streamed = asyncio.create_task(stream(live, "我对花生过敏", user_id=2, message_uuid="u-2"))
        stored = asyncio.create_task(
            live.client.post("/dialogues", json=message("我叫小明", user_id=3, wait=True))
        )

        async def all_wait() -> bool:
            models = (chat_provider.requests, embedding_provider.requests)
            asked_of, embedded = [await asyncio.to_thread(model) for model in models]
            return (
                asked_of["count"] == 2 and embedded["count"] > 0 and len(await listed(live, user_id=3)) == 1
            )

        await eventually(all_wait)
        live.process.send_signal(signal.SIGTERM)
        await eventually(lambda: is_refused(live))
        assert live.process.poll() is None, "it stopped without waiting for anybody"
        refused, events, late = await asyncio.gather(whole, streamed, stored)
        assert await asyncio.to_thread(live.process.wait, GRACE_S + _CLOSING_S) == 0
    for answer in (refused, late):
        assert answer.status_code == 503, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"] == "the service is stopping"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
        assert int(answer.headers["retry-after"]) > 0
    assert [name for name, _ in events] == ["memories", "error"]
    assert (events[-1][1]["status"], events[-1][1]["type"]) == (503, "/problems/unavailable")

    chat_provider.control()
    embedding_provider.control()
    async with run_service(**settings) as again:
        assert await spoken(again) == [("user", "我住在杭州")]
        assert await spoken(again, "2") == [("user", "我对花生过敏")]
        assert [one["content"] for one in await listed(again, user_id=3)] == ["我叫小明"]
        # Their claims were given back: who asks again does not wait for a lease to run out.
        async with asyncio.timeout(10):
            done = await say(again, "我住在杭州", message_uuid="u-1")
        assert len(await spoken(again)) == 2
        assert (await judged(again, done["turn_id"]))["score"] == 93


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
async def test_who_is_being_answered_gets_the_whole_answer(
    run_service: StartService,
    chat_provider: ChatProvider,
    with_provider: dict[str, object],
    database: str,
    options: tuple[str, ...],
) -> None:
    settings = chat_settings(chat_provider, **with_provider, database_url=database)
    chat_provider.control({"only": "chat", "drip_s": 0.1, "piece_chars": 1, "times": None})
    async with run_service(*options, **settings) as live:
        streamed = asyncio.create_task(stream(live, "我对花生过敏", user_id=2))
        whole = asyncio.create_task(live.client.post("/chat", json=asked("我住在杭州")))

        async def both_asked() -> bool:
            return bool((await asyncio.to_thread(chat_provider.requests))["count"] == 2)

        await eventually(both_asked)
        live.process.send_signal(signal.SIGTERM)
        await eventually(lambda: is_refused(live))
        events, answer = await asyncio.gather(streamed, whole)
        assert [events[0][0], events[-1][0]] == ["memories", "done"]
        assert answer.status_code == 200, answer.text
        assert await asyncio.to_thread(live.process.wait, GRACE_S + _CLOSING_S) == 0
