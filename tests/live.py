"""What tests of a live service share: messages, waiting for what comes about, a look into the database."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import asyncpg
import httpx

from app.database.embedded import EmbeddedPostgres

_PATIENCE_S = 60.0


class Live(Protocol):
    """Where a service answers."""

    @property
    def client(self) -> httpx.AsyncClient: ...


def message(content: str = "大家好", **more: Any) -> dict[str, Any]:
    """The body of a message."""
    return {"user_id": 1, "role": "user", "content": content} | more


async def add(live: Live, content: str = "大家好", **more: Any) -> dict[str, Any]:
    """Store a message that is new."""
    answer = await live.client.post("/dialogues", json=message(content, **more))
    assert answer.status_code == 201, answer.text
    stored: dict[str, Any] = answer.json()
    return stored


async def add_batch(live: Live, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Store messages together."""
    answer = await live.client.post("/dialogues/batch", json={"dialogues": items})
    assert answer.status_code == 200, answer.text
    outcome: dict[str, Any] = answer.json()
    return outcome


async def listed(live: Live, **params: Any) -> list[dict[str, Any]]:
    """All messages of a session, page after page."""
    query: dict[str, Any] = {"user_id": 1, "limit": 200} | params
    found: list[dict[str, Any]] = []
    while True:
        answer = await live.client.get("/dialogues", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["dialogues"]
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]


async def search(live: Live, query: str, **more: Any) -> dict[str, Any]:
    """What a search of user 1's private chat finds."""
    answer = await live.client.post("/memory/search", json={"user_id": 1, "query": query} | more)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return as soon as it holds; a minute without is a failure."""
    async with asyncio.timeout(_PATIENCE_S):
        while not await holds():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.02)


async def fetch(postgres: EmbeddedPostgres, database: str, query: str, *values: object) -> list[Any]:
    """Rows that a statement gives, past the service."""
    connection = await asyncpg.connect(postgres.dsn_for(database))
    try:
        return list(await connection.fetch(query, *values))
    finally:
        await connection.close()
