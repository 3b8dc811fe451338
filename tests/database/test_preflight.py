"""The preflight against real servers: fit, unfit in each way that an operator can meet, and not up yet."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from app.database.embedded import EmbeddedPostgres, start_embedded
from app.database.preflight import check_database, normalise_url
from app.errors import DatabaseSetupError

_NUMBERS = count(1)
_PASSWORD = "s3cret-Wort"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server where the role `app` is nobody special and the role `asked` must tell a password."""
    data_dir = tmp_path_factory.mktemp("preflight")
    with start_embedded(data_dir, durable=False) as started:
        rules = data_dir / "postgres" / "pg_hba.conf"
        owner = rules.stat()
        rules.write_text(f"local all asked scram-sha-256\nlocal all barred reject\n{rules.read_text()}")
        os.chown(rules, owner.st_uid, owner.st_gid)

        async def prepare() -> None:
            connection = await asyncpg.connect(started.dsn_for("postgres"))
            await connection.execute(
                f"CREATE ROLE asked LOGIN PASSWORD '{_PASSWORD}';"
                "CREATE ROLE app LOGIN; CREATE ROLE barred LOGIN; SELECT pg_reload_conf()"
            )
            await connection.close()

        asyncio.run(prepare())
        yield started


@pytest.fixture
async def database(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """A new database without pgvector."""
    name = f"p{next(_NUMBERS)}"
    await execute(server, "postgres", f"CREATE DATABASE {name}")
    yield name
    await execute(server, "postgres", f"DROP DATABASE {name} WITH (FORCE)")


async def execute(server: EmbeddedPostgres, database: str, statement: str) -> None:
    connection = await asyncpg.connect(server.dsn_for(database))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def as_role(server: EmbeddedPostgres, database: str, role: str, password: str | None = None) -> str:
    url = make_url(server.url_for(database)).set(username=role, password=password)
    return url.render_as_string(hide_password=False)


async def refusal_of(url: str, *, wait_s: float = 0) -> str:
    """The one line with which the database is refused."""
    with pytest.raises(DatabaseSetupError) as refused:
        await check_database(url, wait_s=wait_s)
    line = str(refused.value)
    assert "\n" not in line
    assert _PASSWORD not in line
    return line


async def test_a_fit_database_gets_pgvector_and_tells_its_versions(
    server: EmbeddedPostgres, database: str
) -> None:
    facts = await check_database(server.url_for(database), wait_s=0)
    assert int(facts.server_version.partition(".")[0]) >= 15
    assert facts.vector_version >= "0.7"
    assert await check_database(server.dsn_for(database), wait_s=0) == facts
    await execute(server, database, "SELECT '[1]'::halfvec(1)")


async def test_several_may_install_pgvector_at_once(server: EmbeddedPostgres, database: str) -> None:
    url = server.url_for(database)
    facts = await asyncio.gather(*(check_database(url, wait_s=0) for _ in range(6)))
    assert len(set(facts)) == 1


async def test_the_sql_for_a_superuser_is_told_to_who_may_not_install(
    server: EmbeddedPostgres, database: str
) -> None:
    await execute(server, database, "GRANT CREATE ON SCHEMA public TO app")
    line = await refusal_of(as_role(server, database, "app"))
    assert f"run in database {database}: CREATE EXTENSION vector;" in line
    await execute(server, database, "CREATE EXTENSION vector")
    await check_database(as_role(server, database, "app"), wait_s=0)


async def test_the_grant_is_told_to_who_may_not_create_tables(
    server: EmbeddedPostgres, database: str
) -> None:
    await execute(server, database, "CREATE EXTENSION vector")
    line = await refusal_of(as_role(server, database, "app"))
    _, _, remedy = line.partition("run ")
    assert remedy == "GRANT CREATE ON SCHEMA public TO app;"
    await execute(server, database, remedy)
    await check_database(as_role(server, database, "app"), wait_s=0)


async def test_rights_on_rows_suffice_where_the_tables_are(server: EmbeddedPostgres, database: str) -> None:
    await execute(server, database, "CREATE EXTENSION vector; CREATE TABLE dialogues (id bigint)")
    await check_database(as_role(server, database, "app"), wait_s=0)


async def test_a_role_whose_search_path_is_empty_is_told(server: EmbeddedPostgres, database: str) -> None:
    await execute(
        server, database, f"CREATE EXTENSION vector; ALTER DATABASE {database} SET search_path = nowhere"
    )
    assert "CREATE SCHEMA AUTHORIZATION app;" in await refusal_of(as_role(server, database, "app"))


async def test_pgvector_in_a_schema_that_is_not_looked_into(server: EmbeddedPostgres, database: str) -> None:
    await execute(server, database, "CREATE SCHEMA extensions; CREATE EXTENSION vector SCHEMA extensions")
    await execute(server, database, "GRANT CREATE ON SCHEMA public TO app")
    line = await refusal_of(as_role(server, database, "app"))
    _, _, remedy = line.partition("run ")
    assert remedy == "ALTER ROLE app SET search_path = public, extensions;"
    try:
        await execute(server, database, remedy)
        await execute(server, database, "GRANT USAGE ON SCHEMA extensions TO app")
        await check_database(as_role(server, database, "app"), wait_s=0)
    finally:
        await execute(server, database, "ALTER ROLE app RESET search_path")


async def test_an_old_pgvector_is_to_be_updated(server: EmbeddedPostgres, database: str) -> None:
    await execute(server, database, "CREATE EXTENSION vector")
    await execute(server, database, "UPDATE pg_extension SET extversion = '0.6.2' WHERE extname = 'vector'")
    line = await refusal_of(server.url_for(database))
    assert line == (
        "pgvector 0.6.2 is too old, 0.7 or newer is needed: as a superuser run ALTER EXTENSION vector UPDATE;"
    )


async def test_another_encoding_is_refused(server: EmbeddedPostgres) -> None:
    name = f"p{next(_NUMBERS)}"
    await execute(
        server, "postgres", f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
    )
    assert f"Database {name} is in SQL_ASCII, and UTF8 is needed" in await refusal_of(server.url_for(name))


async def test_a_read_only_database_is_refused(server: EmbeddedPostgres, database: str) -> None:
    await execute(server, "postgres", f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    assert "The database is read-only" in await refusal_of(server.url_for(database))


async def test_a_missing_database_is_named(server: EmbeddedPostgres) -> None:
    assert 'database "nowhere" does not exist' in await refusal_of(server.url_for("nowhere"), wait_s=60)


async def test_a_right_password_is_taken_and_a_wrong_one_never_shown(
    server: EmbeddedPostgres, database: str
) -> None:
    await execute(server, database, "CREATE EXTENSION vector; GRANT CREATE ON SCHEMA public TO asked")
    await check_database(as_role(server, database, "asked", _PASSWORD), wait_s=0)
    line = await refusal_of(as_role(server, database, "asked", f"not-{_PASSWORD}"), wait_s=60)
    assert "correct user and password in DATABASE_URL" in line


async def test_a_barred_role_is_told_of_pg_hba(server: EmbeddedPostgres, database: str) -> None:
    assert "pg_hba.conf" in await refusal_of(as_role(server, database, "barred"), wait_s=60)


async def test_a_server_that_comes_up_late_is_waited_for(tmp_path: Path) -> None:
    url = f"postgresql://postgres@/postgres?host={tmp_path}/late/run&port=5432"
    await refusal_of(url)
    waiting = asyncio.create_task(check_database(url, wait_s=300))
    await asyncio.sleep(0)
    late = await asyncio.to_thread(start_embedded, tmp_path / "late", durable=False)
    try:
        assert (await waiting).vector_version
    finally:
        await asyncio.to_thread(late.close)


async def test_nobody_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    line = await refusal_of(f"postgresql://app:{_PASSWORD}@127.0.0.1:{port}/memory")
    assert line.startswith(f"No PostgreSQL answers at 127.0.0.1:{port}/memory after 0 s")


async def test_an_unknown_host() -> None:
    line = await refusal_of(f"postgresql://app:{_PASSWORD}@no-such-host.invalid/memory")
    assert "no-such-host.invalid/memory" in line


@asynccontextmanager
async def listener_that_answers(answer: bytes) -> AsyncIterator[int]:
    """The port of a server that is not PostgreSQL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


async def test_a_server_without_the_wanted_tls() -> None:
    async with listener_that_answers(b"N") as port:
        line = await refusal_of(
            f"postgresql://app:{_PASSWORD}@127.0.0.1:{port}/memory?sslmode=require", wait_s=60
        )
    assert "choose another sslmode" in line


async def test_something_else_that_listens_there() -> None:
    async with listener_that_answers(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        line = await refusal_of(f"postgresql://app:{_PASSWORD}@127.0.0.1:{port}/memory?sslmode=disable")
    assert f"127.0.0.1:{port}/memory" in line


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("postgres://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        ("postgresql://u:p@h:6432/d", "postgresql+asyncpg://u:p@h:6432/d"),
        ("postgresql+asyncpg://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        ("postgresql+psycopg2://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        (" postgresql://u:p%40%2F%23%C3%BC@h/d\n", "postgresql+asyncpg://u:p%40%2F%23%C3%BC@h/d"),
        ("postgresql://u@h/d?sslmode=verify-full", "postgresql+asyncpg://u@h/d?ssl=verify-full"),
        (
            "postgresql://u:p@h/d?sslmode=require&channel_binding=require&connect_timeout=10",
            "postgresql+asyncpg://u:p@h/d?ssl=require",
        ),
        ("postgresql:///d?host=/run/pg&port=5433", "postgresql+asyncpg:///d?host=%2Frun%2Fpg&port=5433"),
    ],
)
def test_urls_are_brought_into_our_form(given: str, wanted: str) -> None:
    assert make_url(normalise_url(given)) == make_url(wanted)
    assert normalise_url(normalise_url(given)) == normalise_url(given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (f"mysql://u:{_PASSWORD}@h/d", "begins with mysql://"),
        (f"sqlite:///{_PASSWORD}", "begins with sqlite://"),
        (_PASSWORD, "is not a URL"),
        ("", "is not a URL"),
        (f"postgresql://u:{_PASSWORD}@h:port/d", "is not a URL"),
        (f"postgresql://u:{_PASSWORD}@h/d?sslmode=on", "sslmode is one of"),
        (f"postgresql://u:{_PASSWORD}@h/d?sslrootcert=/ca.pem", "set PGSSLROOTCERT"),
        (f"postgresql://u:{_PASSWORD}@h/d?search_path=x", "parameter search_path"),
    ],
)
async def test_urls_that_cannot_work_are_refused_without_their_password(given: str, complaint: str) -> None:
    assert complaint in await refusal_of(given)


async def test_sqlalchemy_connects_by_the_normalised_url(server: EmbeddedPostgres, database: str) -> None:
    await execute(server, database, "GRANT CREATE ON SCHEMA public TO asked")
    engine = create_async_engine(normalise_url(as_role(server, database, "asked", _PASSWORD)))
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT current_user"))).scalar_one() == "asked"
    await engine.dispose()
