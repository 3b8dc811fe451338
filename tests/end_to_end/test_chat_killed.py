"""Chats and judgement in a service that is killed: no turn is lost, judged twice or stored twice."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.database.embedded import EmbeddedPostgres
from tests.conftest import execute
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import eventually, fetch
from tests.processes import ServiceProcess, StartService
from tests.talk import asked, chat_settings, judged, prompts, say, spoken

_TURNS = 20


@pytest.fixture
async def own_database(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """An empty database that nobody here starts or stops."""
    await execute(postgres, "CREATE DATABASE killed")
    yield "killed"
    await execute(postgres, "DROP DATABASE killed WITH (FORCE)")


def text_of(number: int) -> str:
    return f"我家门牌是第{number}号"


async def say_until_answered(services: list[ServiceProcess], number: int) -> dict[str, Any]:
    """What a careful client does: the same message_uuid, until it is answered, by whichever service lives."""
    while True:
        try:
            answer = await services[-1].client.post(
                "/chat", json=asked(text_of(number), user_id=number % 7 + 1, message_uuid=f"u-{number}")
            )
        except httpx.TransportError:
            await asyncio.sleep(0.2)
            continue
        if answer.status_code == 200:
            done: dict[str, Any] = answer.json()
            return done
        assert answer.status_code in {502, 503}, answer.text
        await asyncio.sleep(0.2)


async def test_turns_in_flight_survive_kills(
    run_service: StartService,
    chat_provider: ChatProvider,
    postgres: EmbeddedPostgres,
    own_database: str,
) -> None:
    settings = chat_settings(chat_provider, database_url=postgres.dsn_for(own_database), log_level="WARNING",
                             hot_window_tokens=100_000, evaluation_batch_size=3)  # fmt: skip
    chat_provider.control({"only": "evaluation", "delay_s": 0.5, "times": None},
                          {"only": "batch", "delay_s": 0.5, "times": None},
                          {"only": "chat", "delay_s": 0.3, "times": None})  # fmt: skip
    services: list[ServiceProcess] = []
    async with run_service(**settings) as first:
        services.append(first)
        talking = [asyncio.create_task(say_until_answered(services, number)) for number in range(_TURNS)]

        async def is_judging() -> bool:
            seen = await asyncio.to_thread(chat_provider.requests)
            return bool({"evaluation", "batch"} & set(seen["kinds"]))

        await eventually(is_judging)
        first.kill()
    for _ in range(2):
        async with run_service(**settings) as again:
            services.append(again)
            await asyncio.sleep(random.uniform(0.1, 1.0))  # noqa: S311 - any moment will do
            again.kill()
    chat_provider.control()
    async with run_service(**settings) as last:
        services.append(last)
        done = await asyncio.gather(*talking)
        turns = [await judged(last, one["turn_id"]) for one in done]
        assert len({turn["turn_id"] for turn in turns}) == _TURNS
        assert [(turn["status"], turn["score"]) for turn in turns] == [("scored", 93)] * _TURNS
        assert len({key for turn in turns for key in turn["dialogue_ids"]}) == 2 * _TURNS
        rows = await fetch(postgres, own_database, "SELECT role, content FROM dialogues")
        assert Counter((row["role"], row["content"]) for row in rows) == Counter(
            ("user", text_of(number)) for number in range(_TURNS)
        ) + Counter(("assistant", one["reply"]) for one in done)
        windows = [await spoken(last, str(user)) for user in range(1, 8)]
        assert sum(map(len, windows)) == 2 * _TURNS
        left = await fetch(postgres, own_database, "SELECT status, count(*) AS n FROM turns GROUP BY 1")
        assert [(row["status"], row["n"]) for row in left] == [("scored", _TURNS)]


async def test_two_processes_answer_one_message_once(
    run_service: StartService,
    chat_provider: ChatProvider,
    postgres: EmbeddedPostgres,
    own_database: str,
) -> None:
    settings = chat_settings(chat_provider, database_url=postgres.dsn_for(own_database), log_level="WARNING")
    chat_provider.control({"only": "chat", "delay_s": 1, "times": None})
    async with run_service(**settings) as one, run_service(**settings) as other:
        told = await asyncio.gather(
            *(say(service, "我住在杭州", message_uuid="u-1") for service in (one, other, one, other))
        )
        assert len({answer["turn_id"] for answer in told}) == 1
        assert len(prompts(chat_provider)) == 1
        assert await spoken(other) == await spoken(one)
        assert len((await judged(other, told[0]["turn_id"]))["dialogue_ids"]) == 2


async def test_ctrl_c_lets_an_answer_end(
    run_service: StartService,
    chat_provider: ChatProvider,
    postgres: EmbeddedPostgres,
    own_database: str,
) -> None:
    settings = chat_settings(chat_provider, database_url=postgres.dsn_for(own_database), log_level="WARNING")
    chat_provider.control({"only": "chat", "delay_s": 1.5, "times": 1})
    async with run_service(**settings) as one:
        talking = asyncio.create_task(say(one, "我住在杭州", message_uuid="u-1"))

        async def is_asked() -> bool:
            return bool((await asyncio.to_thread(chat_provider.requests))["count"])

        await eventually(is_asked)
        assert await asyncio.to_thread(one.interrupt) == 130
        done = await talking
    async with run_service(**settings) as other:
        assert (await judged(other, done["turn_id"]))["score"] == 93
        assert len(await spoken(other)) == 2
