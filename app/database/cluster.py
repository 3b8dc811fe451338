"""The data directory of the embedded PostgreSQL: its layout, its owner, its making, its settings.

<data_dir>/
  postgres/       PGDATA
  run/            the server's socket, and our locks
  postgres.log    what the server says
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.database.binaries import Account, find_binaries, run_as, runnable_binaries, server_major
from app.errors import DatabaseSetupError

_MIB = 1 << 20
_SETTINGS_FILE = "temporal_memory.conf"
_UNPRIVILEGED = ("postgres", "nobody")
# Nothing of the caller's locale, time zone or PG* variables reaches the server or the form of the database.
SERVER_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@dataclass(frozen=True)
class Cluster:
    """One data directory and the programs that serve it; `account` is None for an ordinary user."""

    root: Path
    binaries: Path
    account: Account | None

    @property
    def data(self) -> Path:
        return self.root / "postgres"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"


def open_cluster(data_dir: Path) -> Cluster:
    """Make the folders around PGDATA, and settle who runs the server and with which programs.

    Raises:
        DatabaseSetupError: no programs, no right to write, or nobody to run as.
    """
    root = data_dir.absolute()
    bin_dir = find_binaries()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        account = _account_for(root / "postgres")
        cluster = Cluster(root, runnable_binaries(bin_dir, account=account), account)
        cluster.run.mkdir(mode=0o700, exist_ok=True)
        own(cluster.run, account)
    except OSError as error:
        raise DatabaseSetupError(f"The data directory {root} cannot be used: {error}.") from error
    return cluster


def prepare_data(cluster: Cluster, *, durable: bool) -> None:
    """Make PGDATA where there is none, check the one that there is, and write our settings into it.

    PGDATA appears whole or not at all, whenever this is interrupted. The caller holds the lock.

    Raises:
        DatabaseSetupError: it is not a data directory, or of another major version, or cannot be written.
    """
    try:
        for unfinished in cluster.root.glob("initdb-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        if cluster.data.is_dir() and not any(cluster.data.iterdir()):
            cluster.data.rmdir()
        if not cluster.data.exists():
            _initialise(cluster, durable=durable)
        _check_version(cluster)
        _give_from_root(cluster)
        settings = "".join(
            f"{line}\n" for line in server_settings(memory_bytes=_memory_bytes(), durable=durable)
        )
        _write(cluster, cluster.data / _SETTINGS_FILE, settings)
    except OSError as error:
        raise DatabaseSetupError(f"The data directory {cluster.root} cannot be used: {error}.") from error


def server_settings(*, memory_bytes: int, durable: bool) -> list[str]:
    """The lines of our settings file for a machine with that much memory.

    Args:
        memory_bytes: what the machine or the container has.
        durable: False trades the data's safety in a crash for speed; for tests.
    """
    memory_mib = memory_bytes // _MIB
    lines = [
        "# Rewritten at every start; your own settings belong below the include in postgresql.conf.",
        f"shared_buffers = {max(128, min(memory_mib // 8, 2048))}MB",
        f"effective_cache_size = {max(256, memory_mib // 2)}MB",
        f"maintenance_work_mem = {max(64, min(memory_mib // 16, 512))}MB",
        "work_mem = 32MB",
        "max_connections = 200",
        "random_page_cost = 1.1",
        "jit = off",
        "max_wal_size = 2GB",
        "wal_compression = on",
        "checkpoint_timeout = 15min",
        "autovacuum_naptime = 10s",
        "timezone = 'UTC'",
        "log_timezone = 'UTC'",
        "cluster_name = 'temporal-memory'",
        # One short line an event: the log stays small, and what people said does not get into it.
        "log_checkpoints = off",
        "log_min_error_statement = panic",
        "log_parameter_max_length_on_error = 0",
        "log_error_verbosity = terse",
    ]
    if not durable:
        lines += ["fsync = off", "synchronous_commit = off", "full_page_writes = off"]
    return lines


@contextmanager
def server_paths(*directories: Path) -> Iterator[tuple[list[str], list[int]]]:
    """Names by which a child reaches the directories whatever stands above them, and descriptors to pass.

    On Linux the names go through the child's own open descriptors: no folder above is walked, so it does not
    matter whether the server's user may pass it, nor how long its path is or how it is written.
    """
    if sys.platform != "linux":
        yield [str(directory) for directory in directories], []
        return
    descriptors: list[int] = []
    try:
        # `extend` keeps what was opened before one fails.
        descriptors.extend(os.open(directory, os.O_RDONLY | os.O_DIRECTORY) for directory in directories)
        yield [f"/proc/self/fd/{descriptor}" for descriptor in descriptors], descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def own(path: Path, account: Account | None) -> None:
    """Give the path to the server's user."""
    if account is not None:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _account_for(data: Path) -> Account | None:
    if os.geteuid() != 0:
        return None
    if data.is_dir():
        owner = data.stat()
        if owner.st_uid != 0:
            return Account(owner.st_uid, owner.st_gid)
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise DatabaseSetupError(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(_UNPRIVILEGED)} to run it as: "
        "start as an ordinary user, or set DATABASE_URL."
    )


