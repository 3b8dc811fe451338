"""The evaluator is away, the service is killed, the evaluator returns: no turn is lost or judged twice."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from app.database.embedded import EmbeddedPostgres
from tests.conftest import execute
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import eventually, fetch
from tests.processes import StartService
from tests.talk import chat_settings, judged, prompts, say, turn_of

_TURNS = 8


@pytest.fixture
async def own_database(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """An empty database that nobody here starts or stops."""
    await execute(postgres, "CREATE DATABASE judge_away")
    yield "judge_away"
    await execute(postgres, "DROP DATABASE judge_away WITH (FORCE)")


@pytest.mark.parametrize("away", [{"status": 503}, {"status": 401}], ids=["busy", "key refused"])
async def test_turns_that_wait_survive_kills_and_are_judged_once(
    run_service: StartService,
    chat_provider: ChatProvider,
    postgres: EmbeddedPostgres,
    own_database: str,
    away: dict[str, int],
) -> None:
    settings = chat_settings(chat_provider, database_url=postgres.dsn_for(own_database), log_level="WARNING",
                             evaluation_batch_size=1, hot_window_tokens=100_000)  # fmt: skip
    rules = [{**away, "only": kind, "times": None} for kind in ("evaluation", "batch")]
    chat_provider.control(*rules)
    async with run_service(**settings) as first:
        done = [await say(first, f"我家门牌是第{number}号", user_id=number + 1) for number in range(_TURNS)]

        async def was_tried() -> bool:
            return len(await asyncio.to_thread(prompts, chat_provider, "evaluation")) > 0

        await eventually(was_tried)
        first.kill()
    async with run_service(**settings) as second:
        turns = [await turn_of(second, one["turn_id"]) for one in done]
        assert [turn["status"] for turn in turns] == ["pending"] * _TURNS
        second.kill()
    refused = len(prompts(chat_provider, "evaluation"))
    chat_provider.control()
    async with run_service(**settings) as last:
        turns = [await judged(last, one["turn_id"]) for one in done]
        assert [(turn["status"], turn["score"]) for turn in turns] == [("scored", 93)] * _TURNS
        assert len({key for turn in turns for key in turn["dialogue_ids"]}) == 2 * _TURNS
        rows = await fetch(postgres, own_database, "SELECT role, content, score FROM dialogues")
        assert Counter((row["role"], row["content"], row["score"]) for row in rows) == Counter(
            ("user", f"我家门牌是第{number}号", 93) for number in range(_TURNS)
        ) + Counter(("assistant", one["reply"], 93) for one in done)
        # One call for each since the evaluator is back: nobody was judged twice.
        assert len(prompts(chat_provider, "evaluation")) - refused == _TURNS
