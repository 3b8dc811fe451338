"""What leaves a window that is over its budget becomes a summary: on a live service."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from app.clock import utc_now
from app.database.embedded import EmbeddedPostgres
from app.dialogues.records import Session
from app.tiers import summary_store
from app.tiers.summary_service import SummaryService
from tests.conftest import LiveFactory, LiveService
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import add, add_batch, eventually, fetch, listed, message, search
from tests.talk import chat_settings, prompts, say, spoken

_LONG = "，还有很多别的话要说" * 6


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


async def summaries_of(live: LiveService, key: str = "1") -> list[dict[str, Any]]:
    answer = await live.client.get(f"/sessions/{key}/summaries")
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["summaries"]
    return found


async def are_there(live: LiveService, number: int = 1, key: str = "1") -> None:
    live.services.summaries.note_window(10**6)

    async def has_come() -> bool:
        return len(await summaries_of(live, key)) >= number

    await eventually(has_come)


async def is_asked(provider: ChatProvider, kind: str = "summary") -> None:
    async def has_come() -> bool:
        return kind in (await asyncio.to_thread(provider.requests))["kinds"]

    await eventually(has_come)


async def fill(live: LiveService, number: int = 12, **more: Any) -> list[str]:
    """Messages of ten minutes; together they are over the budget of these tests."""
    texts = [f"我的第{place}个爱好是下棋{_LONG}" for place in range(number)]
    await add_batch(
        live,
        [
            message(text, created_at=ago(minutes=10, seconds=-place), **more)
            for place, text in enumerate(texts)
        ],
    )
    return texts


def small(provider: ChatProvider, **more: object) -> dict[str, object]:
    return chat_settings(provider, hot_window_tokens=400) | more


async def test_the_older_part_becomes_a_summary(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    async with serve(**small(chat_provider)) as live:
        texts = await fill(live, sender_name="小明")
        await are_there(live)
        (summary,) = await summaries_of(live)
        assert summary.keys() == {"id", "content", "since", "until", "messages", "created_at"}
        window = [content for _, content in await spoken(live)]
        assert 0 < len(window) < len(texts)
        assert summary["messages"] + len(window) == len(texts)
        assert window == texts[summary["messages"] :]
        assert 0 < len(summary["content"]) <= 200
        assert "下棋" in summary["content"]
        kept = await listed(live)
        assert [one["content"] for one in kept] == texts
        assert summary["since"] == kept[0]["created_at"]
        assert summary["until"] == kept[summary["messages"] - 1]["created_at"]
        (session,) = (await live.client.get("/sessions")).json()["sessions"]
        assert (session["summaries"], session["dialogues"]) == (1, len(texts))
        assert session["window_tokens"] <= 400
        (asked,) = prompts(chat_provider, "summary")
        assert "小明" in asked[1]["content"]
        assert chat_provider.requests()["max_in_flight_by_kind"]["summary"] == 1


async def test_a_summary_is_found_on_request_only(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    chat_provider.control(
        {"only": "summary", "reply": "小明养了一只叫团子的猫，订单号是ORD123456。", "times": None}
    )
    async with serve(**small(chat_provider)) as live:
        await fill(live)
        await are_there(live)

        async def is_embedded() -> bool:
            memories = (await search(live, "ORD123456 团子", kind="summary"))["memories"]
            return [one["embedding_status"] for one in memories] == ["ready"]

        await eventually(is_embedded)
        (found,) = (await search(live, "猫的名字", kind="summary", mode="vector"))["memories"]
        assert (found["kind"], found["content"]) == ("summary", "小明养了一只叫团子的猫，订单号是ORD123456。")
        assert found["similarity"] > 0
        everything = await search(live, "ORD123456 团子", top_n=20)
        assert all(one["kind"] != "summary" for one in everything["memories"])
        assert (await search(live, "ORD123456", kind="summary", user_id=11))["memories"] == []
        assert (await search(live, "ORD123456", kind="summary", group_id=5))["memories"] == []


async def test_the_last_summaries_are_told_to_the_model(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    rules = [{"only": "summary", "reply": f"第{number}段：聊了下棋。"} for number in range(9)]
    chat_provider.control(*rules)
    async with serve(**small(chat_provider, evaluation_enabled=False)) as live:
        for number in range(1, 6):
            await fill(live)
            await are_there(live, number)
        done = await say(live, "在吗")
        contents = [one["content"] for one in await summaries_of(live)]
        assert len(contents) >= 5
        assert [one["content"] for one in done["summaries"]] == contents[-3:]
        told = prompts(chat_provider)[-1][0]["content"]
        assert all(content in told for content in contents[-3:])
        assert contents[0] not in told
        spans = [(one["since"], one["until"]) for one in await summaries_of(live)]
        assert all(since <= until for since, until in spans)
        again = await say(live, "在吗", message_uuid="u-1")
        assert (await say(live, "在吗", message_uuid="u-1"))["summaries"] == again["summaries"]


async def test_a_long_chat_keeps_its_window_and_loses_nothing(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control({"only": "chat", "reply": f"好的{_LONG}", "times": None})
    async with serve(**small(chat_provider, evaluation_enabled=False)) as live:
        for place in range(12):
            await say(live, f"我的第{place}个爱好是下棋{_LONG}")
        await are_there(live)

        async def is_within() -> bool:
            (session,) = (await live.client.get("/sessions")).json()["sessions"]
            return bool(session["window_tokens"] <= 400 and session["dialogues"] == 24)

        await eventually(is_within)
        found = await summaries_of(live)
        assert sum(one["messages"] for one in found) + len(await spoken(live)) == 24
        assert all(one["until"] < other["since"] for one, other in pairwise(found))
        for messages in prompts(chat_provider):
            shown = messages[1:-1]
            assert len(shown) < 12


async def test_english_talk_is_put_in_short_in_english(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**small(chat_provider)) as live:
        text = "I live in Berlin and I like to play chess with my neighbour every evening. " * 4
        await add_batch(
            live, [message(text, created_at=ago(minutes=9, seconds=-place)) for place in range(9)]
        )
        await are_there(live)
        (asked,) = prompts(chat_provider, "summary")
        assert "Write in the language of the conversation" in asked[0]["content"]
        assert "Berlin" in (await summaries_of(live))[0]["content"]


async def test_a_model_that_says_too_much_is_cut(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    chat_provider.control({"only": "summary", "reply": "他说了很多话。" * 200, "think": "嗯", "times": None})
    async with serve(**small(chat_provider, summary_max_chars=50, summary_model="small-1")) as live:
        await fill(live)
        await are_there(live)
        (summary,) = await summaries_of(live)
        assert len(summary["content"]) <= 50
        assert summary["content"].startswith("他说了很多话。")
        assert {body["model"] for body in chat_provider.requests()["bodies"]} == {"small-1"}


@pytest.mark.parametrize(
    "rule",
    [{"empty": True}, {"status": 400, "body": {"message": "no"}}, None],
    ids=["empty", "rejected", "no model"],
)
async def test_without_a_summary_the_oldest_leave_and_stay_in_memory(
    serve: LiveFactory,
    chat_provider: ChatProvider,
    monkeypatch: pytest.MonkeyPatch,
    rule: dict[str, Any] | None,
) -> None:
    monkeypatch.setattr("app.tiers.summary_service._FIRST_WAIT_S", 0.01)
    monkeypatch.setattr("app.tiers.summary_service._MOST_ATTEMPTS_AWAY", 6)
    monkeypatch.setattr("app.tiers.summary_service._POLL_S", 0.05)
    if rule is not None:
        chat_provider.control({**rule, "only": "summary", "times": None})
    settings = {"hot_window_tokens": 400} if rule is None else small(chat_provider)
    async with serve(**settings) as live:
        texts = await fill(live)
        shown = [content for _, content in await spoken(live)]
        assert shown == texts[-len(shown) :]

        async def is_within() -> bool:
            live.services.summaries.note_window(10**6)
            (session,) = (await live.client.get("/sessions")).json()["sessions"]
            return bool(session["window_tokens"] <= 400)

        await eventually(is_within)
        assert [content for _, content in await spoken(live)] == shown
        assert await summaries_of(live) == []
        assert [one["content"] for one in await listed(live)] == texts
        # What comes after a failure is tried afresh.
        if rule is not None:
            chat_provider.control()
            await fill(live)
            await are_there(live)


async def test_an_outage_of_the_model_is_waited_for(
    serve: LiveFactory, chat_provider: ChatProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.tiers.summary_service._FIRST_WAIT_S", 0.001)
    monkeypatch.setattr("app.tiers.summary_service._LONGEST_WAIT_S", 0.01)
    chat_provider.control({"only": "summary", "status": 500, "times": None})
    async with serve(**small(chat_provider)) as live:
        texts = await fill(live)

        async def was_tried() -> bool:
            live.services.summaries.note_window(10**6)
            # Each try asks twice; five tries in vain end what is no outage.
            return len(await asyncio.to_thread(prompts, chat_provider, "summary")) > 12

        await eventually(was_tried)
        shown = [content for _, content in await spoken(live)]
        assert 0 < len(shown) < len(texts)
        (session,) = (await live.client.get("/sessions")).json()["sessions"]
        assert session["window_tokens"] > 400
        chat_provider.control()
        await are_there(live)
        (summary,) = await summaries_of(live)
        assert summary["messages"] + len(await spoken(live)) == len(texts)


async def test_a_newest_message_longer_than_the_window_is_held_cut(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    long = f"我的地址很长{_LONG * 40}"
    async with serve(**small(chat_provider)) as live:
        await add(live, long)

        async def is_cut() -> bool:
            return all(len(content) < len(long) for _, content in await spoken(live))

        await eventually(is_cut)
        ((_, shown),) = await spoken(live)
        assert long.startswith(shown.removesuffix("…"))
        assert [one["content"] for one in await listed(live)] == [long]


async def test_a_window_of_no_tokens_asks_for_no_summary(
    serve: LiveFactory, chat_provider: ChatProvider, postgres: EmbeddedPostgres, database_name: str
) -> None:
    async with serve(**chat_settings(chat_provider, hot_window_tokens=0, evaluation_enabled=False)) as live:
        await say(live, "我住在杭州")

        async def is_empty() -> bool:
            return not await fetch(postgres, database_name, "SELECT id FROM window_messages")

        await eventually(is_empty)
        assert set(chat_provider.requests()["kinds"]) == {"chat"}


async def test_chat_goes_on_while_a_summary_is_written(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control({"only": "summary", "delay_s": 4})
    async with serve(**small(chat_provider)) as live:
        texts = await fill(live)
        live.services.summaries.note_window(10**6)
        await is_asked(chat_provider)
        done = await say(live, "在吗")
        assert done["summaries"] == []
        assert await summaries_of(live) == []
        await are_there(live)
        window = await spoken(live)
        assert window[-2:] == [("user", "在吗"), ("assistant", done["reply"])]
        (summary,) = await summaries_of(live)
        assert summary["messages"] + len(window) == len(texts) + 2


def summary_service(live: LiveService) -> SummaryService:
    """Another process's, on the same database."""
    ours = live.services.summaries
    return SummaryService(
        database=live.services.sessions._database,
        model=ours._model,
        pipeline=live.services.dialogues._embedding,
        clock=utc_now,
        metrics=live.services.metrics,
        zone=ours._zone,
        hot_window_tokens=400,
        max_chars=200,
    )


