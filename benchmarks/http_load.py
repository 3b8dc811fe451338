"""Sends requests at a fixed concurrency over kept-alive connections and times each."""

import asyncio
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.corpus import Corpus, Query
from benchmarks.metrics import percentile

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
        server_ms: mean time of a search as the service itself counts it; None where nothing was searched.
    """

    name: str
    concurrency: int
    load: Load
    server_ms: float | None = None


def open_client(url: str) -> httpx.AsyncClient:
    """A client that keeps its connections open."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    return httpx.AsyncClient(base_url=url, timeout=120, limits=limits)


async def send_all(client: httpx.AsyncClient, requests: Sequence[Request], *, concurrency: int) -> Load:
    """Send every request, `concurrency` of them at a time.

    Raises:
        httpx.HTTPStatusError: an answer was an error; a figure with errors in it means nothing.
    """
    latencies_ms = [0.0] * len(requests)
    waiting = iter(enumerate(requests))

    async def work() -> None:
        for index, request in waiting:
            begun = time.perf_counter()
            await send(client, request)
            latencies_ms[index] = (time.perf_counter() - begun) * 1000

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())
    return Load(latencies_ms, time.perf_counter() - begun)


async def send(client: httpx.AsyncClient, request: Request) -> bytes:
    """Send one request, GET where it has no body, and give the body of the answer."""
    answer = await client.request(
        "GET" if request.body is None else "POST",
        request.path,
        content=request.body,
        headers={"Content-Type": "application/json"},
    )
    answer.raise_for_status()
    return answer.content


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
    url: str, *, corpus: Corpus, queries: Sequence[Query], rounds: int
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
    async with open_client(url) as client:
        await send_all(client, searches, concurrency=1)
        for name, requests, concurrencies in forms:
            for concurrency in concurrencies:
                before = await _search_duration(client)
                load = await send_all(client, requests * rounds, concurrency=concurrency)
                after = await _search_duration(client)
                count = after["count"] - before["count"]
                server_ms = (after["sum"] - before["sum"]) / count * 1000 if count else None
                measured.append(Measured(name, concurrency, load, server_ms))
    return measured


async def measure_writes(url: str, *, corpus: Corpus) -> list[Measured]:
    """Single messages, one and eight at a time, and batches of 1,000, all to sessions of their own."""
    count = 2 * _POSTS + _BATCHES * _BATCH
    # Users that no earlier run has written to, or all would be duplicates.
    first_user = time.time_ns() // 1000
    fresh = corpus.fresh_messages(count, first_user=first_user, session_size=_FRESH_SESSION_SIZE)

    def posts() -> list[Request]:
        return [Request("/dialogues", orjson.dumps(item)) for item in itertools.islice(fresh, _POSTS)]

    async with open_client(url) as client:
        alone = await send_all(client, posts(), concurrency=1)
        together = await send_all(client, posts(), concurrency=_POSTS_AT_ONCE)
        batches = await send_all(client, [_batch(fresh) for _ in range(_BATCHES)], concurrency=1)
    return [
        Measured("POST /dialogues", 1, alone),
        Measured("POST /dialogues", _POSTS_AT_ONCE, together),
        Measured(f"POST /dialogues/batch of {_BATCH:,}", 1, batches),
    ]


def _batch(messages: Iterable[Mapping[str, Any]]) -> Request:
    body = {"dialogues": list(itertools.islice(messages, _BATCH))}
    return Request("/dialogues/batch", orjson.dumps(body))


async def _search_duration(client: httpx.AsyncClient) -> dict[str, float]:
    """The `sum` and `count` of all searches so far, in seconds."""
    text = (await send(client, Request("/metrics"))).decode()
    totals = {"sum": 0.0, "count": 0.0}
    for family in text_string_to_metric_families(text):
        if family.name == "memory_search_duration_seconds":
            for sample in family.samples:
                part = sample.name.rpartition("_")[2]
                if part in totals:
                    totals[part] += sample.value
    return totals
