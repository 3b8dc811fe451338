"""The connection pool, and the only two ways to use it: `read()` and `transaction()`.

They are different types on purpose: what was given a `ReadSession` cannot write, in Python nor in PostgreSQL.
No session may be held while another machine is waited for.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any, Final, NewType
from uuid import uuid4

import asyncpg
from pgvector.asyncpg import register_vector
from sqlalchemy import event, text
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import DBAPIError, DisconnectionError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import QueuePool

from app.database.quiet_errors import hush, hush_statement
from app.errors import DatabaseUnavailableError, OverloadedError
from app.telemetry import Metrics

ReadSession = NewType("ReadSession", AsyncConnection)
WriteSession = NewType("WriteSession", AsyncConnection)

# By it an operator, and a restore, tell the service's connections from others.
APPLICATION_NAME = "temporal-memory"

_CONNECT_TIMEOUT_S = 5
_POOL_TIMEOUT_S = 10
_STATEMENT_TIMEOUT_S = 60
# Of CAST(:name AS type), never of name::type.
_NAMED: Final = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")
_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    # The server has said that it ends this connection, and the end itself has not come yet.
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)
# Disk, memory, connections, an unreadable file: when an operator has mended it, the same request is good.
# A quota that is used up, or a limit of files, is told as an internal error.
_OUT_OF_RESOURCES = (
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.InternalServerError,
)


class Database:
    """One pool to one PostgreSQL."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        transaction_pooler: bool = False,
        metrics: Metrics | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            url: SQLAlchemy form, `postgresql+asyncpg://…`.
            pool_size: connections kept; as many again may be opened for a burst.
            transaction_pooler: a pooler such as pgbouncer stands between, which gives each transaction
                another server connection: no named prepared statement may outlive one.
            metrics: where connections are counted.
        """
        self._writing_use = _PoolUse(metrics, "writing", size=2 * pool_size)
        self._reading_use = _PoolUse(metrics, "reading", size=2 * pool_size)
        create = partial(_create_engine, url, pool_size=pool_size, transaction_pooler=transaction_pooler)
        self._writing = create(server_settings={})
        # A connection that can only read, each statement its own transaction, saves BEGIN and COMMIT: two
        # of three round trips. A pooler shares connections, so behind one the transaction has to say it.
        self._read_only_pool = not transaction_pooler
        self._reading = create(
            server_settings={"default_transaction_read_only": "on"} if self._read_only_pool else {},
            isolation_level="AUTOCOMMIT" if self._read_only_pool else None,
        )

    @asynccontextmanager
    async def read(self) -> AsyncIterator[ReadSession]:
        """A session that PostgreSQL holds to reading, at one snapshot a statement.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
            OverloadedError: every connection stayed in use for too long.
        """
        async with self._connect(self._reading, self._reading_use) as connection:
            if self._read_only_pool:
                yield ReadSession(connection)
            else:
                await connection.execution_options(postgresql_readonly=True)
                async with connection.begin():
                    yield ReadSession(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[WriteSession]:
        """A transaction, committed when the block ends without an error.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
            OverloadedError: every connection stayed in use for too long.
        """
        async with self._connect(self._writing, self._writing_use) as connection, connection.begin():
            yield WriteSession(connection)

    @asynccontextmanager
    async def outside_transaction(self) -> AsyncIterator[WriteSession]:
        """A connection on which each statement is its own transaction: VACUUM, CREATE INDEX CONCURRENTLY."""
        async with self._connect(self._writing, self._writing_use) as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            yield WriteSession(connection)

    async def write_rows(self, statement: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows of one statement that writes, with named parameters (`:name`); it is its own transaction.

        One round trip, past SQLAlchemy. Its errors are the driver's own, behind a pooler SQLAlchemy's.

        Raises:
            DatabaseUnavailableError: PostgreSQL does not answer.
            OverloadedError: every connection stayed in use for too long.
        """
        if not self._read_only_pool:
            async with self.transaction() as session:
                return (await session.execute(text(statement), values)).all()
        async with self._connect(self._writing, self._writing_use) as connection:
            return await _fetch(connection, statement, values)

    async def read_revision(self) -> str | None:
        """The migration that the database is at."""
        async with self.read() as session:
            found = await session.execute(text("SELECT version_num FROM alembic_version"))
            return found.scalar_one_or_none()

    @property
    def checked_out(self) -> int:
        """How many connections are in use at this moment."""
        pools = (self._reading.pool, self._writing.pool)
        return sum(pool.checkedout() for pool in pools if isinstance(pool, QueuePool))

    async def aclose(self) -> None:
        await self._reading.dispose()
        await self._writing.dispose()

    @asynccontextmanager
    async def _connect(self, engine: AsyncEngine, use: "_PoolUse") -> AsyncIterator[AsyncConnection]:
        try:
            async with AsyncExitStack() as stack:
                with use.waiting():
                    connection = await stack.enter_async_context(engine.connect())
                with use.working():
                    yield connection
        except PoolTimeoutError as error:
            use.refuse()
            raise OverloadedError("every database connection is in use", retry_after_s=2) from error
        except DBAPIError as error:
            if isinstance(error.orig.__cause__ if error.orig else None, _OUT_OF_RESOURCES):
                raise _out_of_resources() from error
            if isinstance(error, (OperationalError, InterfaceError)):
                raise DatabaseUnavailableError("the database does not answer") from error
            if error.connection_invalidated or isinstance(
                error.orig.__cause__ if error.orig else None, _GONE
            ):
                raise DatabaseUnavailableError("the database does not answer") from error
            raise
        except _OUT_OF_RESOURCES as error:
            raise _out_of_resources() from error
        except _GONE as error:
            raise DatabaseUnavailableError("the database does not answer") from error


