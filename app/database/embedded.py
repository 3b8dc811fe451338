"""A PostgreSQL of our own, for when no DATABASE_URL is set.

The server outlives any one of us and is shared: every process that uses a data directory holds a shared
lock on `run/users`, which the kernel drops even when the process is killed, and the last to leave stops the
server. It is started and stopped under `run/lock`. Whether it is there is asked by connecting: a pid in a
file may be a zombie's or a stranger's.
"""

import asyncio
import atexit
import fcntl
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import asyncpg

from app.clock import monotonic_s
from app.database import server_process
from app.database.cluster import Cluster, open_cluster, own, prepare_data
from app.errors import DatabaseSetupError
from app.telemetry import get_logger

DATABASE = "temporal_memory"

_PORT = 5432  # Only a part of the socket's name: nothing listens on TCP.
_LONGEST_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
_RECOVERY_LIMIT_S = 3600.0
_SILENCE_LIMIT_S = 15.0
_CONNECT_LIMIT_S = 5.0
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_PROGRESS_EVERY_S = 5.0

_T = TypeVar("_T")

_log = get_logger(__name__)


class _Answer(Enum):
    READY = "ready"
    BUSY = "starting, recovering or shutting down"
    NONE = "nobody answers"


def start_embedded(data_dir: Path, *, durable: bool = True) -> "EmbeddedPostgres":
    """Attach to the PostgreSQL of that directory, making and starting it as needed.

    Blocks for as long as crash recovery takes. The database `temporal_memory` with pgvector exists then.

    Args:
        data_dir: made if missing; several processes may use one.
        durable: False if the data need not survive a crash (tests); counts for who starts the server.

    Raises:
        DatabaseSetupError: it cannot be made or started; the line says why.
    """
    return EmbeddedPostgres(open_cluster(data_dir), durable=durable)


