"""What is deleted or changed is gone from every table, whatever holds a copy of it."""

from typing import Any

import asyncpg
import pytest

from app.database.embedded import EmbeddedPostgres
from tests.conftest import LiveFactory, LiveService
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import add, eventually, listed
from tests.talk import chat_settings, judged, say, spoken, turn_of

_SECRET = "暗号是紫色河马7731"
_REPLY = "收到绿色企鹅4482"
_NEW = "暗号改由别人保管"


async def tables_with(postgres: EmbeddedPostgres, database: str, words: str) -> set[str]:
    """The tables that have a row in which these words stand anywhere."""
    connection = await asyncpg.connect(postgres.dsn_for(database))
    try:
        tables = await connection.fetch(
            "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()"
        )
        return {
            table["name"]
            for table in tables
            if await connection.fetchval(
                f'SELECT EXISTS (SELECT FROM "{table["name"]}" t WHERE position($1 in t::text) > 0)', words
            )
        }
    finally:
        await connection.close()


async def talk(live: LiveService, chat_provider: ChatProvider) -> dict[str, Any]:
    """A turn that is kept, and whose text stands in every place that it can come to."""
    chat_provider.control(
        {"only": "chat", "reply": _REPLY, "times": 1},
        {"only": "chat", "reply": "好的", "times": None},
        {"only": "summary", "reply": f"用户说{_SECRET}，助手答{_REPLY}", "times": 1},
        {"only": "summary", "reply": "聊了别的。", "times": None},
    )
    return await judged(live, (await say(live, f"记住，{_SECRET}", message_uuid="u-1"))["turn_id"])


async def compress(live: LiveService) -> None:
    for place in range(6):
        await add(live, f"第{place}件事" + "，还有很多别的话要说" * 6)
    live.services.summaries.note_window(10**6)

    async def is_compressed() -> bool:
        answer = (await live.client.get("/sessions/1/summaries")).json()
        return any(_SECRET in one["content"] for one in answer["summaries"])

    await eventually(is_compressed)


@pytest.mark.parametrize("in_summary", [False, True])
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("way", ["delete", "patch"])
async def test_what_is_deleted_or_changed_stands_nowhere_any_more(
    serve: LiveFactory,
    chat_provider: ChatProvider,
    postgres: EmbeddedPostgres,
    database_name: str,
    *,
    in_summary: bool,
    half: int,
    way: str,
) -> None:
    words = (_SECRET, _REPLY)[half]
    async with serve(**chat_settings(chat_provider, hot_window_tokens=150 if in_summary else 4000)) as live:
        turn = await talk(live, chat_provider)
        if in_summary:
            await compress(live)
        there = await tables_with(postgres, database_name, words)
        assert {"dialogues", "turns", "summaries" if in_summary else "window_messages"} <= there
        path = f"/dialogues/{turn['dialogue_ids'][half]}"
        if way == "delete":
            assert (await live.client.delete(path)).status_code == 204
            assert (await live.client.get(f"/chat/turns/{turn['turn_id']}")).status_code == 404
        else:
            assert (await live.client.patch(path, json={"content": _NEW})).status_code == 200
            assert (await turn_of(live, turn["turn_id"]))["dialogue_ids"] == turn["dialogue_ids"]
            again = await say(live, f"记住，{_SECRET}", message_uuid="u-1")
            assert again["reply"] == (_NEW if half else _REPLY)
        assert await tables_with(postgres, database_name, words) == set()
        # The other half of the turn is a message of its own.
        assert len([one for one in await listed(live) if one["id"] in turn["dialogue_ids"]]) == (
            1 if way == "delete" else 2
        )


async def test_what_is_deleted_before_its_score_comes_does_not_come_back(
    serve: LiveFactory, chat_provider: ChatProvider, postgres: EmbeddedPostgres, database_name: str
) -> None:
    chat_provider.control(
        {"only": "chat", "reply": _REPLY, "times": None},
        {"only": "evaluation", "delay_s": 1.5, "score": 95, "times": None},
    )
    async with serve(**chat_settings(chat_provider)) as live:
        stored = await add(live, _SECRET, message_uuid="u-1")
        done = await say(live, _SECRET, message_uuid="u-1")
        assert (await live.client.delete(f"/dialogues/{stored['id']}")).status_code == 204
        assert (await live.client.get(f"/chat/turns/{done['turn_id']}")).status_code == 404
        later = await judged(live, (await say(live, "我住在第7号楼"))["turn_id"])
        assert later["score"] == 95
        assert await tables_with(postgres, database_name, _SECRET) == set()
        assert (_SECRET in str(await spoken(live))) is False


async def test_a_message_that_shares_only_its_uuid_leaves_the_turn_alone(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        turn = await judged(live, (await say(live, f"记住，{_SECRET}"))["turn_id"])
        other = await add(live, "别的话", message_uuid=f"{turn['turn_id']}:user")
        assert (await live.client.delete(f"/dialogues/{other['id']}")).status_code == 204
        assert (await turn_of(live, turn["turn_id"]))["status"] == "scored"
