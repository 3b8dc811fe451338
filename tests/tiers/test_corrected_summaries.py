"""No summary tells what its user has taken back: neither one made later, nor one that was being written."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from app.database.embedded import EmbeddedPostgres
from app.dialogues.records import Session
from app.forgetting.correction_store import Earlier, Statement, mark_outdated
from tests.conftest import LiveFactory, LiveService
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import add, add_batch, eventually, fetch, listed, message
from tests.talk import prompts, spoken
from tests.tiers.test_summaries import ago, are_there, fill, is_asked, small, summaries_of

_OLD = "我住在北京朝阳区"
_NEW = "不对，我搬家了，现在住在上海浦东"


async def say_old_and_new(live: LiveService) -> int:
    """The old statement, the reply that repeats it, and its correction; when it is marked, its id."""
    texts = [(_OLD, "user"), ("好的，记下了：你住在北京朝阳区", "assistant"), (_NEW, "user")]
    await add_batch(
        live,
        [
            message(text, role=role, created_at=ago(minutes=20, seconds=-place))
            for place, (text, role) in enumerate(texts)
        ],
    )
    return await is_marked(live)


async def is_marked(live: LiveService) -> int:
    found: list[dict[str, Any]] = []

    async def has_come() -> bool:
        found[:] = [one for one in await listed(live) if one["content"] == _OLD and one["outdated"]]
        return bool(found)

    await eventually(has_come)
    return int(found[0]["id"])


async def correct(live: LiveService, old: dict[str, Any], new: dict[str, Any]) -> None:
    """What the loop does, without waiting for it: the new message is too long to be read by it."""
    now = datetime.now(UTC)
    statement = Statement(new["id"], "default", Session(1), new["content"], now, now, "ready")
    async with live.services.sessions._database.transaction() as session:
        assert await mark_outdated(session, Earlier(old["id"], old["content"], None), statement, now=now)


async def test_a_summary_that_is_made_later_is_made_without_it(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**small(chat_provider)) as live:
        await say_old_and_new(live)
        texts = await fill(live)
        await are_there(live)
        (asked,) = prompts(chat_provider, "summary")
        assert "北京" not in asked[1]["content"]
        assert "上海浦东" in asked[1]["content"]
        (summary,) = await summaries_of(live)
        assert "北京" not in summary["content"]
        assert summary["messages"] + len(await spoken(live)) == len(texts) + 3


@pytest.mark.parametrize("by", ["patch", "correction"])
async def test_a_summary_that_was_being_written_is_not_stored(
    serve: LiveFactory, chat_provider: ChatProvider, by: str, postgres: EmbeddedPostgres, database_name: str
) -> None:
    chat_provider.control(
        {"only": "summary", "delay_s": 6, "reply": "他住在北京。"},
        {"only": "summary", "reply": "他爱下棋。", "times": None},
    )
    async with serve(**small(chat_provider)) as live:
        old = await add(live, _OLD, created_at=ago(minutes=20))
        await fill(live)
        live.services.summaries.note_window(10**6)
        await is_asked(chat_provider)
        assert "北京" in prompts(chat_provider, "summary")[0][1]["content"]
        if by == "patch":
            await live.client.patch(f"/dialogues/{old['id']}", json={"outdated": True})
        else:
            await correct(live, old, await add(live, f"{_NEW}{'。' * 200}"))
        await are_there(live)

        async def is_over() -> bool:
            return not await fetch(postgres, database_name, "SELECT FROM compressions")

        await eventually(is_over)
        assert [one["content"] for one in await summaries_of(live)] == ["他爱下棋。"]
        rows = await fetch(postgres, database_name, "SELECT content FROM dialogues WHERE kind = 'summary'")
        assert [row["content"] for row in rows] == ["他爱下棋。"]
        assert "北京" not in prompts(chat_provider, "summary")[-1][1]["content"]


async def test_what_was_corrected_altogether_leaves_the_window_without_a_call(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**small(chat_provider)) as live:
        await fill(live)
        first, *_ = kept = await listed(live)
        assert first["content"].startswith("我的第0个爱好")
        for one in kept:
            await live.client.patch(f"/dialogues/{one['id']}", json={"outdated": True})

        async def is_within() -> bool:
            live.services.summaries.note_window(10**6)
            (session,) = (await live.client.get("/sessions")).json()["sessions"]
            return bool(session["window_tokens"] <= 400)

        calls = len(await asyncio.to_thread(prompts, chat_provider, "summary"))
        await eventually(is_within)
        assert await summaries_of(live) == []
        assert len(prompts(chat_provider, "summary")) <= calls + 1
