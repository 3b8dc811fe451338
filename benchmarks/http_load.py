"""Sends requests at a fixed concurrency over kept-alive connections and times each."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urlsplit

import orjson
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.corpus import Corpus, Query
from benchmarks.metrics import percentile
from benchmarks.processes import cpu_seconds
from benchmarks.service import Service

_BATCH = 1000
_POSTS = 500
_POSTS_AT_ONCE = 8
_BATCHES = 10
_FRESH_SESSION_SIZE = 50
_CONCURRENCIES = (1, 8, 16)


@dataclass(frozen=True)
class Request:
    path: str
    body: bytes | None = None


@dataclass(frozen=True)
class Load:
    """The outcome of some requests: milliseconds of each in the order given, and seconds for all."""

    latencies_ms: list[float]
    wall_s: float

    @property
    def per_second(self) -> float:
        return len(self.latencies_ms) / self.wall_s

    def at(self, share: float) -> float:
        return percentile(self.latencies_ms, share)


@dataclass(frozen=True)
class Measured:
    """A load with a name.

    Attributes:
        cpu_ms: processor time of the service and its embedded database, mean of a request.
        server_ms: mean time of a search as the service itself counts it; None where nothing was searched.
    """

    name: str
    concurrency: int
    load: Load
    cpu_ms: float
    server_ms: float | None = None


class Connection:
    """One kept-alive HTTP/1.1 connection to the service.

    A general client costs a millisecond a request, as much as what is measured, on cores the service needs.
    """

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._host, self._port = str(address.hostname), address.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        self._streams = await asyncio.open_connection(self._host, self._port, limit=2**24)
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._streams:
            self._streams[1].close()
            await self._streams[1].wait_closed()

    async def send(self, request: Request) -> bytes:
        """Send a request, GET where it has no body, and give the body of the answer.

        Raises:
            RuntimeError: the answer is an error: a figure with errors in it means nothing.
        """
        if self._streams is None:
            raise RuntimeError("the connection is not open")
        reader, writer = self._streams
        method, body = ("GET", b"") if request.body is None else ("POST", request.body)
        head = (
            f"{method} {request.path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = answer.partition("\r\ncontent-length:")[2].partition("\r\n")[0]
        text = await reader.readexactly(int(length))
        if not answer.startswith("http/1.1 2"):
            raise RuntimeError(f"{method} {request.path} answered {answer.splitlines()[0]}: {text.decode()}")
        return text


async def send_all(url: str, requests: Sequence[Request], *, concurrency: int) -> Load:
    """Send every request, over as many connections as requests are to be under way at once.

    Raises:
        RuntimeError: an answer is an error.
    """
    latencies_ms = [0.0] * len(requests)
    waiting = iter(enumerate(requests))

    async def work(connection: Connection) -> None:
        for index, request in waiting:
            begun = time.perf_counter()
            await connection.send(request)
            latencies_ms[index] = (time.perf_counter() - begun) * 1000

    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection(url)) for _ in range(concurrency)]
        begun = time.perf_counter()
        await asyncio.gather(*map(work, connections))
        return Load(latencies_ms, time.perf_counter() - begun)


def search_requests(corpus: Corpus, queries: Iterable[Query], **fields: object) -> list[Request]:
    """One `/memory/search` a query, with these further fields."""
    return [
        Request(
            "/memory/search",
            orjson.dumps({"user_id": corpus.user_id(query.session), "query": query.text, **fields}),
        )
        for query in queries
    ]


async def measure_searches(
    service: Service, *, corpus: Corpus, queries: Sequence[Query], rounds: int
) -> list[Measured]:
    """Searches whose query vector is cached, in several forms; the first row is the floor of any request."""
    searches = search_requests(corpus, queries)
    prompts = [Request("/memory/prompt", search.body) for search in searches]
    forms: list[tuple[str, list[Request], tuple[int, ...]]] = [
        ("GET /health/live (floor)", [Request("/health/live")] * len(queries), (1,)),
        ("/memory/search", searches, _CONCURRENCIES),
        ("/memory/search, mode vector", search_requests(corpus, queries, mode="vector"), (1,)),
        ("/memory/search, mode keyword", search_requests(corpus, queries, mode="keyword"), (1,)),
        ("/memory/prompt, 1,000 tokens", prompts, (1,)),
    ]
    measured = []
    await send_all(service.url, searches, concurrency=1)
    for name, requests, concurrencies in forms:
        for concurrency in concurrencies:
            before = await _search_duration(service.url)
            found = await _measure(service, name, requests * rounds, concurrency=concurrency)
            after = await _search_duration(service.url)
            count = after["count"] - before["count"]
            server_ms = (after["sum"] - before["sum"]) / count * 1000 if count else None
            measured.append(replace(found, server_ms=server_ms))
    return measured


async def measure_writes(service: Service, *, corpus: Corpus) -> list[Measured]:
    """Single messages, one and eight at a time, and batches of 1,000, all to sessions of their own."""
    count = 2 * _POSTS + _BATCHES * _BATCH
    # Users that no earlier run has written to, or all would be duplicates.
    first_user = time.time_ns() // 1000
    fresh = corpus.fresh_messages(count, first_user=first_user, session_size=_FRESH_SESSION_SIZE)

    def posts() -> list[Request]:
        return [Request("/dialogues", orjson.dumps(item)) for item in itertools.islice(fresh, _POSTS)]

    batches = [_batch(fresh) for _ in range(_BATCHES)]
    return [
        await _measure(service, "POST /dialogues", posts(), concurrency=1),
        await _measure(service, "POST /dialogues", posts(), concurrency=_POSTS_AT_ONCE),
        await _measure(service, f"POST /dialogues/batch of {_BATCH:,}", batches, concurrency=1),
    ]


async def _measure(service: Service, name: str, requests: list[Request], *, concurrency: int) -> Measured:
    before = cpu_seconds(service.roots)
    load = await send_all(service.url, requests, concurrency=concurrency)
    cpu_ms = (cpu_seconds(service.roots) - before) / len(requests) * 1000
    return Measured(name, concurrency, load, cpu_ms)


def _batch(messages: Iterable[Mapping[str, Any]]) -> Request:
    body = {"dialogues": list(itertools.islice(messages, _BATCH))}
    return Request("/dialogues/batch", orjson.dumps(body))


async def _search_duration(url: str) -> dict[str, float]:
    """The `sum` and `count` of all searches so far, in seconds."""
    async with Connection(url) as connection:
        text = (await connection.send(Request("/metrics"))).decode()
    totals = {"sum": 0.0, "count": 0.0}
    for family in text_string_to_metric_families(text):
        if family.name == "memory_search_duration_seconds":
            for sample in family.samples:
                part = sample.name.rpartition("_")[2]
                if part in totals:
                    totals[part] += sample.value
    return totals
