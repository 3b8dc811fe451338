"""What tests of conversations share: settings, one turn, its events, what became of it."""

import json
from typing import Any

from tests.doubles.chat_fixtures import ChatProvider
from tests.live import Live, eventually

Event = tuple[str, dict[str, Any]]


def chat_settings(provider: ChatProvider, **more: object) -> dict[str, object]:
    """Settings whose chat model, evaluator and writer of summaries are the double."""
    return {
        "chat_base_url": provider.base_url,
        "chat_api_key": ChatProvider.key,
        "chat_model": ChatProvider.model,
        "chat_timeout_s": 20,
    } | more


def asked(text: str, **more: Any) -> dict[str, Any]:
    """The body of a chat of user 1 in private."""
    return {"user_id": 1, "user_input": text} | more


async def say(live: Live, text: str, **more: Any) -> dict[str, Any]:
    """A turn that is answered, whole."""
    answer = await live.client.post("/chat", json=asked(text, **more))
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.json()
    return done


async def listen(live: Live, text: str, **more: Any) -> list[Event]:
    """The events of a turn that is streamed to its end."""
    body = asked(text, stream=True, **more)
    async with live.client.stream("POST", "/chat", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        return read_events((await answer.aread()).decode())


def read_events(text: str) -> list[Event]:
    """Server-sent events, each of one name and one line of data."""
    events = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


async def turn_of(live: Live, turn_id: str) -> dict[str, Any]:
    """What became of a turn so far."""
    answer = await live.client.get(f"/chat/turns/{turn_id}")
    assert answer.status_code == 200, answer.text
    turn: dict[str, Any] = answer.json()
    return turn


async def judged(live: Live, turn_id: str) -> dict[str, Any]:
    """What became of a turn in the end."""

    async def is_judged() -> bool:
        return bool((await turn_of(live, turn_id))["status"] != "pending")

    await eventually(is_judged)
    return await turn_of(live, turn_id)


async def spoken(live: Live, key: str = "1") -> list[tuple[str, str]]:
    """The window: roles and texts."""
    window = (await live.client.get(f"/sessions/{key}/window")).json()
    return [(one["role"], one["content"]) for one in window["messages"]]


def prompts(provider: ChatProvider, kind: str = "chat") -> list[list[dict[str, str]]]:
    """The messages of each call of a kind."""
    seen = provider.requests()
    return [body["messages"] for body, of in zip(seen["bodies"], seen["kinds"], strict=True) if of == kind]
