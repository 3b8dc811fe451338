"""A backup of the whole memory: complete, of one moment, and put back whole or not at all."""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.commands.backup import back_up, put_back
from app.database.dump import TABLES, _libpq_environment, dump
from app.database.embedded import EmbeddedPostgres
from app.database.engine import Database
from app.database.migrations import MigrationOptions, migrate, newest_revision
from app.dialogues import renewal_store
from app.errors import DumpError
from app.services import open_services
from app.settings import Settings, load_settings
from tests.conftest import OFFLINE_DIMENSIONS, execute
from tests.live import fetch

_NUMBERS = count(1)

_MODEL = "INSERT INTO embedding_models (name, dimensions) VALUES ('a', 384);"
_PLANT = """
    INSERT INTO dialogues (namespace, message_uuid, user_id, chat_type, role, content, created_at,
        written_hash, token_count, terms, embedding_status, embedding_model_id, embedding)
    SELECT 'bot', gen_random_uuid(), n % 7 + 1, 'private', 'user', E'第' || n || E'句\\n\\\\.\\n\\tCOMMIT;',
        now(), n, 1, repeat('01', 256)::bit(512), 'ready', m.id,
        (SELECT ('[' || string_agg(random()::text, ',') || ']')::halfvec FROM generate_series(n, n + 383))
    FROM generate_series(1, 500) AS n, embedding_models AS m
"""
_WRITE_PAIR = """
    WITH pair AS (
        INSERT INTO dialogues (namespace, message_uuid, user_id, chat_type, role, content, written_hash,
            token_count, terms)
        SELECT 'pairs', gen_random_uuid(), 1, 'private', role, 'x', 0, 1, repeat('0', 512)::bit(512)
        FROM unnest(ARRAY['user', 'assistant']) AS role RETURNING id
    ) INSERT INTO embedding_jobs (dialogue_id) SELECT id FROM pair
"""


