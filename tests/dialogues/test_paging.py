"""Pages never repeat and never skip, whatever is written or deleted meanwhile."""

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import LiveService
from tests.live import add, add_batch, listed, message

_USERS = count(1000)
_MOMENTS = st.integers(0, 5)


def at(moment: int) -> str:
    return f"2024-01-16T10:00:0{moment}"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(_MOMENTS, max_size=25),
    meanwhile=st.lists(st.lists(_MOMENTS | st.integers(-30, -1), max_size=3), max_size=8),
    limit=st.integers(1, 9),
    descending=st.booleans(),
)
async def test_pages_show_what_stays_once(
    live_service: LiveService,
    *,
    before: list[int],
    meanwhile: list[list[int]],
    limit: int,
    descending: bool,
) -> None:
    """Between two pages messages come (moments) and go (negative: which one of them)."""
    user_id = next(_USERS)
    outcome = await add_batch(
        live_service, [message(f"第{n}条", user_id=user_id, created_at=at(m)) for n, m in enumerate(before)]
    )
    alive = [one["id"] for one in outcome["dialogues"]]
    stays = set(alive)
    seen: list[dict[str, Any]] = []
    changes = iter(meanwhile)
    params: dict[str, Any] = {"user_id": user_id, "limit": limit, "order": "desc" if descending else "asc"}
    while True:
        page = (await live_service.client.get("/dialogues", params=params)).json()
        assert len(page["dialogues"]) <= limit
        seen += page["dialogues"]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
        for change in next(changes, []):
            if change >= 0:
                alive.append((await add(live_service, "后来", user_id=user_id, created_at=at(change)))["id"])
            elif alive:
                gone = alive.pop(change % len(alive))
                stays.discard(gone)
                assert (await live_service.client.delete(f"/dialogues/{gone}")).status_code == 204
    places = [(one["created_at"], one["id"]) for one in seen]
    assert places == sorted(set(places), reverse=descending)
    assert stays <= {one["id"] for one in seen}


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_sixty_messages_of_one_moment_are_sixty(live_service: LiveService, order: str) -> None:
    items = [
        message(f"第{number}条", role="user" if number % 3 else "assistant", created_at=at(0))
        for number in range(60)
    ]
    items += [message("前一秒", created_at="2024-01-16T09:59:59.999999"), message("后一秒", created_at=at(1))]
    await add_batch(live_service, items)
    for limit in (7, 59, 60, 61):
        found = await listed(live_service, limit=limit, order=order, since=at(0), until=at(1))
        ids = [one["id"] for one in found]
        assert len(ids) == 60
        assert ids == sorted(set(ids), reverse=order == "desc")
    assert len(await listed(live_service, limit=7, order=order, role="assistant")) == 20
    assert len(await listed(live_service, limit=61, order=order)) == 62


async def test_a_cursor_is_good_for_its_list_only(live_service: LiveService) -> None:
    await add_batch(live_service, [message(f"第{number}条") for number in range(5)])
    for user_id in (2, 3):
        await add(live_service, user_id=user_id)
    query = {"user_id": 1, "limit": 2}
    cursor = (await live_service.client.get("/dialogues", params=query)).json()["next_cursor"]
    sessions = (await live_service.client.get("/sessions", params={"limit": 1})).json()["next_cursor"]
    bad: list[dict[str, Any]] = [
        {"cursor": cursor[:place] + "_" + cursor[place + 1 :]} for place in (0, 9, 31)
    ]
    bad += [{"cursor": junk} for junk in (cursor[:-1], cursor + "A", cursor + "=", "", "*", "AAAA", sessions)]
    bad += [
        {"cursor": cursor, **other}
        for other in (
            {"user_id": 2},
            {"group_id": 1},
            {"order": "desc"},
            {"role": "user"},
            {"since": "2024-01-01"},
            {"until": "2034-01-01"},
        )
    ]
    for change in bad:
        answer = await live_service.client.get("/dialogues", params=query | change)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "query/cursor"), change
    answer = await live_service.client.get("/sessions", params={"cursor": cursor})
    assert answer.status_code == 422
    again = await live_service.client.get("/dialogues", params=query | {"limit": 200, "cursor": cursor})
    assert [one["content"] for one in again.json()["dialogues"]] == ["第2条", "第3条", "第4条"]


async def test_a_deleted_row_does_not_lose_the_place(live_service: LiveService) -> None:
    await add_batch(live_service, [message(f"第{number}条", created_at=at(0)) for number in range(6)])
    page = (await live_service.client.get("/dialogues", params={"user_id": 1, "limit": 3})).json()
    for one in page["dialogues"]:
        await live_service.client.delete(f"/dialogues/{one['id']}")
    rest = await listed(live_service, cursor=page["next_cursor"])
    assert [one["content"] for one in rest] == ["第3条", "第4条", "第5条"]


async def test_sessions_are_paged_while_sessions_come_and_go(live_service: LiveService) -> None:
    there = [
        (user_id, group_id)
        for user_id in (1, 2, 11, 2**63 - 1)
        for group_id in (None, -(2**63), -5, 7, 2**63 - 1)
    ]
    await add_batch(live_service, [message(user_id=user, group_id=group) for user, group in there])
    seen: list[tuple[int, int | None]] = []
    params: dict[str, Any] = {"limit": 3}
    while True:
        page = (await live_service.client.get("/sessions", params=params)).json()
        seen += [(one["user_id"], one["group_id"]) for one in page["sessions"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
        # Before, after and among those that are still to come.
        for user_id, group_id in ((500, -(2**63)), (500, None), (500, 2**63 - 1)):
            await live_service.client.post("/dialogues", json=message(user_id=user_id, group_id=group_id))
        await live_service.client.delete("/users/500")
        first = page["sessions"][0]
        await live_service.client.delete(f"/sessions/{first['session_key']}")
    assert len(seen) == len(set(seen))
    assert set(seen) == set(there)
