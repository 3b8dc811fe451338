"""What goes wrong in the chaos run: processes die or freeze, providers fail in every way, disks are full."""

import asyncio
import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from benchmarks.chaos_ledger import POISON, Ledger
from benchmarks.service import COMMAND, clean_environment, free_port

_RESTART_AFTER_S = 0.5
_STOP_LIMIT_S = 30.0
_DISK_BYTES = 1 << 30
_LEFT_OF_FILES = 64 << 10
_WRITE_MUCH = "CREATE TEMP TABLE much AS SELECT md5(random()::text) FROM generate_series(1, 200000)"


class Keeper:
    """A service's process, started again whenever it has ended, as systemd or Docker would."""

    def __init__(self, name: str, folder: Path, settings: dict[str, str], ledger: Ledger) -> None:
        """Start nothing; `run` does.

        Args:
            name: of its log file.
            folder: where it runs.
            settings: of the service, beside its port.
            ledger: where its ends are counted.
        """
        port = free_port()
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{name}.log"
        self._folder = folder
        self._environment = clean_environment({**settings, "PORT": str(port), "LOG_FORMAT": "json"})
        self._ledger = ledger
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = True

    async def run(self) -> None:
        """Keep it up until `stop`."""
        while self._wanted:
            with self.log.open("ab") as sink:
                self._process = await asyncio.create_subprocess_exec(
                    COMMAND, "serve", env=self._environment, cwd=self._folder, stdout=sink, stderr=sink,
                    start_new_session=True,
                )  # fmt: skip
            code = await self._process.wait()
            self._ledger.tally[f"service ended with {code}"] += 1
            await asyncio.sleep(_RESTART_AFTER_S)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def end(self) -> tuple[int | None, float]:
        """SIGTERM; its exit code and the seconds that took."""
        process, begun = self._process, time.monotonic()
        if process is None or process.returncode is not None:
            return None, 0.0
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_LIMIT_S):
                return await process.wait(), time.monotonic() - begun
        process.kill()
        return None, time.monotonic() - begun

    async def stop(self) -> None:
        """End it for good."""
        self._wanted = False
        await self.end()

    async def is_live(self) -> bool:
        """Whether it answers at this moment."""
        async with httpx.AsyncClient(timeout=2, trust_env=False) as client:
            with contextlib.suppress(httpx.TransportError):
                return (await client.get(f"{self.url}/health/live")).is_success
        return False


class Disk:
    """Where the database's files are: a file system of its own where we may mount one."""

    def __init__(self, folder: Path, *, mounting: bool) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        self.is_mounted = mounting and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(folder)],
            check=False,
            capture_output=True,
        ).returncode  # fmt: skip

    @property
    def way(self) -> str:
        """How it refuses writes."""
        return "a full file system (ENOSPC)" if self.is_mounted else "a limit of file size (EFBIG)"

    def fill(self) -> None:
        """Refuse what takes more room."""
        if not self.is_mounted:
            _limit_files(self.folder, _LEFT_OF_FILES)
            return
        with self._ballast.open("ab") as ballast:
            size, chunk = os.fstat(ballast.fileno()).st_size, _DISK_BYTES
            while chunk >= 4096:
                try:
                    os.posix_fallocate(ballast.fileno(), size, chunk)
                    size += chunk
                except OSError:
                    chunk //= 2

    def free(self) -> None:
        """Take writes again."""
        if self.is_mounted:
            self._ballast.unlink(missing_ok=True)
        else:
            _limit_files(self.folder, resource.RLIM_INFINITY)

    def close(self) -> None:
        """Unmount."""
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=False)


def _limit_files(folder: Path, limit: int) -> None:
    shown = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    for pid in server_pids(folder):
        with contextlib.suppress(FileNotFoundError):
            # Even root may not limit another's process everywhere; its owner may.
            owner = Path(f"/proc/{pid}").stat()
            limited = subprocess.run(
                ["prlimit", "--pid", str(pid), f"--fsize={shown}:"],
                user=owner.st_uid, group=owner.st_gid, check=False, capture_output=True, text=True,
            )  # fmt: skip
            if limited.returncode and Path(f"/proc/{pid}").exists():
                raise RuntimeError(f"files of PostgreSQL cannot be limited: {limited.stderr}")


