"""A small chat provider that speaks OpenAI's protocol, streaming and not, as a process of its own.

    python -m tests.doubles.chat_provider --port 0 [--key sk-test]

prints its port as the first line. Without rules it behaves, and always in the same way (`chat_answers`): it
answers questions from the memory lines and the conversation in its prompt, gives scores by simple rules where
scores are asked for, and extracts where summaries are. What it enforces is what was seen of real ones: the
key, the model (`no-such-model` is not there), messages that are not empty.

POST /_control  {"rules": [rule, …]}  replaces the rules; the first that fits and has times left is used up by
one request. A rule is an object of:
  times         how many requests (default 1, null: for ever)
  only          "chat", "evaluation", "batch" or "summary"; without: any
  status        answers this HTTP status, with "body" (JSON) or "text", and "headers"
  refuse        list of fields: a request that has one is refused, 400 code 20015; others pass
  strict_roles  as Mistral's template: 400 where user and assistant do not take turns, a user first;
                "no_system": as Gemma's, `system` is refused, too
  delay_s       seconds before the answer
  hang_up       the connection is closed without an answer
  garbage       200 and HTML
  error         200 and this object, or as the event after `cut_after` pieces
  reply         what is answered, instead of what it would say
  score         what is answered to who asks for a score; others pass
  think         thoughts in <think> tags before the answer
  reasoning     thoughts in `reasoning_content`
  empty         the content is empty (all tokens went into thoughts), finish reason "length"
  finish        finish reason instead of "stop"; null: none
  no_usage, no_done, crlf, comments   true: no usage; no [DONE]; CRLF line ends; keep-alive comments
  piece_chars   characters of a delta (default 4)
  drip_s        pause before every piece of a stream
  chunk_bytes   the stream is sent in chunks of so many bytes, which cuts characters
  cut_after     pieces after which the connection breaks
GET  /_requests -> {"count", "in_flight", "max_in_flight", "max_in_flight_by_kind", "kinds", "bodies",
                    "statuses" (0: hung up or client gone), "authorizations"}
POST /_reset    forgets log and rules
"""

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.doubles.chat_answers import answer_to, kind_of

