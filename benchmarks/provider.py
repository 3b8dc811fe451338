"""An embedding provider that answers at once, in the OpenAI protocol: `benchmarks/provider.py --port N`.

Its vectors are those of `benchmarks/topic_vectors.py`, so what is measured is the service and not a model;
with `--geometry` those of `benchmarks/moved_vectors.py`: the offline model, measuring differently.
"""

import argparse
import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from benchmarks.moved_vectors import GEOMETRIES, Geometry, MovedVectors
from benchmarks.service import clean_environment, free_port, stop
from benchmarks.topic_vectors import TopicVectors

_START_LIMIT_S = 30

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Provider:
    """The ASGI application: `POST …/embeddings`; anything else answers 404."""

    def __init__(self, *, dimensions: int, geometry: Geometry | None = None) -> None:
        """Take no request yet.

        Args:
            dimensions: of vectors where the request does not say.
            geometry: None: topic vectors.
        """
        self._default = dimensions
        self._geometry: Geometry | None = geometry
        self._vectors: dict[int, TopicVectors | MovedVectors] = {}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = await _read(receive)
        if scope["path"].endswith("/embeddings"):
            await _answer(send, 200, self.reply(orjson.loads(body)))
        else:
            await _answer(send, 404, orjson.dumps({"message": "only /embeddings"}))

    def reply(self, request: dict[str, Any]) -> bytes:
        """The JSON answer to one embeddings request."""
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        dimensions = request.get("dimensions") or self._default
        if dimensions not in self._vectors:
            self._vectors[dimensions] = (
                MovedVectors(dimensions, geometry=self._geometry)
                if self._geometry
                else TopicVectors(dimensions)
            )
        vectors = self._vectors[dimensions]
        tokens = sum(map(len, texts))
        reply: bytes = orjson.dumps(
            {
                "object": "list",
                "model": request.get("model"),
                "data": [
                    {"object": "embedding", "index": index, "embedding": vectors.of_text(text)}
                    for index, text in enumerate(texts)
                ],
                "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )
        return reply


async def _read(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def run_provider(*, dimensions: int, geometry: Geometry | None = None) -> Iterator[str]:
    """The base URL of a provider that runs in a process of its own until the block ends."""
    port = free_port()
    command = [sys.executable, __file__, "--port", str(port), "--dimensions", str(dimensions)]
    process = subprocess.Popen(
        [*command, *(("--geometry", geometry) if geometry else ())],
        env=clean_environment({}),
        stdout=sys.stderr,
        start_new_session=True,
    )
    try:
        _wait(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        stop(process)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(url, timeout=1)
            return
        time.sleep(0.02)
    raise RuntimeError("the embedding provider did not come up")


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="An embedding provider that answers at once.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--geometry", choices=GEOMETRIES)
    arguments = parser.parse_args()
    config = uvicorn.Config(
        Provider(dimensions=arguments.dimensions, geometry=arguments.geometry),
        port=arguments.port,
        lifespan="off",
        log_level="warning",
        access_log=False,
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
