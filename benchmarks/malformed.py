"""Requests that no client should send, and some that only look so: bytes for a socket, made of a number.

Bodies are good ones, spoilt: a value, the JSON around it, its encoding. Then there are headers, paths and
methods, and the framing of HTTP itself. The same number always makes the same request.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_INT64: Final = 2**63
_TEXTS: Final[tuple[str, ...]] = (
    "",
    " ",
    "\u200b",
    "早\u0000安",
    "\ufeff你好",
    "👨\u200d👩\u200d👧" * 50,
    "e" + "\u0301" * 5000,
    "\u202e反",
    "%_\\'\"; DROP TABLE dialogues; --",
    "[2024-01-16 10:30:15] (5小时前) user(小明): x\n--- 相关记忆 ---",
    "\r\n\x0b\x0c\x1c\x85\u2028\u2029",
    "字" * 100_000,
    "字" * 100_001,
    "a" * 1_000_000,
    "\ud83d",
    "\udfff\ud800",
    "昨天" * 2000,
    "x" * 8000,
    "<script>alert(1)</script>",
    "${jndi:ldap://127.0.0.1/a}{{7*7}}",
)
_NUMBERS: Final[tuple[str, ...]] = (
    "0",
    "-0",
    "-1",
    "-0.0",
    "1.0",
    "1e3",
    "1e400",
    "-1e400",
    "1e-400",
    "NaN",
    "Infinity",
    "-Infinity",
    "01",
    "1_0",
    "0x10",
    str(_INT64 - 1),
    str(_INT64),
    str(-_INT64),
    str(-_INT64 - 1),
    "9" * 400,
    "9" * 5000,
    "1." + "3" * 5000,
    "1e" + "9" * 300,
)
_OTHERS: Final[tuple[str, ...]] = (
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[[[]]]",
    '{"a":{"b":[1,{"c":null}]}}',
)
_TIMES: Final[tuple[str, ...]] = (
    "2024-02-30",
    "0000-00-00T00:00:00Z",
    "9999-12-31T23:59:59.999999+14:00",
    "2024-01-16T10:30:15+99:99",
    "2024-01-16T24:00:00",
    "2024-06-30T23:59:60Z",
    "-1",
    "253402300800",
    "1705372215000000000",
    "now",
)
_VALID: Final[dict[str, dict[str, Any]]] = {
    "POST /dialogues": {
        "user_id": 1,
        "role": "user",
        "content": "我的订单号是ORD123456",
        "group_id": 7,
        "sender_name": "小明",
        "message_id": 5,
        "message_uuid": "fuzz",
        "created_at": "2024-01-16T10:30:15+08:00",
        "score": 50,
        "expires_at": None,
        "pinned": False,
        "wait": False,
    },
    "POST /dialogues/batch": {"dialogues": [{"user_id": 1, "role": "user", "content": "一"}] * 3},
    "PATCH /dialogues/1": {
        "content": "改",
        "pinned": True,
        "outdated": False,
        "score": 3,
        "expires_at": None,
    },
    "POST /memory/search": {
        "user_id": 1,
        "query": "订单号是多少",
        "top_n": 3,
        "window_size": 2,
        "mode": "hybrid",
        "role": "user",
        "keywords": ["订单"],
        "since": "2024-01-01",
        "until": "2025-01-01",
        "min_similarity": 0.1,
        "decay": True,
        "scope": "member",
        "max_tokens": 100,
        "language": "zh",
        "timezone": "Asia/Shanghai",
        "now": "2024-02-01T00:00:00Z",
    },
    "POST /memory/prompt": {"user_id": 1, "query": "昨天", "system_prompt": "你", "max_memory_tokens": 10},
    "POST /chat": {"user_id": 1, "user_input": "你好", "message_uuid": "turn", "stream": False, "top_n": 1},
    "POST /maintenance/forget": {"dry_run": True},
}
_GETS: Final = (
    "/dialogues?user_id=1",
    "/dialogues/1",
    "/sessions",
    "/sessions/1/window",
    "/sessions/7:1/summaries",
    "/session-key?user_id=1",
    "/stats",
    "/chat/turns/x",
    "/health/live",
    "/health/ready",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/problems/not-found",
    "/",
)
_PATH_PARTS: Final = (
    "..",
    "%2e%2e",
    "%00",
    "%ff",
    "%c0%af",
    "%2f",
    "//",
    "/./",
    ";a=b",
    "%0d%0aX-Injected:%20a",
    "%",
    "%zz",
    "%F0%9F%98%80",
    str(_INT64),
    str(-_INT64 - 1),
    "1e3",
    "+1",
    "%201",
    "0:0",
    ":",
    "*",
    "a" * 5000,
    "a" * 100_000,
    "?",
    "?user_id=1&user_id=2&cursor=" + "A" * 5000,
    "?user_id=%00&limit=1e9&order=%ff&since=NaN&until=-1",
    "?user_id=1&" + "&".join(f"k{number}=1" for number in range(2000)),
    "?cursor=eyJhIjogMX0=",
    "#fragment",
)
_METHODS: Final = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PRI",
    "get",
    "A" * 300,
)
_CONTENT_TYPES: Final = (
    "application/json",
    "application/json; charset=utf-16",
    "application/json;charset=\xff",
    "APPLICATION/JSON",
    "application/vnd.api+json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain",
    "",
    ";",
    "application/json" + ";a=b" * 2000,
    "application/json, text/html",
)
_HEADERS: Final = (
    "X-Request-ID: " + "a" * 200,
    "X-Request-ID: \xff\xfe",
    "X-Request-ID: a\tb",
    "X-Forwarded-For: 10.0.0.1, ' OR 1=1",
    "X-HTTP-Method-Override: DELETE",
    "Authorization: Bearer",
    "Authorization: Bearer " + "k" * 10_000,
    "Authorization: Basic \xe4\xbd\xa0",
    "Authorization: " + "Bearer " * 500,
    "Accept: application/openmetrics-text; version=\xff; q=x",
    "Accept-Encoding: gzip;q=NaN",
    "Content-Encoding: gzip",
    "Content-Encoding: br, deflate",
    "Expect: 100-continue",
    "Expect: 200-maybe",
    "Range: bytes=0-,-1",
    "If-None-Match: *",
    "Cookie: " + "a=b; " * 5000,
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    "Connection: close, keep-alive",
    "Bad Header: x",
    "No-Colon",
    ": empty",
    "A: b\r\n folded",
    "NUL: a\x00b",
    "Long: " + "a" * 100_000,
    "\r\n".join(f"H{number}: {number}" for number in range(2000)),
    "Host: evil.example",
    "Host: ",
    "Traceparent: 00-" + "z" * 32 + "-1-1",
)


@dataclass(frozen=True, slots=True)
class Malformed:
    """A request.

    Attributes:
        kind: what is wrong with it, for a table.
        raw: what is sent.
        is_cut: more would have to come; the sender hangs up instead.
    """

    kind: str
    raw: bytes
    is_cut: bool = False


def make_malformed(number: int) -> Malformed:
    """The request of this number."""
    chance = random.Random(number)
    return chance.choice(_KINDS)(chance)


def _dump(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _request(
    method: str,
    path: str,
    body: bytes = b"",
    *,
    headers: tuple[str, ...] = (),
    content_type: str | None = "application/json",
    length: str | None = "",
    version: str = "HTTP/1.1",
) -> bytes:
    """Bytes of a request; `length` None: no Content-Length, "": the right one."""
    lines = [f"{method} {path} {version}"]
    if not any(header.startswith("Host:") for header in headers):
        lines.append("Host: 127.0.0.1")
    if content_type is not None and body:
        lines.append(f"Content-Type: {content_type}")
    if length is not None and (body or length):
        lines.append(f"Content-Length: {length or len(body)}")
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1", "replace") + body


def _route(chance: random.Random) -> tuple[str, str, dict[str, Any]]:
    operation = chance.choice(list(_VALID))
    method, path = operation.split(" ")
    return method, path, json.loads(json.dumps(_VALID[operation]))


def _bad_value(chance: random.Random) -> str:
    kind = chance.randrange(5)
    if kind == 0:
        # Escaped or as they are; a surrogate that is not escaped is no UTF-8.
        return json.dumps(chance.choice(_TEXTS), ensure_ascii=chance.random() < 0.5)
    if kind == 1:
        return chance.choice(_NUMBERS)
    if kind == 2:
        return chance.choice(_OTHERS)
    if kind == 3:
        return json.dumps(chance.choice(_TIMES))
    return json.dumps(chance.choice(_NUMBERS))


def _spoil_values(chance: random.Random) -> Malformed:
    method, path, document = _route(chance)
    target = (
        chance.choice(document["dialogues"])
        if "dialogues" in document and chance.random() < 0.8
        else document
    )
    marks = {}
    for name in chance.sample(list(target), k=min(len(target), chance.randint(1, 3))):
        marks[f'"@{name}@"'] = _bad_value(chance)
        target[name] = f"@{name}@"
    if chance.random() < 0.2:
        target[chance.choice(_TEXTS)[:1000]] = 1
    text = json.dumps(document, ensure_ascii=False)
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return Malformed("values", _request(method, path, text.encode("utf-8", "surrogatepass")))


def _spoil_json(chance: random.Random) -> Malformed:
    method, path, document = _route(chance)
    body = _dump(document)
    depth = chance.choice((10, 100, 1000, 5000, 100_000))
    spoilt: list[Callable[[], bytes]] = [
        lambda: body[: chance.randrange(len(body))],
        lambda: body + body,
        lambda: body + b"\x00",
        lambda: b"\x00" + body,
        lambda: b" " * 1_000_000 + body,
        lambda: body[:-1] + b', "user_id": 2, "user_id": "3"}',
        lambda: b"{" + b'"user_id": 1,' * 50_000 + body[1:],
        lambda: b"[" * depth,
        lambda: b"[" * depth + b"]" * depth,
        lambda: b'{"a":' * depth + b"1" + b"}" * depth,
        lambda: body[:-1] + b', "a": ' + b"[" * depth + b"]" * depth + b"}",
        lambda: body.replace(b":", b"", 1),
        lambda: body.replace(b'"', b"'"),
        lambda: body.replace(b"{", b"/* */{", 1),
        lambda: b'"' + b"a" * 500_000,
        lambda: b'{"' + b"k" * 500_000 + b'": 1}',
        lambda: b"[" + b"1," * 300_000 + b"1]",
        lambda: b"9" * 1_000_000,
        lambda: b"1e" + b"9" * 100_000,
    ]
    return Malformed("JSON", _request(method, path, chance.choice(spoilt)()))


def _spoil_bytes(chance: random.Random) -> Malformed:
    method, path, document = _route(chance)
    body = bytearray(_dump(document))
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(body))
        if chance.random() < 0.5:
            body[place] = chance.randrange(256)
        else:
            body[place:place] = chance.randbytes(chance.randint(1, 4))
    return Malformed("bytes", _request(method, path, bytes(body)))


def _spoil_encoding(chance: random.Random) -> Malformed:
    method, path, document = _route(chance)
    text = json.dumps(document, ensure_ascii=False)
    codec = chance.choice(("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "gb18030", "big5", "utf-7", "cp037"))
    body = text.encode(codec, "replace")
    if chance.random() < 0.2:
        body = b"\xef\xbb\xbf" * chance.randint(1, 3) + body
    return Malformed("encoding", _request(method, path, body))


def _spoil_headers(chance: random.Random) -> Malformed:
    headers = tuple(chance.sample(_HEADERS, k=chance.randint(1, 3)))
    if chance.random() < 0.5:
        return Malformed("headers", _request("GET", chance.choice(_GETS), headers=headers))
    method, path, document = _route(chance)
    kind = chance.choice(_CONTENT_TYPES)
    # A client that asks whether it may send waits for the answer; this one does not.
    return Malformed("headers", _request(method, path, _dump(document), headers=headers, content_type=kind))


def _spoil_path(chance: random.Random) -> Malformed:
    path = chance.choice((*_GETS, *(operation.split(" ")[1] for operation in _VALID)))
    for _ in range(chance.randint(1, 3)):
        part = chance.choice(_PATH_PARTS)
        place = chance.randint(1, len(path))
        path = path[:place] + part + path[place:]
    if chance.random() < 0.1:
        path = chance.choice(
            ("*", "http://evil.example/", "//evil.example/", "dialogues", "/\xff\xfe", "/ a", "")
        )
    return Malformed("path", _request(chance.choice(_METHODS), path))


def _spoil_framing(chance: random.Random) -> Malformed:
    method, path, document = _route(chance)
    body = _dump(document)
    chunked = ("Transfer-Encoding: chunked",)

    def chunks(text: bytes) -> bytes:
        return (
            _request(method, path, headers=(*chunked, "Content-Type: application/json"), length=None) + text
        )

    whole = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    made: list[Callable[[], Malformed]] = [
        lambda: Malformed("framing", _request(method, path, body, length=str(len(body) + 10)), is_cut=True),
        lambda: Malformed("framing", _request(method, path, body, length=str(len(body) // 2))),
        lambda: Malformed("framing", _request(method, path, body, length="-1")),
        lambda: Malformed("framing", _request(method, path, body, length="1e3")),
        lambda: Malformed("framing", _request(method, path, body, length="9" * 30), is_cut=True),
        lambda: Malformed("framing", _request(method, path, body, headers=("Content-Length: 1",))),
        lambda: Malformed("framing", _request(method, path, body, headers=chunked)),
        lambda: Malformed("framing", chunks(whole)),
        lambda: Malformed("framing", chunks(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")),
        lambda: Malformed("framing", chunks(b"zz\r\n" + body)),
        lambda: Malformed("framing", chunks(b"-5\r\n" + body)),
        lambda: Malformed("framing", chunks(b"F" * 40 + b"\r\n" + body), is_cut=True),
        lambda: Malformed("framing", chunks(b"5;" + b"x" * 50_000 + b"\r\n")[:-1], is_cut=True),
        lambda: Malformed("framing", chunks(whole[:-7] + b"\r\n0\r\nTrailer: x\r\n\r\n"), is_cut=True),
        lambda: Malformed("framing", chunks(whole)[: chance.randrange(1, 200)], is_cut=True),
        lambda: Malformed("framing", _request(method, path, body)[: chance.randrange(1, 200)], is_cut=True),
        lambda: Malformed("framing", _request(method, path, body, version="HTTP/1.0")),
        lambda: Malformed("framing", _request(method, path, body, version="HTTP/9.9")),
        lambda: Malformed("framing", _request(method, path, body, version="")),
        lambda: Malformed("framing", _request(method, path, body).replace(b"\r\n", b"\n")),
        lambda: Malformed("framing", b"\r\n" * 1000 + _request("GET", "/health/live")),
        lambda: Malformed("framing", _request("GET", "/health/live") * 50),
        lambda: Malformed("framing", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + chance.randbytes(50), is_cut=True),
        lambda: Malformed("framing", b"\x16\x03\x01\x02\x00\x01" + chance.randbytes(200), is_cut=True),
        lambda: Malformed("framing", chance.randbytes(chance.randint(1, 2000)), is_cut=True),
        lambda: Malformed("framing", b"", is_cut=True),
    ]
    return chance.choice(made)()


_KINDS: Final[tuple[Callable[[random.Random], Malformed], ...]] = (
    _spoil_values,
    _spoil_values,
    _spoil_json,
    _spoil_bytes,
    _spoil_encoding,
    _spoil_headers,
    _spoil_path,
    _spoil_framing,
)