async def test_one_stretch_is_compressed_once_by_many_processes(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control({"only": "summary", "delay_s": 0.3, "times": None})
    async with serve(**small(chat_provider)) as live:
        texts = await fill(live)
        others = [summary_service(live) for _ in range(4)]
        live.services.summaries.note_window(10**6)
        await asyncio.gather(*(other.work_once() for other in others))
        await are_there(live)
        assert not any([await other.work_once() for other in others])
        (summary,) = await summaries_of(live)
        assert summary["messages"] + len(await spoken(live)) == len(texts)
        assert len(prompts(chat_provider, "summary")) == 1


async def test_what_is_remembered_of_summaries_is_true_in_every_process(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**small(chat_provider)) as live:
        other, of = summary_service(live), Session(1)
        assert await other.recent("default", of) == []
        await fill(live)
        await are_there(live)
        (known,) = await other.recent("default", of)
        assert [known] == await live.services.summaries.recent("default", of)
        (found,) = (await search(live, "下棋", kind="summary"))["memories"]
        await live.client.patch(f"/dialogues/{found['id']}", json={"content": "他爱下围棋。"})
        for service in (other, live.services.summaries):
            assert [one.content for one in await service.recent("default", of)] == ["他爱下围棋。"]
        for change in ({"outdated": True}, {"expires_at": ago(minutes=1)}):
            await live.client.patch(f"/dialogues/{found['id']}", json={"outdated": False})
            await live.client.patch(f"/dialogues/{found['id']}", json=change)
            assert not await other.recent("default", of)
            assert not await summaries_of(live)
        assert (await live.client.delete(f"/dialogues/{found['id']}")).status_code == 204
        for service in (other, live.services.summaries):
            assert await service.recent("default", of) == []
        await fill(live)
        await are_there(live)
        assert len(await other.recent("default", of)) == 1
        await live.client.delete("/users/1")
        for service in (other, live.services.summaries):
            assert await service.recent("default", of) == []
        assert await other.recent("another", of) == []


@pytest.mark.parametrize("what", ["erase", "delete", "change"])
async def test_what_goes_while_its_summary_is_written_does_not_come_back(
    serve: LiveFactory, chat_provider: ChatProvider, what: str, postgres: EmbeddedPostgres, database_name: str
) -> None:
    chat_provider.control({"only": "summary", "delay_s": 1, "reply": "密码是9527", "times": 1},
                          {"only": "summary", "reply": "没有密码", "times": None})  # fmt: skip
    async with serve(**small(chat_provider)) as live:
        await fill(live)
        live.services.summaries.note_window(10**6)
        await is_asked(chat_provider)
        if what == "erase":
            erased = (await live.client.delete("/sessions/1")).json()["erased"]
            assert (erased["dialogues"], erased["window_messages"], erased["summaries"]) == (12, 12, 0)
        else:
            first = (await listed(live))[0]
            if what == "delete":
                await live.client.delete(f"/dialogues/{first['id']}")
            else:
                await live.client.patch(f"/dialogues/{first['id']}", json={"content": f"改了{_LONG}"})

        async def is_over() -> bool:
            left = await fetch(postgres, database_name, "SELECT FROM compressions")
            return not left and (await asyncio.to_thread(chat_provider.requests))["in_flight"] == 0

        await eventually(is_over)
        assert "9527" not in str(await summaries_of(live))
        rows = await fetch(postgres, database_name, "SELECT content FROM dialogues WHERE kind = 'summary'")
        assert all("9527" not in row["content"] for row in rows)
        if what == "erase":
            assert (await summaries_of(live), rows, await spoken(live)) == ([], [], [])
        else:
            await are_there(live)


async def test_an_erasure_waits_for_a_summary_that_is_being_stored(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**small(chat_provider)) as live:
        for _ in range(8):
            await fill(live)
            erasing, _ = await asyncio.gather(
                live.client.delete("/users/1"), summary_service(live).work_once()
            )
            assert erasing.status_code == 200
            await live.client.delete("/users/1")
            assert await summaries_of(live) == []
            assert (await search(live, "下棋", kind="summary"))["memories"] == []


async def test_what_has_expired_is_told_by_no_summary(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**small(chat_provider)) as live:
        secret = await add(live, "临时密码是9527", created_at=ago(minutes=20))
        await live.client.patch(f"/dialogues/{secret['id']}", json={"expires_at": ago(minutes=1)})
        await fill(live)
        await are_there(live)
        assert "9527" not in str(prompts(chat_provider, "summary"))


async def test_an_import_of_old_messages_is_not_compressed(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**small(chat_provider)) as live:
        await add_batch(
            live,
            [
                message(f"旧消息{place}{_LONG}", created_at=ago(days=30, seconds=-place))
                for place in range(20)
            ],
        )
        live.services.summaries.note_window(10**6)
        await add(live, "现在说的")
        assert await spoken(live) == [("user", "现在说的")]
        assert not await summary_service(live).work_once()
        assert await summaries_of(live) == []


async def test_a_summary_with_a_nul_is_stored_without_it(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control({"only": "summary", "reply": "聊了\0下棋。", "times": None})
    async with serve(**small(chat_provider)) as live:
        await fill(live)
        await are_there(live)
        assert [one["content"] for one in await summaries_of(live)] == ["聊了下棋。"]


async def test_a_slow_summary_holds_up_no_other_session(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control({"only": "summary", "delay_s": 15})
    async with serve(**small(chat_provider)) as live:
        await fill(live)
        live.services.summaries.note_window(10**6)
        await is_asked(chat_provider)
        for user in (2, 3, 4):
            await fill(live, user_id=user)
        for user in (2, 3, 4):
            await are_there(live, key=str(user))
        assert await summaries_of(live) == []


async def test_a_fault_of_ours_puts_off_one_window_and_no_other(
    serve: LiveFactory, chat_provider: ChatProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.tiers.summary_service._FIRST_WAIT_S", 0.01)
    replace_stretch = summary_store.replace_stretch

    async def fail_for_one(session: Any, namespace: str, of: Session, *rest: Any, **more: Any) -> None:
        if of.user_id == 1:
            raise RuntimeError("a fault of ours")
        await replace_stretch(session, namespace, of, *rest, **more)

    monkeypatch.setattr(summary_store, "replace_stretch", fail_for_one)
    async with serve(**small(chat_provider)) as live:
        await fill(live)
        for user in (2, 3):
            await fill(live, user_id=user)
            await are_there(live, key=str(user))

        async def is_given_up() -> bool:
            live.services.summaries.note_window(10**6)
            sessions = (await live.client.get("/sessions")).json()["sessions"]
            return all(one["window_tokens"] <= 400 for one in sessions)

        # Tried five times, then the oldest messages leave: the model is not asked for ever.
        await eventually(is_given_up)
        assert await summaries_of(live) == []
        assert len(await listed(live)) == 12


@pytest.mark.parametrize("rule", [{"status": 503}, {"hang_up": True}, {"status": 401}], ids=str)
async def test_an_outage_of_the_model_costs_no_summary(
    serve: LiveFactory, chat_provider: ChatProvider, monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any]
) -> None:
    monkeypatch.setattr("app.tiers.summary_service._FIRST_WAIT_S", 0.01)
    monkeypatch.setattr("app.tiers.summary_service._LONGEST_WAIT_S", 0.05)
    monkeypatch.setattr("app.tiers.summary_service._POLL_S", 0.05)
    # The pause that a refused key brings is not what is looked at here.
    monkeypatch.setattr("app.clients.chat_model._DENIED_PAUSE_S", (0.01, 0.02))
    chat_provider.control({**rule, "only": "summary", "times": 14})
    async with serve(**small(chat_provider)) as live:
        texts = await fill(live)
        assert sum(one for _, one in await tokens_shown(live)) <= 400
        await are_there(live)
        (summary,) = await summaries_of(live)
        assert summary["messages"] + len(await spoken(live)) == len(texts)
    assert chat_provider.requests()["kinds"].count("summary") == 15


async def tokens_shown(live: LiveService) -> list[tuple[str, int]]:
    window = (await live.client.get("/sessions/1/window")).json()
    return [(one["content"], one["token_count"]) for one in window["messages"]]


async def test_windows_of_before_the_start_and_of_other_processes_are_found(
    serve: LiveFactory, chat_provider: ChatProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.tiers.summary_service._POLL_S", 0.05)
    monkeypatch.setattr("app.tiers.summary_service._LATE_ROWS_S", 0.2)
    async with serve(hot_window_tokens=100_000) as writer:
        for user in (1, 2):
            await fill(writer, user_id=user)
        async with serve(**small(chat_provider)) as live:
            for user in (1, 2):
                await are_there(live, key=str(user))

            async def has_looked() -> bool:
                return live.services.summaries._looked.since_row > 0

            await eventually(has_looked)
            # Nobody tells this process: it finds the rows by their numbers.
            await fill(writer, user_id=3)

            async def is_there() -> bool:
                return bool(await summaries_of(live, "3"))

            await eventually(is_there)
            # What is too much for one prompt is taken in several.
            await fill(writer, number=40, user_id=4)

            async def is_within() -> bool:
                sessions = (await live.client.get("/sessions")).json()["sessions"]
                return all(one["window_tokens"] <= 400 for one in sessions)

            await eventually(is_within)
