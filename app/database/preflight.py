"""Whether a PostgreSQL can hold the memory, asked before anything is built on it, and its URL in our form.

Every refusal is one line that says what to do, and none repeats the password.
"""

import asyncio
import re
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.clock import monotonic_s
from app.errors import DatabaseSetupError
from app.telemetry import get_logger

_log = get_logger(__name__)

OLDEST_SERVER = 15
OLDEST_PGVECTOR = (0, 7)

_CONNECT_LIMIT_S = 5.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0

# What libpq's URLs may say and asyncpg has no notion of; leaving it out changes nothing that was agreed on:
# TLS is settled by sslmode, and the waiting by the callers.
_IGNORED = {"application_name", "channel_binding", "connect_timeout", "gssencmode"}
_PASSED_ON = {"host", "port", "ssl", "target_session_attrs", "passfile", "service", "krbsrvname"}
_BY_ENVIRONMENT = {"sslrootcert", "sslcert", "sslkey", "sslcrl", "sslnegotiation"}
_SSL_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

_FACTS = """
SELECT current_setting('server_version') AS server_version,
       current_setting('server_version_num')::int / 10000 AS server_major,
       current_setting('server_encoding') AS encoding,
       current_setting('transaction_read_only')::bool AS read_only,
       quote_ident(current_database()) AS database,
       quote_ident(current_user) AS role,
       quote_ident(current_schema()) AS schema,
       coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create,
       (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS vector_installed,
       (SELECT quote_ident(nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
         WHERE extname = 'vector') AS vector_schema,
       (SELECT default_version FROM pg_available_extensions WHERE name = 'vector') AS vector_available,
       to_regtype('vector') IS NOT NULL AS vector_visible,
       to_regclass('dialogues') IS NOT NULL AS has_tables
"""


@dataclass(frozen=True)
class ServerFacts:
    """What the server is: `18.6`, `0.8.6`."""

    server_version: str
    vector_version: str


def normalise_url(url: str) -> str:
    """The SQLAlchemy URL for asyncpg of a PostgreSQL URL in SQLAlchemy's or libpq's form.

    Raises:
        DatabaseSetupError: it is no PostgreSQL URL, or has a parameter that would be without effect.
    """
    return _parse(url).render_as_string(hide_password=False)


async def check_database(url: str, *, wait_s: float) -> ServerFacts:
    """Make sure that the database can hold the memory; installs pgvector there if it may.

    Args:
        url: in any form that `normalise_url` takes.
        wait_s: how long a server that does not answer yet is waited for.

    Raises:
        DatabaseSetupError: it cannot; the line says what to do.
    """
    parsed = _parse(url)
    connection = await _connect_patiently(parsed, wait_s=wait_s)
    try:
        facts = await _ask(connection)
        _check_server(facts)
        if facts["vector_installed"] is None:
            await _install_vector(connection, facts)
            facts = await _ask(connection)
        _check_vector(facts)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise DatabaseSetupError(
            f"The database at {_place(parsed)} cannot be examined: {_quote(error, parsed)}"
        ) from error
    finally:
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            await connection.close(timeout=_CONNECT_LIMIT_S)
    return ServerFacts(server_version=facts["server_version"], vector_version=facts["vector_installed"])


def _parse(text: str) -> URL:
    try:
        url = make_url(text.strip())
    except (ArgumentError, ValueError):
        raise DatabaseSetupError(
            "DATABASE_URL is not a URL: write postgresql://user:password@host:5432/database, "
            "with @ : / # in the password percent-encoded."
        ) from None
    if url.drivername.partition("+")[0] not in {"postgresql", "postgres"}:
        raise DatabaseSetupError(
            f"DATABASE_URL begins with {url.drivername}://, and only postgresql:// can be used."
        )
    query: dict[str, Any] = {}
    for name, value in url.query.items():
        if name == "sslmode":
            if value not in _SSL_MODES:
                raise DatabaseSetupError(f"DATABASE_URL: sslmode is one of {', '.join(sorted(_SSL_MODES))}.")
            query["ssl"] = value
        elif name in _PASSED_ON:
            query[name] = value
        elif name in _BY_ENVIRONMENT:
            raise DatabaseSetupError(
                f"DATABASE_URL: {name} is not read from the URL; set PG{name.upper()} in the environment."
            )
        elif name not in _IGNORED:
            raise DatabaseSetupError(f"DATABASE_URL: the parameter {name} is not supported; leave it out.")
    return url.set(drivername="postgresql+asyncpg", query=query)


async def _connect_patiently(url: URL, *, wait_s: float) -> asyncpg.Connection:
    try:
        _, arguments = url.get_dialect()().create_connect_args(url)
    except (ArgumentError, ValueError) as error:
        raise DatabaseSetupError(f"DATABASE_URL cannot be used: {_quote(error, url)}") from None
    began = monotonic_s()
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            # A transaction pooler gives each transaction another connection, so no statement may be kept.
            return await asyncpg.connect(**arguments, statement_cache_size=0, timeout=_CONNECT_LIMIT_S)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            if not _is_not_up_yet(error):
                raise DatabaseSetupError(_explain(error, url)) from error
            waited_s = monotonic_s() - began
            reason = _quote(error, url)
            if waited_s + pause_s > wait_s:
                raise DatabaseSetupError(
                    f"No PostgreSQL answers at {_place(url)} after {waited_s:.0f} s ({reason}): start it, or "
                    "correct DATABASE_URL."
                ) from error
            _log.info("waiting for the database", at=_place(url), waited_s=round(waited_s, 1), reason=reason)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _is_not_up_yet(error: Exception) -> bool:
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, OSError):
        return not isinstance(error, ssl.SSLError) and not _is_about_tls(error)
    if isinstance(error, asyncpg.ProtocolViolationError):
        # The code that pgbouncer gives for everything, its server being down included.
        return "connect" in str(error)
    return isinstance(
        error,
        asyncpg.CannotConnectNowError | asyncpg.TooManyConnectionsError | asyncpg.PostgresConnectionError,
    )


