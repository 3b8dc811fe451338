"""What a 422 says: each pointer leads somewhere in what was sent, and no word is of the insides."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from httpx import AsyncClient

from tests.api.test_http import connect, make_app, post, read_problem

SEARCH: dict[str, Any] = {"user_id": 1, "query": "订单"}
MESSAGE: dict[str, Any] = {"user_id": 1, "role": "user", "content": "你好"}
ROUTES: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/dialogues", MESSAGE, "DialogueRequest"),
    ("PATCH", "/dialogues/1", {}, "DialogueChangeRequest"),
    ("POST", "/memory/search", SEARCH, "SearchRequest"),
    ("POST", "/memory/prompt", SEARCH, "PromptRequest"),
    ("POST", "/chat", {"user_id": 1, "user_input": "你好"}, "ChatTurnRequest"),
    ("POST", "/maintenance/forget", {}, "ForgetRequest"),
]
BAD: list[Any] = [
    "",
    "x",
    "\u200b",
    "2999-13-01",
    "字" * 100_001,
    1e400,
    -1,
    10**30,
    1.5,
    [],
    [[]],
    {},
    {"none": {"a/b~c": 1}},
    ["x", 5, " "],
    [" "] * 40,
]
INSIDES = re.compile(r"function|functools|0x|pydantic|validator|<class|tuple|Value error|NoneType|\bdict\b")


def bodies(valid: dict[str, Any], names: list[str]) -> Iterator[Any]:
    """Each has a field too many, so that it is refused whatever the others are."""
    valid = valid | {"none": 0}
    for name in names:
        yield from (valid | {name: value} for value in BAD)
        yield {key: value for key, value in valid.items() if key != name}
    yield valid | {"none": 1, "function-after": 2, "a/b~c": {"d": 1}, "": 0}
    yield {name: {"bool": None} for name in names}
    yield from ([valid], "text", 5, None)


def leads(pointer: str, document: Any) -> bool:
    """Whether the pointer is of a place in the document, or of a field that an object there lacks."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    for place, part in enumerate(parts):
        if isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            return isinstance(document, dict) and place == len(parts) - 1
    return pointer == "" or pointer.startswith("/")


def check(faults: list[dict[str, str]], body: Any, fields: set[str]) -> None:
    assert faults
    for fault in faults:
        assert leads(fault["pointer"], body), (fault, str(body)[:200])
        assert not INSIDES.search(fault["detail"]), fault
        lacks = fault["pointer"].rsplit("/", 1)[-1]
        assert leads_exactly(fault["pointer"], body) or lacks in fields, fault
    assert len({(fault["pointer"], fault["detail"]) for fault in faults}) == len(faults)


def leads_exactly(pointer: str, document: Any) -> bool:
    for part in (one.replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:]):
        try:
            document = document[int(part) if isinstance(document, list) else part]
        except (KeyError, IndexError, TypeError, ValueError):
            return False
    return True


@pytest.mark.parametrize(("method", "path", "valid", "shape"), ROUTES, ids=[one[1] for one in ROUTES])
async def test_every_fault_is_at_a_place_of_the_body(
    method: str, path: str, valid: dict[str, Any], shape: str
) -> None:
    app = make_app()
    fields = set(app.openapi()["components"]["schemas"][shape]["properties"])
    async with connect(app) as client:
        for body in bodies(valid, sorted(fields)):
            raw = json.dumps(body).replace("Infinity", "1e400").encode()
            answer = await client.request(
                method, path, content=raw, headers={"Content-Type": "application/json"}
            )
            check(read_problem(answer, 422, "invalid-input")["errors"], body, fields)


async def test_faults_of_a_batch_are_at_places_of_it() -> None:
    app = make_app()
    fields = set(app.openapi()["components"]["schemas"]["DialogueRequest"]["properties"])
    async with connect(app) as client:
        for item in bodies(MESSAGE, sorted(fields)):
            body = {"dialogues": [MESSAGE, item]}
            raw = json.dumps(body).replace("Infinity", "1e400").encode()
            check(
                read_problem(await post(client, raw, "/dialogues/batch"), 422, "invalid-input")["errors"],
                body,
                fields,
            )


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({"content": ""}, ["/content"]),
        ({"content": None}, ["/content"]),
        ({"content": 5}, ["/content"]),
        ({"pinned": "x", "outdated": 1}, ["/pinned", "/outdated"]),
    ],
)
async def test_a_fault_is_told_once(body: dict[str, Any], faults: list[str]) -> None:
    async with connect(make_app()) as client:
        answer = await client.patch("/dialogues/1", json=body)
    assert [one["pointer"] for one in read_problem(answer, 422, "invalid-input")["errors"]] == faults


HUGE: list[tuple[str, Any, str]] = [
    ("/dialogues", {f"k{number}": 1 for number in range(500_000)}, ""),
    ("/memory/search", SEARCH | {f"k{number}": 1 for number in range(500_000)}, ""),
    ("/memory/search", SEARCH | {"keywords": [" "] * 500_000}, "/keywords"),
    ("/memory/search", SEARCH | {"no/field": [0] * 500_000}, "/no~1field"),
    ("/dialogues/batch", {"dialogues": [{}] * 500_000}, "/dialogues"),
    ("/dialogues/batch", {"dialogues": [{f"k{number}": 1 for number in range(500)}] * 1000}, "/dialogues/0"),
    ("/dialogues/batch", {"dialogues": [{f"k{number}": 1 for number in range(200)}] * 1000}, "/dialogues"),
]


@pytest.mark.parametrize(("path", "body", "pointer"), HUGE, ids=[f"{path}{at}" for path, _, at in HUGE])
async def test_what_has_far_too_much_is_one_fault_and_is_not_validated(
    path: str, body: dict[str, Any], pointer: str
) -> None:
    async with connect(make_app()) as client:
        problem = await refuse(client, path, body)
    assert [fault["pointer"] for fault in problem["errors"]] == [pointer]


async def refuse(client: AsyncClient, path: str, body: Any) -> dict[str, Any]:
    return read_problem(await post(client, json.dumps(body).encode(), path), 422, "invalid-input")


async def test_a_full_batch_of_full_messages_is_not_too_large() -> None:
    full = MESSAGE | dict.fromkeys(("group_id", "sender_name", "message_id", "created_at", "score"))
    async with connect(make_app()) as client:
        problem = await refuse(
            client, "/dialogues/batch", {"dialogues": [*[full] * 999, full | {"role": "x"}]}
        )
    assert [fault["pointer"] for fault in problem["errors"]] == ["/dialogues/999/role"]
