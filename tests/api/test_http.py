"""What surrounds every route: problems, request ids, keys, bodies, metrics. It needs no database."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from httpx import ASGITransport, AsyncClient, Response
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from app.access.callers import Caller
from app.access.rate_limit import RateLimit
from app.api.application import ROUTERS, build_api
from app.api.bodies import KeyedRoute
from app.api.context import ApiOptions, Namespace
from app.api.middleware import MAX_BODY_BYTES
from app.api.wire import answer_json
from app.clock import utc_now
from app.errors import DatabaseUnavailableError, ProviderTimeoutError
from app.telemetry import Metrics

LOCAL = "http://127.0.0.1:8000"
MESSAGE = {"user_id": 1, "role": "user", "content": "你好"}

probe = APIRouter(route_class=KeyedRoute)


@probe.get("/probe/namespace")
async def show_namespace(namespace: Namespace) -> Any:
    return answer_json({"namespace": namespace})


@probe.get("/probe/bug/{user_id}")
async def fail_unforeseen(user_id: int) -> Any:
    raise RuntimeError("secret text of the exception")


@probe.get("/probe/away")
async def fail_without_database() -> Any:
    raise DatabaseUnavailableError("PostgreSQL does not answer", retry_after_s=7)


@probe.get("/probe/slow")
async def fail_too_slow() -> Any:
    raise ProviderTimeoutError("the model took 30 s")


class Keyring:
    """Holds these keys, and counts how often it is asked."""

    def __init__(self, **callers: Caller) -> None:
        self.callers = callers
        self.asked = 0

    async def find(self, key: str) -> Caller | None:
        self.asked += 1
        return self.callers.get(key)

    async def is_keyed(self) -> bool:
        return bool(self.callers)


class KeyringAway(Keyring):
    """Cannot be asked."""

    async def find(self, key: str) -> Caller | None:  # noqa: ARG002 - as the keyring has it
        raise DatabaseUnavailableError("PostgreSQL does not answer")

    async def is_keyed(self) -> bool:
        raise DatabaseUnavailableError("PostgreSQL does not answer")


def make_app(keyring: Keyring | None = None, **options: Any) -> FastAPI:
    app = build_api(ApiOptions(**options), routers=(*ROUTERS, probe))
    app.state.services = SimpleNamespace(metrics=Metrics(), clock=utc_now, keyring=keyring or Keyring())
    return app


def connect(app: FastAPI, base_url: str = LOCAL) -> AsyncClient:
    return AsyncClient(transport=ASGITransport(app), base_url=base_url)


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with connect(make_app()) as opened:
        yield opened


def read_problem(response: Response, status: int, slug: str) -> dict[str, Any]:
    problem: dict[str, Any] = response.json()
    assert response.status_code == status, problem
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["type"] == f"/problems/{slug}"
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem.keys() - {"errors"} == {"type", "title", "status", "detail", "instance", "request_id"}
    return problem


async def post(client: AsyncClient, raw: bytes, path: str = "/dialogues") -> Response:
    return await client.post(path, content=raw, headers={"Content-Type": "application/json"})


MALFORMED = [
    b"{",
    b"not json",
    b'{"user_id": 1,}',
    '{"content": "你好"}'.encode("gbk"),
    '{"content": "你好"}'.encode("utf-16"),
    b'{"content": "\xff"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"user_id": ' + b"9" * 5000 + b"}",
    b"\x00",
]


@pytest.mark.parametrize("raw", MALFORMED, ids=lambda raw: repr(raw[:16]))
async def test_a_body_that_is_not_json_is_400(client: AsyncClient, raw: bytes) -> None:
    read_problem(await post(client, raw), 400, "malformed-request")


INVALID = [
    (b'{"user_id": true, "role": "user", "content": "a"}', "/user_id"),
    (b'{"user_id": 9223372036854775808, "role": "user", "content": "a"}', "/user_id"),
    (b'{"user_id": 1e3, "role": "user", "content": "a"}', "/user_id"),
    (b'{"user_id": NaN, "role": "user", "content": "a"}', "/user_id"),
    (b'{"user_id": 1, "role": "system", "content": "a"}', "/role"),
    (b'{"user_id": 1, "role": "\\ud83d", "content": "a"}', "/role"),
    (b'{"user_id": 1, "role": "user", "content": " \\u200b"}', "/content"),
    (b'{"user_id": 1, "role": "user", "content": null}', "/content"),
    (b'{"user_id": 1, "role": "user", "content": 5}', "/content"),
    (b'{"user_id": 1, "role": "user"}', "/content"),
    (b'{"user_id": 1, "role": "user", "content": "a", "score": 101}', "/score"),
    (b'{"user_id": 1, "role": "user", "content": "a", "score": true}', "/score"),
    (b'{"user_id": 1, "role": "user", "content": "a", "score": Infinity}', "/score"),
    (b'{"user_id": 1, "role": "user", "content": "a", "pinned": 1}', "/pinned"),
    (b'{"user_id": 1, "role": "user", "content": "a", "group_id": 0}', "/group_id"),
    (b'{"user_id": 1, "role": "user", "content": "a", "created_at": "1999-12-31T23:59:59Z"}', "/created_at"),
    (b'{"user_id": 1, "role": "user", "content": "a", "created_at": "2999-01-01T00:00:00Z"}', "/created_at"),
    (b'{"user_id": 1, "role": "user", "content": "a", "created_at": 1e400}', "/created_at"),
    (b'{"user_id": 1, "role": "user", "content": "a", "a/b~c": 1}', "/a~1b~0c"),
    (b'{"user_id": 1, "role": "user", "content": "a", "\\ud83d": 1}', ""),
    (b'"text"', ""),
    (b"null", ""),
    (b"[]", ""),
    (b"", ""),
]


@pytest.mark.parametrize(("raw", "pointer"), INVALID, ids=[str(raw[-40:]) for raw, _ in INVALID])
async def test_a_field_out_of_its_range_is_422_at_its_pointer(
    client: AsyncClient, raw: bytes, pointer: str
) -> None:
    problem = read_problem(await post(client, raw), 422, "invalid-input")
    assert [fault["pointer"] for fault in problem["errors"]] == [pointer]


async def test_a_fault_in_a_batch_names_its_index(client: AsyncClient) -> None:
    items = [MESSAGE, MESSAGE, MESSAGE | {"created_at": "2999-01-01"}]
    problem = read_problem(
        await client.post("/dialogues/batch", json={"dialogues": items}), 422, "invalid-input"
    )
    assert problem["errors"][0]["pointer"] == "/dialogues/2/created_at"
    items[1] = MESSAGE | {"user_id": 1.5}
    problem = read_problem(
        await client.post("/dialogues/batch", json={"dialogues": items}), 422, "invalid-input"
    )
    assert problem["errors"][0]["pointer"] == "/dialogues/1/user_id"


async def test_a_batch_holds_up_to_a_thousand(client: AsyncClient) -> None:
    answer = await client.post("/dialogues/batch", json={"dialogues": [MESSAGE] * 1001})
    assert read_problem(answer, 422, "invalid-input")["errors"][0]["pointer"] == "/dialogues"


async def test_a_thousand_faults_make_a_short_answer(client: AsyncClient) -> None:
    answer = await client.post("/dialogues/batch", json={"dialogues": [{"user_id": 0}] * 1000})
    assert len(read_problem(answer, 422, "invalid-input")["errors"]) == 100


async def test_what_was_sent_is_not_echoed(client: AsyncClient) -> None:
    answer = await client.post(
        "/dialogues", json=MESSAGE | {"user_id": "geheim-12345", "role": "geheim-67890"}
    )
    assert "geheim" not in read_problem(answer, 422, "invalid-input")["errors"].__repr__() + answer.text


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"min_similarity": "0.5"}, "/min_similarity"),
        ({"min_similarity": 1.01}, "/min_similarity"),
        ({"top_n": 101}, "/top_n"),
        ({"top_n": -1}, "/top_n"),
        ({"window_size": 11}, "/window_size"),
        ({"windowsize": 1}, "/windowsize"),
        ({"scope": "group"}, "/scope"),
        ({"mode": "fast"}, "/mode"),
        ({"timezone": "Mars"}, "/timezone"),
        ({"keywords": ["a", " "]}, "/keywords/1"),
        ({"query": "\u200b"}, "/query"),
        ({"query": "字" * 8001}, "/query"),
        ({"now": "1999-12-31"}, "/now"),
        ({"now": 253402300799}, "/now"),
        ({"max_tokens": -1}, "/max_tokens"),
        ({"max_memory_tokens": 1}, "/max_memory_tokens"),
    ],
)
async def test_faults_of_a_search(client: AsyncClient, body: dict[str, Any], pointer: str) -> None:
    answer = await client.post("/memory/search", json={"user_id": 1, "query": "订单"} | body)
    assert [fault["pointer"] for fault in read_problem(answer, 422, "invalid-input")["errors"]] == [pointer]


async def test_a_similarity_that_is_no_number_is_422(client: AsyncClient) -> None:
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999"):
        answer = await post(
            client, b'{"user_id": 1, "query": "a", "min_similarity": ' + number + b"}", "/memory/search"
        )
        assert read_problem(answer, 422, "invalid-input")["errors"][0]["pointer"] == "/min_similarity"


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("", "query/user_id"),
        ("user_id=0", "query/user_id"),
        ("user_id=%201", "query/user_id"),
        ("user_id=1&group_id=", "query/group_id"),
        ("user_id=1&limit=0", "query/limit"),
        ("user_id=1&limit=201", "query/limit"),
        ("user_id=1&limit=1_0", "query/limit"),
        ("user_id=1&order=up", "query/order"),
        ("user_id=1&since=yesterday", "query/since"),
        ("user_id=1&cursor=abc", "query/cursor"),
        ("user_id=1&cursor=%00", "query/cursor"),
    ],
)
async def test_faults_of_a_query_string(client: AsyncClient, query: str, pointer: str) -> None:
    answer = await client.get(f"/dialogues?{query}")
    assert read_problem(answer, 422, "invalid-input")["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    "path", ["/users/0", "/users/*", "/users/-1", "/sessions/*", "/sessions/0", "/sessions/1:0"]
)
async def test_an_erasure_of_junk_is_422(client: AsyncClient, path: str) -> None:
    read_problem(await client.delete(path), 422, "invalid-input")


async def test_a_body_that_is_not_sent_as_json_is_415(client: AsyncClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"):
        answer = await client.post("/dialogues", content=b"{}", headers={"Content-Type": kind})
        read_problem(answer, 415, "unsupported-media-type")


async def test_json_may_have_a_byte_order_mark_and_a_charset(client: AsyncClient) -> None:
    answer = await client.post(
        "/dialogues", content=b"\xef\xbb\xbf{}", headers={"Content-Type": "application/json; charset=utf-8"}
    )
    assert {fault["pointer"] for fault in read_problem(answer, 422, "invalid-input")["errors"]} == {
        "/user_id",
        "/role",
        "/content",
    }


async def stream(total: int) -> AsyncIterator[bytes]:
    for _ in range(total // 65536):
        yield b" " * 65536


async def test_a_body_over_the_limit_is_413_announced_or_streamed(client: AsyncClient) -> None:
    answer = await post(client, b" " * (MAX_BODY_BYTES + 1))
    read_problem(answer, 413, "payload-too-large")
    answer = await client.post(
        "/dialogues", content=stream(MAX_BODY_BYTES + 65536), headers={"Content-Type": "application/json"}
    )
    read_problem(answer, 413, "payload-too-large")


async def test_a_body_at_the_limit_is_read(client: AsyncClient) -> None:
    read_problem(await post(client, b'"' + b"a" * (MAX_BODY_BYTES - 2) + b'"'), 422, "invalid-input")


async def test_an_unknown_address_is_404_and_a_wrong_method_405(client: AsyncClient) -> None:
    read_problem(await client.get("/nowhere/%00/%ff"), 404, "not-found")
    answer = await client.put("/dialogues", json={})
    read_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD, POST"
    answer = await client.post("/dialogues/1")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PATCH"


async def test_a_request_id_is_taken_or_made(client: AsyncClient) -> None:
    answer = await client.get("/health/live", headers={"X-Request-ID": "trace-1"})
    assert answer.headers["x-request-id"] == "trace-1"
    for bad in ("a b", "x" * 129, "", "é"):
        answer = await client.get("/health/live", headers={b"X-Request-ID": bad.encode()})
        assert answer.headers["x-request-id"] not in {bad, ""}
    made = {(await client.get("/health/live")).headers["x-request-id"] for _ in range(2)}
    assert len(made) == 2


async def test_an_unforeseen_failure_is_500_without_its_text_logged_once_and_counted() -> None:
    app = make_app()
    with capture_logs() as logs:
        async with connect(app) as client:
            answer = await client.get("/probe/bug/12345", headers={"X-Request-ID": "trace-2"})
    read_problem(answer, 500, "internal-error")
    assert "secret" not in answer.text
    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["request_failed"]
    assert [log["event"] for log in logs if log["log_level"] == "info"] == ["request"]
    metrics = generate_latest(app.state.services.metrics.registry).decode()
    assert 'http_requests_total{method="GET",route="/probe/bug/{user_id}",status="500"} 1.0' in metrics
    assert "12345" not in metrics


async def test_what_comes_back_later_says_when(client: AsyncClient) -> None:
    answer = await client.get("/probe/away")
    read_problem(answer, 503, "database-unavailable")
    assert answer.headers["retry-after"] == "7"
    read_problem(await client.get("/probe/slow"), 504, "provider-timeout")


async def test_metrics_never_hold_what_a_client_makes_up() -> None:
    app = make_app()
    async with connect(app) as client:
        await client.get("/made/up/path")
        await client.request("BREW", "/health/live")
        await client.head("/health/live")
    metrics = generate_latest(app.state.services.metrics.registry).decode()
    assert 'http_requests_total{method="GET",route="unmatched",status="404"} 1.0' in metrics
    assert 'http_requests_total{method="OTHER",route="/health/live",status="405"} 1.0' in metrics
    assert 'http_requests_total{method="HEAD",route="/health/live",status="200"} 1.0' in metrics
    assert "BREW" not in metrics
    assert "made" not in metrics


async def test_head_is_get_without_a_body(client: AsyncClient) -> None:
    answer = await client.head("/health/live")
    assert answer.status_code == 200
    assert answer.content == b""
    assert answer.headers["content-length"] == str(len((await client.get("/health/live")).content))


KEYS = (("bot", "key-of-bot"), ("other", "key-of-other"))


async def test_a_key_opens_its_namespace() -> None:
    async with connect(make_app(keys=KEYS), "http://memory.example") as client:
        for namespace, key in KEYS:
            for scheme in ("Bearer", "bearer"):
                answer = await client.get("/probe/namespace", headers={"Authorization": f"{scheme} {key}"})
                assert answer.json() == {"namespace": namespace}


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "key-of-bot", "Basic key-of-bot", "Bearer key-of-bo", "Bearer é"],
)
async def test_no_key_or_a_wrong_one_is_401_before_anything_else(header: str | None) -> None:
    headers = {} if header is None else {b"Authorization": header.encode()}
    async with connect(make_app(keys=KEYS)) as client:
        for raw in (b"{", b"{}", b" " * 100):
            answer = await client.post(
                "/dialogues", content=raw, headers={**headers, b"Content-Type": b"application/json"}
            )
            read_problem(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await client.get("/health/live", headers=headers)).status_code == 200


@pytest.mark.parametrize("base_url", ["http://localhost:8000", "http://127.0.0.1", "http://[::1]:8000"])
async def test_without_keys_loopback_is_open(base_url: str) -> None:
    async with connect(make_app(), base_url) as client:
        assert (await client.get("/probe/namespace")).json() == {"namespace": "default"}


async def test_without_keys_others_are_refused_unless_it_is_allowed() -> None:
    for base_url, host in (
        ("http://192.0.2.1:8000", "192.0.2.1"),
        # A name of the attacker's that resolves to this machine.
        (LOCAL, "evil.example"),
        (LOCAL, "127.0.0.1.evil.example"),
        # Reached over the network with a forged name.
        ("http://192.0.2.1:8000", "localhost"),
    ):
        async with connect(make_app(), base_url) as client:
            read_problem(await client.get("/probe/namespace", headers={"Host": host}), 401, "unauthorized")
        async with connect(make_app(allow_anonymous=True), base_url) as client:
            answer = await client.get("/probe/namespace", headers={"Host": host})
            assert answer.json() == {"namespace": "default"}


async def test_where_keys_are_kept_nobody_enters_without_one() -> None:
    keyring = Keyring(**{"key-b": Caller("b", "bot", "tm_b")})
    async with connect(make_app(keyring, allow_anonymous=True)) as client:
        read_problem(await client.get("/probe/namespace"), 401, "unauthorized")
        wrong = {"Authorization": "Bearer key-c"}
        read_problem(await client.get("/probe/namespace", headers=wrong), 401, "unauthorized")
        answer = await client.get("/probe/namespace", headers={"Authorization": "Bearer key-b"})
        assert answer.json() == {"namespace": "b"}


async def test_where_keys_cannot_be_looked_up_nobody_enters() -> None:
    for options in ({}, {"allow_anonymous": True}, {"keys": KEYS}):
        async with connect(make_app(KeyringAway(), **options)) as client:
            answer = await client.get("/probe/namespace", headers={"Authorization": "Bearer key-of-nobody"})
            read_problem(answer, 503, "database-unavailable")
            assert (await client.get("/health/live")).status_code == 200


async def test_a_key_of_the_settings_opens_whatever_the_database_does() -> None:
    async with connect(make_app(KeyringAway(), keys=KEYS)) as client:
        namespace, key = KEYS[0]
        answer = await client.get("/probe/namespace", headers={"Authorization": f"Bearer {key}"})
        assert answer.json() == {"namespace": namespace}


@pytest.mark.parametrize("role", ["reader", "admin"])
async def test_a_route_that_says_nothing_is_for_bots_alone(role: Any) -> None:
    namespace = None if role == "admin" else "b"
    async with connect(make_app(Keyring(key=Caller(namespace, role, "tm_b")))) as client:
        answer = await client.get("/probe/namespace", headers={"Authorization": "Bearer key"})
        assert role in read_problem(answer, 403, "forbidden")["detail"]


async def test_each_key_has_its_own_limit_and_every_answer_says_what_is_left() -> None:
    app = make_app(keys=(("a", "key-a"), ("a", "key-a2")), rate_limit=RateLimit(3, 3600))
    async with connect(app) as client:
        first, second = ({"Authorization": f"Bearer {key}"} for key in ("key-a", "key-a2"))
        paths = ("/probe/namespace", "/probe/away", "/probe/bug/1")
        for place, path in enumerate(paths):
            answer = await client.get(path, headers=first)
            assert answer.status_code in {200, 503, 500}
            assert answer.headers["ratelimit-policy"] == '"key";q=3;w=3600'
            assert answer.headers["ratelimit"].startswith(f'"key";r={2 - place};t=')
        refused = await client.post("/dialogues", content=b"{", headers=first)
        read_problem(refused, 429, "rate-limited")
        assert 0 < int(refused.headers["retry-after"]) <= 1200
        assert (await client.get("/probe/namespace", headers=second)).status_code == 200
        # Whoever has no key uses up nobody's, and health is no request of a key.
        for _ in range(5):
            read_problem(await client.get("/probe/namespace"), 401, "unauthorized")
            assert (await client.get("/health/live", headers=first)).status_code == 200
        assert (await client.get("/probe/namespace", headers=second)).status_code == 200


async def test_without_a_limit_nothing_is_said_of_one(client: AsyncClient) -> None:
    assert "ratelimit" not in (await client.get("/probe/namespace")).headers


async def test_pages_of_other_origins_are_closed_out_unless_they_are_named() -> None:
    ask = {
        "Origin": "https://console.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    here = {"Origin": "https://console.example"}
    async with connect(make_app()) as client:
        for answer in (await client.options("/dialogues", headers=ask), await client.get("/", headers=here)):
            assert not [name for name in answer.headers if name.startswith("access-control")]
    async with connect(make_app(cors_origins=("https://console.example",))) as client:
        preflight = await client.options("/dialogues", headers=ask)
        assert preflight.headers["access-control-allow-origin"] == "https://console.example"
        assert "access-control-allow-credentials" not in preflight.headers
        answer = await client.get("/probe/namespace", headers=here)
        assert answer.headers["access-control-allow-origin"] == "https://console.example"
        for origin in ("https://evil.example", "https://console.example.evil.example", "null"):
            for answer in (
                await client.options("/dialogues", headers=ask | {"Origin": origin}),
                await client.get("/probe/namespace", headers={"Origin": origin}),
            ):
                assert "access-control-allow-origin" not in answer.headers


async def test_docs_need_nothing_from_elsewhere(client: AsyncClient) -> None:
    page = (await client.get("/docs")).text
    assert "//" not in page.replace("// ", "").replace("</", "")
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"):
        assert f"docs/{name}" in page
        assert (await client.get(f"/docs/{name}")).status_code == 200
    read_problem(await client.get("/docs/redoc.standalone.js"), 404, "not-found")
    assert (await client.get("/")).json()["docs"] == "/docs"


async def test_a_hang_up_in_the_middle_of_a_body_is_no_failure_of_ours() -> None:
    app = make_app()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/dialogues",
        "raw_path": b"/dialogues",
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    messages = iter(
        [{"type": "http.request", "body": b'{"user_id"', "more_body": True}, {"type": "http.disconnect"}]
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert sent == []
    metrics = generate_latest(app.state.services.metrics.registry).decode()
    assert 'http_requests_total{method="POST",route="/dialogues",status="499"} 1.0' in metrics


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/probe/namespace", 200),
        ("HEAD", "/docs", 200),
        ("GET", "/docs", 200),
        ("GET", "/openapi.json", 200),
        ("POST", "/dialogues", 422),
        ("GET", "/no-such-route", 404),
        ("OPTIONS", "/dialogues", 405),
        ("GET", "/probe/bug/1", 500),
        ("GET", "/probe/away", 503),
        ("GET", "/probe/slow", 504),
    ],
)
async def test_every_answer_is_closed_to_other_pages_and_caches(
    client: AsyncClient, method: str, path: str, status: int
) -> None:
    asked = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    answer = await client.request(method, path, headers=asked)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_body_over_the_limit_is_refused_with_the_same_headers(client: AsyncClient) -> None:
    answer = await client.post("/dialogues", content=b" " * (MAX_BODY_BYTES + 1))
    assert answer.status_code == 413
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


async def test_a_route_that_says_how_long_it_is_kept_is_left_alone(client: AsyncClient) -> None:
    page = (await client.get("/docs")).text
    script = next(part for part in page.split('"') if part.endswith(".js"))
    answer = await client.get(script)
    assert answer.status_code == 200
    assert answer.headers.get_list("cache-control") == ["public, max-age=86400"]
