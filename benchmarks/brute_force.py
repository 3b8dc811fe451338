"""Compares the vector side of a search with an exact search over the same messages."""

import numpy as np
import orjson
from numpy.typing import NDArray

from benchmarks.corpus import Corpus, Query
from benchmarks.http_load import Connection, search_requests
from benchmarks.metrics import recall
from benchmarks.topic_vectors import TopicVectors, Vector

DEPTH = 10


def nearest(vectors: NDArray[np.float32], query: Vector, depth: int) -> list[int]:
    """The rows of the matrix with the highest dot product, best first; all of them where there are fewer."""
    similarities = vectors @ query
    return [int(row) for row in np.argsort(-similarities, kind="stable")[:depth]]


async def measure_recall(
    url: str, *, corpus: Corpus, queries: list[Query], dimensions: int
) -> list[tuple[Query, float]]:
    """Recall at 10 of every query against all messages of its session that have not expired."""
    model = TopicVectors(dimensions)
    by_session: dict[int, list[Query]] = {}
    for query in queries:
        by_session.setdefault(query.session, []).append(query)
    measured = []
    async with Connection(url) as connection:
        for session, asked in by_session.items():
            numbers = corpus.live_numbers(session)
            vectors = np.array(
                [model.of_code("message", topic=int(corpus.topic_of[at]), number=int(at)) for at in numbers],
                dtype=np.float32,
            ).reshape(len(numbers), dimensions)
            requests = search_requests(corpus, asked, mode="vector", top_n=DEPTH, window_size=0, decay=False)
            for query, request in zip(asked, requests, strict=True):
                reply = orjson.loads(await connection.send(request))
                found = [int(memory["message_id"]) for memory in reply["memories"]]
                wanted = model.of_code("query", topic=query.topic, number=query.number)
                exact = [int(numbers[row]) for row in nearest(vectors, wanted, DEPTH)]
                measured.append((query, recall(found, exact)))
    return measured