def server_pids(folder: Path) -> list[int]:
    """The postmaster of this data directory, first, and its children."""
    try:
        postmaster = int((folder / "postgres" / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return []
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            name, _, rest = (entry / "stat").read_text().rpartition(")")
            if "(postgres" in name and (int(entry.name) == postmaster or int(rest.split()[1]) == postmaster):
                pids.append(int(entry.name))
    return sorted(pids, key=lambda pid: pid != postmaster)


class Faults:
    """One fault of processes or disk after the other; beside them, one of the providers after the other."""

    def __init__(
        self,
        *,
        services: list[Keeper],
        disk: Disk,
        dsn: str,
        embedding: str,
        chat: str,
        ledger: Ledger,
        seed: int,
    ) -> None:
        """Do nothing yet.

        Args:
            services: that are killed and frozen.
            disk: that is filled.
            dsn: of the database, whose connections are cut.
            embedding: origin of the embedding provider.
            chat: origin of the provider that chats, judges and summarises.
            ledger: where faults are counted, and untrue words of health are noted.
            seed: of what comes when.
        """
        self._services = services
        self._disk = disk
        self._dsn = dsn
        self._embedding = embedding
        self._chat = chat
        self._ledger = ledger
        self._random = random.Random(seed)
        self._provider_random = random.Random(seed + 1)
        self._longest_stop_s = 0.0
        self._acts: dict[str, Callable[[], Awaitable[None]]] = {
            "service killed with -9": self._kill_service,
            "both services killed with -9": self._kill_services,
            "service frozen for less than a lease": self._freeze_service,
            "service frozen for longer than a lease": self._freeze_service_long,
            "service stopped in good order": self._end_service,
            "PostgreSQL killed with -9": self._kill_postmaster,
            "PostgreSQL backend killed with -9": self._kill_backend,
            "PostgreSQL frozen": self._freeze_postgres,
            "PostgreSQL backend frozen": self._freeze_backend,
            "connections to PostgreSQL cut": self._cut_connections,
            "disk full": self._fill_disk,
        }

    @property
    def longest_stop_s(self) -> float:
        """The longest that a service took to end in good order."""
        return self._longest_stop_s

    async def run(self, stopping: asyncio.Event) -> None:
        """Break things until told to stop; each is mended before the next one, and at the end."""
        while not stopping.is_set():
            # Each once before any comes again, so that a short run has seen them all.
            for name in self._random.sample(list(self._acts), len(self._acts)):
                await asyncio.sleep(self._random.uniform(0.5, 4))
                if stopping.is_set():
                    return
                self._ledger.tally[f"fault: {name}"] += 1
                await self._acts[name]()

    async def _kill_service(self) -> None:
        self._random.choice(self._services).signal(signal.SIGKILL)

    async def _kill_services(self) -> None:
        for service in self._services:
            service.signal(signal.SIGKILL)

    async def _freeze_service(self) -> None:
        await self._freeze(self._random.choice(self._services), self._random.uniform(1, 8))

    async def _freeze_service_long(self) -> None:
        await self._freeze(self._random.choice(self._services), self._random.uniform(17, 22))

    @staticmethod
    async def _freeze(service: Keeper, seconds: float) -> None:
        service.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        service.signal(signal.SIGCONT)

    async def _end_service(self) -> None:
        service = self._random.choice(self._services)
        if not await service.is_live():
            return
        code, took_s = await service.end()
        self._longest_stop_s = max(self._longest_stop_s, took_s)
        if code != 0:
            self._ledger.accuse(
                "stops that were not in good order", f"{service.name}: {code} after {took_s:.1f} s"
            )

    async def _kill_postmaster(self) -> None:
        _signal(server_pids(self._disk.folder)[:1], signal.SIGKILL)

    async def _kill_backend(self) -> None:
        _signal(self._some_backend(), signal.SIGKILL)

    async def _freeze_postgres(self) -> None:
        live = [service for service in self._services if await service.is_live()]
        # The postmaster first: it would start others while we look.
        _signal(server_pids(self._disk.folder)[:1], signal.SIGSTOP)
        pids = server_pids(self._disk.folder)
        _signal(pids, signal.SIGSTOP)
        try:
            await asyncio.sleep(1)
            if pids:
                await asyncio.gather(*(self._check_health(service) for service in live))
            await asyncio.sleep(self._random.uniform(0, 3))
        finally:
            _signal(pids, signal.SIGCONT)

    async def _check_health(self, service: Keeper) -> None:
        """While PostgreSQL is frozen: alive, not ready, and metrics are there."""
        async with httpx.AsyncClient(timeout=8, trust_env=False) as client:
            seen = {}
            for path in ("/health/live", "/health/ready", "/metrics"):
                try:
                    seen[path] = (await client.get(service.url + path)).status_code
                except httpx.TransportError as error:
                    seen[path] = type(error).__name__  # type: ignore[assignment]
        self._ledger.tally["health asked while PostgreSQL was frozen"] += 1
        if seen != {"/health/live": 200, "/health/ready": 503, "/metrics": 200}:
            self._ledger.accuse("health that did not tell the truth", f"{service.name}: {seen}")

    async def _freeze_backend(self) -> None:
        pids = self._some_backend()
        _signal(pids, signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(2, 8))
        _signal(pids, signal.SIGCONT)

    def _some_backend(self) -> list[int]:
        children = server_pids(self._disk.folder)[1:]
        return [self._random.choice(children)] if children else []

    async def _cut_connections(self) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection = await asyncpg.connect(self._dsn, timeout=3)
            try:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'temporal-memory' AND random() < 0.5"
                )
            finally:
                await connection.close(timeout=3)

    async def _fill_disk(self) -> None:
        await asyncio.to_thread(self._disk.fill)
        try:
            connection = await asyncpg.connect(self._dsn, timeout=3)
            try:
                await connection.execute(_WRITE_MUCH, timeout=3)
            finally:
                await connection.close(timeout=3)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            self._ledger.tally[f"disk full: {type(error).__name__}"] += 1
        else:
            raise RuntimeError("a full disk takes writes")
        await asyncio.sleep(self._random.uniform(3, 8))
        await asyncio.to_thread(self._disk.free)

    async def run_providers(self, stopping: asyncio.Event) -> None:
        """Fill the providers with faults until told to stop."""
        await asyncio.gather(
            self._spoil(stopping, self._spoil_embedding, self._heal_embedding),
            self._spoil(stopping, self._spoil_chat, self.heal_chat),
        )

    async def _spoil(
        self,
        stopping: asyncio.Event,
        spoil: Callable[[], Awaitable[None]],
        heal: Callable[[], Awaitable[None]],
    ) -> None:
        while not stopping.is_set():
            await heal()
            await asyncio.sleep(self._provider_random.uniform(2, 8))
            await spoil()
            await asyncio.sleep(self._provider_random.uniform(2, 6))
        await heal()

    async def _spoil_embedding(self) -> None:
        name, fault = self._provider_random.choice(_EMBEDDING_FAULTS)
        self._ledger.tally[f"fault: embedding provider, {name}"] += 1
        await _tell(f"{self._embedding}/_control", {"reject": [POISON], **fault})

    async def _heal_embedding(self) -> None:
        await _tell(f"{self._embedding}/_reset", {})
        await _tell(f"{self._embedding}/_control", {"reject": [POISON]})

    async def _spoil_chat(self) -> None:
        kinds = self._provider_random.sample(["chat", "evaluation", "batch", "summary"], 2)
        rules = []
        for kind in kinds:
            name, fault = self._provider_random.choice(_CHAT_FAULTS)
            self._ledger.tally[f"fault: chat provider, {name}"] += 1
            rules.append({"only": kind, "times": None, **fault})
        await _tell(f"{self._chat}/_control", {"rules": rules})

    async def heal_chat(self) -> None:
        """No fault: it takes a moment for each answer, and of what it judges first some is worth nothing."""
        await _tell(f"{self._chat}/_reset", {})
        scores = [{"score": score, "times": 2, "delay_s": 0.05} for score in (3, 95, 80)]
        rules = [*scores, {"times": None, "delay_s": 0.05, "drip_s": 0.01}]
        await _tell(f"{self._chat}/_control", {"rules": rules})


_EMBEDDING_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("429", {"fail": [{"status": 429, "times": None, "headers": {"Retry-After": "1"}, "text": "slow down"}]}),
    ("500", {"fail": [{"status": 500, "times": None, "text": "oops"}]}),
    ("503", {"fail": [{"status": 503, "times": None, "body": {"message": "overloaded"}}]}),
    ("timeouts", {"delay_s": 5}),
    ("half answers", {"answer": "missing"}),
    ("half answers", {"drip_s": 0.02}),
    ("resets", {"hang_up": 1_000_000}),
    ("garbage", {"answer": "garbage"}),
    ("garbage", {"answer": "empty"}),
    ("garbage", {"answer": "nan"}),
    ("garbage", {"answer": "wrong_width"}),
]
_CHAT_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("429", {"status": 429, "headers": {"Retry-After": "1"}, "text": "slow down"}),
    ("500", {"status": 500, "text": "oops"}),
    ("503", {"status": 503, "body": {"message": "overloaded"}}),
    ("timeouts", {"delay_s": 8}),
    ("half answers", {"cut_after": 3}),
    ("half answers", {"empty": True}),
    ("resets", {"hang_up": True}),
    ("garbage", {"garbage": True}),
    ("garbage", {"error": {"error": {"message": "internal", "code": 50507}}, "cut_after": 2}),
    ("garbage", {"reply": "我说不好，大概还行吧"}),
]


async def _tell(url: str, body: Any) -> None:
    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        (await client.post(url, json=body)).raise_for_status()


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def open_disk(folder: Path, *, mounting: bool) -> Iterator[Disk]:
    """The folder as a disk that can be filled, until the block ends.

    Args:
        folder: is made.
        mounting: try to give it a file system of its own.
    """
    folder.mkdir()
    disk = Disk(folder, mounting=mounting)
    try:
        yield disk
    finally:
        disk.close()
