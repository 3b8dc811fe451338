"""Compares ours with other memories of the same messages: `benchmarks/compare.py --messages 20000`.

The same messages, vectors and questions go to every memory on this machine in one run: ours over HTTP, the
specification's schema with its ivfflat indexes, mem0 on pgvector and Chroma, each as its own documentation
shows it. They take turns, round after round, so that a neighbour's load falls on all. `docs/performance.md`
says how to read it.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

import asyncpg
import numpy as np
import orjson

from app.database.embedded import start_embedded
from benchmarks.brute_force import DEPTH, nearest
from benchmarks.corpus import Corpus, Query, corpus_until_now
from benchmarks.http_load import Connection, Request, search_requests, send_all
from benchmarks.metrics import markdown_table, percentile, recall
from benchmarks.peers.peer import Message, Question, Workload, write_workload
from benchmarks.provider import run_provider
from benchmarks.service import ROOT, Service, clean_environment, machine_facts, run_service
from benchmarks.storage import measure_storage, server_versions, wait_until_embedded, wait_until_vacuumed
from benchmarks.topic_vectors import TopicVectors

_REQUIREMENTS = ROOT / "benchmarks" / "peers" / "requirements.txt"
_AT_ONCE = (1, 8)
_BATCH = 1000
_PROBES = (1, 10)
_ABANDONED_AFTER_S = 3


@dataclass(frozen=True)
class _Round:
    """One round of all questions: milliseconds and what was found for each, and seconds for all."""

    latencies_ms: list[float]
    found: list[list[int]]
    wall_s: float


@dataclass
class _Row:
    """What was measured of one memory, or of one way to ask it."""

    name: str
    ask: Callable[[int], _Round]
    written_per_s: float | None = None
    bytes_each: float | None = None
    rounds: dict[int, list[_Round]] = field(default_factory=lambda: {at_once: [] for at_once in _AT_ONCE})

    def medians_ms(self, at_once: int) -> list[float]:
        """The median latency of every round."""
        return [percentile(measured.latencies_ms, 0.5) for measured in self.rounds[at_once]]

    def latencies_ms(self, at_once: int) -> list[float]:
        return [latency for measured in self.rounds[at_once] for latency in measured.latencies_ms]

    def per_second(self, at_once: int) -> float:
        rounds = self.rounds[at_once]
        return sum(len(item.latencies_ms) for item in rounds) / sum(item.wall_s for item in rounds)


class _PeerProcess:
    """A peer in its own process and environment, obeying `benchmarks/peers/peer.py`."""

    def __init__(self, python: Path, module: str, folder: Path, place: str) -> None:
        self._process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.peers.{module}", str(folder), place],
            env=clean_environment({"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder)}),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, command: str) -> dict[str, Any]:
        """Have one command done.

        Raises:
            RuntimeError: the process has ended; it has written why to standard error.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the peer has no pipes")
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the peer ended at {command!r} ({self._process.wait()})")
        outcome: dict[str, Any] = json.loads(answer)
        return outcome

    def ask(self, at_once: int) -> _Round:
        return _Round(**self.order(f"ask {at_once} {DEPTH}"))

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(_ABANDONED_AFTER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _peers_python(folder: Path) -> Path:
    """The interpreter of an environment with the peers in it, made where it is not there yet."""
    wanted = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"installing the peers into {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "-r", str(_REQUIREMENTS)],
            check=True,
            stdout=sys.stderr,
        )
        stamp.write_text(wanted, encoding="utf-8")
    return python


def _make_workload(corpus: Corpus, queries: Sequence[Query], dimensions: int) -> Workload:
    """The messages of the corpus that have not expired, since not every peer knows of expiry."""
    model = TopicVectors(dimensions)
    live = np.sort(np.concatenate([corpus.live_numbers(session) for session in range(corpus.sessions)]))
    messages, vectors = [], np.empty((len(live), dimensions), dtype=np.float32)
    for row, number in enumerate(live.tolist()):
        body = corpus.message(number)
        messages.append(
            Message(
                number=number,
                session=int(corpus.session_of[number]),
                role=body["role"],
                content=body["content"],
                created_at=body["created_at"],
                expires_at=body.get("expires_at"),
            )
        )
        vectors[row] = model.of_code("message", topic=int(corpus.topic_of[number]), number=number)
    questions = [
        Question(query.session, query.text, model.of_code("query", topic=query.topic, number=query.number))
        for query in queries
    ]
    return Workload(messages, vectors, questions)


