"""Everything at once, on two services and a provider that comes and goes: all agrees at the end."""

import asyncio
import json
import random
from typing import Any

from app.database.embedded import EmbeddedPostgres
from app.dialogues.indexed_text import indexed_text
from tests.conftest import LiveFactory
from tests.dialogues.conftest import Provided
from tests.doubles.embedding_provider import embed
from tests.live import eventually, fetch, message

_ROUNDS = 15
_AT_ONCE = 30
_FAULTS: list[dict[str, Any]] = [
    {},
    {"delay_s": 0.2},
    {"hang_up": 1},
    {"reject": ["话1"]},
    {"answer": "nan", "answer_for": "改5"},
]
_CHANGES: list[dict[str, Any]] = [
    {"pinned": True},
    {"score": None},
    {"outdated": True},
    {"expires_at": "2099-01-01"},
]
_EXPECTED = {200, 201, 204, 404, 409}


def request(chance: random.Random, ids: list[int]) -> tuple[str, str, dict[str, Any] | None]:
    """Something that somebody may ask: method, path, body."""
    user_id = chance.randint(1, 4)
    group_id = chance.choice([None, 5])
    some_id = chance.choice(ids) if ids else 1

    def new(content: str, **more: Any) -> dict[str, Any]:
        return message(content, user_id=user_id, group_id=group_id, wait=chance.random() < 0.2, **more)

    batch = [new(f"话{chance.randint(0, 60)}", message_id=chance.randint(1, 5)) for _ in range(8)]
    change = chance.choice([*_CHANGES, {"content": f"改{chance.randint(0, 99)}"}])
    kind = chance.choices(range(6), weights=[6, 4, 5, 2, 1, 3])[0]
    return (
        ("POST", "/dialogues/batch", {"dialogues": batch}),
        ("POST", "/dialogues", new(f"单{chance.randint(0, 30)}", message_uuid=f"u{chance.randint(0, 40)}")),
        ("PATCH", f"/dialogues/{some_id}", change),
        ("DELETE", f"/dialogues/{some_id}", None),
        (
            "DELETE",
            chance.choice([f"/users/{user_id}", f"/sessions/{user_id}", f"/sessions/5:{user_id}"]),
            None,
        ),
        (
            "POST",
            "/memory/search",
            {"user_id": user_id, "group_id": group_id, "query": f"话{chance.randint(0, 60)}"},
        ),
    )[kind]


async def test_nothing_fails_and_all_agrees_at_the_end(
    serve: LiveFactory, provided: Provided, postgres: EmbeddedPostgres
) -> None:
    chance = random.Random(20240116)  # noqa: S311 - the same events in each run
    ids: list[int] = []
    async with (
        serve(**provided.settings, embedding_batch_size=4) as first,
        serve(**provided.settings, embedding_batch_size=4) as second,
    ):

        async def ask() -> None:
            live = chance.choice([first, second])
            method, path, body = request(chance, ids)
            answer = await live.client.request(method, path, json=body)
            assert answer.status_code in _EXPECTED, answer.text
            if path == "/dialogues/batch":
                ids.extend(one["id"] for one in answer.json()["dialogues"])

        for number in range(_ROUNDS):
            provided.provider.control(**_FAULTS[number % len(_FAULTS)])
            await asyncio.gather(*(ask() for _ in range(_AT_ONCE)))
        provided.provider.control()

        async def nothing_waits() -> bool:
            details = (await first.client.get("/health/ready")).json()["details"]
            return bool(details["embeddings_pending"] == 0)

        await eventually(nothing_waits)
    rows = await fetch(
        postgres,
        provided.database,
        "SELECT content, sender_name, embedding_status, embedding::text FROM dialogues",
    )
    assert {row["embedding_status"] for row in rows} <= {"ready", "failed"}
    vectors = [(row["embedding"], indexed_text(row["content"], row["sender_name"])) for row in rows]
    assert vectors
    for vector, text in vectors:
        if vector is not None:
            made = zip(json.loads(vector), embed(text, provided.dimensions), strict=True)
            assert sum(a * b for a, b in made) > 0.99, text
    astray = await fetch(
        postgres,
        provided.database,
        "SELECT w.* FROM window_messages w LEFT JOIN dialogues d ON d.id = w.dialogue_id"
        " WHERE d.id IS NULL OR (d.content, d.token_count) <> (w.content, w.token_count)",
    )
    assert astray == []
