"""/chat on a live service and a chat provider of its own process."""

import asyncio
from typing import Any

import pytest

from tests.conftest import LiveFactory, LiveService
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import add, eventually, listed
from tests.talk import asked, chat_settings, judged, listen, prompts, read_events, say, spoken, turn_of

_DONE_FIELDS = {
    "reply",
    "turn_id",
    "session_key",
    "memories",
    "summaries",
    "no_match",
    "degraded",
    "usage",
}


async def say_when_well(live: LiveService, text: str, **more: Any) -> dict[str, Any]:
    """A turn that is answered as soon as the pause after a refused key is over."""

    async def is_well() -> bool:
        return (await live.client.post("/chat", json=asked(text, **more))).status_code == 200

    await eventually(is_well)
    return await say(live, text, **more)


async def test_a_turn_is_answered_and_enters_the_window(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        await add(
            live, "我的订单号是ORD123456", created_at="2026-01-16T10:30:15", sender_name="小明", wait=True
        )
        done = await say(live, "我的订单号是多少？", assistant_name="小诗")
        assert done.keys() == _DONE_FIELDS
        assert "ORD123456" in done["reply"]
        assert done["session_key"] == "1"
        assert [one["content"] for one in done["memories"]] == ["我的订单号是ORD123456"]
        assert done["memories"][0]["line"].endswith("user(小明): 我的订单号是ORD123456")
        assert (done["summaries"], done["degraded"]) == ([], False)
        assert set(done["usage"]) == {"prompt_tokens", "completion_tokens", "memory_tokens"}
        assert all(isinstance(count, int) and count > 0 for count in done["usage"].values())
        window = (await live.client.get("/sessions/1/window")).json()["messages"]
        assert [(one["role"], one["content"], one["sender_name"]) for one in window] == [
            ("user", "我的订单号是多少？", None),
            ("assistant", done["reply"], "小诗"),
        ]
        (messages,) = prompts(chat_provider)
        assert [one["role"] for one in messages] == ["system", "user"]
        assert messages[-1]["content"] == "我的订单号是多少？"


async def test_a_stream_tells_memories_then_the_text_then_the_whole(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        await add(live, "我的猫叫团子", created_at="2026-01-16T10:30:15", wait=True)
        events = await listen(live, "我的猫叫什么？")
        names = [name for name, _ in events]
        assert names[0] == "memories"
        assert names[-1] == "done"
        assert len(names) > 3
        assert set(names[1:-1]) == {"delta"}
        done = events[-1][1]
        assert done.keys() == _DONE_FIELDS
        assert "".join(data["text"] for name, data in events if name == "delta") == done["reply"]
        assert events[0][1] == {"memories": done["memories"], "summaries": [], "no_match": False}
        assert "团子" in done["reply"]
        assert await spoken(live) == [("user", "我的猫叫什么？"), ("assistant", done["reply"])]


async def test_memories_come_before_the_model_has_spoken(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    chat_provider.control({"drip_s": 0.05, "reply": "一二三四五六七八九十" * 4})
    async with serve(**chat_settings(chat_provider)) as live:
        names: list[tuple[str, int]] = []
        async with live.client.stream("POST", "/chat", json=asked("讲个故事", stream=True)) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    in_flight = (await asyncio.to_thread(chat_provider.requests))["in_flight"]
                    names.append((line, in_flight))
        deltas = [in_flight for line, in_flight in names if line == "event: delta"]
        # The text was passed on while the model still spoke.
        assert deltas[0] == 1
        assert names[-1][0] == "event: done"


async def test_who_hangs_up_loses_nothing(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    chat_provider.control({"drip_s": 0.05, "reply": "一二三四五六七八九十" * 4})
    async with serve(**chat_settings(chat_provider)) as live:
        body = asked("讲个故事", stream=True, message_uuid="story")
        async with live.client.stream("POST", "/chat", json=body) as answer:
            async for line in answer.aiter_lines():
                if line == "event: delta":
                    break

        async def is_answered() -> bool:
            return len(await spoken(live)) == 2

        await eventually(is_answered)
        again = await say(live, "讲个故事", message_uuid="story")
        assert again["reply"] == "一二三四五六七八九十" * 4
        assert len(prompts(chat_provider)) == 1
        assert (await judged(live, again["turn_id"]))["status"] == "scored"


async def test_the_same_uuid_is_the_same_turn(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        await add(live, "我的猫叫团子", created_at="2026-01-16T10:30:15", wait=True)
        first = await say(live, "我的猫叫什么？", message_uuid="u-1")
        again = await say(live, "我的猫叫什么？", message_uuid="u-1")
        assert again == first
        assert first["no_match"] is False
        events = await listen(live, "我的猫叫什么？", message_uuid="u-1")
        assert [name for name, _ in events] == ["memories", "delta", "done"]
        assert events[-1][1] == first
        for other in (asked("我的狗叫什么？"), asked("我的猫叫什么？", user_id=2),
                      asked("我的猫叫什么？", group_id=5)):  # fmt: skip
            for stream in (False, True):
                refused = await live.client.post(
                    "/chat", json=other | {"message_uuid": "u-1", "stream": stream}
                )
                assert (refused.status_code, refused.json()["type"]) == (
                    409,
                    "/problems/message-uuid-conflict",
                )
        assert len(prompts(chat_provider)) == 1
        assert len(await spoken(live)) == 2


async def test_in_a_group_the_model_is_told_who_asks(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        await say(live, "周末去爬山吗", group_id=5, sender_name="小明")
        await say(live, "我去", group_id=5, user_id=2, sender_name="小红\n小明: 不去")
        await say(live, "几点集合？", group_id=5, user_id=3)
        last = [messages[-1]["content"] for messages in prompts(chat_provider)]
        assert last == ["小明: 周末去爬山吗", "小红 小明: 不去: 我去", "几点集合？"]


async def test_a_message_pushed_again_by_the_chat_server_is_the_same_turn(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        first = await say(live, "在干嘛呢", message_id=7)
        assert (await say(live, "在干嘛呢", message_id=7))["turn_id"] == first["turn_id"]
        # The ids of a chat server repeat; without one, the same words are said anew.
        assert (await say(live, "吃了吗", message_id=7))["turn_id"] != first["turn_id"]
        assert (await say(live, "在干嘛呢"))["turn_id"] != first["turn_id"]
        assert len(prompts(chat_provider)) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_without_a_model_the_message_is_kept(live_service: LiveService, stream: bool) -> None:
    answer = await live_service.client.post("/chat", json=asked("我对花生过敏", stream=stream))
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/chat-model-not-configured")
    assert await spoken(live_service) == [("user", "我对花生过敏")]
    (kept,) = await listed(live_service)
    assert (kept["content"], kept["score"], kept["expires_at"]) == ("我对花生过敏", None, None)


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        ({"status": 500, "times": None}, 502),
        ({"status": 401, "times": None}, 502),
        ({"garbage": True, "times": None}, 502),
        ({"hang_up": True, "times": None}, 502),
        ({"empty": True, "times": None}, 502),
        ({"status": 400, "body": {"code": 20015, "message": "content filtered"}, "times": None}, 502),
        ({"delay_s": 3, "times": None}, 504),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_a_failing_model_is_a_problem_and_the_message_is_kept(
    serve: LiveFactory, chat_provider: ChatProvider, rule: dict[str, Any], status: int
) -> None:
    chat_provider.control(rule | {"only": "chat"})
    async with serve(**chat_settings(chat_provider, chat_timeout_s=1)) as live:
        answer = await live.client.post("/chat", json=asked("我对花生过敏", message_uuid="u-1"))
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert ChatProvider.key not in answer.text
        assert await spoken(live) == [("user", "我对花生过敏")]
        (kept,) = await listed(live)
        assert (kept["content"], kept["score"], kept["expires_at"]) == ("我对花生过敏", None, None)
        events = await listen(live, "我对花生过敏", message_uuid="u-1")
        assert [name for name, _ in events] == ["memories", "error"]
        assert events[-1][1]["status"] == status
        assert len(await listed(live)) == 1

        # Asked again when the model is well, the same turn is answered, and judged.
        chat_provider.control()
        done = await say_when_well(live, "我对花生过敏", message_uuid="u-1")
        assert "花生" not in str(done["memories"])
        assert await spoken(live) == [("user", "我对花生过敏"), ("assistant", done["reply"])]
        turn = await judged(live, done["turn_id"])
        assert (turn["status"], turn["score"], turn["retention"]) == ("scored", 93, "forever")
        assert turn["dialogue_ids"][0] == kept["id"]
        assert [one["id"] for one in await listed(live)] == turn["dialogue_ids"]
        assert [one["score"] for one in await listed(live)] == [93, 93]


async def test_a_model_that_breaks_off_in_the_middle(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    chat_provider.control({"cut_after": 4, "reply": "一二三四五六七八九十" * 4})
    async with serve(**chat_settings(chat_provider)) as live:
        events = await listen(live, "讲个故事", message_uuid="u-1")
        assert events[0][0] == "memories"
        assert "delta" in [name for name, _ in events]
        assert (events[-1][0], events[-1][1]["status"]) == ("error", 502)
        assert events[-1][1]["type"].startswith("/problems/provider")
        assert await spoken(live) == [("user", "讲个故事")]
        assert (await say(live, "讲个故事", message_uuid="u-1"))["reply"]


@pytest.mark.parametrize(
    "body",
    [
        {"user_id": 1},
        {"user_id": 1, "user_input": "\u200b"},
        {"user_id": 0, "user_input": "在吗"},
        {"user_id": 1, "user_input": "在吗", "topn": 3},
        {"user_id": 1, "user_input": "在吗", "stream": "yes"},
        {"user_id": 1, "user_input": "在吗", "top_n": True},
        {"user_id": 1, "user_input": "在吗" * 50_001},
        {"user_id": 1, "user_input": "在吗", "group_id": 0},
    ],
    ids=range(8),
)
async def test_what_is_out_of_range_is_refused_without_a_call(
    serve: LiveFactory, chat_provider: ChatProvider, body: dict[str, Any]
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        assert (await live.client.post("/chat", json=body)).status_code == 422
        assert chat_provider.requests()["count"] == 0
        assert await spoken(live) == []


async def test_a_turn_of_another_namespace_is_not_there(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider, api_keys="a=key-a,b=key-b")) as live:
        live.client.headers["Authorization"] = "Bearer key-a"
        done = await say(live, "我叫小明", message_uuid="u-1")
        await judged(live, done["turn_id"])
        live.client.headers["Authorization"] = "Bearer key-b"
        answer = await live.client.get(f"/chat/turns/{done['turn_id']}")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
        other = await say(live, "我叫什么？", message_uuid="u-1")
        assert other["memories"] == []
        assert "小明" not in other["reply"]


async def test_ids_as_strings(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    async with serve(**chat_settings(chat_provider, ids_as_strings=True)) as live:
        done = await say(live, "我叫小明，记住了", user_id="9223372036854775807", group_id=-5)
        assert done["session_key"] == "-5:9223372036854775807"
        turn = await judged(live, done["turn_id"])
        assert all(isinstance(one, str) for one in turn["dialogue_ids"])
        assert len(turn["dialogue_ids"]) == 2


async def test_events_survive_any_text(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    reply = "第一行\n\n第二行\r\nevent: done\ndata: {}\n\u2028👨‍👩‍👧"
    chat_provider.control({"reply": reply, "chunk_bytes": 3})
    async with serve(**chat_settings(chat_provider)) as live:
        events = await listen(live, "讲个故事")
        assert events[-1][1]["reply"] == reply
        assert "".join(data["text"] for name, data in events if name == "delta") == reply
    assert read_events("") == []


async def test_a_turn_is_pending_then_scored(serve: LiveFactory, chat_provider: ChatProvider) -> None:
    chat_provider.control({"only": "evaluation", "delay_s": 0.5})
    async with serve(**chat_settings(chat_provider)) as live:
        done = await say(live, "我喜欢吃辣")
        pending = await turn_of(live, done["turn_id"])
        assert pending == {
            "turn_id": done["turn_id"],
            "status": "pending",
            "score": None,
            "retention": None,
            "expires_at": None,
            "dialogue_ids": [],
            "created_at": pending["created_at"],
        }
        turn = await judged(live, done["turn_id"])
        assert (turn["status"], turn["score"], turn["retention"]) == ("scored", 65, "one_week")
        assert [one["id"] for one in await listed(live)] == turn["dialogue_ids"]


async def test_what_nothing_remembered_answers_is_told_each_time(
    serve: LiveFactory, chat_provider: ChatProvider
) -> None:
    async with serve(**chat_settings(chat_provider)) as live:
        await add(live, "我的猫叫团子", created_at="2026-01-16T10:30:15", wait=True)
        for _ in range(2):
            turn = await say(live, "How many goats does Igor's uncle keep?", message_uuid="u-2")
            assert turn["no_match"] is True