@pytest.fixture
async def other_database(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """A database with nothing in it, to restore into."""
    name = f"other{next(_NUMBERS)}"
    await execute(postgres, f"CREATE DATABASE {name}")
    yield name
    await execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def planted(postgres: EmbeddedPostgres, database_name: str) -> str:
    """A database with 500 messages whose texts would be SQL if they got loose."""
    await run(postgres, database_name, _MODEL + _PLANT)
    return database_name


@pytest.fixture
async def backup(make_settings: Callable[..., Settings], planted: str, tmp_path: Path) -> Path:
    """What `temporal-memory backup` wrote of it."""
    assert planted
    file = tmp_path / "memory.dump"
    await back_up(make_settings(), str(file), tell=lambda _: None)
    return file


def of(postgres: EmbeddedPostgres, database: str) -> Settings:
    return load_settings({"database_url": postgres.url_for(database), "log_level": "WARNING"})


async def run(postgres: EmbeddedPostgres, database: str, statement: str) -> None:
    connection = await asyncpg.connect(postgres.dsn_for(database))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def everything(postgres: EmbeddedPostgres, database: str) -> dict[str, tuple[int, str]]:
    """Number of rows, and a digest of all of them, by table."""
    found = {}
    for table in TABLES:
        rows = await fetch(
            postgres, database, f'SELECT t::text AS line FROM "{table}" AS t ORDER BY t::text COLLATE "C"'
        )
        text = "\n".join(row["line"] for row in rows)
        found[table] = len(rows), hashlib.sha256(text.encode()).hexdigest()
    return found


def cut(file: Path, share: float) -> None:
    os.truncate(file, int(file.stat().st_size * share))


def state(file: Path) -> os.stat_result | None:
    return file.stat() if file.exists() else None


async def restored(postgres: EmbeddedPostgres, database: str, file: Path, *, replace: bool = False) -> str:
    told: list[str] = []
    await put_back(of(postgres, database), file, replace=replace, tell=told.append)
    return told[0]


async def refused(postgres: EmbeddedPostgres, database: str, file: Path, *, replace: bool = False) -> str:
    with pytest.raises(DumpError) as error:
        await put_back(of(postgres, database), file, replace=replace, tell=lambda _: None)
    return str(error.value)


async def test_all_tables_that_the_migrations_make_are_backed_up(
    postgres: EmbeddedPostgres, database_name: str
) -> None:
    made = await fetch(
        postgres, database_name, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    )
    assert sorted(row["tablename"] for row in made) == sorted(TABLES)


async def test_what_is_put_back_is_what_was_there(
    postgres: EmbeddedPostgres, planted: str, backup: Path, other_database: str
) -> None:
    assert await restored(postgres, other_database, backup) == "500 messages restored"
    assert await everything(postgres, other_database) == await everything(postgres, planted)
    # Whatever is stored next gets a number of its own.
    await run(postgres, other_database, _WRITE_PAIR)
    newest = await fetch(postgres, other_database, "SELECT id FROM dialogues ORDER BY id DESC LIMIT 3")
    assert [row["id"] for row in newest] == [502, 501, 500]


async def test_it_takes_the_place_of_a_later_memory_and_the_service_starts_on_it(
    postgres: EmbeddedPostgres, planted: str, backup: Path
) -> None:
    before = await everything(postgres, planted)
    await run(postgres, planted, "DELETE FROM dialogues WHERE id % 2 = 0")
    await run(postgres, planted, _WRITE_PAIR)
    assert "holds 252 messages already: --replace" in await refused(postgres, planted, backup)
    assert await restored(postgres, planted, backup, replace=True) == "500 messages restored"
    assert await everything(postgres, planted) == before
    async with open_services(of(postgres, planted), background=False) as services:
        assert (await services.health.check_ready()).ready


async def test_a_restore_ends_a_renewal_and_leaves_nothing_of_it(
    make_settings: Callable[..., Settings],
    postgres: EmbeddedPostgres,
    planted: str,
    other_database: str,
    tmp_path: Path,
) -> None:
    database = Database(postgres.url_for(planted))
    async with database.transaction() as session:
        await renewal_store.begin(session, model_id=1, dimensions=64)
    await database.aclose()
    file = tmp_path / "renewing.dump"
    await back_up(make_settings(), str(file), tell=lambda _: None)
    assert await restored(postgres, other_database, file) == "500 messages restored"
    assert await everything(postgres, other_database) == await everything(postgres, planted)
    assert await restored(postgres, planted, file, replace=True) == "500 messages restored"
    for name in (planted, other_database):
        there = await fetch(
            postgres,
            name,
            "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()"
            " UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
            " UNION ALL SELECT proname FROM pg_proc WHERE proname = 'note_dialogue_change'",
        )
        assert sorted(row["name"] for row in there) == sorted(TABLES)
        await run(postgres, name, "UPDATE dialogues SET pinned = true")
    database = Database(postgres.url_for(planted))
    async with database.read() as session:
        assert await renewal_store.read_renewal(session) is None
    await database.aclose()


async def test_a_backup_of_an_earlier_version_is_migrated(
    postgres: EmbeddedPostgres, planted: str, other_database: str, tmp_path: Path
) -> None:
    options = MigrationOptions(postgres.url_for(other_database), dimensions=OFFLINE_DIMENSIONS, zone="UTC")
    await migrate(options, "0001")
    await run(postgres, other_database, _WRITE_PAIR)
    file = tmp_path / "old.dump"
    with file.open("wb") as sink:
        assert (await dump(options.url, sink)).dialogues == 2
    # The place has tables that the file does not know.
    assert await restored(postgres, planted, file, replace=True) == "2 messages restored"
    at = await fetch(postgres, planted, "SELECT version_num FROM alembic_version")
    assert [row["version_num"] for row in at] == [newest_revision()]


async def test_a_backup_under_way_is_of_one_moment(
    postgres: EmbeddedPostgres,
    make_settings: Callable[..., Settings],
    planted: str,
    other_database: str,
    tmp_path: Path,
) -> None:
    async def write() -> None:
        while True:
            await run(postgres, planted, _WRITE_PAIR)

    writing = asyncio.create_task(write())
    file = tmp_path / "moving.dump"
    told: list[str] = []
    try:
        await back_up(make_settings(), str(file), tell=told.append)
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    said = int(told[0].split()[0])
    assert await restored(postgres, other_database, file) == f"{said} messages restored"
    found = await everything(postgres, other_database)
    assert found["embedding_jobs"][0] == said - 500
    assert said % 2 == 0


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
async def test_a_file_that_was_cut_off_changes_nothing(
    postgres: EmbeddedPostgres, planted: str, backup: Path, share: float
) -> None:
    cut(backup, share)
    before = await everything(postgres, planted)
    assert "failed: " in await refused(postgres, planted, backup, replace=True)
    assert await everything(postgres, planted) == before


async def test_a_restore_that_the_database_refuses_changes_nothing(
    postgres: EmbeddedPostgres, planted: str, backup: Path, other_database: str
) -> None:
    await run(postgres, other_database, "CREATE VIEW dialogues AS SELECT 1 AS id")
    assert "psql failed: " in await refused(postgres, other_database, backup, replace=True)
    kinds = await fetch(
        postgres,
        other_database,
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " AND relname = ANY (ARRAY['turns', 'alembic_version'])",
    )
    assert kinds == []


async def test_what_is_not_a_backup_of_a_memory_is_refused(
    postgres: EmbeddedPostgres, planted: str, other_database: str, tmp_path: Path
) -> None:
    before = await everything(postgres, planted)
    text = tmp_path / "text"
    text.write_text("hello", encoding="utf-8")
    assert "pg_restore failed: " in await refused(postgres, planted, text, replace=True)

    await run(postgres, other_database, "CREATE TABLE dialogues (id int)")
    file = tmp_path / "foreign.dump"
    with file.open("wb") as sink:
        await dump(postgres.url_for(other_database), sink)
    assert "not of a memory" in await refused(postgres, planted, file, replace=True)

    await run(
        postgres,
        other_database,
        "CREATE TABLE alembic_version (version_num text); INSERT INTO alembic_version VALUES ('9999')",
    )
    with file.open("wb") as sink:
        await dump(postgres.url_for(other_database), sink)
    assert "later version of the service (migration 9999)" in await refused(
        postgres, planted, file, replace=True
    )
    assert await everything(postgres, planted) == before


async def test_no_service_may_be_running(postgres: EmbeddedPostgres, planted: str, backup: Path) -> None:
    async with open_services(of(postgres, planted)) as services:
        assert (await services.health.check_ready()).ready
        assert "stop it, then restore" in await refused(postgres, planted, backup, replace=True)


async def test_a_failed_backup_leaves_the_one_before(
    postgres: EmbeddedPostgres, backup: Path, other_database: str
) -> None:
    before = state(backup)
    assert before is not None
    assert before.st_mode & 0o777 == 0o600
    with pytest.raises(DumpError, match="holds no memory"):
        await back_up(of(postgres, other_database), str(backup), tell=lambda _: None)
    assert state(backup) == before
    assert not state(backup.with_name("memory.dump.part"))


_WORD = st.text(st.characters(min_codepoint=33, max_codepoint=0x4FFF, exclude_categories=["Cs"]), min_size=1)


@given(user=_WORD, password=_WORD, database=_WORD, port=st.integers(1, 65535))
def test_programs_are_told_what_the_url_says(user: str, password: str, database: str, port: int) -> None:
    url = f"postgresql+asyncpg://{quote(user, safe='')}:{quote(password, safe='')}@db.example:{port}"
    told = _libpq_environment(f"{url}/{quote(database, safe='')}?ssl=require")
    assert told == {
        "PGHOST": "db.example",
        "PGPORT": str(port),
        "PGUSER": user,
        "PGPASSWORD": password,
        "PGDATABASE": database,
        "PGSSLMODE": "require",
    }


def test_several_hosts_stay_several() -> None:
    told = _libpq_environment("postgresql+asyncpg://me@/memory?host=a:5432&host=b:5433")
    assert re.fullmatch(r"a(:5432)?,b(:5433)?", told["PGHOST"])
