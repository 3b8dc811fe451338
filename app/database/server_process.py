"""The server's processes: launching them, telling which are alive, ending them, reading their log."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from app.clock import monotonic_s
from app.database.binaries import run_as
from app.database.cluster import SERVER_ENVIRONMENT, Cluster, server_paths
from app.errors import DatabaseSetupError

_FAST_STOP_LIMIT_S = 120.0
_IMMEDIATE_STOP_LIMIT_S = 10.0
_POLL_S = 0.01
# The shell leaves at once, so that the postmaster is not a child of ours that we would have to reap.
_DETACH = ("/bin/sh", "-c", '"$0" "$@" >&2 & echo $!')
_LOG_LIMIT_BYTES = 16 << 20
_LOG_KEPT_BYTES = 1 << 20


def launch(cluster: Cluster, *, port: int) -> int:
    """Start a postmaster that survives us and our terminal's Ctrl-C; returns its pid.

    Args:
        cluster: prepared, with no process left in it.
        port: names the socket; TCP is off.

    Raises:
        DatabaseSetupError: the process could not be made.
    """
    try:
        with cluster.log.open("ab") as log, server_paths(cluster.data, cluster.run) as (names, descriptors):
            data, run = names
            settings = ["-c", f'unix_socket_directories="{run}"', "-c", "listen_addresses="]
            shell = subprocess.run(  # noqa: S603
                [*_DETACH, str(cluster.binaries / "postgres"), "-D", data, "-p", str(port), *settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                check=True,
                cwd="/",
                env=SERVER_ENVIRONMENT,
                umask=0o077,
                pass_fds=descriptors,
                start_new_session=True,
                **run_as(cluster.account),  # type: ignore[call-overload]
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise DatabaseSetupError(f"PostgreSQL could not be started: {error}") from error
    return int(shell.stdout)


def is_running(pid: int) -> bool:
    """Whether the process lives; a zombie takes signals, too, for as long as nobody reaps it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return sys.platform != "linux"
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def postmaster(cluster: Cluster) -> int | None:
    """The pid of the living postmaster of this data directory."""
    pid = _recorded_pid(cluster)
    return pid if pid is not None and pid in _processes(cluster) else None


def stop(cluster: Cluster) -> None:
    """End every process of the data directory: in order if they let us, by force if not."""
    pid = postmaster(cluster)
    if pid is not None:
        _signal(pid, signal.SIGINT)
        # A frozen process takes no other signal before it is woken.
        _signal(pid, signal.SIGCONT)
        if _wait_until_gone(cluster, limit_s=_FAST_STOP_LIMIT_S):
            return
    clear_away(cluster)


def clear_away(cluster: Cluster) -> None:
    """End what a dead postmaster left behind: children that still hold its memory, and its lock files.

    The server itself trusts the pid in those files if any process answers to it, a zombie or a stranger too.
    """
    for number in (signal.SIGQUIT, signal.SIGKILL):
        leftovers = _processes(cluster)
        for pid in leftovers:
            _signal(pid, number)
        if not leftovers or _wait_until_gone(cluster, limit_s=_IMMEDIATE_STOP_LIMIT_S):
            break
    else:
        raise DatabaseSetupError(
            f"Processes {sorted(_processes(cluster))} hold {cluster.data} and do not end."
        )
    if sys.platform == "linux":
        for stale in (cluster.data / "postmaster.pid", *cluster.run.glob(".s.PGSQL.*")):
            stale.unlink(missing_ok=True)


def last_words(log: Path, *, since_bytes: int) -> str:
    """The last fatal line of the log, or else its last line, without its time and pid.

    Args:
        log: the server's log file.
        since_bytes: what stands before this offset is of an earlier run.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(since_bytes, file.seek(0, os.SEEK_END) - 16384))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "no log"
    # "The database system is starting up" and the like are answers to who asked too early, us above all.
    lines = [line for line in lines if "FATAL:  the database system is " not in line]
    fatal = [line for line in lines if "FATAL:" in line or "PANIC:" in line]
    line = (fatal or lines or ["no message"])[-1]
    return line.partition("] ")[2] or line


def bound_log(log: Path) -> None:
    """Keep the log's end only, once it is large; it is written by appending, so it may be cut meanwhile."""
    try:
        with log.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size > _LOG_LIMIT_BYTES:
                file.seek(size - _LOG_KEPT_BYTES)
                kept = file.read()
                file.truncate(0)
                file.seek(0)
                file.write(kept)
    except FileNotFoundError:
        return


def _recorded_pid(cluster: Cluster) -> int | None:
    try:
        return int((cluster.data / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _processes(cluster: Cluster) -> set[int]:
    """The living server processes that work in the data directory, whoever started them."""
    if sys.platform != "linux":
        pid = _recorded_pid(cluster)
        return {pid} if pid is not None and is_running(pid) else set()
    try:
        data = cluster.data.stat()
    except FileNotFoundError:
        return set()
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            # A zombie has no working directory; a shell that somebody left in the folder is no server.
            where = (entry / "cwd").stat()
            if (where.st_dev, where.st_ino) == (data.st_dev, data.st_ino) and (
                entry / "comm"
            ).read_text().strip() == "postgres":
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def _wait_until_gone(cluster: Cluster, *, limit_s: float) -> bool:
    deadline = monotonic_s() + limit_s
    while _processes(cluster):
        if monotonic_s() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