class EmbeddedPostgres:
    """Our hold on the running server of one data directory, until `close`."""

    def __init__(self, cluster: Cluster, *, durable: bool) -> None:
        """Hold the server, starting it as needed; see `start_embedded`."""
        self._cluster = cluster
        self._durable = durable
        self._process = os.getpid()
        self._short_path: Path | None = None
        self._users: int | None = None
        self._socket_dir = self._plain_socket_dir()
        try:
            with _locked(cluster):
                self._users = _open_lock(cluster, "users")
                fcntl.flock(self._users, fcntl.LOCK_SH)
                try:
                    self._bring_up()
                    _run(self._create_database)
                except BaseException:
                    self._leave()
                    raise
        except BaseException:
            self._remove_short_path()
            raise
        atexit.register(self.close)

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the service's database."""
        return self.url_for(DATABASE)

    def url_for(self, database: str) -> str:
        """The SQLAlchemy URL of one of the server's databases."""
        return f"postgresql+asyncpg://postgres@/{quote(database)}?host={quote(str(self._socket_dir))}&port={_PORT}"

    def dsn_for(self, database: str) -> str:
        """The same for asyncpg and libpq."""
        return self.url_for(database).replace("+asyncpg", "", 1)

    def revive(self) -> None:
        """Start the server again if it is gone (killed when memory was short); blocks as a first start does.

        Raises:
            DatabaseSetupError: it does not come up; the line says why.
        """
        if server_process.postmaster(self._cluster) is not None:
            return
        with _locked(self._cluster):
            # Left meanwhile, or brought up by another process: then there is nothing to do.
            if self._users is not None and server_process.postmaster(self._cluster) is None:
                self._bring_up()

    def close(self) -> None:
        """Leave the server, and stop it if nobody else uses it; a second call does nothing."""
        atexit.unregister(self.close)
        # A forked child shares our lock; only who took it may judge whether it was the last.
        if self._users is None or os.getpid() != self._process:
            return
        with _locked(self._cluster):
            self._leave()
        self._remove_short_path()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _leave(self) -> None:
        users, self._users = self._users, None
        if users is None:
            return
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            server_process.bound_log(self._cluster.log)
        else:
            server_process.stop(self._cluster)
        finally:
            os.close(users)

    def _plain_socket_dir(self) -> Path:
        """The socket's folder, or a short and plain link to it.

        The kernel allows a socket's path 107 bytes, and clients' URLs give commas and colons a meaning.
        """
        run = self._cluster.run
        longest = len(os.fsencode(run / f".s.PGSQL.{_PORT}"))
        if longest <= _LONGEST_SOCKET_PATH and re.fullmatch(r"[\w./-]+", str(run), re.ASCII):
            return run
        # TMPDIR may be as long as the path that is avoided here; the folder is new, 0700 and ours.
        self._short_path = Path(tempfile.mkdtemp(dir="/tmp", prefix="temporal-memory-"))
        link = self._short_path / "run"
        link.symlink_to(run)
        return link

    def _remove_short_path(self) -> None:
        if self._short_path is not None:
            shutil.rmtree(self._short_path, ignore_errors=True)

    def _bring_up(self) -> None:
        """Return when the server answers, whatever state the last user left it in."""
        log = self._cluster.log
        began = told = heard = monotonic_s()
        launched: int | None = None
        log_start = 0
        pause_s = _FIRST_PAUSE_S
        while (answer := _run(self._ask)) is not _Answer.READY:
            now = monotonic_s()
            if now - began > _RECOVERY_LIMIT_S:
                raise DatabaseSetupError(
                    f"PostgreSQL has not come up in {_RECOVERY_LIMIT_S:.0f} s; see {log}."
                )
            if now - told > _PROGRESS_EVERY_S:
                told = now
                says = server_process.last_words(log, since_bytes=log_start)
                _log.info(
                    "waiting for PostgreSQL", state=answer.value, waited_s=round(now - began), says=says
                )
            if answer is _Answer.BUSY:
                # Each question leaves a line in the server's log.
                heard = now
                pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
            elif launched is not None and not server_process.is_running(launched):
                reason = server_process.last_words(log, since_bytes=log_start)
                raise DatabaseSetupError(f"PostgreSQL did not start: {reason} (log: {log})")
            elif launched is None and server_process.postmaster(self._cluster) is None:
                server_process.clear_away(self._cluster)
                prepare_data(self._cluster, durable=self._durable)
                server_process.bound_log(log)
                log_start = log.stat().st_size if log.exists() else 0
                launched = server_process.launch(self._cluster, port=_PORT)
                heard = monotonic_s()
            elif now - heard > _SILENCE_LIMIT_S:
                # Frozen, or its socket was deleted: it is of no use to anybody, and we hold the lock.
                server_process.stop(self._cluster)
                launched, heard = None, monotonic_s()
            time.sleep(pause_s)

    async def _ask(self) -> _Answer:
        try:
            connection = await self._connect("postgres")
        except (asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError):
            return _Answer.BUSY
        except (OSError, TimeoutError, asyncpg.PostgresConnectionError):
            return _Answer.NONE
        await connection.close()
        return _Answer.READY

    async def _create_database(self) -> None:
        connection = await self._connect("postgres")
        try:
            if not await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            await connection.close()
        connection = await self._connect(DATABASE)
        try:
            await connection.execute("SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS vector")
        except asyncpg.PostgresError as error:
            raise DatabaseSetupError(f"The embedded PostgreSQL has no pgvector: {error}") from error
        finally:
            await connection.close()

    async def _connect(self, database: str) -> asyncpg.Connection:
        return await asyncpg.connect(
            host=str(self._socket_dir),
            port=_PORT,
            user="postgres",
            database=database,
            ssl=False,
            timeout=_CONNECT_LIMIT_S,
        )


def _run(ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run it in a thread of its own, because the caller's may already have a running loop."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(ask())).result()


@contextmanager
def _locked(cluster: Cluster) -> Iterator[None]:
    """Nobody else starts or stops the server meanwhile; waits for who does."""
    lock = _open_lock(cluster, "lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _open_lock(cluster: Cluster, name: str) -> int:
    path = cluster.run / name
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        own(path, cluster.account)
    except OSError as error:
        raise DatabaseSetupError(f"The data directory {cluster.root} cannot be used: {error}.") from error
    return descriptor
