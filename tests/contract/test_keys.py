"""Every route, asked without a key, with wrong ones, a revoked one, another namespace's, one of each role."""

from collections.abc import Iterator
from typing import Any

from app.api.application import ROUTERS, build_api
from app.api.context import ApiOptions
from tests.conftest import LiveFactory, LiveService
from tests.live import message

_EVERYBODY = {"none", "bot", "reader", "admin"}
_READERS = {"bot", "reader"}
_BOTS = {"bot"}
# Who may do what, said here once more: a route that is not here fails the walk until somebody has decided.
_MAY: dict[str, set[str]] = {
    "POST /dialogues": _BOTS,
    "POST /dialogues/batch": _BOTS,
    "GET /dialogues": _READERS,
    "GET /dialogues/{id}": _READERS,
    "PATCH /dialogues/{id}": _BOTS,
    "DELETE /dialogues/{id}": _BOTS,
    "POST /memory/search": _READERS,
    "POST /memory/prompt": _READERS,
    "POST /chat": _BOTS,
    "GET /chat/turns/{turn_id}": _READERS,
    "GET /session-key": {"bot", "reader", "admin"},
    "GET /sessions": _READERS,
    "GET /sessions/{session_key}/window": _READERS,
    "GET /sessions/{session_key}/summaries": _READERS,
    "DELETE /sessions/{session_key}": _BOTS,
    "DELETE /users/{user_id}": _BOTS,
    "POST /maintenance/forget": {"bot", "admin"},
    "GET /stats": {"bot", "reader", "admin"},
    "GET /health/live": _EVERYBODY,
    "GET /health/ready": _EVERYBODY,
    "GET /metrics": _EVERYBODY,
    "GET /problems/{slug}": _EVERYBODY,
}
# Pages of no data, which the OpenAPI document leaves out.
_PAGES = {"/", "/docs", "/docs/{name}", "/openapi.json"}
_BODIES: dict[str, Any] = {
    "POST /dialogues": message(),
    "POST /dialogues/batch": {"dialogues": [message()]},
    "PATCH /dialogues/{id}": {"pinned": True},
    "POST /memory/search": {"user_id": 1, "query": "秘密"},
    "POST /memory/prompt": {"user_id": 1, "query": "秘密"},
    "POST /chat": {"user_id": 1, "user_input": "秘密"},
    "POST /maintenance/forget": {"dry_run": True},
}
_QUERIES = {"/dialogues": {"user_id": 1}, "/session-key": {"user_id": 1}}


def operations() -> Iterator[tuple[str, str]]:
    for path, methods in build_api(ApiOptions()).openapi()["paths"].items():
        for method in methods:
            yield method.upper(), path


def look_again(live: LiveService) -> None:
    """Spare the test the two seconds that keys are kept in memory; tests/access waits for them."""
    live.services.keyring._known = None


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


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


def test_every_route_is_walked() -> None:
    assert {f"{method} {path}" for method, path in operations()} == _MAY.keys()
    app = build_api(ApiOptions())
    assert {route.path for route in app.state.routes} == {path for _, path in operations()} | _PAGES
    # What somebody mounts beside the routers needs a walk of its own.
    assert len(app.routes) == len(ROUTERS)


async def test_a_route_without_a_good_key_is_closed(serve: LiveFactory) -> None:
    async with serve(api_keys="a=key-a-of-bot") as live:
        revoked = await live.services.access.create_key(namespace="a", role="bot")
        good = await live.services.access.create_key(namespace="a", role="bot")
        assert (await live.client.get("/stats", headers=bearer(revoked.text))).status_code == 200
        await live.services.access.revoke_keys(prefix=revoked.prefix, namespace=None)
        look_again(live)
        keys = [
            "",
            "Bearer",
            "Bearer key-b",
            "Bearer key-a-of-bo",
            "Bearer key-a-of-bott",
            "Bearer KEY-A-OF-BOT",
            "Basic key-a-of-bot",
            "key-a-of-bot",
            "Bearer a=key-a-of-bot",
            "Bearer a",
            f"Bearer {revoked.text}",
            f"Bearer {good.text[:-1]}",
            f"Bearer {good.text}x",
            f"Bearer {good.prefix}",
            f"Bearer {good.text.swapcase()}",
            f"Basic {good.text}",
            good.text,
        ]
        for method, path in operations():
            for key in [None, *keys]:
                headers = {} if key is None else {"Authorization": key}
                answer = await ask(live, method, path, headers=headers)
                if "none" in _MAY[f"{method} {path}"]:
                    assert answer.status_code == 200, (method, path)
                    continue
                assert answer.status_code == 401, (method, path, key)
                assert answer.json()["type"] == "/problems/unauthorized"
                assert answer.headers["www-authenticate"].startswith("Bearer")
                for secret in ("key-a-of-bot", good.text, revoked.text):
                    assert secret not in answer.text
        for path in ("/docs", "/openapi.json", "/"):
            assert (await live.client.get(path)).status_code == 200