def _exact(workload: Workload) -> list[list[int]]:
    """The true answer of every question, by comparing with every message of its session."""
    sessions = np.array([message.session for message in workload.messages])
    numbers = np.array([message.number for message in workload.messages])
    answers = []
    for question in workload.questions:
        rows = np.flatnonzero(sessions == question.session)
        best = nearest(workload.vectors[rows], question.vector, DEPTH)
        answers.append([int(numbers[rows[row]]) for row in best])
    return answers


async def _write_ours(service: Service, corpus: Corpus, workload: Workload, dsn: str) -> float:
    """Messages a second over HTTP in batches of 1,000, until the last has its vector."""
    bodies = [corpus.message(message.number) for message in workload.messages]
    batches = [
        Request("/dialogues/batch", orjson.dumps({"dialogues": bodies[start : start + _BATCH]}))
        for start in range(0, len(bodies), _BATCH)
    ]
    begun = time.perf_counter()
    await send_all(service.url, batches, concurrency=1)
    await wait_until_embedded(dsn)
    return len(bodies) / (time.perf_counter() - begun)


def _ours(service: Service, name: str, requests: Sequence[Request]) -> _Row:
    def ask(at_once: int) -> _Round:
        load = asyncio.run(send_all(service.url, requests, concurrency=at_once))
        return _Round(load.latencies_ms, [], load.wall_s)

    return _Row(name, ask)


async def _found_by_ours(service: Service, requests: Sequence[Request]) -> list[list[int]]:
    """The anchors of every answer, which come with what stands around them; also warms the query cache."""
    found = []
    async with Connection(service.url) as connection:
        for request in requests:
            memories = orjson.loads(await connection.send(request))["memories"]
            found.append([int(item["message_id"]) for item in memories if item["is_anchor"]])
    return found


