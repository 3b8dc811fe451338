"""Nothing of another session ever: the same is said in many sessions, each answer compared with its own."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from app.dialogues.records import DialogueChange, NewDialogue, Session
from tests.conftest import LiveService
from tests.recall.planting import NOW, Planted, World, in_order

NAMESPACES = ("a", "aa", "A")
USERS = (1, 11, 2, 2**63 - 1)
# The numbers of users among those of groups, both signs, the ends of the range.
GROUPS = (None, 1, -1, 11, -11, 2**63 - 1, -(2**63))
SENTENCES = ("我的猫叫团子", "我的猫叫团子。", "你的猫叫什么？", "我住在杭州", "I live in Berlin")


def sessions() -> list[tuple[str, Session]]:
    return [
        (namespace, Session(user, group))
        for namespace, user, group in itertools.product(NAMESPACES, USERS, GROUPS)
    ]


async def test_a_search_sees_its_own_session_or_group_only(world: World) -> None:
    rng = Random(3)  # noqa: S311 - no secret
    messages = [
        Planted(
            rng.choice(SENTENCES),
            NOW - timedelta(minutes=rng.randrange(300)),
            namespace=namespace,
            user_id=session.user_id,
            group_id=session.group_id,
            role=rng.choice(["user", "assistant"]),
        )
        for namespace, session in sessions()
        for _ in range(rng.randrange(7))
    ]
    rng.shuffle(messages)
    ids = await world.plant(messages)

    def own(namespace: str, session: Session, scope: str) -> set[int]:
        return {
            dialogue_id
            for dialogue_id, one in zip(ids, messages, strict=True)
            if one.namespace == namespace
            and one.group_id == session.group_id
            and (scope == "group" or one.user_id == session.user_id)
        }

    for namespace, session in sessions():
        for scope in ("member", "group") if session.group_id is not None else ("member",):
            for mode in rng.sample(["hybrid", "vector", "keyword"], 2):
                result = await world.search(
                    "我的猫叫团子", namespace=namespace, of=session, scope=scope, mode=mode,
                    top_n=100, window_size=2,
                )  # fmt: skip
                found = {one.dialogue.id for one in result.memories}
                expected = own(namespace, session, scope)
                # With so many anchors, vector and hybrid give back the whole session.
                assert found <= expected if mode == "keyword" else found == expected
                assert in_order([one.dialogue for one in result.memories])


async def test_there_is_no_group_of_all_private_chats(world: World) -> None:
    await world.plant(Planted("我的密码是芝麻开门", user_id=user) for user in (2, 3))
    with pytest.raises(ValueError, match="needs a group"):
        await world.search("密码", of=Session(1), scope="group", mode="keyword")


CALLERS = {"a": "key-a", "b": "key-b"}


async def post(live: LiveService, namespace: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {CALLERS[namespace]}"}
    answer = await live.client.post(path, json=body, headers=headers)
    assert answer.is_success, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def read(live: LiveService, namespace: str, path: str, **params: int) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {CALLERS[namespace]}"}
    answer = await live.client.get(path, params=params, headers=headers)
    assert answer.is_success, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def test_every_answer_over_http_is_of_its_own_session(serve: Callable[..., Any]) -> None:
    rng = Random(1)  # noqa: S311 - no secret
    now = datetime.now(UTC)
    places = [
        (namespace, user, group) for namespace in CALLERS for user in (1, 11) for group in (None, 1, -1, 11)
    ]
    async with serve(api_keys=",".join(f"{name}={key}" for name, key in CALLERS.items())) as live:
        said: dict[tuple[str, int, int | None], list[str]] = {place: [] for place in places}
        for step in rng.sample(range(len(places) * 4), len(places) * 4):
            namespace, user, group = place = places[step % len(places)]
            mark = f"{namespace}/{user}/{group}/"
            # Half of them are old, so that a prompt recalls these and not the conversation that is going on.
            old = now - timedelta(days=2, minutes=step)
            body = {
                "user_id": user,
                "group_id": group,
                "role": "user",
                "content": f"我的猫叫团子 {mark}{step}",
            }
            await post(
                live, namespace, "/dialogues", body | ({"created_at": old.isoformat()} if step % 2 else {})
            )
            said[place].append(body["content"])  # type: ignore[arg-type]
        for place in places:
            namespace, user, group = place
            member = {"user_id": user} | ({} if group is None else {"group_id": group})
            ask = member | {"query": "猫叫什么", "top_n": 20, "window_size": 3}
            searched = await post(live, namespace, "/memory/search", ask)
            assert sorted(one["content"] for one in searched["memories"]) == sorted(said[place])
            key = str(user) if group is None else f"{group}:{user}"
            assert searched["session_key"] == key
            listed = await read(live, namespace, "/dialogues", **member)
            assert sorted(one["content"] for one in listed["dialogues"]) == sorted(said[place])
            window = await read(live, namespace, f"/sessions/{key}/window")
            fresh = [one for one in said[place] if int(one.rsplit("/", 1)[1]) % 2 == 0]
            assert sorted(one["content"] for one in window["messages"]) == sorted(fresh)
            prompt = await post(live, namespace, "/memory/prompt", ask | {"max_memory_tokens": 4000})
            told = "\n".join(message["content"] for message in prompt["messages"])
            assert all(text in told for text in said[place])
            assert told.count("我的猫叫团子") == len(said[place])
            if group is not None:
                of_group = await post(live, namespace, "/memory/search", ask | {"scope": "group"})
                expected = said[namespace, 1, group] + said[namespace, 11, group]
                assert sorted(one["content"] for one in of_group["memories"]) == sorted(expected)


async def test_searches_hold_while_everything_changes(world: World) -> None:
    rng = Random(8)  # noqa: S311 - no secret
    dialogues, asked = world.services.dialogues, [Session(1), Session(11), Session(1, 11), Session(11, 1)]
    marks = {session: f"标记{place}" for place, session in enumerate(asked)}

    async def write(session: Session) -> None:
        mine: list[int] = []
        for place in range(25):
            said = NewDialogue(
                user_id=session.user_id,
                group_id=session.group_id,
                role="user",
                content=f"团子打疫苗 {marks[session]} {place}",
            )
            mine.append((await dialogues.add("default", said)).dialogue.id)
            changed = rng.choice(mine)
            match rng.randrange(4):
                case 0:
                    await dialogues.delete("default", changed)
                    mine.remove(changed)
                case 1:
                    await dialogues.change(
                        "default", changed, DialogueChange(content=f"改过的团子 {marks[session]}")
                    )
                case 2:
                    await dialogues.change("default", changed, DialogueChange(expires_at=NOW))
                    mine.remove(changed)
        if session == asked[-1]:
            await world.services.erasure.erase_session("default", session)

    async def read(session: Session) -> None:
        for place in range(25):
            result = await world.search(
                f"团子打疫苗 {place}", of=session, now=datetime.now(UTC), top_n=20, window_size=2
            )
            assert all(marks[session] in one.dialogue.content for one in result.memories)
            assert in_order([one.dialogue for one in result.memories])

    await asyncio.gather(*(do(session) for session in asked for do in (write, read)))
    erased = await world.search("团子", of=asked[-1], now=datetime.now(UTC), top_n=20)
    assert erased.memories == []
    for session in asked[:-1]:
        result = await world.search("团子", of=session, now=datetime.now(UTC), top_n=100)
        page = await dialogues.list_page(
            "default", session=session, role=None, since=None, until=None, descending=False,
            limit=200, after=None,
        )  # fmt: skip
        assert [one.dialogue.id for one in result.memories] == [one.id for one in page.dialogues]
