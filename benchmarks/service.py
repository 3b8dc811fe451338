"""The service under test: a process of its own, on a temporary data directory and a free port."""

import contextlib
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]
COMMAND = str(Path(sys.executable).with_name("temporal-memory"))
_START_LIMIT_S = 180
_STOP_LIMIT_S = 60


@dataclass(frozen=True)
class Service:
    """A running service.

    Attributes:
        log: file with all it writes.
    """

    url: str
    data_dir: Path
    log: Path
    pid: int

    @property
    def roots(self) -> list[int]:
        """The service's process and its embedded database's, if it has one."""
        note = self.data_dir / "postgres" / "postmaster.pid"
        return (
            [self.pid, *(int(line) for line in note.read_text().splitlines()[:1])]
            if note.exists()
            else [self.pid]
        )


def free_port() -> int:
    """A TCP port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment without any setting of the caller's shell, so that a run means the same everywhere."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    # What is measured is this checkout, whatever another one has installed into the environment.
    return {**kept, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **settings}


def run_command(*arguments: str, data_dir: Path, settings: Mapping[str, str]) -> float:
    """Run `temporal-memory <arguments>` to its end on this data directory and give the seconds it took."""
    begun = time.perf_counter()
    subprocess.run(
        [COMMAND, *arguments],
        env=clean_environment({"DATA_DIR": str(data_dir), **settings}),
        cwd=data_dir,
        stdout=sys.stderr,
        check=True,
    )
    return time.perf_counter() - begun


@contextlib.contextmanager
def run_service(data_dir: Path, *, settings: Mapping[str, str]) -> Iterator[Service]:
    """A service on this data directory, stopped as Ctrl-C stops it when the block ends.

    Args:
        data_dir: exists; the database is made in it, and the process runs in it so that it reads no `.env`.
        settings: environment variables of the service beyond host, port and data directory.

    Raises:
        RuntimeError: it did not come up; the message ends with what it wrote last.
    """
    port = free_port()
    log = data_dir / "service.log"
    environment = {"DATA_DIR": str(data_dir), "PORT": str(port), "LOG_LEVEL": "WARNING", **settings}
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [COMMAND, "serve"],
            env=clean_environment(environment),
            cwd=data_dir,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    service = Service(f"http://127.0.0.1:{port}", data_dir, log, process.pid)
    try:
        wait_until_live(service.url, process=process, log=log)
        yield service
    finally:
        stop(process)


def wait_until_live(url: str, *, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the service answers on `/health/live`.

    Raises:
        RuntimeError: the process ended, or was silent for three minutes.
    """
    deadline = time.monotonic() + _START_LIMIT_S
    with httpx.Client(timeout=2) as client:
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if client.get(f"{url}/health/live").is_success:
                    return
            time.sleep(0.02)
    tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise RuntimeError(f"the service did not come up (exit status {process.poll()}):\n{tail}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process as Ctrl-C ends it, by force if it is still there after a minute."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def machine_facts() -> str:
    """Date, commit, processor, cores, load and Python, as one line of Markdown."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return " · ".join(
        (
            datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            f"commit {commit or 'unknown'}",
            f"{os.cpu_count()} cores ({_processor()})",
            f"load average {os.getloadavg()[0]:.1f} at the start",
            f"Python {platform.python_version()}",
        )
    )


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
