"""A rerank provider as SiliconFlow is one, that fails on command.

POST /v1/rerank scores a document 0.99 where it contains one of `relevant`, else 0.01, best first. Without the
right key it answers 401 with a bare JSON string, to a model that it does not have 400 with code 20012, to an
empty query or document 400 with code 20015.
"""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class RerankProvider:
    """The running double: where it is, what it saw, and how it is told to fail.

    Attributes:
        relevant: what the documents contain that answer.
        status: of every answer; `body` is its JSON, or `text` its text.
        answer: `short`, `duplicate`, `foreign_index`, `nan`, `strings`, `logits`, `garbage`, `empty`, `huge`,
            `no_list`.
        delay_s: before every answer.
        hangs_up: the connection is closed without an answer.
    """

    key: str = "sk-rerank-0123456789"
    model: str = "BAAI/bge-reranker-v2-m3"
    base_url: str = ""
    relevant: tuple[str, ...] = ()
    status: int = 200
    body: object = None
    text: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    answer: str | None = None
    delay_s: float = 0.0
    hangs_up: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)

    def behave(self) -> None:
        """Take all faults back."""
        self.status, self.body, self.text, self.headers = 200, None, None, {}
        self.answer, self.delay_s, self.hangs_up = None, 0.0, False

    def reply(self, request: dict[str, Any], authorization: str | None) -> tuple[int, bytes]:
        """Status and body of the answer to one request."""
        if self.status != 200:
            text = json.dumps(self.body) if self.text is None else self.text
            return self.status, text.encode()
        if authorization != f"Bearer {self.key}":
            return 401, b'"Api key is invalid"'
        if request["model"] != self.model:
            return (
                400,
                b'{"code":20012,"message":"Model does not exist. Please check it carefully.","data":null}',
            )
        documents = request["documents"]
        if not request["query"].strip() or not documents or not all(one.strip() for one in documents):
            return 400, b'{"code":20015,"message":"The parameter is invalid.","data":null}'
        scores = [0.99 if any(word in one for word in self.relevant) else 0.01 for one in documents]
        results: list[dict[str, Any]] = [
            {"index": index, "relevance_score": score} for index, score in enumerate(scores)
        ]
        results.sort(key=lambda one: -one["relevance_score"])
        return 200, self._as_answered(results)

    def _as_answered(self, results: list[dict[str, Any]]) -> bytes:
        whole = {
            "garbage": b"<html>502</html>",
            "empty": b"",
            "huge": b" " * 2_000_000,
            "no_list": b'{"results": {"0": 0.9}}',
        }
        if self.answer in whole:
            return whole[self.answer]
        last = results[-1]
        match self.answer:
            case "short":
                results.pop()
            case "duplicate":
                last["index"] = results[0]["index"]
            case "foreign_index":
                last["index"] = len(results)
            case "nan":
                last["relevance_score"] = float("nan")
            case "strings":
                last["relevance_score"] = "0.9"
            case "logits":
                for one in results:
                    one["relevance_score"] = 9.0 if one["relevance_score"] > 0.5 else -9.0
        return json.dumps({"id": "r", "results": results, "meta": {"billed_units": {}}}).encode()


def _handler(provider: RerankProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Print nothing."""

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            provider.requests.append({"path": self.path, **request})
            time.sleep(provider.delay_s)
            if provider.hangs_up:
                self.close_connection = True
                return
            status, content = provider.reply(request, self.headers.get("authorization"))
            try:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                for name, value in provider.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    return Handler


@pytest.fixture
def rerank_provider() -> Iterator[RerankProvider]:
    """A provider without faults and with an empty log."""
    provider = RerankProvider()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(provider)) as server:
        server.daemon_threads = True
        provider.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield provider
        server.shutdown()
        thread.join()