def _is_about_tls(error: Exception) -> bool:
    # asyncpg has no type of its own for these.
    return "SSL" in str(error)


def _explain(error: Exception, url: URL) -> str:
    """What to do about an error that waiting does not mend."""
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        mend = "create the database, or correct its name in DATABASE_URL"
    elif isinstance(error, asyncpg.InvalidPasswordError):
        mend = "correct user and password in DATABASE_URL"
    elif isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        mend = (
            "correct the user in DATABASE_URL, add ?sslmode=require if the server wants TLS, or allow the "
            "connection in its pg_hba.conf"
        )
    elif isinstance(error, socket.gaierror):
        mend = "correct the host in DATABASE_URL"
    elif isinstance(error, ssl.SSLCertVerificationError) or "root certificate file" in str(error):
        mend = "name its authority's certificate in PGSSLROOTCERT, or choose another sslmode in DATABASE_URL"
    elif isinstance(error, ssl.SSLError) or _is_about_tls(error):
        mend = "choose another sslmode in DATABASE_URL"
    else:
        mend = "correct DATABASE_URL"
    return f"The server at {_place(url)} cannot be used ({_quote(error, url)}): {mend}."


async def _ask(connection: asyncpg.Connection) -> asyncpg.Record:
    async with connection.transaction():
        facts = await connection.fetchrow(_FACTS)
    if facts is None:
        raise AssertionError("a SELECT without FROM has one row")
    return facts


def _check_server(facts: asyncpg.Record) -> None:
    if facts["server_major"] < OLDEST_SERVER:
        raise DatabaseSetupError(
            f"PostgreSQL {facts['server_version']} is too old: {OLDEST_SERVER} or newer is needed."
        )
    if facts["encoding"] != "UTF8":
        raise DatabaseSetupError(
            f"Database {facts['database']} is in {facts['encoding']}, and UTF8 is needed: make another with "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and name it in DATABASE_URL."
        )
    if facts["read_only"]:
        raise DatabaseSetupError(
            "The database is read-only, a standby perhaps: name the primary in DATABASE_URL."
        )
    # Where the tables are, rows are all that a careful operator lets us write.
    if facts["has_tables"] or facts["may_create"]:
        return
    if facts["schema"] is None:
        raise DatabaseSetupError(
            f"The search_path of {facts['role']} names no schema of database {facts['database']}: as its "
            f"owner run CREATE SCHEMA AUTHORIZATION {facts['role']};"
        )
    raise DatabaseSetupError(
        f"{facts['role']} may not create tables in database {facts['database']}: as its owner run "
        f"GRANT CREATE ON SCHEMA {facts['schema']} TO {facts['role']};"
    )


async def _install_vector(connection: asyncpg.Connection, facts: asyncpg.Record) -> None:
    available = facts["vector_available"]
    if available is None:
        raise DatabaseSetupError(
            "The server has no pgvector: install it there (Debian: package "
            f"postgresql-{facts['server_major']}-pgvector; Docker: image "
            f"pgvector/pgvector:pg{facts['server_major']}), or unset DATABASE_URL."
        )
    _check_vector_version(available, mend="install a newer one on the server.")
    try:
        async with connection.transaction():
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except (asyncpg.UniqueViolationError, asyncpg.DuplicateObjectError):
        _log.debug("another process installed pgvector at the same moment")
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseSetupError(
            f"{facts['role']} may not install pgvector: as a superuser run in database {facts['database']}: "
            "CREATE EXTENSION vector;"
        ) from error


def _check_vector(facts: asyncpg.Record) -> None:
    available = facts["vector_available"]
    updatable = available is not None and _version(available) >= OLDEST_PGVECTOR
    mend = (
        "as a superuser run ALTER EXTENSION vector UPDATE;"
        if updatable
        else "install a newer one on the server."
    )
    _check_vector_version(facts["vector_installed"], mend=mend)
    if not facts["vector_visible"]:
        raise DatabaseSetupError(
            f"pgvector is in schema {facts['vector_schema']}, which {facts['role']} does not look into: run "
            f"ALTER ROLE {facts['role']} SET search_path = {facts['schema']}, {facts['vector_schema']};"
        )


def _check_vector_version(found: str, *, mend: str) -> None:
    if _version(found) < OLDEST_PGVECTOR:
        oldest = ".".join(map(str, OLDEST_PGVECTOR))
        raise DatabaseSetupError(f"pgvector {found} is too old, {oldest} or newer is needed: {mend}")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _place(url: URL) -> str:
    """Where the server is, for people: host, port and database."""
    host = url.host or url.query.get("host") or "localhost"
    hosts = host if isinstance(host, str) else ",".join(host)
    port = url.port or url.query.get("port")
    return f"{hosts}{f':{port}' if port else ''}/{url.database or ''}"


def _quote(error: Exception, url: URL) -> str:
    """The error in one line, without the password."""
    text = " ".join(str(error).split()) or type(error).__name__
    password = url.password
    return text.replace(str(password), "***") if password else text
