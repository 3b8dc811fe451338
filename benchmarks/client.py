"""The calls that benchmarks of what is found make: ask, import a conversation, wait for its vectors."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import orjson

from benchmarks.conversations import Conversation

_BATCH = 1000
_PAGE = 200
_EMBED_LIMIT_S = 1800


class Client:
    """A service, asked one call after another; what it refuses ends the benchmark."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
        """The answer and the milliseconds it took."""
        begun = time.perf_counter()
        answer = await self._http.post(
            path, content=orjson.dumps(body), headers={"Content-Type": "application/json"}
        )
        taken_ms = (time.perf_counter() - begun) * 1000
        if answer.is_error:
            raise SystemExit(f"POST {path} answered {answer.status_code}: {answer.text}")
        return orjson.loads(answer.content), taken_ms

    async def import_conversation(self, conversation: Conversation) -> dict[str, str]:
        """Store the conversation and wait for its vectors; the set's message id by dialogue id."""
        ids: dict[str, str] = {}
        for begin in range(0, len(conversation.dialogues), _BATCH):
            part = slice(begin, begin + _BATCH)
            reply, _ = await self.post("/dialogues/batch", {"dialogues": conversation.dialogues[part]})
            for stored, message_id in zip(reply["dialogues"], conversation.message_ids[part], strict=True):
                ids[str(stored["id"])] = message_id
        deadline = time.monotonic() + _EMBED_LIMIT_S
        for session in conversation.sessions:
            while "pending" in (statuses := [status async for status in self._statuses(*session)]):
                if time.monotonic() > deadline:
                    raise SystemExit(f"{conversation.name}: messages still wait for their vectors")
                await asyncio.sleep(0.5)
            if failed := statuses.count("failed"):
                print(f"{conversation.name}: {failed} messages could not be embedded", file=sys.stderr)
        return ids

    async def _statuses(self, user_id: int, group_id: int | None) -> AsyncIterator[str]:
        """The embedding status of every message of a session."""
        parameters: dict[str, Any] = {"user_id": user_id, "limit": _PAGE}
        if group_id is not None:
            parameters["group_id"] = group_id
        while True:
            answer = await self._http.get("/dialogues", params=parameters)
            answer.raise_for_status()
            page = orjson.loads(answer.content)
            for dialogue in page["dialogues"]:
                yield dialogue["embedding_status"]
            if page["next_cursor"] is None:
                return
            parameters["cursor"] = page["next_cursor"]