async def _make_database(dsn: str, name: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()


@contextlib.contextmanager
def _peers(
    arguments: argparse.Namespace, folder: Path, workload: Workload, dsn_of: Callable[[str], str]
) -> Iterator[list[_Row]]:
    """The rows of all peers, loaded."""
    python = _peers_python(arguments.venv.resolve())
    count = len(workload.messages)
    with contextlib.ExitStack() as stack:

        def start(module: str, place: str) -> _PeerProcess:
            peer = _PeerProcess(python, module, folder, place)
            stack.callback(peer.close)
            return peer

        def load(name: str, peer: _PeerProcess) -> _Row:
            print(f"loading {name}", file=sys.stderr)
            seconds = peer.order("load")["seconds"]
            size = peer.order("size")["bytes"]
            return _Row(name, peer.ask, written_per_s=count / seconds, bytes_each=size / count)

        rows = []
        for database in ("spec", "mem0"):
            asyncio.run(_make_database(dsn_of("postgres"), database))
        first, *others = _PROBES
        spec = load(f"specification, probes {first}", start("spec_schema", f"{dsn_of('spec')} {first}"))
        rows.append(spec)
        rows.extend(
            _Row(f"specification, probes {probes}", start("spec_schema", f"{dsn_of('spec')} {probes}").ask)
            for probes in others
        )
        chroma = folder / "chroma"
        chroma.mkdir()
        rows.append(load("Chroma, in its caller", start("chroma", str(chroma))))
        rows.append(load("mem0 on pgvector, in its caller", start("mem0_pgvector", dsn_of("mem0"))))
        yield rows


def _compare(arguments: argparse.Namespace, folder: Path) -> None:
    facts = machine_facts()
    corpus = corpus_until_now(messages=arguments.messages, sessions=arguments.sessions)
    queries = corpus.queries(arguments.queries)
    workload = _make_workload(corpus, queries, arguments.dimensions)
    exact = _exact(workload)
    write_workload(folder, workload)
    data_dir = folder / "data"
    data_dir.mkdir()
    with (
        run_provider(dimensions=arguments.dimensions) as provider_url,
        start_embedded(data_dir) as server,
        run_service(
            data_dir,
            settings={
                "EMBEDDING_BASE_URL": provider_url,
                "EMBEDDING_API_KEY": "none-needed",
                "EMBEDDING_DIMENSIONS": str(arguments.dimensions),
            },
        ) as service,
    ):
        dsn = server.dsn_for("temporal_memory")
        vector = search_requests(corpus, queries, mode="vector", top_n=DEPTH, window_size=0, decay=False)
        plain = _ours(service, "ours, vectors only", vector)
        print("loading ours", file=sys.stderr)
        plain.written_per_s = asyncio.run(_write_ours(service, corpus, workload, dsn))
        asyncio.run(wait_until_vacuumed(dsn))
        stored, sizes = asyncio.run(measure_storage(dsn))
        plain.bytes_each = sum(size.total for size in sizes) / stored
        found = asyncio.run(_found_by_ours(service, vector))
        whole = search_requests(corpus, queries, top_n=DEPTH)
        ours = [
            plain,
            _ours(service, "ours, as it comes: both sides, windows, prompt", whole),
            _ours(service, "ours, a request that does nothing", [Request("/health/live")] * len(queries)),
        ]
        with _peers(arguments, folder, workload, server.dsn_for) as peers:
            rows = [*ours, *peers]
            for row in rows:
                row.ask(1)  # caches and pools warm, as they are in a service that runs
            for turn in range(arguments.rounds):
                for at_once in _AT_ONCE:
                    for row in (*rows[turn % len(rows) :], *rows[: turn % len(rows)]):
                        row.rounds[at_once].append(row.ask(at_once))
            versions = asyncio.run(server_versions(dsn))
            print(f"{facts} · {versions}\n")
            print(
                f"{len(workload.messages):,} messages, {corpus.sessions:,} sessions,"
                f" {arguments.dimensions:,} dimensions, {len(queries)} questions × {arguments.rounds},"
                f" the best {DEPTH}\n"
            )
            print(_table(rows, {plain.name: found}, exact))


def _table(rows: Sequence[_Row], found: dict[str, list[list[int]]], exact: Sequence[Sequence[int]]) -> str:
    """Every memory with its figures, and its median beside that of the first row, round by round."""
    lines: list[tuple[object, ...]] = []
    base = rows[0].medians_ms(1)
    for row in rows:
        answers = found.get(row.name) or row.rounds[1][-1].found
        alone = row.latencies_ms(1)
        ratios = [own / ours for own, ours in zip(row.medians_ms(1), base, strict=True)]
        lines.append(
            (
                row.name,
                _mean_recall(answers, exact),
                percentile(alone, 0.5),
                percentile(alone, 0.95),
                f"{percentile(ratios, 0.5):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                row.per_second(8),
                percentile(row.latencies_ms(8), 0.95),
                "" if row.written_per_s is None else row.written_per_s,
                "" if row.bytes_each is None else row.bytes_each,
            )
        )
    header = (
        "memory",
        f"recall@{DEPTH}",
        "p50 ms",
        "p95 ms",
        "p50 beside ours",
        "asked/s, 8 at once",
        "p95 ms, 8 at once",
        "written/s",
        "bytes a message",
    )
    return markdown_table(header, lines)


def _mean_recall(answers: Sequence[Sequence[int]], exact: Sequence[Sequence[int]]) -> str:
    if not any(answers):
        return ""
    shares = [recall(found, wanted) for found, wanted in zip(answers, exact, strict=True)]
    return f"{sum(shares) / len(shares):.3f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Ours beside others; docs/performance.md says how to read it."
    )
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--queries", type=int, default=100, help="drawn by size of the session")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--venv",
        type=Path,
        default=Path(tempfile.gettempdir()) / "temporal-memory-peers",
        help="the peers' own environment, made where it is missing (about 1 GB)",
    )
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="memory-compare-") as folder:
        _compare(arguments, Path(folder))


if __name__ == "__main__":
    main()
