"""PostgreSQL's own backup programs, run on the service's tables.

A dump is one snapshot: the service may go on writing meanwhile. A restore is one transaction: whatever goes
wrong, the database is as it was.
"""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeVar

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.binaries import find_binaries
from app.database.engine import APPLICATION_NAME
from app.database.migrations import MIGRATION_LOCK, create_schema_engine, knows_revision
from app.errors import DatabaseSetupError, DumpError

# What the migrations make; a schema may hold tables of others, which are not ours to copy or to drop.
TABLES: Final = (
    "alembic_version",
    "api_keys",
    "audit_log",
    "compressions",
    "correction_jobs",
    "dialogues",
    "embedding_jobs",
    "embedding_models",
    "retrievals",
    "summaries",
    "sweeps",
    "turns",
    "window_messages",
)
# What a service writes by itself at its first start: nothing is lost with it.
_WRITTEN_AT_START: Final = ("alembic_version", "embedding_models", "sweeps")
# A backup that was made while the record was being renewed has the trigger, and neither the function that it
# calls nor the copy that it keeps (app/dialogues/renewal_store.py): a restore ends every renewal.
_BEFORE: Final = """
DROP TABLE IF EXISTS {schema}.dialogues_next, {schema}.dialogues_next_changes CASCADE;
DROP FUNCTION IF EXISTS {schema}.note_dialogue_change() CASCADE;
CREATE FUNCTION {schema}.note_dialogue_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
"""
_AFTER: Final = """
DROP FUNCTION {schema}.note_dialogue_change() CASCADE;
COMMIT;
"""
_PORTABLE: Final = ("--no-owner", "--no-privileges")
# Newer programs set this one, and servers before 17 refuse what they do not know.
_UNKNOWN_BEFORE_17: Final = b"SET transaction_timeout = 0;\n"
_SCRIPT_HEAD_LINES: Final = 30
_LOCK_LIMIT: Final = "10s"
_CHUNK_BYTES: Final = 1 << 18
_ENVIRONMENT: Final = {
    "ssl": "PGSSLMODE",
    "passfile": "PGPASSFILE",
    "service": "PGSERVICE",
    "krbsrvname": "PGKRBSRVNAME",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
}


