"""Every route of the OpenAPI document, without a key, with a wrong one, with another namespace's."""

from collections.abc import Iterator
from typing import Any

from app.api.application import build_api
from app.api.context import ApiOptions
from tests.conftest import LiveFactory, LiveService
from tests.live import message

_OPEN = {"/health/live", "/health/ready", "/metrics", "/problems/{slug}"}
_BODIES: dict[str, Any] = {
    "POST /dialogues": message(),
    "POST /dialogues/batch": {"dialogues": [message()]},
    "PATCH /dialogues/{id}": {"pinned": True},
    "POST /memory/search": {"user_id": 1, "query": "秘密"},
    "POST /memory/prompt": {"user_id": 1, "query": "秘密"},
}
_QUERIES = {"/dialogues": {"user_id": 1}, "/session-key": {"user_id": 1}}


def operations() -> Iterator[tuple[str, str]]:
    for path, methods in build_api(ApiOptions()).openapi()["paths"].items():
        for method in methods:
            yield method.upper(), path


async def ask(live: LiveService, method: str, path: str, **more: Any) -> Any:
    places = {"id": more.pop("dialogue_id", 1), "session_key": "1", "user_id": "1", "slug": "not-found"}
    places |= {"turn_id": "00000000-0000-7000-8000-000000000000"}
    return await live.client.request(
        method,
        path.format(**places),
        params=_QUERIES.get(path, {}),
        json=_BODIES.get(f"{method} {path}"),
        **more,
    )


async def test_a_route_without_a_good_key_is_closed(serve: LiveFactory) -> None:
    async with serve(api_keys="a=key-a-of-bot") as live:
        keys = [
            "",
            "Bearer",
            "Bearer key-b",
            "Bearer key-a-of-bo",
            "Bearer key-a-of-bott",
            "Bearer KEY-A-OF-BOT",
        ]
        keys += [
            "Basic key-a-of-bot",
            "key-a-of-bot",
            "Bearer a=key-a-of-bot",
            "Bearer a",
        ]
        for method, path in operations():
            for key in [None, *keys]:
                headers = {} if key is None else {"Authorization": key}
                answer = await ask(live, method, path, headers=headers)
                if path in _OPEN:
                    assert answer.status_code == 200, (method, path)
                    continue
                assert answer.status_code == 401, (method, path, key)
                assert answer.json()["type"] == "/problems/unauthorized"
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert "key-a-of-bot" not in answer.text
        for path in ("/docs", "/openapi.json", "/"):
            assert (await live.client.get(path)).status_code == 200


async def test_a_route_shows_nothing_of_another_namespace(serve: LiveFactory) -> None:
    async with serve(api_keys="a=key-a,b=key-b") as live:
        of_a, of_b = ({"Authorization": f"Bearer key-{name}"} for name in "ab")
        secret = "西瓜是秘密"
        stored = await live.client.post(
            "/dialogues", json=message(secret, message_uuid="secret-uuid", wait=True), headers=of_a
        )
        path_of_a = f"/dialogues/{stored.json()['id']}"
        before = (await live.client.get(path_of_a, headers=of_a)).json()
        for method, path in operations():
            answer = await ask(live, method, path, headers=of_b, dialogue_id=stored.json()["id"])
            assert answer.status_code < 500, (method, path)
            assert "西瓜" not in answer.text, (method, path)
            assert "secret-uuid" not in answer.text, (method, path)
            if path == "/dialogues/{id}":
                assert answer.status_code == 404, method
        assert (await live.client.get(path_of_a, headers=of_a)).json() == before
        counts = (await live.client.get("/stats", headers=of_a)).json()
        assert (await live.client.get("/sessions", headers=of_a)).json()["sessions"][0]["dialogues"] == 1
        assert counts != (await live.client.get("/stats", headers=of_b)).json()
