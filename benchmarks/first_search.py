"""Measures how long a newcomer waits: `benchmarks/first_search.py`, from a fresh clone to the first search.

The clone gets an environment of PATH and HOME only, `make serve`, one message and one search about it; then
the same again with everything in place (a warm start).
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from benchmarks.metrics import markdown_table
from benchmarks.service import ROOT, free_port, machine_facts

_USER = 123456789
_MESSAGE = "我的订单号是ORD123456，麻烦帮我查一下物流。"
_QUERY = "我的订单到哪里了？"
_INSTALL_LIMIT_S = 1800
_START_LIMIT_S = 120
_STOP_LIMIT_S = 60

Steps = list[tuple[str, float]]


class _Watch:
    """Names the time since it was last asked."""

    def __init__(self) -> None:
        self.steps: Steps = []
        self._begun = time.perf_counter()

    def note(self, name: str) -> None:
        now = time.perf_counter()
        self.steps.append((name, now - self._begun))
        self._begun = now


@contextlib.contextmanager
def _make_serve(clone: Path, *, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`make serve` in the clone, ended by Ctrl-C for its whole process group, as a terminal sends it."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.Popen(
        ["make", "serve"],
        cwd=clone,
        env={**environment, "PORT": str(port)},
        stdout=sys.stderr,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_live(process: subprocess.Popen[bytes], url: str, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health/live", timeout=2).is_success:
                return
        time.sleep(0.02)
    raise SystemExit(f"`make serve` did not come up (exit status {process.poll()})")


def _search(url: str) -> None:
    reply = httpx.post(f"{url}/memory/search", json={"user_id": _USER, "query": _QUERY}, timeout=60)
    reply.raise_for_status()
    if _MESSAGE not in [memory["content"] for memory in reply.json()["memories"]]:
        raise SystemExit(f"the message was not found: {reply.text}")


def _first_start(folder: Path) -> Steps:
    watch = _Watch()
    clone = folder / "temporal-memory"
    subprocess.run(["git", "clone", "--quiet", f"file://{ROOT}", str(clone)], check=True)
    watch.note("git clone")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with _make_serve(clone, port=port) as process:
        installed = clone / ".venv" / ".installed"
        deadline = time.monotonic() + _INSTALL_LIMIT_S
        while not installed.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        watch.note("make serve: virtual environment and dependencies")
        _wait_until_live(process, url, _START_LIMIT_S)
        watch.note("make serve: database made, migrated, model loaded, listening")
        body = {"user_id": _USER, "role": "user", "content": _MESSAGE, "wait": True}
        httpx.post(f"{url}/dialogues", json=body, timeout=60).raise_for_status()
        watch.note("first message stored and embedded")
        _search(url)
        watch.note("first search answered")
    return watch.steps


def _warm_start(clone: Path) -> Steps:
    watch = _Watch()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with _make_serve(clone, port=port) as process:
        _wait_until_live(process, url, _START_LIMIT_S)
        watch.note("warm start: listening")
        _search(url)
        watch.note("warm start: search answered")
    watch.note("stopped by Ctrl-C")
    return watch.steps


def main() -> None:
    """Print the seconds of every step."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None).parse_args()
    facts = machine_facts()
    with tempfile.TemporaryDirectory(prefix="memory-first-search-") as folder:
        first = _first_start(Path(folder))
        warm = _warm_start(Path(folder) / "temporal-memory")
    total_s = sum(seconds for _, seconds in first)
    rows = [*first, ("**from clone to first search**", total_s), *warm]
    print(f"{facts}\n")
    print(markdown_table(("step", "seconds"), [(name, f"{seconds:.2f}") for name, seconds in rows]))


if __name__ == "__main__":
    main()
