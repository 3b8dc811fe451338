"""The routes on a live service: what the contract says of dialogues, memory, sessions, erasure and health."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import asyncpg
import httpx
import pytest
from jsonschema import Draft202012Validator

from app.api.application import build_api
from app.api.context import ApiOptions
from app.api.middleware import MAX_BODY_BYTES
from app.database.embedded import EmbeddedPostgres

DOCUMENT = build_api(ApiOptions()).openapi()


class Live(Protocol):
    """What the live_service fixture gives."""

    url: str
    client: httpx.AsyncClient


def fit(shape: str, document: Any) -> Any:
    """The document, which has to be of the shape that OpenAPI names."""
    schema = {"$ref": f"#/components/schemas/{shape}", "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(document)
    return document


def message(content: str = "大家好", **more: Any) -> dict[str, Any]:
    return {"user_id": 123456789, "role": "user", "content": content} | more


async def add(live: Live, content: str = "大家好", **more: Any) -> dict[str, Any]:
    answer = await live.client.post("/dialogues", json=message(content, **more))
    assert answer.status_code == 201, answer.text
    stored: dict[str, Any] = fit("DialogueReply", answer.json())
    return stored


async def test_a_message_is_stored_and_read_back(live_service: Live) -> None:
    stored = await add(
        live_service,
        group_id="987654321",
        sender_name="小明",
        message_id="-2147482433",
        created_at="2024-01-16T10:30:15",
        score=85,
        expires_at=4102444800,
        pinned=True,
    )
    assert {
        key: stored[key] for key in ("session_key", "user_id", "group_id", "chat_type", "message_id")
    } == {
        "session_key": "987654321:123456789",
        "user_id": 123456789,
        "group_id": 987654321,
        "chat_type": "group",
        "message_id": -2147482433,
    }
    assert stored["created_at"] == "2024-01-16T10:30:15+08:00"
    assert stored["expires_at"] == "2100-01-01T08:00:00+08:00"
    assert (stored["score"], stored["pinned"], stored["sender_name"]) == (85, True, "小明")
    read = await live_service.client.get(f"/dialogues/{stored['id']}")
    assert read.json() | {"embedding_status": ""} == stored | {"embedding_status": ""}


async def test_text_is_mended_on_its_way(live_service: Live) -> None:
    raw = b'{"user_id": 1, "role": "user", "content": "\\u0000\\u65e9\\ud83d", "sender_name": " "}'
    answer = await live_service.client.post(
        "/dialogues", content=raw, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 201
    assert (answer.json()["content"], answer.json()["sender_name"]) == ("早\ufffd", None)


async def test_the_same_message_again_is_200_and_other_content_409(live_service: Live) -> None:
    first = await add(live_service, "第一条", message_uuid="m-1")
    again = await live_service.client.post("/dialogues", json=message("第一条", message_uuid="m-1"))
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    other = await live_service.client.post("/dialogues", json=message("另一条", message_uuid="m-1"))
    assert (other.status_code, other.json()["type"]) == (409, "/problems/message-uuid-conflict")
    batch = {"dialogues": [message("新的"), message("另一条", message_uuid="m-1")]}
    refused = await live_service.client.post("/dialogues/batch", json=batch)
    assert refused.status_code == 409
    assert "1" in refused.json()["detail"]
    listed = await live_service.client.get("/dialogues", params={"user_id": 123456789})
    assert [one["content"] for one in listed.json()["dialogues"]] == ["第一条"]


async def test_a_batch_answers_in_its_order(live_service: Live) -> None:
    batch = {
        "dialogues": [message("一", message_id=1), message("二", message_id=2), message("一", message_id=1)]
    }
    answer = await live_service.client.post("/dialogues/batch", json=batch)
    body = fit("BatchReply", answer.json())
    assert (answer.status_code, body["stored"], body["duplicates"]) == (200, 2, 1)
    assert [one["status"] for one in body["dialogues"]] == ["stored", "stored", "duplicate"]
    assert body["dialogues"][0]["id"] == body["dialogues"][2]["id"]
    empty = await live_service.client.post("/dialogues/batch", json={"dialogues": []})
    assert empty.json() == {"stored": 0, "duplicates": 0, "dialogues": []}


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_neither_repeat_nor_skip(live_service: Live, order: str) -> None:
    one_moment = "2024-01-16T10:30:15+08:00"
    items = [message(f"第{number}条", created_at=one_moment) for number in range(23)]
    await live_service.client.post("/dialogues/batch", json={"dialogues": items})
    seen: list[int] = []
    params: dict[str, Any] = {"user_id": 123456789, "limit": 5, "order": order}
    while True:
        page = fit("PageReply", (await live_service.client.get("/dialogues", params=params)).json())
        seen += [one["id"] for one in page["dialogues"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
        await add(
            live_service, "同时写入", created_at="2024-01-15T00:00:00" if order == "asc" else "2024-01-17"
        )
    assert len(seen) == len(set(seen)) == 23
    assert seen == sorted(seen, reverse=order == "desc")
    params["role"] = "assistant"
    assert (await live_service.client.get("/dialogues", params=params)).status_code == 422


async def test_a_list_is_bounded_by_since_and_until(live_service: Live) -> None:
    for hour in (9, 10, 11):
        await add(live_service, f"{hour}点", created_at=f"2024-01-16T{hour:02}:00:00")
    answer = await live_service.client.get(
        "/dialogues?user_id=123456789&since=2024-01-16T10:00:00+08:00&until=2024-01-16T11:00:00"
    )
    assert [one["content"] for one in answer.json()["dialogues"]] == ["10点"]


async def test_a_change_changes_what_it_names(live_service: Live) -> None:
    stored = await add(live_service, score=50, expires_at="2100-01-01")
    path = f"/dialogues/{stored['id']}"
    changed = await live_service.client.patch(
        path, json={"content": "新内容", "outdated": True, "score": None}
    )
    body = fit("DialogueReply", changed.json())
    assert (body["content"], body["outdated"], body["score"]) == ("新内容", True, None)
    assert body["expires_at"] == stored["expires_at"]
    assert (await live_service.client.patch(path, json={"expires_at": None})).json()["expires_at"] is None
    unchanged = await live_service.client.patch(path, json={})
    assert (unchanged.status_code, unchanged.json()["content"]) == (200, "新内容")
    for bad in ({"content": None}, {"pinned": None}, {"user_id": 1}, {"content": " "}):
        assert (await live_service.client.patch(path, json=bad)).status_code == 422
    assert (await live_service.client.patch("/dialogues/999999", json={"score": 1})).status_code == 404


async def test_what_is_deleted_is_gone(live_service: Live) -> None:
    stored = await add(live_service)
    deleted = await live_service.client.delete(f"/dialogues/{stored['id']}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    for method in ("GET", "DELETE"):
        gone = await live_service.client.request(method, f"/dialogues/{stored['id']}")
        assert gone.json()["type"] == "/problems/not-found"


async def test_a_search_finds_what_was_just_written(live_service: Live) -> None:
    await add(live_service, "我的订单号是ORD123456", sender_name="小明", created_at="2024-01-16T10:30:15")
    await add(live_service, "好的，我记下了", role="assistant", created_at="2024-01-16T10:30:20")
    answer = await live_service.client.post(
        "/memory/search",
        json={
            "user_id": "123456789",
            "query": "ORD123456",
            "top_n": 1,
            "now": "2024-01-16T16:00:00",
            "explain": True,
        },
    )
    body = fit("SearchReply", answer.json())
    assert (body["session_key"], body["now"]) == ("123456789", "2024-01-16T16:00:00+08:00")
    assert [one["is_anchor"] for one in body["memories"]] == [True, False]
    anchor, neighbour = body["memories"]
    assert anchor["line"] == "[2024-01-16 10:30:15] (5小时前) user(小明): 我的订单号是ORD123456"
    assert anchor["explain"]["lexical"] > 0
    assert (neighbour["similarity"], neighbour["relevance"]) == (None, None)
    assert anchor["line"] in body["prompt"]


async def test_a_search_of_nothing_is_an_empty_list(live_service: Live) -> None:
    answer = await live_service.client.post("/memory/search", json={"user_id": 5, "query": "订单"})
    body = fit("SearchReply", answer.json())
    assert (answer.status_code, body["memories"], body["degraded"]) == (200, [], False)
    assert "explain" not in str(body["memories"])


async def test_a_search_may_ask_from_the_ends_of_the_calendar(live_service: Live) -> None:
    await add(live_service, "订单", expires_at="8999-12-31T23:59:59-12:00")
    for times in (
        {"now": "8999-12-31T23:59:59Z"},
        {"now": "2000-01-01", "timezone": "Pacific/Kiritimati"},
        {"since": "2000-01-01", "until": "9999-12-31T23:59:59.999999Z"},
        {"since": "9999-12-31T23:59:59-12:00", "until": "2000-01-01"},
    ):
        for path, shape in (("/memory/search", "SearchReply"), ("/memory/prompt", "PromptReply")):
            body = {"user_id": 123456789, "query": "昨天的订单", **times}
            answer = await live_service.client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            fit(shape, answer.json())


@pytest.mark.parametrize(
    "expires_at", ["9000-01-01", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999Z", 253402300799]
)
async def test_nothing_expires_at_the_end_of_the_calendar(live_service: Live, expires_at: object) -> None:
    stored = await add(live_service)
    for method, path, body in (
        ("POST", "/dialogues", message(expires_at=expires_at)),
        ("PATCH", f"/dialogues/{stored['id']}", {"expires_at": expires_at}),
    ):
        answer = await live_service.client.request(method, path, json=body)
        assert answer.status_code == 422
        assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/expires_at"]


@pytest.mark.parametrize("value", ["infinity", "-infinity"])
async def test_a_row_that_expires_at_infinity_is_read(
    live_service: Live, postgres: EmbeddedPostgres, database_name: str, value: str
) -> None:
    stored = await add(live_service, "我的订单号是ORD123456")
    connection = await asyncpg.connect(postgres.dsn_for(database_name))
    await connection.execute(f"UPDATE dialogues SET expires_at = '{value}'")
    await connection.close()
    path = f"/dialogues/{stored['id']}"
    query = {"user_id": 123456789, "query": "订单"}
    client = live_service.client
    answers = [
        await client.get(path),
        await client.get("/dialogues?user_id=123456789"),
        await client.post("/memory/search", json=query),
        await client.post("/memory/prompt", json=query),
        await client.patch(path, json={"pinned": True}),
        await client.patch(path, json={"content": "改了"}),
        await client.get("/sessions"),
    ]
    assert {answer.status_code for answer in answers} == ({200, 404} if value == "-infinity" else {200})


async def test_a_prompt_is_ready_to_send(live_service: Live) -> None:
    await add(live_service, "我最喜欢的水果是芒果", created_at="2024-01-16T10:30:15")
    answer = await live_service.client.post(
        "/memory/prompt",
        json={"user_id": 123456789, "query": "我喜欢什么水果？", "system_prompt": "你是小助手。"},
    )
    body = fit("PromptReply", answer.json())
    assert [one["role"] for one in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"].startswith("你是小助手。")
    assert "芒果" in body["messages"][0]["content"]
    assert body["messages"][-1]["content"] == "我喜欢什么水果？"
    assert body["summaries"] == []


async def test_sessions_are_listed_shown_and_erased(live_service: Live) -> None:
    for user_id, group_id in ((1, None), (1, -100), (11, None), (2, None)):
        await add(live_service, "你好", user_id=user_id, group_id=group_id)
    listed: list[str] = []
    params: dict[str, Any] = {"limit": 3}
    while True:
        page = fit("SessionPageReply", (await live_service.client.get("/sessions", params=params)).json())
        listed += [one["session_key"] for one in page["sessions"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert sorted(listed) == ["-100:1", "1", "11", "2"]
    window = fit("WindowReply", (await live_service.client.get("/sessions/-100:1/window")).json())
    assert [one["content"] for one in window["messages"]] == ["你好"]
    assert window["token_count"] > 0
    unknown = await live_service.client.get("/sessions/999/window")
    assert unknown.json() == {"messages": [], "token_count": 0}
    for junk in ("/sessions/*", "/sessions/1:", "/users/0", "/users/%20"):
        assert (await live_service.client.delete(junk)).status_code in {404, 422}
    erased = fit("ErasedReply", (await live_service.client.delete("/sessions/1")).json())
    assert erased == {"erased": {"dialogues": 1, "window_messages": 1, "summaries": 0, "turns": 0}}
    assert (await live_service.client.delete("/users/1")).json()["erased"]["dialogues"] == 1
    left = (await live_service.client.get("/sessions")).json()["sessions"]
    assert sorted(one["session_key"] for one in left) == ["11", "2"]


async def test_the_key_of_a_session(live_service: Live) -> None:
    for params, key in (
        ({"user_id": "123456789"}, "123456789"),
        ({"user_id": "123456789", "group_id": "987654321"}, "987654321:123456789"),
    ):
        answer = await live_service.client.get("/session-key", params=params)
        assert answer.json() == {"session_key": key}


async def test_an_old_import_does_not_enter_the_window_and_the_future_is_refused(live_service: Live) -> None:
    now = datetime.now(UTC)
    await add(live_service, "很久以前", created_at=(now - timedelta(hours=2)).isoformat())
    await add(live_service, "刚刚", created_at=(now - timedelta(minutes=1)).isoformat())
    window = (await live_service.client.get("/sessions/123456789/window")).json()
    assert [one["content"] for one in window["messages"]] == ["刚刚"]
    late = message("明年", created_at=(now + timedelta(days=1, minutes=1)).timestamp())
    assert (await live_service.client.post("/dialogues", json=late)).status_code == 422


async def test_health_stats_and_metrics(live_service: Live) -> None:
    await add(live_service, wait=True)
    assert (await live_service.client.get("/health/live")).json() == {"status": "live"}
    ready = await live_service.client.get("/health/ready")
    assert fit("ReadyReply", ready.json())["status"] == "ready"
    stats = fit("StatsReply", (await live_service.client.get("/stats")).json())
    assert (stats["dialogues"], stats["roles"]["user"]) == (1, 1)
    metrics = await live_service.client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'http_requests_total{method="POST",route="/dialogues",status="201"} 1.0' in metrics.text
    assert "123456789" not in metrics.text
    assert (await live_service.client.get("/openapi.json")).json() == DOCUMENT


async def test_ids_are_strings_where_that_is_set(serve: Callable[..., Any]) -> None:
    async with serve(ids_as_strings=True) as live:
        stored = await add(live, "大数", user_id=2**63 - 1, group_id=-(2**63), message_id=2**53 + 1)
        assert {key: stored[key] for key in ("user_id", "group_id", "message_id")} == {
            "user_id": str(2**63 - 1),
            "group_id": str(-(2**63)),
            "message_id": str(2**53 + 1),
        }
        assert isinstance(stored["id"], str)
        sessions = (await live.client.get("/sessions")).json()["sessions"]
        assert (sessions[0]["user_id"], sessions[0]["group_id"]) == (str(2**63 - 1), str(-(2**63)))
        batch = await live.client.post("/dialogues/batch", json={"dialogues": [message()]})
        assert isinstance(batch.json()["dialogues"][0]["id"], str)


async def test_a_key_sees_its_own_namespace_only(serve: Callable[..., Any]) -> None:
    async with serve(api_keys="a=key-a,b=key-b") as live:
        of_a, of_b = ({"Authorization": f"Bearer key-{name}"} for name in "ab")
        stored = (await live.client.post("/dialogues", json=message(), headers=of_a)).json()
        path = f"/dialogues/{stored['id']}"
        assert (await live.client.get(path)).status_code == 401
        assert (await live.client.get(path, headers=of_a)).status_code == 200
        for method, body in (("GET", None), ("PATCH", {"pinned": True}), ("DELETE", None)):
            assert (await live.client.request(method, path, json=body, headers=of_b)).status_code == 404
        assert (await live.client.get("/sessions", headers=of_b)).json()["sessions"] == []
        assert (await live.client.delete("/users/123456789", headers=of_b)).json()["erased"]["dialogues"] == 0
        search = {"user_id": 123456789, "query": "大家好"}
        found = await live.client.post("/memory/search", json=search, headers=of_b)
        assert found.json()["memories"] == []


async def test_a_body_over_the_limit_gets_its_answer_over_a_real_connection(live_service: Live) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65536 + 16):
            yield b" " * 65536

    for content in (b" " * (MAX_BODY_BYTES * 2), stream()):
        answer = await live_service.client.post(
            "/dialogues", content=content, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["type"]) == (413, "/problems/payload-too-large")
    assert (await live_service.client.get("/health/live")).status_code == 200


async def test_a_large_body_without_a_key_gets_its_401(serve: Callable[..., Any]) -> None:
    async with serve(api_keys="a=key-a") as live:
        answer = await live.client.post(
            "/dialogues", content=b" " * MAX_BODY_BYTES, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 401