_Stream = TypeVar("_Stream", asyncio.StreamReader, asyncio.StreamWriter)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a database holds.

    Attributes:
        schema: where its tables are, or would be made.
        tables: those of ours that exist.
        rows: of what somebody said or set, in all tables together; 0: nothing would be lost.
        dialogues: messages among them.
        services: connections that services have open to it.
        server_major: the server's major version, such as 18.
    """

    schema: str
    tables: tuple[str, ...]
    rows: int
    dialogues: int
    services: int
    server_major: int


@dataclass(frozen=True, slots=True)
class Archive:
    """A file that `dump` wrote.

    Attributes:
        path: where it is.
        schema: where its tables were.
        revision: the migration that its tables are at.
    """

    path: Path
    schema: str
    revision: str


async def examine(url: str) -> Contents:
    """Look at a database.

    Args:
        url: SQLAlchemy form.
    """
    async with _connected(url) as connection:
        return await _examine(connection)


async def dump(url: str, sink: IO[bytes]) -> Contents:
    """Write the service's tables in PostgreSQL's custom format; what was written.

    Args:
        url: SQLAlchemy form; of the server itself, not of a transaction pooler.
        sink: takes the bytes; has a file descriptor.

    Raises:
        DumpError: `pg_dump` failed, or the database is not the service's.
        DatabaseSetupError: there is no fitting `pg_dump` here.
    """
    async with _connected(url) as connection:
        # One snapshot for what is counted and what is written.
        await connection.execution_options(isolation_level="REPEATABLE READ")
        snapshot = await connection.scalar(text("SELECT pg_export_snapshot()"))
        contents = await _examine(connection)
        if "dialogues" not in contents.tables:
            raise DumpError("this database holds no memory: there is nothing to back up.")
        program = await _oldest("pg_dump", at_least=contents.server_major)
        chosen = [f'--table="{contents.schema}"."{table}"' for table in contents.tables]
        arguments = [program, "--format=custom", f"--snapshot={snapshot}", *_PORTABLE, *chosen]
        async with _started(arguments, url=url, stdout=sink.fileno()) as process:
            _, complaints = await process.communicate()
        _check(process, complaints, name="pg_dump")
    return contents


async def read_archive(path: Path) -> Archive:
    """What a file holds; its rows are not read.

    Raises:
        DumpError: it is no backup of the service's, or one of a later version.
        DatabaseSetupError: there is no `pg_restore` here.
    """
    program = await _newest("pg_restore")
    listing = await _output([program, "--list", str(path)])
    schemas = {
        table: schema
        for schema, table in re.findall(r"^\d+; \d+ \d+ TABLE (?!DATA )(\S+) (\S+) ", listing, re.MULTILINE)
    }
    if not {"dialogues", "alembic_version"} <= schemas.keys():
        raise DumpError(f"{path} is a dump of PostgreSQL's, but not of a memory.")
    rows = await _output([program, "--data-only", "--table=alembic_version", "--file=-", str(path)])
    revision = re.search(r"^COPY .*\n(\w+)$", rows, re.MULTILINE)
    if revision is None:
        raise DumpError(f"{path} does not say which version of the service made its tables.")
    if not knows_revision(revision[1]):
        raise DumpError(
            f"{path} is of a later version of the service (migration {revision[1]}):"
            " restore it with that version."
        )
    return Archive(path, schema=schemas["dialogues"], revision=revision[1])


async def restore(url: str, archive: Archive, *, contents: Contents) -> None:
    """Put an archive in the place of the tables that are there, in one transaction.

    A service that starts meanwhile waits, as it does for a migration, and finds the tables of the archive.

    Args:
        url: SQLAlchemy form; of the server itself, not of a transaction pooler.
        archive: what is put there.
        contents: what `examine` said of the database.

    Raises:
        DumpError: it failed, or the archive is of another schema; nothing has changed.
        DatabaseSetupError: there is no fitting `pg_restore` here.
    """
    if archive.schema != contents.schema:
        raise DumpError(
            f"{archive.path} holds schema {archive.schema}, and the search_path here begins with"
            f" {contents.schema}: change the role's search_path."
        )
    pg_restore = await _newest("pg_restore")
    # The psql of the same release: scripts have commands that older ones do not know.
    psql = str(Path(pg_restore).with_name("psql"))
    reading = [pg_restore, "--file=-", *_PORTABLE, str(archive.path)]
    running = [psql, "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null"]
    async with (
        _started(reading, stdout=asyncio.subprocess.PIPE) as source,
        _started(running, url=url, stdin=asyncio.subprocess.PIPE) as target,
    ):
        *complaints, _ = await asyncio.gather(
            _read_all(target.stderr), _read_all(source.stderr), _pump(source, target, contents=contents)
        )
        await asyncio.gather(source.wait(), target.wait())
    _check(target, complaints[0], name="psql")
    _check(source, complaints[1], name="pg_restore")
    async with _connected(url) as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        for table in (await _examine(connection)).tables:
            await connection.execute(text(f'VACUUM (ANALYZE) "{table}"'))


async def _pump(
    source: asyncio.subprocess.Process, target: asyncio.subprocess.Process, *, contents: Contents
) -> None:
    """The script from one program to the other; without its last word nothing of it counts."""
    script, sink = _pipe(source.stdout), _pipe(target.stdin)
    tables = ", ".join(f'"{contents.schema}"."{table}"' for table in contents.tables)
    opening = (
        f"BEGIN; SET LOCAL lock_timeout = '{_LOCK_LIMIT}'; SELECT pg_advisory_xact_lock({MIGRATION_LOCK});\n"
    )
    # With CASCADE: what is not ours but hangs on a table of ours was made for what is replaced.
    opening += f"DROP TABLE {tables} CASCADE;\n" if tables else ""
    opening += _BEFORE.format(schema=f'"{contents.schema}"')
    with suppress(BrokenPipeError, ConnectionResetError):
        sink.write(opening.encode())
        for _ in range(_SCRIPT_HEAD_LINES):
            line = await script.readline()
            sink.write(b"" if line == _UNKNOWN_BEFORE_17 and contents.server_major < 17 else line)  # noqa: PLR2004
        while chunk := await script.read(_CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()
        if await source.wait() == 0:
            sink.write(_AFTER.format(schema=f'"{contents.schema}"').encode())
        await sink.drain()
    # psql may be gone already; what was read of the script is thrown away then.
    with suppress(BrokenPipeError, ConnectionResetError):
        sink.close()
        await sink.wait_closed()
    while await script.read(_CHUNK_BYTES):
        pass


async def _examine(connection: AsyncConnection) -> Contents:
    tables = await connection.scalar(
        text(
            "SELECT coalesce(array_agg(name), '{}') FROM unnest(CAST(:names AS text[])) AS name"
            " WHERE to_regclass(quote_ident(current_schema()) || '.' || quote_ident(name)) IS NOT NULL"
        ),
        {"names": list(TABLES)},
    )
    counts = {
        table: await connection.scalar(text(f'SELECT count(*) FROM "{table}"'))
        for table in tables
        if table not in _WRITTEN_AT_START
    }
    row = (
        await connection.execute(
            text(
                "SELECT current_schema() AS schema,"
                " current_setting('server_version_num')::int / 10000 AS server_major,"
                " (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = :ours AND pid <> pg_backend_pid()) AS services"
            ),
            {"ours": APPLICATION_NAME},
        )
    ).one()
    return Contents(
        schema=row.schema,
        tables=tuple(sorted(tables)),
        rows=sum(counts.values()),
        dialogues=counts.get("dialogues", 0),
        services=row.services,
        server_major=row.server_major,
    )


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[AsyncConnection]:
    engine = create_schema_engine(url)
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


async def _oldest(name: str, *, at_least: int) -> str:
    """The oldest program that is no older than the server, so that many others can read what it writes."""
    fitting = [found for found in await _installed(name) if found[0] >= at_least]
    if not fitting:
        raise DatabaseSetupError(
            f"No {name} of PostgreSQL {at_least} or newer is installed here: install the client programs"
            f" (Debian: postgresql-client-{at_least}), and have them on the PATH."
        )
    return min(fitting)[1]


async def _newest(name: str) -> str:
    """The newest program, which reads what all others wrote."""
    installed = await _installed(name)
    if not installed:
        raise DatabaseSetupError(
            f"No {name} is installed here: install PostgreSQL's client programs"
            " (Debian: postgresql-client), and have them on the PATH."
        )
    return max(installed)[1]


async def _installed(name: str) -> list[tuple[int, str]]:
    found = [(await _major(place), place) for place in _places(name)]
    return [(major, place) for major, place in found if major is not None]


def _places(name: str) -> list[str]:
    places = [shutil.which(name, path=folder) for folder in os.get_exec_path()]
    # Debian's own pg_dump is a wrapper that picks one of these by the cluster, not by the server.
    places += [str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))]
    with suppress(DatabaseSetupError):
        places.append(str(find_binaries() / name))
    return [place for place in dict.fromkeys(places) if place]


async def _major(program: str) -> int | None:
    try:
        version = re.search(r"\) (\d+)", await _output([program, "--version"]))
    except (OSError, DumpError):
        return None
    return int(version[1]) if version else None


def _libpq_environment(url: str) -> dict[str, str]:
    """Where to connect, for a program of PostgreSQL's; not in its arguments, which everybody may read."""
    parsed = make_url(url)
    given: dict[str, object] = {
        "PGHOST": parsed.host or parsed.query.get("host"),
        "PGPORT": parsed.port or parsed.query.get("port"),
        "PGUSER": parsed.username,
        "PGPASSWORD": parsed.password,
        "PGDATABASE": parsed.database,
    }
    given |= {variable: parsed.query.get(name) for name, variable in _ENVIRONMENT.items()}
    return {
        name: value if isinstance(value, str) else ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in given.items()
        if value is not None
    }


