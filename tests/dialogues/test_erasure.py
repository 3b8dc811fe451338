"""Erasure takes what it names, all of it, and nothing else."""

import asyncio
from itertools import count
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.dialogues.records import NewDialogue, Session
from app.services import Services
from tests.conftest import LiveFactory, LiveService
from tests.live import add, add_batch, listed, message, search

_NAMESPACES = ("bot", "bo", "bot2")
_USERS = (1, 11, 2)
_GROUPS = (None, 1, -1, 11)
_RUNS = count(1)

Place = tuple[str, int, int | None]
_PLACES = st.tuples(st.sampled_from(_NAMESPACES), st.sampled_from(_USERS), st.sampled_from(_GROUPS))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    written=st.lists(_PLACES, min_size=1, max_size=25),
    erasures=st.lists(st.tuples(_PLACES, st.booleans()), min_size=1, max_size=4),
)
async def test_erasure_is_that_of_a_model(
    services: Services, written: list[Place], erasures: list[tuple[Place, bool]]
) -> None:
    """The model is a list of places; an erasure names a session, or a user in all sessions of a namespace."""
    run = next(_RUNS)

    def namespace_of(place: Place) -> str:
        return f"{place[0]}.{run}"

    model = list(written)
    for place in written:
        await services.dialogues.add(
            namespace_of(place), NewDialogue(place[1], "user", "话", group_id=place[2])
        )
    for place, whole_user in erasures:
        namespace, user_id, group_id = place
        named = [
            one for one in model if one[:2] == (namespace, user_id) and (whole_user or one[2] == group_id)
        ]
        erased = (
            await services.erasure.erase_user(namespace_of(place), user_id)
            if whole_user
            else await services.erasure.erase_session(namespace_of(place), Session(user_id, group_id))
        )
        assert (erased.dialogues, erased.window_messages) == (len(named), len(named))
        model = [one for one in model if one not in named]
        for namespace in _NAMESPACES:
            sessions, _ = await services.sessions.list_page(f"{namespace}.{run}", limit=200, after=None)
            assert {(one.session.user_id, one.session.group_id): one.dialogues for one in sessions} == {
                one[1:]: model.count(one) for one in model if one[0] == namespace
            }
    for place in set(written):
        window = await services.sessions.window(namespace_of(place), Session(place[1], place[2]))
        assert len(window) == model.count(place)


async def test_junk_erases_nothing(live_service: LiveService) -> None:
    items = [message(user_id=user, group_id=group) for user in _USERS for group in _GROUPS]
    await add_batch(live_service, items)
    junk = [
        "*",
        "0",
        "-1",
        "%",
        "1:",
        ":1",
        "0:1",
        "1:0",
        "1:1:1",
        " 1",
        "1 ",
        "+1",
        "01",
        "1.0",
        "1e0",
        "null",
        "１",
    ]
    junk += [str(2**63), f"{2**63}:1", f"{-(2**63) - 1}:1", "1,11", "1;", "default", "undefined", "1:*"]
    for key in junk:
        answer = await live_service.client.delete(f"/sessions/{quote(key)}")
        assert answer.status_code == 422, key
        if ":" not in key and key != "01":
            answer = await live_service.client.delete(f"/users/{quote(key)}")
            assert answer.status_code == 422, key
    for path in ("/sessions", "/sessions/", "/users", "/users/", "/dialogues", "/dialogues/"):
        answer = await live_service.client.delete(path, params={"user_id": 1}, follow_redirects=False)
        assert answer.status_code in {404, 405}, path
    for dialogue_id in ("*", "0", "-1", str(2**63), "999999", "1.0"):
        answer = await live_service.client.delete(f"/dialogues/{quote(dialogue_id)}")
        assert answer.status_code in {404, 422}, dialogue_id
    stats = (await live_service.client.get("/stats")).json()
    assert len((await live_service.client.get("/sessions")).json()["sessions"]) == len(items)
    assert str(len(items)) in str(stats)


async def test_what_is_not_there_is_erased_as_nothing(live_service: LiveService) -> None:
    await add(live_service, user_id=1)
    for path in ("/sessions/11", "/sessions/1:1", "/sessions/-1:1", "/users/11"):
        answer = await live_service.client.delete(path)
        assert answer.json() == {"erased": {"dialogues": 0, "window_messages": 0, "summaries": 0, "turns": 0}}
    assert len(await listed(live_service)) == 1


async def test_erased_is_erased_everywhere_it_can_be_seen(serve: LiveFactory) -> None:
    async with serve(api_keys="a=key-a,b=key-b") as live:
        keys: dict[str, Any] = {name: {"Authorization": f"Bearer key-{name}"} for name in "ab"}
        ids = {}
        for name, headers in keys.items():
            answer = await live.client.post(
                "/dialogues", json=message("暗号是西瓜", wait=True), headers=headers
            )
            ids[name] = answer.json()["id"]
        for live_key, expected in (("a", 1), ("a", 0), ("b", 1)):
            # An expired row is erased like any other, and an import leaves no trace in the window.
            live.client.headers.update(keys[live_key])
            await live.client.post(
                "/dialogues", json=message("旧", created_at="2024-01-01", expires_at="2024-01-02")
            )
            answer = await live.client.delete("/sessions/1")
            assert answer.json()["erased"]["dialogues"] == expected + 1
            assert answer.json()["erased"]["window_messages"] == expected
            assert (await live.client.get(f"/dialogues/{ids[live_key]}")).status_code == 404
            assert (await search(live, "暗号西瓜"))["memories"] == []
            assert (await live.client.get("/sessions/1/window")).json() == {"messages": [], "token_count": 0}
            assert (await live.client.get("/sessions")).json()["sessions"] == []


async def test_writing_and_erasing_at_once_does_not_fail(live_service: LiveService) -> None:
    items = [message(f"第{number}条", message_uuid=f"m{number}", wait=number == 0) for number in range(50)]

    async def write(batch: list[dict[str, Any]]) -> None:
        for _ in range(4):
            answer = await live_service.client.post("/dialogues/batch", json={"dialogues": batch})
            assert answer.status_code in {200, 503}, answer.text

    async def erase(path: str) -> None:
        for _ in range(8):
            answer = await live_service.client.delete(path)
            assert answer.status_code == 200, answer.text

    await asyncio.gather(write(items), write(items[::-1]), erase("/sessions/1"), erase("/users/1"))
    await live_service.client.delete("/users/1")
    assert await listed(live_service) == []
    assert (await live_service.client.get("/sessions/1/window")).json()["messages"] == []
