"""/maintenance/forget, /stats and what health says of evaluation, on a live service."""

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from jsonschema import Draft202012Validator

from app.api.application import build_api
from app.api.context import ApiOptions
from app.database.embedded import EmbeddedPostgres
from tests.conftest import LiveFactory, LiveService
from tests.live import add, fetch, listed, message

DOCUMENT = build_api(ApiOptions()).openapi()


def fit(shape: str, document: Any) -> Any:
    """The document, which has to be of the shape that OpenAPI names."""
    schema = {"$ref": f"#/components/schemas/{shape}", "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(document)
    return document


async def forget(live: LiveService, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    answer = await live.client.post("/maintenance/forget", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    reply: dict[str, Any] = fit("ForgetReply", answer.json())
    return reply


async def test_forgetting_is_counted_then_done_in_the_callers_namespace_alone(
    serve: LiveFactory, postgres: EmbeddedPostgres, database_name: str
) -> None:
    async with serve(api_keys="a=key-a,b=key-b") as live:
        of_a, of_b = ({"Authorization": f"Bearer key-{name}"} for name in "ab")
        for headers in (of_a, of_b):
            live.client.headers.update(headers)
            await add(live, "过期的", expires_at=(datetime.now(UTC) - timedelta(minutes=1)).isoformat())
            await add(live, "没人问的")
            await add(live, "新的")
        await fetch(
            postgres,
            database_name,
            "UPDATE dialogues SET stored_at = now() - interval '91 days', created_at = now()"
            " - interval '91 days' WHERE content = '没人问的'",
        )
        counts = {"expired": 1, "unretrieved": 1}
        assert await forget(live, {"dry_run": True}, **of_a) == {"dry_run": True, "counts": counts}
        assert await forget(live, {"dry_run": True}, **of_a) == {"dry_run": True, "counts": counts}
        assert await forget(live, {}, **of_a) == {"dry_run": False, "counts": counts}
        nothing = {"expired": 0, "unretrieved": 0}
        assert await forget(live, {"dry_run": False}, **of_a) == {"dry_run": False, "counts": nothing}
        assert await forget(live, {"dry_run": True}, **of_b) == {"dry_run": True, "counts": counts}
        live.client.headers.update(of_a)
        assert [one["content"] for one in await listed(live)] == ["新的"]
        metrics = (await live.client.get("/metrics")).text
        for reason in counts:
            assert f'memory_forgotten_total{{reason="{reason}"}} 1.0' in metrics


@pytest.mark.parametrize("body", [{"dry_run": "yes"}, {"dry_run": None}, {"dryrun": True}, [], None])
async def test_what_is_not_understood_deletes_nothing(live_service: LiveService, body: object) -> None:
    await add(live_service, expires_at=(datetime.now(UTC) - timedelta(minutes=1)).isoformat())
    answer = await live_service.client.post("/maintenance/forget", json=body)
    assert answer.status_code == 422
    assert (await forget(live_service, {"dry_run": True}))["counts"]["expired"] == 1


_TURN = """
    INSERT INTO turns (turn_id, namespace, user_id, message_uuid, written_hash, user_content, reply, status,
        outcome, retention, available_at, created_at, replied_at)
    VALUES ($1, $2, 1, $1, 0, '话', '好', $3, $4, $5, now() + interval '1 hour', now(),
        now() - interval '50 s')
"""


async def test_stats_are_those_of_the_namespace_from_every_side(
    live_service: LiveService, postgres: EmbeddedPostgres, database_name: str
) -> None:
    long_ago = (datetime.now(UTC) - timedelta(days=2)).isoformat()
    await add(live_service, "我女儿叫小美", score=95, wait=True)
    await add(live_service, "那就选周五的方案", group_id=7, pinned=True, wait=True)
    await add(live_service, "你好", created_at=long_ago, expires_at=long_ago, wait=True)
    connection = await asyncpg.connect(postgres.dsn_for(database_name))
    for turn in (
        ("t1", "default", "scored", "scored", "one_week"),
        ("t2", "default", "scored", "filtered", "none"),
        ("t3", "default", "pending", None, None),
        ("t4", "other", "pending", None, None),
    ):
        await connection.execute(_TURN, *turn)
    await connection.execute(
        "INSERT INTO summaries (namespace, user_id, dialogue_id, content, since, until, messages, created_at)"
        " SELECT namespace, 1, 0, '他们谈了天气', now(), now(), 2, now()"
        " FROM unnest(ARRAY['default', 'other']) AS namespace"
    )
    await connection.close()
    stats = fit("StatsReply", (await live_service.client.get("/stats")).json())
    assert stats["tiers"] == {"hot": 2, "warm": 1, "cold": 3}
    assert stats["kinds"] == {"chat": 1, "fact": 1, "preference": 0, "decision": 1, "summary": 0}
    assert stats["embeddings"] == {"ready": 3, "pending": 0, "failed": 0}
    assert (stats["scores"]["91-100"], stats["scores"]["none"]) == (1, 2)
    assert stats["turns"] == {"answering": 0, "failed": 0, "pending": 1, "scored": 2, "unscored": 0}
    assert stats["evaluations"] == {"scored": 1, "failed": 0, "filtered": 1, "cached": 0, "disabled": 0}
    assert stats["retentions"] == {"none": 1, "one_day": 0, "one_week": 1, "one_month": 0, "forever": 0}
    assert (stats["pinned"], stats["outdated"], stats["expired"], stats["unretrieved"]) == (1, 0, 1, 0)
    details = (await live_service.client.get("/health/ready")).json()["details"]
    assert details["turns_pending"] == 2
    assert details["evaluation_lag_s"] > 0
    metrics = (await live_service.client.get("/metrics")).text
    lag = next(line for line in metrics.splitlines() if line.startswith("memory_evaluation_lag_seconds "))
    assert float(lag.split()[1]) > 0


async def test_a_change_of_content_changes_the_kind(live_service: LiveService) -> None:
    stored = await add(live_service, "你好")
    assert stored["kind"] == "chat"
    path = f"/dialogues/{stored['id']}"
    for content, kind in (("我女儿叫小美", "fact"), ("我不喜欢太啰嗦的风格", "preference"), ("哈哈", "chat")):
        answer = await live_service.client.patch(path, json={"content": content})
        assert fit("DialogueReply", answer.json())["kind"] == kind
    answer = await live_service.client.patch(path, json={"pinned": True})
    assert answer.json()["kind"] == "chat"
    again = await live_service.client.post("/dialogues", json=message("我女儿叫小美", role="assistant"))
    assert again.json()["kind"] == "chat"