def _initialise(cluster: Cluster, *, durable: bool) -> None:
    unfinished = Path(tempfile.mkdtemp(dir=cluster.root, prefix="initdb-"))
    try:
        own(unfinished, cluster.account)
        with server_paths(unfinished) as ([name], descriptors):
            ran = subprocess.run(  # noqa: S603
                [
                    str(cluster.binaries / "initdb"),
                    f"--pgdata={name}",
                    "--username=postgres",
                    "--encoding=UTF8",
                    # pg_trgm, lower() and regular expressions see no CJK under the ctype C.
                    "--locale=C.UTF-8",
                    # The socket's folder is ours alone; whoever opens a TCP address needs a password.
                    "--auth-local=trust",
                    "--auth-host=scram-sha-256",
                    *([] if durable else ["--no-sync"]),
                ],
                capture_output=True,
                text=True,
                check=False,
                cwd="/",
                env=SERVER_ENVIRONMENT,
                pass_fds=descriptors,
                **run_as(cluster.account),  # type: ignore[call-overload]
            )
        if ran.returncode != 0:
            lines = [line for line in ran.stderr.splitlines() if "error" in line.lower() or "FATAL" in line]
            line = (lines or ran.stderr.splitlines() or ["no message"])[-1].strip()
            reason = line.partition("] ")[2] or line
            raise DatabaseSetupError(
                f"PostgreSQL's data directory {cluster.data} could not be made: {reason}"
            )
        with (unfinished / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write(
                f"\ninclude = '{_SETTINGS_FILE}'\n# What stands below this line wins over the include.\n"
            )
        _write(cluster, unfinished / _SETTINGS_FILE, "")
        unfinished.rename(cluster.data)
        if durable:
            _sync_directory(cluster.root)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_version(cluster: Cluster) -> None:
    try:
        found = (cluster.data / "PG_VERSION").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise DatabaseSetupError(
            f"{cluster.data} is not empty and holds no PostgreSQL data: move it away, or set DATA_DIR."
        ) from None
    wanted = server_major(cluster.binaries, account=cluster.account)
    if found != str(wanted):
        raise DatabaseSetupError(
            f"The data in {cluster.data} is of PostgreSQL {found}, the installed programs are of {wanted}: "
            f"install those of {found} again, or export with them, move the folder away and import. "
            "Nothing was changed."
        )


def _give_from_root(cluster: Cluster) -> None:
    """A data directory that root copied or restored belongs to root, and the server cannot read it."""
    if cluster.account is None or cluster.data.stat().st_uid == cluster.account.uid:
        return
    for path in cluster.data.rglob("*"):
        own(path, cluster.account)
    own(cluster.data, cluster.account)


def _write(cluster: Cluster, path: Path, text: str) -> None:
    # A fresh name, never followed: the folder belongs to a user that root must not write for elsewhere.
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    own(Path(draft), cluster.account)
    Path(draft).replace(path)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _memory_bytes() -> int:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdecimal() else machine
