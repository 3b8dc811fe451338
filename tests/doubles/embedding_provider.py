"""A small embeddings provider that speaks SiliconFlow's protocol, as a process of its own.

    python -m tests.doubles.embedding_provider --port 0 [--key sk-test]

prints its port as the first line. Vectors are made of hashed words and character pairs: the same text has the
same vector in every process, and texts that share words are similar. What it enforces is what was seen of the
real one: the key, 32 inputs a request (413), no blank input (400), the token limit of the model (413), and
`dimensions` needed by Qwen3-Embedding and refused by all others (400).

POST /_control  {…}  replaces the faults; an empty object removes them:
  fail           list of {"status", "times" (default 1, null: for ever), "body" (JSON), "text" (instead of
                 body), "headers"}: answers to the next requests
  reject         texts that contain one of these strings: the request is refused, code 20015
  reject_status  with this status instead of 400
  max_batch      instead of 32
  delay_s        seconds before every answer
  drip_s         the answer comes byte by byte, with this pause between bytes
  hang_up        number of next requests whose connection is closed without an answer
  answer         "nan", "zero", "null", "strings", "wrong_width", "base64", "integers": what a vector becomes;
                 "shuffled", "no_index", "missing", "duplicate_index": what is done to the list of vectors;
                 "garbage", "empty", "huge": what the whole answer is
  answer_for     only vectors of texts that contain this are spoilt
  dimensions_refused  also a Qwen3-Embedding answers 400 to `dimensions` (as vLLM does)
GET  /_requests -> {"count", "batch_sizes", "max_in_flight", "inputs", "statuses", "bodies", "authorizations"}
POST /_reset    forgets the log and the faults
"""

import argparse
import base64
import hashlib
import json
import re
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

_MAX_BATCH = 32
_NATIVE_DIMENSIONS = {"qwen3-embedding-0.6b": 1024, "bge-m3": 1024, "bge-large-zh-v1.5": 1024}
_MAX_TOKENS = {"bge-large-zh-v1.5": 512, "bge-m3": 8192}
_QUERY = re.compile(r"\AInstruct: [^\n]+\nQuery:")
_TERM = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]+")
_HUGE_BYTES = 20_000_000


def embed(text: str, dimensions: int) -> list[float]:
    """A vector, L2-normalised, of what the text is made of; a query's instruction does not count."""
    counts = [0.0] * dimensions
    for term in _terms(_QUERY.sub("", text)):
        digest = hashlib.blake2b(term.encode(), digest_size=12).digest()
        for place in struct.unpack("<3I", digest):
            counts[place % dimensions] += 1.0 if place & 0x80000000 else -1.0
    norm = sum(value * value for value in counts) ** 0.5
    return [value / norm for value in counts] if norm else [1.0] + [0.0] * (dimensions - 1)


def _terms(text: str) -> list[str]:
    terms: list[str] = []
    for match in _TERM.finditer(text.lower()):
        word = match.group()
        terms += (
            [word] if word.isascii() or len(word) == 1 else [word[i : i + 2] for i in range(len(word) - 1)]
        )
    return terms or [text.lower()]


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.in_flight = 0
        self.reset()

    def reset(self) -> None:
        self.faults: dict[str, Any] = {}
        self.log: dict[str, Any] = {
            "count": 0,
            "batch_sizes": [],
            "max_in_flight": 0,
            "inputs": [],
            "statuses": [],
            "bodies": [],
            "authorizations": [],
        }

    def scripted_failure(self) -> dict[str, Any] | None:
        for failure in self.faults.get("fail", []):
            if failure.get("times", 1) is None:
                return dict(failure)
            if failure.get("times", 1) > 0:
                failure["times"] = failure.get("times", 1) - 1
                return dict(failure)
        return None

    def takes_hang_up(self) -> bool:
        left = int(self.faults.get("hang_up", 0))
        self.faults["hang_up"] = max(0, left - 1)
        return left > 0


