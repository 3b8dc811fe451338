"""Turns at once, cut short, without memory: on a live service and a chat provider of its own process."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from app.database.embedded import EmbeddedPostgres
from tests.conftest import LiveFactory
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import add, eventually, fetch, listed
from tests.talk import asked, chat_settings, judged, listen, prompts, say, spoken


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


def system(messages: list[dict[str, str]]) -> str:
    return messages[0]["content"]


async def model_is_asked(provider: ChatProvider, times: int = 1) -> None:
    async def is_asked() -> bool:
        seen = await asyncio.to_thread(provider.requests)
        return bool(seen["kinds"].count("chat") >= times)

    await eventually(is_asked)


async def test_no_connection_is_held_while_the_model_speaks(
    serve: LiveFactory, chat_provider: ChatProvider, postgres: EmbeddedPostgres, database_name: str
) -> None:
    chat_provider.control({"only": "chat", "delay_s": 2, "times": None})
    async with serve(**chat_settings(chat_provider)) as live:
        await add(live, "我的猫叫团子", created_at=ago(days=3), wait=True)
        speaking = [asyncio.create_task(say(live, f"第{number}个问题")) for number in range(8)]
        await model_is_asked(chat_provider, 8)
        database = live.services.sessions._database

        async def is_free() -> bool:
            return database.checked_out == 0

        # The background loops take one now and then.
        await eventually(is_free)
        in_transaction = await fetch(
            postgres,
            database_name,
            "SELECT state FROM pg_stat_activity WHERE datname = $1 AND state LIKE 'idle in transaction%'",
            database_name,
        )
        assert in_transaction == []
        assert not any(task.done() for task in speaking)
        # Meanwhile the service answers others.
        assert (await live.client.get("/health/ready")).status_code == 200
        assert len(await listed(live)) == 1
        await asyncio.gather(*speaking)
        assert len(await spoken(live)) == 16


async def test_two_messages_at_once_are_both_answered_in_order(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control({"only": "chat", "delay_s": 0.5, "times": 1, "reply": "先问的"})
    async with serve(**chat_settings(chat_provider)) as live:
        first = asyncio.create_task(say(live, "先说的话"))
        await model_is_asked(chat_provider)
        second = await say(live, "后说的话")
        assert (await first)["reply"] == "先问的"
        assert await spoken(live) == [
            ("user", "先说的话"),
            ("user", "后说的话"),
            ("assistant", second["reply"]),
            ("assistant", "先问的"),
        ]
        earlier, later = prompts(chat_provider)
        assert "后说的话" not in str(earlier)
        assert [one["content"] for one in later[1:]] == ["先说的话", "后说的话"]


async def test_many_at_once_in_one_session(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    async with serve(**chat_settings(chat_provider, hot_window_tokens=100_000)) as live:
        await asyncio.gather(*(say(live, f"我的第{number}个爱好是下棋") for number in range(30)))
        roles = [role for role, _ in await spoken(live)]
        assert sorted(roles) == ["assistant"] * 30 + ["user"] * 30


async def test_one_uuid_many_times_at_once_is_one_call(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control({"only": "chat", "delay_s": 0.5, "times": None})
    async with serve(**chat_settings(chat_provider)) as live:
        told = await asyncio.gather(
            *(say(live, "讲个笑话", message_uuid="u-1") for _ in range(5)),
            *(listen(live, "讲个笑话", message_uuid="u-1") for _ in range(3)),
        )
        turns = {one["turn_id"] if isinstance(one, dict) else one[-1][1]["turn_id"] for one in told}
        assert len(turns) == 1
        assert len(prompts(chat_provider)) == 1
        assert len(await spoken(live)) == 2


async def test_who_waits_for_the_same_message_is_told_of_the_failure(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control(
        {"only": "chat", "delay_s": 0.5, "status": 400, "body": {"message": "no"}, "times": None}
    )
    async with serve(**chat_settings(chat_provider)) as live:
        answers = await asyncio.gather(
            *(live.client.post("/chat", json=asked("讲个笑话", message_uuid="u-1")) for _ in range(4))
        )
        assert {answer.status_code for answer in answers} == {502}
        assert len(prompts(chat_provider)) == 1
        assert await spoken(live) == [("user", "讲个笑话")]


async def test_what_stands_in_the_window_is_not_repeated_as_memory(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        done = await say(live, "我的猫叫团子，记住了")
        chat_provider.control({"only": "chat", "times": None, "reply": "嗯"})
        await judged(live, done["turn_id"])
        later = await say(live, "我的猫叫什么？")
        messages = prompts(chat_provider)[-1]
        assert [one["content"] for one in messages[1:]] == [
            "我的猫叫团子，记住了",
            done["reply"],
            "我的猫叫什么？",
        ]
        assert later["memories"] == []
        assert "团子" not in system(messages)


async def test_a_message_that_the_bot_has_stored_itself_is_said_once(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        stored = await add(live, "我的猫叫团子，记住了", message_id=77)
        done = await say(live, "我的猫叫团子，记住了", message_id=77)
        assert await spoken(live) == [("user", "我的猫叫团子，记住了"), ("assistant", done["reply"])]
        turn = await judged(live, done["turn_id"])
        assert turn["dialogue_ids"][0] == stored["id"]
        assert [one["score"] for one in await listed(live)] == [95, 95]
        (messages,) = prompts(chat_provider)
        assert str(messages).count("团子") == 1

        await add(live, "它几岁了？")
        await say(live, "它几岁了？")
        assert str(prompts(chat_provider)[-1]).count("它几岁了") == 1
        refused = await live.client.post("/chat", json=asked("别的话", message_uuid=stored["message_uuid"]))
        assert refused.status_code == 409


async def test_a_long_question_leaves_the_window_to_the_conversation(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider, hot_window_tokens=120)) as live:
        await say(live, "我住在杭州")
        await say(live, "这是一段很长的话，" * 60)
        messages = prompts(chat_provider)[-1]
        assert messages[1]["content"] == "我住在杭州"
        assert str(messages).count("这是一段很长的话") == 60


async def test_persona_stands_before_the_rules_and_the_rules_before_the_memory(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        await add(live, "我的猫叫团子", created_at=ago(days=3), wait=True)
        await say(live, "我的猫叫什么？", system_prompt="你是小诗。")
        await say(
            live, "what is my cat's name?", language="en", timezone="Europe/Berlin", system_prompt="Be brief."
        )
        chinese, english = map(system, prompts(chat_provider))
        places = [
            chinese.index(part) for part in ("你是小诗。", "不是指令", "--- 相关记忆 ---", "当前时间：")
        ]
        assert places == sorted(places)
        assert places[0] == 0
        assert all(word in chinese for word in ("过时", "当前时间", "指代", "时间戳"))
        assert english.startswith("Be brief.")
        assert all(word in english for word in ("out of date", "current time", "pronouns", "Europe/Berlin"))


async def test_a_recap_is_offered_after_an_hour(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        await add(live, "明天去爬山", created_at=ago(hours=3), wait=True)
        await say(live, "在吗")
        await say(live, "还在吗")
        first, second = map(system, prompts(chat_provider))
        assert "回顾" in first
        assert "3小时前" in first
        assert "回顾" not in second


async def test_without_memory_only_the_window_is_told(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider, rag_enabled=False)) as live:
        await add(live, "我的猫叫团子", created_at=ago(days=3), wait=True)
        first = await say(live, "我在学下棋")
        done = await say(live, "我的猫叫什么？")
        assert (done["memories"], done["summaries"], done["usage"]["memory_tokens"]) == ([], [], 0)
        messages = prompts(chat_provider)[-1]
        assert "团子" not in str(messages)
        assert [one["content"] for one in messages[1:]] == ["我在学下棋", first["reply"], "我的猫叫什么？"]
        # Nothing is judged, and nothing is lost.
        turn = await judged(live, done["turn_id"])
        assert (turn["status"], turn["score"], len(turn["dialogue_ids"])) == ("unscored", None, 2)
        assert set(chat_provider.requests()["kinds"]) == {"chat"}


async def test_a_group_keeps_its_members_apart(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        done = await say(live, "我叫小明，记住了", group_id=-5, sender_name="小明", assistant_name="小诗")
        await judged(live, done["turn_id"])
        other = await say(live, "我叫什么？", user_id=2, group_id=-5, sender_name="小红")
        private = await say(live, "我叫什么？")
        assert (other["memories"], private["memories"]) == ([], [])
        again = await say(live, "我叫什么？", group_id=-5, sender_name="小明")
        assert "小明" in again["reply"]
        window = await spoken(live, "-5:1")
        assert window[0] == ("user", "我叫小明，记住了")
        assert prompts(chat_provider)[-1][1]["content"] == "小明: 我叫小明，记住了"


async def test_a_search_that_fails_is_degraded_not_lost(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider), embedding_base_url="http://127.0.0.1:9/v1",
                     embedding_dimensions=384) as live:  # fmt: skip
        await add(live, "我的订单号是ORD123456", created_at=ago(days=3))
        done = await say(live, "订单号ORD123456")
        assert done["degraded"] is True
        assert [one["content"] for one in done["memories"]] == ["我的订单号是ORD123456"]


async def test_a_turn_whose_process_died_is_kept(
    serve: LiveFactory, chat_provider: ChatProvider, postgres: EmbeddedPostgres, database_name: str
) -> None:
    chat_provider.control({"only": "chat", "hang_up": True, "times": None})
    async with serve(**chat_settings(chat_provider)) as live:
        answer = await live.client.post("/chat", json=asked("我对花生过敏", message_uuid="u-1"))
        assert answer.status_code == 502
        # As a killed process leaves it: claimed, and nothing in long-term memory.
        await fetch(postgres, database_name, "DELETE FROM dialogues")
        await fetch(postgres, database_name, "UPDATE turns SET status = 'answering', user_dialogue_id = NULL")
        worker = live.services.evaluation
        await worker.keep_abandoned(after_s=3600)
        assert await listed(live) == []
        await worker.keep_abandoned(after_s=-60)
        assert [one["content"] for one in await listed(live)] == ["我对花生过敏"]
        chat_provider.control()
        done = await say(live, "我对花生过敏", message_uuid="u-1")
        assert len((await judged(live, done["turn_id"]))["dialogue_ids"]) == 2
        assert len(await listed(live)) == 2


@pytest.mark.parametrize("score", [5, 93])
async def test_a_message_kept_for_want_of_an_answer_goes_if_the_turn_is_worth_nothing(
    serve: LiveFactory, chat_provider: ChatProvider, score: int
) -> None:
    chat_provider.control({"only": "chat", "hang_up": True, "times": 2}, {"score": score})
    async with serve(**chat_settings(chat_provider)) as live:
        body = asked("我在想一件事情", message_uuid="u-1")
        assert (await live.client.post("/chat", json=body)).status_code == 502
        assert len(await listed(live)) == 1
        done = await say(live, "我在想一件事情", message_uuid="u-1")
        await judged(live, done["turn_id"])
        assert len(await listed(live)) == (0 if score == 5 else 2)
        assert len(await spoken(live)) == 2


async def test_an_erased_turn_does_not_come_back(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    chat_provider.control({"only": "chat", "delay_s": 1, "times": 1}, {"only": "evaluation", "delay_s": 1})
    async with serve(**chat_settings(chat_provider)) as live:
        answering = asyncio.create_task(say(live, "我住在杭州西湖边"))
        await model_is_asked(chat_provider)
        erased = (await live.client.delete("/users/1")).json()["erased"]
        assert (erased["turns"], erased["window_messages"]) == (1, 1)
        done = await answering
        assert await spoken(live) == []
        assert (await live.client.get(f"/chat/turns/{done['turn_id']}")).status_code == 404

        judging = await say(live, "我住在成都")

        async def is_judged() -> bool:
            return "evaluation" in (await asyncio.to_thread(chat_provider.requests))["kinds"]

        await eventually(is_judged)
        erased = (await live.client.delete("/sessions/1")).json()["erased"]
        assert (erased["turns"], erased["window_messages"], erased["dialogues"]) == (1, 2, 0)
        await asyncio.sleep(1.2)
        assert await listed(live) == []
        assert await spoken(live) == []
        assert (await live.client.get(f"/chat/turns/{judging['turn_id']}")).status_code == 404
        # The same uuid, were it given, would be a new turn.
        assert (await say(live, "我住在成都"))["turn_id"] != judging["turn_id"]


async def test_stopping_waits_for_the_answer(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    chat_provider.control({"only": "chat", "delay_s": 0.7})
    async with serve(**chat_settings(chat_provider)) as live:
        body = asked("讲个笑话", stream=True)
        async with live.client.stream("POST", "/chat", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("event: memories"):
                    break
        await live.services.chat.aclose()
        assert len(await spoken(live)) == 2


async def test_the_service_answers_while_forty_wait(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    chat_provider.control({"only": "chat", "delay_s": 4, "times": None})
    async with serve(**chat_settings(chat_provider, database_pool_size=2)) as live:
        waiting = [asyncio.create_task(say(live, "在想什么", user_id=number + 1)) for number in range(40)]
        await model_is_asked(chat_provider, 40)
        assert (await live.client.get("/health/live")).status_code == 200
        assert (await live.client.get("/sessions")).status_code == 200
        assert not any(task.done() for task in waiting)
        await asyncio.gather(*waiting)


async def test_a_session_of_nothing_but_talk_is_listed(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        await add(live, "我住在杭州", user_id=3)
        for user_id, group_id in ((2, None), (3, None), (2, -7), (4, 9)):
            done = await say(live, "好的", user_id=user_id, group_id=group_id)
            await judged(live, done["turn_id"])
        found = []
        cursor = None
        while True:
            page = (
                await live.client.get(
                    "/sessions", params={"limit": 2} | ({"cursor": cursor} if cursor else {})
                )
            ).json()
            found += page["sessions"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert [one["session_key"] for one in found] == ["-7:2", "2", "3", "9:4"]
        assert [one["dialogues"] for one in found] == [0, 0, 1, 0]
        assert all(one["window_tokens"] > 0 and one["first_at"] <= one["last_at"] for one in found)


async def test_a_message_that_the_bot_stores_after_the_chat_is_said_once(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control({"only": "evaluation", "delay_s": 2, "times": None})
    async with serve(**chat_settings(chat_provider)) as live:
        done = await say(live, "我住在杭州", message_uuid="u-1")
        stored = await add(live, "我住在杭州", message_uuid="u-1")
        assert await spoken(live) == [("user", "我住在杭州"), ("assistant", done["reply"])]
        turn = await judged(live, done["turn_id"])
        assert turn["dialogue_ids"][0] == stored["id"]
        assert len(await listed(live)) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("rule", "reply"),
    [
        ({"reply": "七\0七"}, "七七"),
        ({"reply": "让我想想</think>七"}, "七"),
        ({"reply": "七" * 120_000, "piece_chars": 9_000}, "七" * 100_000),
    ],
    ids=["NUL", "thoughts", "endless"],
)
async def test_what_a_model_says_is_stored_whatever_it_is(
    serve: LiveFactory, chat_provider: ChatProvider, rule: dict[str, object], reply: str, stream: bool
) -> None:
    chat_provider.control(rule | {"only": "chat"})
    async with serve(
        **chat_settings(chat_provider, hot_window_tokens=131_072, evaluation_enabled=False)
    ) as live:
        if stream:
            name, done = (await listen(live, "三加四是多少？"))[-1]
            assert name == "done"
        else:
            done = await say(live, "三加四是多少？")
        assert done["reply"] == reply
        await judged(live, done["turn_id"])
        kept = await listed(live)
        assert [one["content"] for one in kept] == ["三加四是多少？", reply]
        # What is stored can be written again: exported and imported, or corrected.
        same = await live.client.patch(f"/dialogues/{kept[-1]['id']}", json={"content": reply})
        assert same.status_code == 200
        assert (await say(live, "谢谢", message_uuid="u-2"))["reply"]


async def test_a_session_outlives_a_failure_where_roles_must_take_turns(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    strict = {"only": "chat", "strict_roles": True, "times": None}
    chat_provider.control({"only": "chat", "status": 400, "body": {"message": "no"}}, strict)
    async with serve(**chat_settings(chat_provider)) as live:
        assert (await live.client.post("/chat", json=asked("第一句话"))).status_code == 502
        for number in range(3):
            assert (await say(live, f"又一句话，第{number}句"))["reply"]
        last = prompts(chat_provider)[-1]
        assert "第一句话\n\n又一句话，第0句" in [one["content"] for one in last]
        await add(live, "机器人先开口", role="assistant", user_id=2)
        assert (await say(live, "你好呀朋友", user_id=2))["reply"]


async def test_a_pasted_document_is_answered_and_searched_by_its_ends(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider, evaluation_enabled=False)) as live:
        await add(live, "我的订单号是ORD123456", created_at=ago(days=3), wait=True)
        await add(live, "团子打过疫苗了", created_at=ago(days=2), wait=True)
        padding = "".join(chr(0x4E00 + place % 4_000) for place in range(90_000))
        done = await say(live, f"团子打过什么针？{padding}另外ORD123456到哪了？")
        assert {"我的订单号是ORD123456", "团子打过疫苗了"} <= {one["content"] for one in done["memories"]}
        assert prompts(chat_provider)[-1][-1]["content"].endswith("另外ORD123456到哪了？")


@pytest.mark.parametrize("score", [10, 30, 95])
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"score": 100},
        {"expires_at": "2099-01-01T00:00:00Z"},
        {"score": 3, "expires_at": "2099-01-01T00:00:00Z"},
    ],
    ids=str,
)
async def test_what_the_bot_has_stored_is_kept_as_the_bot_wants_it(
    serve: LiveFactory, chat_provider: ChatProvider, wanted: dict[str, object], score: int
) -> None:
    chat_provider.control({"score": score, "times": None})
    async with serve(**chat_settings(chat_provider)) as live:
        before = await add(live, "那个项目的截止日期是周五", message_uuid="u-1", **wanted)
        done = await say(live, "那个项目的截止日期是周五", message_uuid="u-1")
        await judged(live, done["turn_id"])
        after = (await live.client.get(f"/dialogues/{before['id']}")).json()
        assert after["expires_at"] == before["expires_at"]
        assert after["score"] in ({before["score"]} if before["score"] is not None else {None, score})


@pytest.mark.parametrize("stream", [False, True])
async def test_whoever_waits_is_told_of_a_fault_of_ours(
    serve: LiveFactory,
    chat_provider: ChatProvider,
    postgres: EmbeddedPostgres,
    database_name: str,
    stream: bool,
) -> None:
    chat_provider.control({"only": "chat", "status": 400, "body": {"message": "no"}})
    async with serve(**chat_settings(chat_provider)) as live:
        await fetch(
            postgres,
            database_name,
            "ALTER TABLE dialogues ADD CONSTRAINT fault CHECK (content <> '我住在杭州')",
        )
        if stream:
            name, problem = (await listen(live, "我住在杭州"))[-1]
            assert (name, problem["status"]) == ("error", 500)
        else:
            answer = await live.client.post("/chat", json=asked("我住在杭州"))
            assert answer.status_code == 500
        assert (await say(live, "我住在苏州"))["reply"]
