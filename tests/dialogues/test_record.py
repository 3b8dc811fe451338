"""Writing and editing: once each, in order, all or nothing, exactly as it was sent."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.database.embedded import EmbeddedPostgres
from app.dialogues.records import DialogueChange, NewDialogue
from app.dialogues.tokens import count_tokens
from app.services import Services
from tests.conftest import LiveFactory, LiveService
from tests.live import add, add_batch, fetch, listed, message, search

INT64 = st.one_of(
    st.sampled_from([-(2**63), -(2**63) + 1, -2147482433, -1, 1, 3425462029, 2**53 + 1, 2**63 - 1]),
    st.integers(-(2**63), 2**63 - 1),
)


async def test_what_makes_a_message_the_same_is_what_the_contract_says(live_service: LiveService) -> None:
    retries: list[tuple[dict[str, Any], dict[str, Any], int]] = [
        ({"message_uuid": "a"}, {"message_uuid": "a"}, 200),
        ({"message_uuid": "b"}, {"message_uuid": "b", "sender_name": "小明", "pinned": True}, 200),
        ({"message_uuid": "c", "message_id": 1}, {"message_uuid": "c", "message_id": 2}, 200),
        ({"message_uuid": "d"}, {"message_uuid": "d", "content": "另一条"}, 409),
        ({"message_uuid": "e"}, {"message_uuid": "e", "role": "assistant"}, 409),
        ({"message_uuid": "f"}, {"message_uuid": "f", "user_id": 11}, 409),
        ({"message_uuid": "g"}, {"message_uuid": "g", "group_id": 1}, 409),
        ({"message_uuid": "h", "group_id": 1}, {"message_uuid": "h", "group_id": -1}, 409),
        ({"message_uuid": "i", "content": "早\u0000安"}, {"message_uuid": "i", "content": "早安"}, 200),
        ({"message_uuid": "j", "created_at": "2024-01-16"}, {"message_uuid": "j"}, 200),
        ({"message_uuid": "大写"}, {"message_uuid": "大写 "}, 201),
        ({"message_id": -2147482433}, {"message_id": "-2147482433"}, 200),
        ({"message_id": 2, "score": 5}, {"message_id": 2, "score": 80}, 200),
        ({"message_uuid": "k", "message_id": 9}, {"message_id": 9}, 200),
        ({"message_uuid": "l", "message_id": 10}, {"message_id": 10, "group_id": 1}, 201),
        ({"message_id": 3}, {"message_id": 3, "content": "另一条"}, 201),
        ({"message_id": 4}, {"message_id": 4, "role": "assistant"}, 201),
        ({"message_id": 5}, {"message_id": 5, "user_id": 11}, 201),
        ({"message_id": 6}, {"message_id": 6, "group_id": 1}, 201),
        ({"message_id": 7}, {"message_id": 8}, 201),
        ({}, {}, 201),
    ]
    for first, second, status in retries:
        stored = await add(live_service, **first)
        again = await live_service.client.post("/dialogues", json=message(**second))
        assert again.status_code == status, (first, second, again.text)
        if status == 200:
            assert again.json() | {"embedding_status": ""} == stored | {"embedding_status": ""}
        elif status == 409:
            assert again.json()["type"] == "/problems/message-uuid-conflict"


async def test_a_uuid_belongs_to_one_namespace(serve: LiveFactory) -> None:
    async with serve(api_keys="a=key-a,b=key-b") as live:
        ids = set()
        for key in ("key-a", "key-b"):
            for content, status in ((key, 201), (key, 200), ("另一条", 409)):
                answer = await live.client.post(
                    "/dialogues",
                    json=message(content, message_uuid="one"),
                    headers={"Authorization": f"Bearer {key}"},
                )
                assert answer.status_code == status
                ids.add(answer.json().get("id"))
        assert len(ids - {None}) == 2


async def test_a_retry_after_an_edit_is_still_a_retry(live_service: LiveService) -> None:
    for name in ({"message_uuid": "a"}, {"message_id": 7}):
        stored = await add(live_service, "原来的话", **name)
        path = f"/dialogues/{stored['id']}"
        assert (await live_service.client.patch(path, json={"content": "改过的话"})).status_code == 200
        again = await live_service.client.post("/dialogues", json=message("原来的话", **name))
        assert (again.status_code, again.json()["content"]) == (200, "改过的话")


async def test_a_message_that_was_deleted_may_be_written_again(live_service: LiveService) -> None:
    first = await add(live_service, message_uuid="a")
    await live_service.client.delete(f"/dialogues/{first['id']}")
    second = await add(live_service, "另一条", message_uuid="a")
    assert second["id"] != first["id"]


async def test_three_at_once_are_one_row(live_service: LiveService) -> None:
    for name in ({"message_uuid": "一"}, {"message_id": 1}, {"message_uuid": "二", "wait": True}):
        answers = await asyncio.gather(
            *(live_service.client.post("/dialogues", json=message("同一条", **name)) for _ in range(3))
        )
        assert sorted(answer.status_code for answer in answers) == [200, 200, 201]
        assert len({answer.json()["id"] for answer in answers}) == 1


async def test_thirty_first_messages_at_once_are_thirty_rows(live_service: LiveService) -> None:
    answers = await asyncio.gather(
        *(live_service.client.post("/dialogues", json=message(f"第{n}条", user_id=77)) for n in range(30))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len(await listed(live_service, user_id=77)) == 30
    sessions = (await live_service.client.get("/sessions")).json()["sessions"]
    assert [(one["session_key"], one["dialogues"]) for one in sessions] == [("77", 30)]


async def test_batches_of_the_same_messages_in_opposite_orders_do_not_fail(live_service: LiveService) -> None:
    items = [message(f"第{number}条", message_uuid=f"m{number}") for number in range(300)]
    batches = [items, items[::-1], items[150:] + items[:150], items[::2] + items[1::2], items[::-1]]
    outcomes = await asyncio.gather(*(add_batch(live_service, batch) for batch in batches))
    assert sum(outcome["stored"] for outcome in outcomes) == 300
    assert sum(outcome["duplicates"] for outcome in outcomes) == 300 * (len(batches) - 1)
    for batch, outcome in zip(batches, outcomes, strict=True):
        assert [one["message_uuid"] for one in outcome["dialogues"]] == [one["message_uuid"] for one in batch]
    assert len(await listed(live_service)) == 300


async def test_a_batch_keeps_its_order(live_service: LiveService) -> None:
    contents = [f"第{number}条" for number in range(1000)]
    outcome = await add_batch(live_service, [message(content) for content in contents])
    assert (outcome["stored"], outcome["duplicates"]) == (1000, 0)
    found = await listed(live_service)
    assert [one["content"] for one in found] == contents
    assert [one["id"] for one in found] == [one["id"] for one in outcome["dialogues"]]
    assert len({one["created_at"] for one in found}) == 1000


async def test_a_bad_item_keeps_a_batch_out_and_is_named(live_service: LiveService) -> None:
    await add(live_service, "已有", message_uuid="taken")
    good = message("新的")
    bad: list[tuple[dict[str, Any], int]] = [
        ({"user_id": 0}, 422),
        ({"user_id": 2**63}, 422),
        ({"user_id": True}, 422),
        ({"group_id": 0}, 422),
        ({"message_id": 1.0}, 422),
        ({"message_id": "1e3"}, 422),
        ({"content": " \u200b\u3000"}, 422),
        ({"content": "\u0000"}, 422),
        ({"role": "system"}, 422),
        ({"score": 101}, 422),
        ({"created_at": "1999-12-31T00:00:00Z"}, 422),
        ({"created_at": (datetime.now(UTC) + timedelta(days=2)).isoformat()}, 422),
        ({"windowsize": 1}, 422),
        ({"message_uuid": "taken"}, 409),
    ]
    for change, status in bad:
        items = [good, good, message("坏的") | change, good]
        answer = await live_service.client.post("/dialogues/batch", json={"dialogues": items})
        assert answer.status_code == status, (change, answer.text)
        if status == 422:
            assert answer.json()["errors"][0]["pointer"].startswith("/dialogues/2/")
        else:
            assert "dialogues[2]" in answer.json()["detail"]
    twice = [message("甲", message_uuid="x"), good, message("乙", message_uuid="x")]
    answer = await live_service.client.post("/dialogues/batch", json={"dialogues": twice})
    assert answer.status_code == 409
    assert "dialogues[2]" in answer.json()["detail"]
    too_many = await live_service.client.post("/dialogues/batch", json={"dialogues": [good] * 1001})
    assert too_many.status_code == 422
    assert [one["content"] for one in await listed(live_service)] == ["已有"]


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(
        st.tuples(st.integers(1, 2**63 - 1), st.none() | INT64.filter(bool), INT64), min_size=1, max_size=20
    )
)
async def test_ids_are_stored_and_read_back_exactly(
    live_service: LiveService, ids: list[tuple[int, int | None, int]]
) -> None:
    items = [
        message(
            "编号", user_id=user_id if place % 2 else str(user_id), group_id=group_id, message_id=message_id
        )
        for place, (user_id, group_id, message_id) in enumerate(ids)
    ]
    outcome = await add_batch(live_service, items)
    for (user_id, group_id, message_id), one in zip(ids, outcome["dialogues"], strict=True):
        found = (await live_service.client.get(f"/dialogues/{one['id']}")).json()
        assert (found["user_id"], found["group_id"], found["message_id"]) == (user_id, group_id, message_id)
        assert found["session_key"] == (str(user_id) if group_id is None else f"{group_id}:{user_id}")


async def test_times_of_every_form_are_one_instant(
    live_service: LiveService, postgres: EmbeddedPostgres, database_name: str
) -> None:
    instant = datetime(2024, 1, 16, 2, 30, 15, 123456, tzinfo=UTC)
    for written, stored in (
        ("2024-01-16T10:30:15.123456", instant),
        ("2024-01-16 10:30:15.123456", instant),
        ("2024-01-16T02:30:15.123456Z", instant),
        ("2024-01-15T16:00:15.123456-10:30", instant),
        (1705372215, instant.replace(microsecond=0)),
        (1705372215.5, instant.replace(microsecond=500000)),
        (1705372215123, instant.replace(microsecond=123000)),
    ):
        one = await add(live_service, created_at=written)
        assert datetime.fromisoformat(one["created_at"]) == stored
        assert one["created_at"].endswith("+08:00")
        rows = await fetch(
            postgres,
            database_name,
            "SELECT created_at, created_date FROM dialogues WHERE id = $1",
            one["id"],
        )
        assert rows[0]["created_at"] == stored
        assert str(rows[0]["created_date"]) == "2024-01-16"
    late_in_the_evening = await add(live_service, created_at="2024-01-16T23:30:00+00:00")
    rows = await fetch(
        postgres,
        database_name,
        "SELECT created_date FROM dialogues WHERE id = $1",
        late_in_the_evening["id"],
    )
    assert str(rows[0]["created_date"]) == "2024-01-17"


async def test_late_imports_fall_into_their_place(live_service: LiveService) -> None:
    for minute in (0, 10, 20, 30):
        await add(live_service, f"整点{minute}", created_at=f"2024-01-16T10:{minute:02}:00")
    await add(live_service, "补录的暗号是西瓜", created_at="2024-01-16T10:15:00")
    await add(live_service, "别的群里的话", group_id=5, created_at="2024-01-16T10:14:00")
    await add(live_service, "别人的话", user_id=2, created_at="2024-01-16T10:16:00")
    assert [one["content"] for one in await listed(live_service)] == [
        "整点0",
        "整点10",
        "补录的暗号是西瓜",
        "整点20",
        "整点30",
    ]
    found = await search(live_service, "暗号西瓜", top_n=1, window_size=1)
    assert [one["content"] for one in found["memories"]] == ["整点10", "补录的暗号是西瓜", "整点20"]


async def test_what_has_expired_makes_room_for_its_like(
    live_service: LiveService, postgres: EmbeddedPostgres, database_name: str
) -> None:
    client = live_service.client
    for again in (
        {"message_uuid": "a"},
        {"message_uuid": "b", "content": "另一条", "user_id": 2},
        {"message_id": 7},
    ):
        first = await add(live_service, **again)
        await client.patch(f"/dialogues/{first['id']}", json={"expires_at": "2024-01-16"})
        second = await add(live_service, **again)
        assert second["id"] != first["id"]
        assert second["expires_at"] is None
        retried = await client.post("/dialogues", json=message(**again))
        assert (retried.status_code, retried.json()["id"]) == (200, second["id"])
    named = await add(live_service, message_uuid="c", message_id=8)
    await client.patch(f"/dialogues/{named['id']}", json={"expires_at": "2024-01-16"})
    unnamed = await add(live_service, message_id=8)
    assert unnamed["message_uuid"] != "c"
    batch = [message(message_uuid=uuid) for uuid in ("c", "a", "new", "c")]
    outcome = await add_batch(live_service, batch)
    assert (outcome["stored"], outcome["duplicates"]) == (2, 2)
    rows = await fetch(postgres, database_name, "SELECT count(*) FROM dialogues WHERE expires_at < now()")
    assert rows[0][0] == 0


async def test_a_long_text_is_read_off_the_event_loop(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []

    def count_tokens_too(content: str) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        return count_tokens(content)

    monkeypatch.setattr("app.dialogues.preparation.count_tokens", count_tokens_too)
    monkeypatch.setattr("app.dialogues.service.count_tokens", count_tokens_too)
    for content in ("短", "长" * 20_001):
        new = NewDialogue(user_id=1, role="user", content=content)
        stored = await services.dialogues.add("default", new)
        await services.dialogues.change("default", stored.dialogue.id, DialogueChange(content=content + "。"))
    assert threads == [True, True, False, False]


async def test_what_has_expired_is_nowhere(live_service: LiveService) -> None:
    kept = await add(live_service, "香蕉留着")
    gone = await add(live_service, "香蕉过期", expires_at="2024-01-16")
    for method, body in (("GET", None), ("PATCH", {"pinned": True}), ("PATCH", {"content": "香蕉"})):
        answer = await live_service.client.request(method, f"/dialogues/{gone['id']}", json=body)
        assert answer.status_code == 404, method
    assert [one["id"] for one in await listed(live_service)] == [kept["id"]]
    for mode in ("hybrid", "vector", "keyword"):
        found = await search(live_service, "香蕉", mode=mode)
        assert [one["id"] for one in found["memories"]] == [kept["id"]]
    await live_service.client.patch(f"/dialogues/{kept['id']}", json={"expires_at": "2024-01-16"})
    assert (await search(live_service, "香蕉"))["memories"] == []


async def test_an_edit_is_found_by_its_new_words_only(live_service: LiveService) -> None:
    stored = await add(live_service, "暗号是香蕉", sender_name="小明")
    path = f"/dialogues/{stored['id']}"
    changed = (await live_service.client.patch(path, json={"content": "口令改为菠萝"})).json()
    assert changed["token_count"] != 0
    assert changed["sender_name"] == "小明"
    for mode in ("keyword", "hybrid"):
        assert [one["content"] for one in (await search(live_service, "菠萝", mode=mode))["memories"]] == [
            "口令改为菠萝"
        ]
    assert (await search(live_service, "香蕉", mode="keyword"))["memories"] == []
    window = (await live_service.client.get("/sessions/1/window")).json()
    assert [one["content"] for one in window["messages"]] == ["口令改为菠萝"]
    assert window["token_count"] == changed["token_count"]


async def test_a_message_may_come_from_code_with_a_time_in_any_zone(services: Services) -> None:
    east = datetime.fromisoformat("2024-01-16T10:30:15+08:00")
    stored = await services.dialogues.add("bot", NewDialogue(1, "user", "你好", created_at=east))
    assert stored.dialogue.created_at == east
    assert stored.dialogue.created_at.utcoffset() == timedelta(0)