class _PoolUse:
    """Counts who waits for a connection of one pool, who has one, and who got none."""

    def __init__(self, metrics: Metrics | None, pool: str, *, size: int) -> None:
        self._in_use = metrics.pool_in_use.labels(pool) if metrics else None
        self._waiting = metrics.pool_waiting.labels(pool) if metrics else None
        self._refused = metrics.pool_refused.labels(pool) if metrics else None
        if metrics:
            metrics.pool_size.labels(pool).set(size)

    def waiting(self) -> AbstractContextManager[None]:
        """Somebody waits while this is open."""
        return self._waiting.track_inprogress() if self._waiting else nullcontext()

    def working(self) -> AbstractContextManager[None]:
        """Somebody has a connection while this is open."""
        return self._in_use.track_inprogress() if self._in_use else nullcontext()

    def refuse(self) -> None:
        """Somebody waited in vain."""
        if self._refused:
            self._refused.inc()


def _out_of_resources() -> DatabaseUnavailableError:
    return DatabaseUnavailableError("the database is short of disk, memory or connections", retry_after_s=10)


async def fetch_rows(
    session: ReadSession, statement: str, values: Mapping[str, Any]
) -> Sequence[Sequence[Any]]:
    """The rows of a statement with named parameters (`:name`), to be read by position.

    For statements that many rows come from, or that are asked all the time: the driver is asked directly,
    since SQLAlchemy's part of it takes longer than the database's. Errors are the driver's own there.
    """
    if session.in_transaction():
        # Behind a pooler the transaction is SQLAlchemy's, and has to be begun by it.
        return (await session.execute(text(statement), values)).all()
    return await _fetch(session, statement, values)


async def _fetch(
    connection: AsyncConnection, statement: str, values: Mapping[str, Any]
) -> Sequence[Sequence[Any]]:
    positional, names = _number_parameters(statement)
    driver: Any = (await connection.get_raw_connection()).driver_connection
    try:
        rows: list[Sequence[Any]] = await driver.fetch(positional, *[values[name] for name in names])
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        hush(error)
        raise
    except asyncpg.InternalClientError:
        # Given back, it would be the first to be given out again.
        await connection.invalidate()
        raise
    return rows


@lru_cache(maxsize=512)
def _number_parameters(statement: str) -> tuple[str, tuple[str, ...]]:
    """The statement with `$1`, `$2`, … for its named parameters, and their names in that order."""
    places: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${places.setdefault(found[1], len(places) + 1)}"

    return _NAMED.sub(number, statement), tuple(places)


def _create_engine(
    url: str,
    *,
    pool_size: int,
    transaction_pooler: bool,
    server_settings: dict[str, str],
    isolation_level: IsolationLevel | None = None,
) -> AsyncEngine:
    connect_args: dict[str, Any] = {
        "timeout": _CONNECT_TIMEOUT_S,
        "command_timeout": _STATEMENT_TIMEOUT_S,
        "server_settings": {"application_name": APPLICATION_NAME, "jit": "off", **server_settings},
    }
    if transaction_pooler:
        connect_args |= {
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: f"__tm_{uuid4()}__",
            # A pooler refuses start-up parameters that it does not track.
            "server_settings": {"application_name": APPLICATION_NAME},
        }
    engine = create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=_POOL_TIMEOUT_S,
        pool_recycle=1800,
        # The connection that was used last has its statements prepared and PostgreSQL's shared memory
        # mapped; a cold one takes three times as long, most of it for page faults.
        pool_use_lifo=True,
        # A ping would cost a round trip a request. `refuse_closed` sees without one what the server has
        # closed; what died in silence fails one request, whose error invalidates the whole pool.
        pool_pre_ping=False,
        # An error's text goes to the log; what people said does not, see also hush_statement.
        hide_parameters=True,
        connect_args=connect_args,
        **({"isolation_level": isolation_level} if isolation_level else {}),
    )

    event.listen(engine.sync_engine, "handle_error", hush_statement)

    @event.listens_for(engine.sync_engine, "connect")
    def register_codecs(dbapi_connection: Any, _record: object) -> None:
        dbapi_connection.run_async(register_vector)

    @event.listens_for(engine.sync_engine, "checkout")
    def refuse_closed(dbapi_connection: Any, _record: object, _proxy: object) -> None:
        # The event loop has seen the end of the stream when the server died, whoever was idle then.
        if dbapi_connection.driver_connection.is_closed():
            raise DisconnectionError("the server has closed the connection")

    return engine
