"""Writers, chatters, searchers and erasers while everything fails around two services on one database.

Processes of the service and of PostgreSQL are killed with -9, frozen and resumed, connections are cut, the
disk is full at times, and the providers answer 429, 500, too late, by halves, garbage, or not at all. What
clients were told goes into a ledger. When the faults have stopped and the queues are empty, every table is
held against it. The seed settles what comes when; what meets what is up to the machine. Exit code 1: a
promise was broken, and the evidence is printed.
"""

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from app.database.embedded import start_embedded
from app.services import DATABASE_NAME
from benchmarks.chaos_audit import audit, wait_until_drained
from benchmarks.chaos_clients import Client
from benchmarks.chaos_faults import Disk, Faults, Keeper, open_disk
from benchmarks.chaos_ledger import Ledger, Session
from benchmarks.chat_provider_process import run_chat_provider
from benchmarks.metrics import markdown_table
from benchmarks.service import ROOT, clean_environment, machine_facts

_KEYS = {"alpha": "key-of-alpha-0123456789", "beta": "key-of-beta-0123456789"}
_EMBEDDING_KEY = "sk-scripted"
_LIVE_LIMIT_S = 180.0
_DIMENSIONS = 64
_SHOWN = 5


@contextlib.contextmanager
def _run_embedding_provider() -> Iterator[str]:
    """The origin of the scripted embedding provider, a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.doubles.embedding_provider", "--key", _EMBEDDING_KEY],
        cwd=ROOT,
        env=clean_environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        if process.stdout is None or not (port := process.stdout.readline().strip()):
            raise RuntimeError("the embedding provider did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def _settings(folder: Path, embedding: str, chat: dict[str, str]) -> dict[str, str]:
    return {
        "DATA_DIR": str(folder),
        "API_KEYS": ",".join(f"{namespace}={key}" for namespace, key in _KEYS.items()),
        "EMBEDDING_BASE_URL": f"{embedding}/v1",
        "EMBEDDING_API_KEY": _EMBEDDING_KEY,
        "EMBEDDING_DIMENSIONS": str(_DIMENSIONS),
        "EMBEDDING_TIMEOUT_S": "3",
        "EVALUATION_TIMEOUT_S": "4",
        "CHAT_TIMEOUT_S": "6",
        "HOT_WINDOW_TOKENS": "600",
        **{name.upper(): value for name, value in chat.items()},
    }


def _sessions(users: int) -> list[list[Session]]:
    """For each client a user's private chat and two groups; namespaces share users and groups."""
    return [
        [Session(namespace, 1000 + user, group) for group in (None, 7_000, -7_001)]
        for user in range(users)
        for namespace in _KEYS
    ]


async def _run(
    *, disk: Disk, dsn: str, logs: Path, embedding: str, chat: Any, seconds: float, users: int, seed: int
) -> tuple[Ledger, list[tuple[str, object]]]:
    ledger = Ledger()
    chance = random.Random(seed)
    settings = _settings(disk.folder, embedding, chat.settings)
    services = [Keeper(name, logs, settings, ledger) for name in ("first", "second")]
    urls = [service.url for service in services]
    keeping = [asyncio.create_task(service.run()) for service in services]
    faults = Faults(
        services=services, disk=disk, dsn=dsn, embedding=embedding, chat=chat.origin, ledger=ledger,
        seed=chance.randrange(2**32),
    )  # fmt: skip
    try:
        await _until_live(services)
        clients = []
        for sessions in _sessions(users):
            ledger.sessions += sessions
            key, client_seed = _KEYS[sessions[0].namespace], chance.randrange(2**32)
            clients.append(Client(urls, key=key, sessions=sessions, ledger=ledger, seed=client_seed))
        # First the faults end, then the clients: what was promised last is promised in peace.
        no_more_faults, no_more_acts = asyncio.Event(), asyncio.Event()
        acting = [asyncio.create_task(client.run(no_more_acts, pause_s=0.15)) for client in clients]
        breaking = [
            asyncio.create_task(faults.run(no_more_faults)),
            asyncio.create_task(faults.run_providers(no_more_faults)),
        ]
        watch = [*acting, *breaking]
        done, _ = await asyncio.wait(watch, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        no_more_faults.set()
        await asyncio.gather(*breaking)
        await _until_live(services)
        no_more_acts.set()
        await asyncio.gather(*acting)
        connection = await asyncpg.connect(dsn)
        try:
            drained_s = await wait_until_drained(connection, ledger)
            readers = {
                name: Client(urls, key=key, sessions=[], ledger=ledger, seed=0) for name, key in _KEYS.items()
            }
            await audit(connection, ledger, readers, urls)
            for reader in readers.values():
                await reader.aclose()
        finally:
            await connection.close()
    finally:
        for service in services:
            await service.stop()
        await asyncio.gather(*keeping)
    return ledger, [
        ("seconds from the last fault until all queues were empty", drained_s),
        ("longest stop in good order, seconds", faults.longest_stop_s),
    ]


async def _until_live(services: list[Keeper]) -> None:
    deadline = time.monotonic() + _LIVE_LIMIT_S
    async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
        for service in services:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"{service.url}/health/ready")).is_success:
                        break
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{service.name} did not come up; see {service.log}")
                await asyncio.sleep(0.2)


def run_chaos(
    *, seconds: float, users: int, seed: int, logs: Path, mounting: bool = True
) -> tuple[Ledger, list[tuple[str, object]]]:
    """One run; the ledger with its violations, and figures for the table.

    Args:
        seconds: for which things fail.
        users: in each of two namespaces; each has three sessions.
        seed: of what comes when.
        logs: folder for the services' logs.
        mounting: let the disk be a file system of its own, where we may mount one.
    """
    with (
        tempfile.TemporaryDirectory(prefix="memory-chaos-") as folder,
        open_disk(Path(folder) / "data", mounting=mounting) as disk,
        run_chat_provider() as chat,
        _run_embedding_provider() as embedding,
        start_embedded(disk.folder) as server,
    ):
        ledger, rows = asyncio.run(
            _run(
                disk=disk, dsn=server.dsn_for(DATABASE_NAME), logs=logs, embedding=embedding, chat=chat,
                seconds=seconds, users=users, seed=seed,
            )
        )  # fmt: skip
        return ledger, [("disk refuses writes by", disk.way), *rows]


def main() -> int:
    """Print the tables; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--users", type=int, default=10, help="in each of two namespaces")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--logs", type=Path, default=None, help="folder for the services' logs")
    parser.add_argument("--no-mount", action="store_true", help="limit the size of files instead")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    facts = machine_facts()
    with contextlib.ExitStack() as stack:
        logs = arguments.logs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        logs.mkdir(parents=True, exist_ok=True)
        ledger, rows = run_chaos(
            seconds=arguments.seconds, users=arguments.users, seed=seed, logs=logs,
            mounting=not arguments.no_mount,
        )  # fmt: skip
    print(f"{facts} · seed {seed} · {arguments.seconds:g} s of faults · {2 * arguments.users} clients\n")
    broken = [(f"**{kind}**", len(evidence)) for kind, evidence in sorted(ledger.violations.items())]
    print(markdown_table(("", "count"), [*sorted(ledger.tally.items()), *rows]))
    print()
    print(markdown_table(("promises broken", "count"), broken or [("**none**", 0)]))
    for kind, evidence in ledger.violations.items():
        print(f"\n{kind}:")
        print("\n".join(f"  {one}" for one in evidence[:_SHOWN]))
    return int(bool(ledger.violations))


if __name__ == "__main__":
    sys.exit(main())
