"""Requests that no client should send, thousands of them, over real sockets to a real service.

    python benchmarks/fuzz.py --cases 100000 [--first 0]

No answer may be 500 or above, none may take long, the service has to stay well, and its memory bounded. What
fails is printed with its number; `--first NUMBER --cases 1` sends it again.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from benchmarks.chat_provider_process import run_chat_provider
from benchmarks.malformed import Malformed, make_malformed
from benchmarks.metrics import markdown_table
from benchmarks.processes import resident_bytes
from benchmarks.service import machine_facts, run_service

_AT_ONCE = 16
_PATIENCE_S = 20.0
_MIB = 1024 * 1024
_ALIVE = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@dataclass
class Outcomes:
    """What came of the requests.

    Attributes:
        answers: how many, by kind and status; 0: the service hung up.
        faults: what must not be, in words.
        slowest_s: longest time to an answer.
        most_bytes: most memory that the service had.
    """

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    most_bytes: int = 0


async def send_malformed(
    port: int, request: Malformed, *, patience_s: float = _PATIENCE_S
) -> tuple[int, bytes]:
    """Send it on a connection of its own; status (0: the service hung up) and all of the answer.

    Raises:
        TimeoutError: there was neither answer nor end.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=64 * _MIB)
    try:
        async with asyncio.timeout(patience_s):
            with contextlib.suppress(ConnectionError):
                writer.write(request.raw)
                await writer.drain()
                if request.is_cut:
                    writer.write_eof()
                return await _read_answer(reader, has_body=not request.raw.startswith(b"HEAD "))
            return 0, b""
    finally:
        writer.transport.abort()


async def _read_answer(reader: asyncio.StreamReader, *, has_body: bool) -> tuple[int, bytes]:
    """The first answer that is final: 100 and 101 are not."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return 0, b""
        status = int(head.split(b" ", 2)[1])
        if status >= 200:
            break
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0].split(b":")[1]) if lengths and has_body and status not in {204, 304} else 0
    with contextlib.suppress(asyncio.IncompleteReadError):
        return status, head + await reader.readexactly(length)
    return status, head


def find_fault(status: int, answer: bytes) -> str | None:
    """What is wrong with an answer, if anything is."""
    if status >= 500:
        return f"{status}: {answer[-300:]!r}"
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"x-injected" in head.lower():
        return f"a header of the caller's: {head!r}"
    if b"application/problem+json" in head and body:
        try:
            json.loads(body.decode("utf-8"))
        except ValueError:
            return f"a problem that is no JSON: {body[:300]!r}"
    return None


async def send_all(port: int, pid: int, numbers: range, *, at_once: int = _AT_ONCE) -> Outcomes:
    """Send the requests of these numbers, some at once."""
    outcomes = Outcomes()
    waiting = iter(numbers)

    async def send_some() -> None:
        for number in waiting:
            request = make_malformed(number)
            begun = time.perf_counter()
            try:
                status, answer = await send_malformed(port, request)
            except TimeoutError:
                outcomes.faults.append(f"{number} ({request.kind}): no answer: {request.raw[:200]!r}")
                continue
            except OSError as error:
                outcomes.faults.append(f"{number} ({request.kind}): {error!r}")
                continue
            outcomes.slowest_s = max(outcomes.slowest_s, time.perf_counter() - begun)
            outcomes.most_bytes = max(outcomes.most_bytes, resident_bytes(pid))
            outcomes.answers[request.kind, status] += 1
            if fault := find_fault(status, answer):
                outcomes.faults.append(f"{number} ({request.kind}): {fault}")

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(send_some())
    return outcomes


def _run(numbers: range) -> Outcomes:
    with tempfile.TemporaryDirectory() as folder, run_chat_provider() as provider:
        settings = {name.upper(): value for name, value in provider.settings.items()} | {"LOG_LEVEL": "ERROR"}
        with run_service(Path(folder), settings=settings) as service:
            port = int(service.url.rpartition(":")[2])
            before = resident_bytes(service.pid)
            begun = time.perf_counter()
            outcomes = asyncio.run(send_all(port, service.pid, numbers))
            took_s = time.perf_counter() - begun
            alive, _ = asyncio.run(send_malformed(port, Malformed("", _ALIVE)))
            after = resident_bytes(service.pid)
            stacks = service.log.read_text(errors="replace").count("Traceback")
    if alive != 200:
        outcomes.faults.append(f"in the end /health/live answers {alive}")
    if stacks:
        outcomes.faults.append(f"{stacks} stacks in the log")
    kinds = sorted({kind for kind, _ in outcomes.answers})
    statuses = sorted({status for _, status in outcomes.answers})
    print(machine_facts(), "\n")
    print(
        markdown_table(
            ["", *(str(status) if status else "hung up" for status in statuses)],
            [[kind, *(str(outcomes.answers[kind, status]) for status in statuses)] for kind in kinds],
        )
    )
    print(
        f"\n{outcomes.answers.total()} of {len(numbers)} requests in {took_s:.0f} s;"
        f" slowest {outcomes.slowest_s:.2f} s; memory {before / _MIB:.0f} MiB before,"
        f" at most {outcomes.most_bytes / _MIB:.0f}, {after / _MIB:.0f} after; {len(outcomes.faults)} faults"
    )
    for fault in outcomes.faults[:50]:
        print(fault)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=20_000, help="how many requests")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    options = parser.parse_args()
    return bool(_run(range(options.first, options.first + options.cases)).faults)


if __name__ == "__main__":
    sys.exit(main())