@asynccontextmanager
async def _started(
    arguments: Sequence[str],
    *,
    url: str | None = None,
    stdin: int = asyncio.subprocess.DEVNULL,
    stdout: int = asyncio.subprocess.DEVNULL,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program, killed if it is still there when this is left; messages are in English."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        env=os.environ
        | (_libpq_environment(url) if url else {})
        | {"LC_ALL": "C", "PGAPPNAME": "temporal-memory-dump"},
        stdin=stdin,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _output(arguments: Sequence[str]) -> str:
    async with _started(arguments, stdout=asyncio.subprocess.PIPE) as process:
        out, complaints = await process.communicate()
    _check(process, complaints, name=Path(arguments[0]).name)
    return out.decode("utf-8", "replace")


async def _read_all(stream: asyncio.StreamReader | None) -> bytes:
    return await _pipe(stream).read()


def _pipe(stream: _Stream | None) -> _Stream:
    if stream is None:
        raise AssertionError("the program was started with this pipe")
    return stream


def _check(process: asyncio.subprocess.Process, complaints: bytes, *, name: str) -> None:
    if process.returncode:
        raise DumpError(f"{name} failed: {_first_error(complaints.decode('utf-8', 'replace').splitlines())}")


def _first_error(complaints: Iterable[str]) -> str:
    """What went wrong first, in one line; not the lines that PostgreSQL quotes rows in."""
    lines = [line.strip() for line in complaints if line.strip()]
    telling = next((line for line in lines if re.search(r"(error|ERROR|FATAL):", line)), "")
    return re.split(r"(?:error|ERROR|FATAL): +", telling or (lines or ["no reason given"])[0])[-1]