class _RefusedError(Exception):
    def __init__(self, status: int, body: object) -> None:
        self.status = status
        self.body = body
        super().__init__(status)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: 40 ms of waiting for an acknowledgement
    state: ClassVar[_State]
    key: ClassVar[str | None]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing: the log of requests is at /_requests."""

    def do_GET(self) -> None:
        with self.state.lock:
            self._answer(200, self.state.log) if self.path == "/_requests" else self._answer(
                404, None, text="404"
            )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path in {"/_control", "/_reset"}:
            with self.state.lock:
                if self.path == "/_reset":
                    self.state.reset()
                else:
                    self.state.faults = json.loads(body)
            self._answer(200, {})
            return
        with self.state.lock:
            self.state.in_flight += 1
            self.state.log["max_in_flight"] = max(self.state.log["max_in_flight"], self.state.in_flight)
        try:
            self._serve(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with self.state.lock:
                self.state.in_flight -= 1

    def _serve(self, body: bytes) -> None:
        request = json.loads(body)
        texts = request.get("input")
        texts = [texts] if isinstance(texts, str) else texts
        with self.state.lock:
            self._note(request, texts)
            faults = dict(self.state.faults)
            failure = self.state.scripted_failure()
            hangs_up = failure is None and self.state.takes_hang_up()
        time.sleep(faults.get("delay_s", 0))
        if hangs_up:
            self._note_status(0)
            self.close_connection = True
            return
        if failure is not None:
            self._note_status(failure["status"])
            self._answer(
                failure["status"],
                failure.get("body"),
                text=failure.get("text"),
                headers=failure.get("headers"),
            )
            return
        try:
            answer = self._embeddings(request, texts, faults)
        except _RefusedError as refusal:
            self._note_status(refusal.status)
            self._answer(refusal.status, refusal.body)
            return
        self._note_status(200)
        self._answer(200, answer, text=_whole_answer(faults), drip_s=faults.get("drip_s", 0))

    def _note(self, request: dict[str, Any], texts: list[str]) -> None:
        log = self.state.log
        log["count"] += 1
        log["batch_sizes"].append(len(texts))
        log["inputs"].append(texts)
        log["bodies"].append({key: value for key, value in request.items() if key != "input"})
        log["authorizations"].append(self.headers.get("authorization"))

    def _note_status(self, status: int) -> None:
        with self.state.lock:
            self.state.log["statuses"].append(status)

    def _embeddings(
        self, request: dict[str, Any], texts: list[str], faults: dict[str, Any]
    ) -> dict[str, Any]:
        if not self.path.endswith("/v1/embeddings"):
            raise _RefusedError(404, "404 page not found")
        if self.key is not None and self.headers.get("authorization") != f"Bearer {self.key}":
            raise _RefusedError(401, "Api key is invalid")
        model = str(request.get("model", "")).rsplit("/", 1)[-1].lower()
        if model not in _NATIVE_DIMENSIONS:
            raise _RefusedError(
                400, _parameter_error("Model does not exist. Please check it carefully.", 20012)
            )
        max_batch = faults.get("max_batch", _MAX_BATCH)
        if len(texts) > max_batch:
            message = f"batch size {len(texts)} > maximum allowed batch size {max_batch}"
            raise _RefusedError(413, {"message": message, "code": 413, "type": "Validation"})
        _check_inputs(texts, faults, max_tokens=_MAX_TOKENS.get(model, 32768))
        return _embeddings_of(
            texts, faults, dimensions=_check_dimensions(request, model, faults), model=model
        )

    def _answer(
        self,
        status: int,
        body: object,
        *,
        text: str | None = None,
        headers: dict[str, str] | None = None,
        drip_s: float = 0,
    ) -> None:
        content = json.dumps(body, ensure_ascii=False).encode() if text is None else text.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json" if text is None else "text/html")
        self.send_header("content-length", str(len(content)))
        self.send_header("x-siliconcloud-trace-id", "ti_test")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if not drip_s:
            self.wfile.write(content)
            return
        for byte in content:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(drip_s)


def _parameter_error(message: str, code: int = 20015) -> dict[str, Any]:
    return {"code": code, "message": message, "data": None}


def _check_inputs(texts: list[str], faults: dict[str, Any], *, max_tokens: int) -> None:
    for text in texts:
        if not text.strip():
            raise _RefusedError(400, _parameter_error("The parameter is invalid. input must not be empty."))
        if any(poison in text for poison in faults.get("reject", [])):
            body = _parameter_error("The parameter is invalid. Please check again.")
            raise _RefusedError(faults.get("reject_status", 400), body)
        if len(text) >= max_tokens:
            message = f"input must have less than {max_tokens} tokens"
            raise _RefusedError(413, {"message": message, "code": 413, "type": "Validation"})


def _check_dimensions(request: dict[str, Any], model: str, faults: dict[str, Any]) -> int:
    native = _NATIVE_DIMENSIONS[model]
    takes_them = model.startswith("qwen3-embedding") and not faults.get("dimensions_refused")
    if takes_them and request.get("dimensions") in {64, 128, 256, 512, 768, 1024}:
        return int(request["dimensions"])
    if takes_them or "dimensions" in request:
        raise _RefusedError(
            400, _parameter_error("The parameter is invalid: dimensions. Please check again.")
        )
    return native


def _whole_answer(faults: dict[str, Any]) -> str | None:
    answer = faults.get("answer")
    return {"garbage": "<html><title>502</title></html>", "empty": "", "huge": " " * _HUGE_BYTES}.get(
        answer or ""
    )


def _embeddings_of(
    texts: list[str], faults: dict[str, Any], *, dimensions: int, model: str
) -> dict[str, Any]:
    answer = faults.get("answer")
    data: list[dict[str, Any]] = []
    for index, text in enumerate(texts):
        vector: object = embed(text, dimensions)
        if faults.get("answer_for", "") in text:
            vector = _as_answered(embed(text, dimensions), answer)
        data.append({"object": "embedding", "embedding": vector, "index": index})
    if answer == "shuffled":
        data.reverse()
    elif answer == "no_index":
        data = [{"embedding": item["embedding"]} for item in data]
    elif answer == "missing":
        data.pop()
    elif answer == "duplicate_index":
        data[-1]["index"] = 0
    tokens = sum(map(len, texts))
    usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    return {"object": "list", "model": model, "data": data, "usage": usage}


def _as_answered(vector: list[float], answer: str | None) -> object:  # noqa: PLR0911 - a table
    match answer:
        case "nan":
            return [float("nan"), *vector[1:]]
        case "zero":
            return [0.0] * len(vector)
        case "null":
            return None
        case "strings":
            return [str(value) for value in vector]
        case "wrong_width":
            return vector[: len(vector) // 2]
        case "base64":
            return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        case "integers":
            return [round(value * 100) for value in vector]
    return vector


def main() -> None:
    """Serve on 127.0.0.1 until killed."""
    parser = argparse.ArgumentParser(description="An embeddings provider for tests.")
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