_PIECE_CHARS = 4


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.rules: list[dict[str, Any]] = []
        self.in_flight: dict[str, int] = {}
        self.log: dict[str, Any] = {
            "count": 0,
            "max_in_flight": 0,
            "max_in_flight_by_kind": {},
            "kinds": [],
            "bodies": [],
            "statuses": [],
            "authorizations": [],
        }

    def enter(
        self, kind: str, body: dict[str, Any], authorization: str | None
    ) -> tuple[dict[str, Any], Callable[[int], None]]:
        """Note a request; the rule for it, and what is to be called with its status at its end."""
        with self.lock:
            in_flight, statuses = self.in_flight, self.log["statuses"]

            def leave(status: int) -> None:
                # A request that outlives a reset is of no interest to whoever reset.
                with self.lock:
                    in_flight[kind] -= 1
                    statuses.append(status)

            self.in_flight[kind] = self.in_flight.get(kind, 0) + 1
            self.log["count"] += 1
            self.log["kinds"].append(kind)
            self.log["bodies"].append(body)
            self.log["authorizations"].append(authorization)
            self.log["max_in_flight"] = max(self.log["max_in_flight"], sum(self.in_flight.values()))
            by_kind = self.log["max_in_flight_by_kind"]
            by_kind[kind] = max(by_kind.get(kind, 0), self.in_flight[kind])
            return self._rule_for(kind, body), leave

    def _rule_for(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        for rule in self.rules:
            fits = rule.get("only", kind) == kind
            fits = fits and ("score" not in rule or kind == "evaluation")
            fits = fits and ("refuse" not in rule or bool(set(rule["refuse"]) & body.keys()))
            times = rule.get("times", 1)
            if fits and (times is None or times > 0):
                if times is not None:
                    rule["times"] = times - 1
                return dict(rule)
        return {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: ClassVar[_State]
    key: ClassVar[str | None]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing: the log of requests is at /_requests."""

    def do_GET(self) -> None:
        if self.path == "/_requests":
            with self.state.lock:
                self._send(200, self.state.log | {"in_flight": sum(self.state.in_flight.values())})
        else:
            self._send(404, None, text="404 page not found")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path in {"/_control", "/_reset"}:
            with self.state.lock:
                if self.path == "/_reset":
                    self.state.reset()
                else:
                    self.state.rules = json.loads(body)["rules"]
            self._send(200, {})
            return
        request = json.loads(body)
        kind = kind_of(request.get("messages", []))
        rule, leave = self.state.enter(kind, request, self.headers.get("authorization"))
        status = 0
        try:
            status = self._serve(request, kind, rule)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            leave(status)

    def _serve(self, request: dict[str, Any], kind: str, rule: dict[str, Any]) -> int:
        time.sleep(rule.get("delay_s", 0))
        if rule.get("hang_up"):
            self.close_connection = True
            return 0
        if rule.get("garbage"):
            self._send(200, None, text="<html><title>Welcome</title></html>")
            return 200
        status, refusal = self._refusal(request, rule)
        if refusal is not None or rule.get("text") is not None:
            self._send(status, refusal, text=rule.get("text"), headers=rule.get("headers"))
            return status
        text = str(rule.get("reply", rule.get("score", "")) or answer_to(kind, request["messages"]))
        if request.get("stream"):
            return self._stream(request, _content(text, rule), rule)
        if rule.get("cut_after") is not None:
            self.send_response(200)
            self.send_header("content-length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            self.close_connection = True
            return 0
        self._send(200, rule.get("error") or _completion(request, _content(text, rule), rule))
        return 200

    def _refusal(  # noqa: PLR0911 - a table
        self, request: dict[str, Any], rule: dict[str, Any]
    ) -> tuple[int, object]:
        if "status" in rule:
            return int(rule["status"]), rule.get("body", {})
        if not self.path.endswith("/v1/chat/completions"):
            return 404, "404 page not found"
        if self.key is not None and self.headers.get("authorization") != f"Bearer {self.key}":
            return 401, "Api key is invalid"
        if request.get("model") == "no-such-model":
            return 400, {"code": 20012, "message": "Model does not exist. Please check it.", "data": None}
        if not request.get("messages"):
            return 400, {"code": 20015, "message": "messages must not be empty", "data": None}
        complaint = _complaint(request["messages"], rule.get("strict_roles"))
        if complaint:
            return 400, {"object": "error", "message": complaint, "type": "BadRequestError", "code": 400}
        for field in rule.get("refuse", []):
            if field in request:
                message = f"Value error, current model does not support parameter `{field}`."
                return 400, {"code": 20015, "message": message, "data": None}
        return 200, None

    def _stream(self, request: dict[str, Any], content: str, rule: dict[str, Any]) -> int:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(_events(request, content, rule)):
            if number == rule.get("cut_after"):
                if rule.get("error") is None:
                    self.close_connection = True
                    return 0
                self._send_chunk(_event_bytes(rule["error"], rule))
                break
            time.sleep(rule.get("drip_s", 0))
            data = _event_bytes(event, rule)
            size = rule.get("chunk_bytes") or len(data)
            for start in range(0, len(data), size):
                self._send_chunk(data[start : start + size])
        self._send_chunk(b"")
        return 200

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(
        self, status: int, body: object, *, text: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        content = json.dumps(body, ensure_ascii=False).encode() if text is None else text.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json" if text is None else "text/html")
        self.send_header("content-length", str(len(content)))
        self.send_header("x-siliconcloud-trace-id", "ti_test")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _complaint(messages: list[dict[str, Any]], strict: object) -> str | None:
    roles = [message["role"] for message in messages]
    if strict == "no_system" and "system" in roles:
        return "System role not supported"
    turns = roles[1:] if roles[0] == "system" else roles
    if strict and turns != [("user", "assistant")[place % 2] for place in range(len(turns))]:
        return "Conversation roles must alternate user/assistant/user/assistant/..."
    return None


def _content(text: str, rule: dict[str, Any]) -> str:
    if rule.get("empty"):
        return ""
    return f"<think>\n{rule['think']}\n</think>\n\n{text}" if "think" in rule else text


def _finish(rule: dict[str, Any]) -> object:
    return rule.get("finish", "length" if rule.get("empty") else "stop")


def _usage(request: dict[str, Any], content: str, rule: dict[str, Any]) -> dict[str, int]:
    prompt = sum(len(message["content"]) for message in request["messages"])
    completion = len(content) + len(rule.get("reasoning", ""))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _completion(request: dict[str, Any], content: str, rule: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    if "reasoning" in rule:
        message["reasoning_content"] = rule["reasoning"]
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(rule)}],
    }
    return answer if rule.get("no_usage") else answer | {"usage": _usage(request, content, rule)}


def _events(request: dict[str, Any], content: str, rule: dict[str, Any]) -> Iterator[object]:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": request["model"]}

    def event(delta: dict[str, Any], finish: object = None) -> dict[str, Any]:
        return frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    size = rule.get("piece_chars", _PIECE_CHARS)
    yield event({"role": "assistant", "content": ""})
    for field, text in (("reasoning_content", rule.get("reasoning", "")), ("content", content)):
        for start in range(0, len(text), size):
            yield event({field: text[start : start + size]})
    if _finish(rule) is not None:
        yield event({}, _finish(rule))
    if request.get("stream_options", {}).get("include_usage") and not rule.get("no_usage"):
        yield frame | {"choices": [], "usage": _usage(request, content, rule)}
    if not rule.get("no_done"):
        yield "[DONE]"


def _event_bytes(event: object, rule: dict[str, Any]) -> bytes:
    line_end = "\r\n" if rule.get("crlf") else "\n"
    comment = f": keep-alive{line_end}{line_end}" if rule.get("comments") else ""
    data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
    return f"{comment}data: {data}{line_end}{line_end}".encode()


def main() -> None:
    """Serve on 127.0.0.1 until killed."""
    parser = argparse.ArgumentParser(description="A chat provider for tests and the demonstration.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key")
    arguments = parser.parse_args()
    _Handler.state = _State()
    _Handler.key = arguments.key
    with ThreadingHTTPServer(("127.0.0.1", arguments.port), _Handler) as server:
        print(server.server_address[1], flush=True)  # noqa: T201 - its only output
        server.serve_forever()


if __name__ == "__main__":
    main()
