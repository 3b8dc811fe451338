"""Measures speed and size: `benchmarks/scale.py --messages 100000 --sessions 500`.

Synthetic conversations go through the service's own write path (import, embedding over HTTP from a provider
that answers at once), then everything is asked over HTTP. `docs/performance.md` has the figures.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from app.database.embedded import start_embedded
from benchmarks.brute_force import DEPTH, measure_recall
from benchmarks.corpus import Corpus, Query, corpus_until_now
from benchmarks.http_load import Measured, measure_searches, measure_writes
from benchmarks.metrics import markdown_table, percentile
from benchmarks.processes import resident_bytes
from benchmarks.provider import run_provider
from benchmarks.service import machine_facts, run_command, run_service
from benchmarks.storage import (
    TableSize,
    measure_storage,
    server_versions,
    wait_until_embedded,
    wait_until_vacuumed,
)

_SIZES = (150, 1_000, 10_000, 50_000)
_CORPUS = "corpus.json"


@dataclass(frozen=True)
class _Loaded:
    """How long the corpus took to come in; None where it was there from an earlier run."""

    import_s: float | None
    embedded: int
    embed_s: float


def _open_corpus(
    data_dir: Path, arguments: argparse.Namespace, settings: dict[str, str]
) -> tuple[Corpus, float | None]:
    """The corpus of an earlier run in this folder, or a new one that is imported with the command."""
    note = data_dir / _CORPUS
    if note.exists():
        kept = json.loads(note.read_text(encoding="utf-8"))
        return Corpus(kept["messages"], kept["sessions"], datetime.fromisoformat(kept["now"])), None
    corpus = corpus_until_now(messages=arguments.messages, sessions=arguments.sessions)
    file = data_dir / "corpus.jsonl"
    print(f"writing {corpus.messages:,} messages to a file", file=sys.stderr)
    corpus.write(file)
    run_command("migrate", data_dir=data_dir, settings=settings)
    taken_s = run_command("import", str(file), data_dir=data_dir, settings=settings)
    file.unlink()
    kept = {"messages": corpus.messages, "sessions": corpus.sessions, "now": corpus.now.isoformat()}
    note.write_text(json.dumps(kept), encoding="utf-8")
    return corpus, taken_s


@contextlib.contextmanager
def _connect(arguments: argparse.Namespace, data_dir: Path) -> Iterator[str]:
    if arguments.database_url:
        yield arguments.database_url
    else:
        with start_embedded(data_dir) as server:
            yield server.dsn_for("temporal_memory")


def _measure(arguments: argparse.Namespace, data_dir: Path) -> None:
    facts = machine_facts()
    with run_provider(dimensions=arguments.dimensions) as provider_url:
        settings = {
            "EMBEDDING_BASE_URL": provider_url,
            "EMBEDDING_API_KEY": "none-needed",
            "EMBEDDING_DIMENSIONS": str(arguments.dimensions),
            **dict(pair.split("=", 1) for pair in arguments.env),
        }
        if arguments.database_url:
            settings["DATABASE_URL"] = arguments.database_url
        corpus, import_s = _open_corpus(data_dir, arguments, settings)
        queries = corpus.queries(arguments.queries)
        with run_service(data_dir, settings=settings) as service, _connect(arguments, data_dir) as dsn:
            loaded = _Loaded(import_s, *asyncio.run(wait_until_embedded(dsn)))
            visible = asyncio.run(wait_until_vacuumed(dsn))
            versions = asyncio.run(server_versions(dsn))
            stored, sizes = asyncio.run(measure_storage(dsn))
            # The sweep that makes up for a missed night deletes what has expired.
            if stored < sum(corpus.live_sizes):
                raise SystemExit(f"only {stored:,} messages are stored; {service.log} has the reason")
            recalls = asyncio.run(
                measure_recall(service.url, corpus=corpus, queries=queries, dimensions=arguments.dimensions)
            )
            searches = asyncio.run(
                measure_searches(service, corpus=corpus, queries=queries, rounds=arguments.rounds)
            )
            writes = asyncio.run(measure_writes(service, corpus=corpus))
            resident = resident_bytes(service.pid)
    print(f"{facts} · {versions}\n")
    print(
        f"{corpus.messages:,} messages, {corpus.sessions:,} sessions, {arguments.dimensions:,} dimensions,"
        f" {len(queries)} queries × {arguments.rounds}; {visible:.0%} of the pages all-visible;"
        f" service process {resident / 2**20:,.0f} MiB\n"
    )
    print(_write_table(corpus, loaded, writes), end="\n\n")
    print(_search_table(searches), end="\n\n")
    print(_size_class_table(corpus, queries, searches, recalls), end="\n\n")
    print(_storage_table(sizes, stored))


def _write_table(corpus: Corpus, loaded: _Loaded, writes: Sequence[Measured]) -> str:
    rows: list[tuple[object, ...]] = []
    if loaded.import_s is not None:
        rows.append(("temporal-memory import", "", "", "", corpus.messages / loaded.import_s, ""))
    if loaded.embedded:
        rows.append(("embedding what was imported", "", "", "", loaded.embedded / loaded.embed_s, ""))
    for write in writes:
        rows_each = 1000 if "batch" in write.name else 1
        load = write.load
        rows.append(
            (
                write.name,
                write.concurrency,
                load.at(0.5),
                load.at(0.95),
                load.per_second * rows_each,
                write.cpu_ms,
            )
        )
    return markdown_table(("writing", "at once", "p50 ms", "p95 ms", "messages/s", "CPU ms"), rows)


def _search_table(searches: Sequence[Measured]) -> str:
    rows = [
        (
            search.name,
            search.concurrency,
            *(search.load.at(share) for share in (0.5, 0.95, 0.99)),
            search.load.per_second,
            search.cpu_ms,
            "" if search.server_ms is None else search.server_ms,
        )
        for search in searches
    ]
    return markdown_table(
        ("request", "at once", "p50 ms", "p95 ms", "p99 ms", "requests/s", "CPU ms", "ms inside"), rows
    )


def _size_class_table(
    corpus: Corpus,
    queries: Sequence[Query],
    searches: Sequence[Measured],
    recalls: Sequence[tuple[Query, float]],
) -> str:
    """Latency of the plain search alone, and recall of the vector side, by size of the session asked."""
    alone = next(search.load for search in searches if search.name == "/memory/search")
    members = corpus.live_sizes
    rows: list[tuple[object, ...]] = []
    for low, high in zip((0, *_SIZES, 0), (*_SIZES, corpus.messages, corpus.messages + 1), strict=True):
        chosen = {query.number for query in queries if low <= members[query.session] < high}
        if chosen:
            # Requests are the queries, repeated round after round.
            latencies = [ms for at, ms in enumerate(alone.latencies_ms) if at % len(queries) in chosen]
            found = [share for query, share in recalls if query.number in chosen]
            name = "all" if (low, high) == (0, corpus.messages + 1) else f"{low:,} to {high:,}"
            rows.append(
                (
                    name,
                    len(chosen),
                    percentile(latencies, 0.5),
                    percentile(latencies, 0.95),
                    f"{sum(found) / len(found):.4f}",
                )
            )
    return markdown_table(
        ("messages in the session", "queries", "p50 ms", "p95 ms", f"vector recall@{DEPTH}"), rows
    )


def _storage_table(sizes: Sequence[TableSize], stored: int) -> str:
    def per_message(size: int) -> float:
        return size / stored

    rows: list[tuple[object, ...]] = [
        (size.name, *map(per_message, (size.heap, size.toast, size.indexes, size.total))) for size in sizes
    ]
    rows.append(("all", "", "", "", per_message(sum(size.total for size in sizes))))
    return markdown_table(("bytes a message", "heap", "TOAST and maps", "indexes", "total"), rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="How fast, how large? docs/performance.md says how to read it."
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--queries", type=int, default=200, help="drawn by size of the session")
    parser.add_argument("--rounds", type=int, default=3, help="how often each query is sent and timed")
    parser.add_argument("--database-url", help="an empty database; without it an embedded one is made")
    parser.add_argument(
        "--keep", type=Path, help="keep the data in this folder, and start from what it holds"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a setting of the started service"
    )
    return parser.parse_args()


def main() -> None:
    """Print the tables."""
    arguments = _arguments()
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        _measure(arguments, arguments.keep.resolve())
    else:
        with tempfile.TemporaryDirectory(prefix="memory-scale-") as folder:
            _measure(arguments, Path(folder))


if __name__ == "__main__":
    main()