async def test_a_role_may_do_what_it_is_for_and_nothing_else(serve: LiveFactory) -> None:
    async with serve() as live:
        access = live.services.access
        secret = "西瓜是秘密"
        keys = {
            "bot": await access.create_key(namespace="a", role="bot"),
            "reader": await access.create_key(namespace="a", role="reader"),
            "admin": await access.create_key(namespace=None, role="admin"),
        }
        look_again(live)
        stored = await live.client.post(
            "/dialogues", json=message(secret, wait=True), headers=bearer(keys["bot"].text)
        )
        assert stored.status_code == 201, stored.text
        # Erasure comes last: the others find what is there.
        for method, path in sorted(operations(), key=lambda one: one[0] == "DELETE"):
            allowed = _MAY[f"{method} {path}"]
            for role in ("admin", "reader", "bot"):
                answer = await ask(
                    live, method, path, headers=bearer(keys[role].text), dialogue_id=stored.json()["id"]
                )
                if role in allowed or "none" in allowed:
                    assert answer.status_code not in {401, 403}, (role, method, path)
                    assert answer.status_code < 500 or path == "/chat", (role, method, path, answer.text)
                else:
                    assert answer.status_code == 403, (role, method, path)
                    assert answer.json()["type"] == "/problems/forbidden"
                if role == "admin":
                    assert "西瓜" not in answer.text, (method, path)


async def test_an_admin_counts_all_namespaces_and_others_their_own(serve: LiveFactory) -> None:
    async with serve() as live:
        access = live.services.access
        of_a, of_b = [await access.create_key(namespace=name, role="bot") for name in "ab"]
        reader = await access.create_key(namespace="a", role="reader")
        admin = await access.create_key(namespace=None, role="admin")
        look_again(live)
        for key, count in ((of_a, 2), (of_b, 3)):
            for place in range(count):
                answer = await live.client.post(
                    "/dialogues", json=message(f"第{place}句"), headers=bearer(key.text)
                )
                assert answer.status_code == 201

        async def stats(key: str, **params: str) -> Any:
            return await live.client.get("/stats", params=params, headers=bearer(key))

        whole = (await stats(admin.text)).json()
        assert (whole["dialogues"], whole["sessions"]) == (5, 2)
        assert whole["namespaces"] == {"a": 2, "b": 3}
        one = (await stats(admin.text, namespace="b")).json()
        assert (one["dialogues"], one["namespaces"]) == (3, {"b": 3})
        assert (await stats(admin.text, namespace="nobody's")).json()["dialogues"] == 0
        for key in (of_a, reader):
            own = (await stats(key.text)).json()
            assert (own["dialogues"], own["namespaces"]) == (2, None)
            assert (await stats(key.text, namespace="a")).json() == own
            assert (await stats(key.text, namespace="b")).status_code == 403


async def test_a_route_shows_nothing_of_another_namespace(serve: LiveFactory) -> None:
    async with serve(api_keys="a=key-a,b=key-b") as live:
        kept = await live.services.access.create_key(namespace="c", role="bot")
        secret = "西瓜是秘密"
        stored = await live.client.post(
            "/dialogues", json=message(secret, message_uuid="secret-uuid", wait=True), headers=bearer("key-a")
        )
        path_of_a = f"/dialogues/{stored.json()['id']}"
        before = (await live.client.get(path_of_a, headers=bearer("key-a"))).json()
        for other in ("key-b", kept.text):
            for method, path in operations():
                answer = await ask(live, method, path, headers=bearer(other), dialogue_id=stored.json()["id"])
                assert answer.status_code < 500 or path == "/chat", (method, path)
                assert "西瓜" not in answer.text, (method, path)
                assert "secret-uuid" not in answer.text, (method, path)
                if path == "/dialogues/{id}":
                    assert answer.status_code == 404, method
        assert (await live.client.get(path_of_a, headers=bearer("key-a"))).json() == before
        counts = (await live.client.get("/stats", headers=bearer("key-a"))).json()
        listed = await live.client.get("/sessions", headers=bearer("key-a"))
        assert listed.json()["sessions"][0]["dialogues"] == 1
        assert counts != (await live.client.get("/stats", headers=bearer("key-b"))).json()
