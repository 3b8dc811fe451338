"""Whatever is said, changed and erased where: each answer is what a model says, and nothing of another's.

Three namespaces whose names are alike, users and groups with each other's numbers, private chats and groups,
the same texts, message_ids and message_uuids everywhere, in any order. Every reading route is asked; a second
model, kept by this test, says what it may answer.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import LiveFactory, LiveService

NAMESPACES = ("a", "aa", "A")
USERS = (1, 11)
# In each example all numbers are moved by as much: what other examples left is there, and must not be seen.
GROUPS = (None, 1, 11, -1)
TEXTS = ("团子打疫苗", "部署在周五", "the cat sleeps", "ORD123456 到了吗", "100%_ done")
UUIDS = ("u1", "u2")
_MOVES = count(1)


@dataclass(frozen=True)
class Place:
    """A session of a namespace."""

    namespace: str
    user: int
    group: int | None

    @property
    def key(self) -> str:
        return str(self.user) if self.group is None else f"{self.group}:{self.user}"

    @property
    def ids(self) -> dict[str, int]:
        return {"user_id": self.user} | ({} if self.group is None else {"group_id": self.group})


@dataclass
class Said:
    """A message as the model has it."""

    place: Place
    role: str
    content: str
    is_live: bool
    uuid: str | None
    message_id: int | None
    # By which a message pushed again is known, whatever it was changed to meanwhile.
    first_content: str = ""


@dataclass
class Model:
    """What every answer has to agree with."""

    said: dict[int, Said] = field(default_factory=dict)

    def of(self, keep: Callable[[Said], bool]) -> dict[int, str]:
        return {key: one.content for key, one in self.said.items() if keep(one)}

    def session(self, place: Place) -> dict[int, str]:
        return self.of(lambda one: one.place == place)

    def drop(self, gone: Callable[[Said], bool]) -> int:
        keys = [key for key, one in self.said.items() if gone(one)]
        for key in keys:
            del self.said[key]
        return len(keys)


class Walk:
    """One example: steps against the service, each told to the model, too."""

    def __init__(self, live: LiveService, model: Model, move: int) -> None:
        self.live = live
        self.model = model
        self.move = move * 1000
        self.mine: list[int] = []

    def place(self, numbers: tuple[str, int, int | None]) -> Place:
        namespace, user, group = numbers
        if group is not None:
            group = group + self.move if group > 0 else group - self.move
        return Place(namespace, user + self.move, group)

    async def ask(self, namespace: str, method: str, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer key-{namespace}-of-bot"}
        answer = await self.live.client.request(method, path, headers=headers, **more)
        assert answer.status_code < 500, answer.text
        return answer

    def draw_id(self, place: int) -> int | None:
        return self.mine[place % len(self.mine)] if self.mine else None

    def note(self, key: int, said: Said) -> None:
        said.first_content = said.content
        self.model.said[key] = said
        self.mine.append(key)

    def known(self, said: Said) -> int | None:
        """The message that is there already, by the contract's two rules of identity."""
        for key, one in self.model.said.items():
            if one.place.namespace != said.place.namespace:
                continue
            if said.uuid is not None and one.uuid == said.uuid:
                return key
            same_text = said.content == one.first_content
            if (
                said.uuid is None
                and said.message_id is not None
                and (one.message_id, one.place, one.role) == (said.message_id, said.place, said.role)
                and same_text
            ):
                return key
        return None

    async def add(self, numbers: Any, role: str, text: str, name: tuple[str, int] | None, old: bool) -> None:
        place = self.place(numbers)
        kind, number = name or ("", 0)
        uuid = f"{UUIDS[number]}-{self.move}" if kind == "uuid" else None
        message_id = number if kind == "id" else None
        said = Said(place, role, text, not old, uuid, message_id)
        body: dict[str, Any] = place.ids | {"role": role, "content": text}
        if old:
            body["created_at"] = (datetime.now(UTC) - timedelta(days=2)).isoformat()
        if uuid is not None:
            body["message_uuid"] = uuid
        if message_id is not None:
            body["message_id"] = message_id
        answer = await self.ask(place.namespace, "POST", "/dialogues", json=body)
        key = self.known(said)
        if key is None:
            assert answer.status_code == 201, answer.text
            self.note(answer.json()["id"], said)
            return
        there = self.model.said[key]
        is_same = (there.place, there.role) == (place, role) and text in {there.first_content, there.content}
        assert answer.status_code == (200 if is_same else 409), answer.text
        if is_same:
            assert answer.json()["id"] == key
            assert answer.json()["content"] == there.content

    async def read_one(self, namespace: str, which: int) -> None:
        key = self.draw_id(which)
        if key is None:
            return
        answer = await self.ask(namespace, "GET", f"/dialogues/{key}")
        one = self.model.said.get(key)
        if one is None or one.place.namespace != namespace:
            assert answer.status_code == 404
        else:
            assert (answer.json()["content"], answer.json()["session_key"]) == (one.content, one.place.key)

    async def change(self, namespace: str, which: int, text: str) -> None:
        key = self.draw_id(which)
        if key is None:
            return
        answer = await self.ask(namespace, "PATCH", f"/dialogues/{key}", json={"content": text})
        one = self.model.said.get(key)
        if one is None or one.place.namespace != namespace:
            assert answer.status_code == 404
        else:
            assert answer.status_code == 200
            one.content = text

    async def delete(self, namespace: str, which: int) -> None:
        key = self.draw_id(which)
        if key is None:
            return
        answer = await self.ask(namespace, "DELETE", f"/dialogues/{key}")
        one = self.model.said.get(key)
        is_mine = one is not None and one.place.namespace == namespace
        assert answer.status_code == (204 if is_mine else 404)
        if is_mine:
            del self.model.said[key]

    async def erase(self, numbers: Any, whole_user: bool) -> None:
        place = self.place(numbers)
        path = f"/users/{place.user}" if whole_user else f"/sessions/{place.key}"
        answer = await self.ask(place.namespace, "DELETE", path)
        gone = self.model.drop(
            (lambda one: (one.place.namespace, one.place.user) == (place.namespace, place.user))
            if whole_user
            else (lambda one: one.place == place)
        )
        assert answer.json()["erased"]["dialogues"] == gone

    async def search(self, numbers: Any, text: str, mode: str, scope: str) -> None:
        place = self.place(numbers)
        if place.group is None:
            scope = "member"
        body = place.ids | {"query": text, "mode": mode, "scope": scope, "top_n": 100, "window_size": 2}
        answer = await self.ask(
            place.namespace, "POST", "/memory/search", json=body | {"include_outdated": True}
        )
        found = {one["id"]: one["content"] for one in answer.json()["memories"]}
        own = (
            self.model.of(
                lambda one: (one.place.namespace, one.place.group) == (place.namespace, place.group)
            )
            if scope == "group"
            else self.model.session(place)
        )
        if mode == "keyword":
            assert found.items() <= own.items()
            assert {key for key, content in own.items() if content == text} <= found.keys()
        else:
            # With so many anchors, vector and hybrid give back the whole session.
            assert found == own

    async def look(self, numbers: Any) -> None:
        """All that can be read of a session, by every other route."""
        place = self.place(numbers)
        own = self.model.session(place)
        page = await self.ask(place.namespace, "GET", "/dialogues", params=place.ids | {"limit": 200})
        assert {one["id"]: one["content"] for one in page.json()["dialogues"]} == own
        window = await self.ask(place.namespace, "GET", f"/sessions/{place.key}/window")
        hot = self.model.of(lambda one: one.place == place and one.is_live)
        assert sorted(one["content"] for one in window.json()["messages"]) == sorted(hot.values())
        summaries = await self.ask(place.namespace, "GET", f"/sessions/{place.key}/summaries")
        assert summaries.json() == {"summaries": []}
        prompt = await self.ask(
            place.namespace,
            "POST",
            "/memory/prompt",
            json=place.ids | {"query": "还记得吗", "top_n": 100, "include_outdated": True},
        )
        assert {one["id"] for one in prompt.json()["memories"]} <= own.keys()
        told = "\n".join(one["content"] for one in prompt.json()["messages"])
        assert not [text for text in TEXTS if text in told and text not in own.values()]

    async def overlook(self, namespace: str) -> None:
        """What is told of a namespace as a whole."""
        keys: dict[str, int] = {}
        cursor: dict[str, str] = {}
        while True:
            page = (await self.ask(namespace, "GET", "/sessions", params=cursor | {"limit": "200"})).json()
            keys |= {one["session_key"]: one["dialogues"] for one in page["sessions"]}
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        own: dict[str, int] = {}
        for one in self.model.said.values():
            if one.place.namespace == namespace:
                own[one.place.key] = own.get(one.place.key, 0) + 1
        assert keys == own
        stats = (await self.ask(namespace, "GET", "/stats")).json()
        assert (stats["dialogues"], stats["sessions"]) == (sum(own.values()), len(own))


places = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(USERS), st.sampled_from(GROUPS))
texts = st.sampled_from(TEXTS)
namespaces = st.sampled_from(NAMESPACES)
numbers = st.integers(0, 50)
names = st.none() | st.tuples(st.sampled_from(["uuid", "id"]), st.integers(0, 1))
modes = st.sampled_from(["hybrid", "vector", "keyword"])
added = st.tuples(st.just("add"), places, st.sampled_from(["user", "assistant"]), texts, names, st.booleans())
steps = st.one_of(
    added,
    added,
    added,
    st.tuples(st.just("read_one"), namespaces, numbers),
    st.tuples(st.just("change"), namespaces, numbers, texts),
    st.tuples(st.just("delete"), namespaces, numbers),
    st.tuples(st.just("erase"), places, st.booleans()),
    st.tuples(st.just("search"), places, texts, modes, st.sampled_from(["member", "group"])),
    st.tuples(st.just("look"), places),
    st.tuples(st.just("overlook"), namespaces),
)


def everywhere() -> Iterator[tuple[str, int, int | None]]:
    for namespace in NAMESPACES:
        for user in USERS:
            for group in GROUPS:
                yield namespace, user, group


@pytest.fixture
async def world(serve: LiveFactory) -> AsyncIterator[tuple[LiveService, Model]]:
    """One service for all examples, and the model of all that they have left there."""
    async with serve(api_keys=",".join(f"{name}=key-{name}-of-bot" for name in NAMESPACES)) as live:
        yield live, Model()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.lists(steps, min_size=5, max_size=40))
async def test_every_answer_is_that_of_a_model(
    world: tuple[LiveService, Model], chosen: list[tuple[Any, ...]]
) -> None:
    walk = Walk(*world, next(_MOVES))
    for name, *arguments in chosen:
        await getattr(walk, name)(*arguments)
    for place in everywhere():
        await walk.look(place)
    for namespace in NAMESPACES:
        await walk.overlook(namespace)
