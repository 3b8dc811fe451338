"""The migrations: up, down, up; what they make is what the row classes say; three at once; widths, zones."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import Column, Connection
from sqlalchemy.dialects.postgresql import BIT
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from app.access import rows as access_rows
from app.database.embedded import EmbeddedPostgres
from app.database.migrations import MigrationOptions, alembic_config, migrate, newest_revision
from app.database.rows import Row
from app.dialogues import rows as dialogue_rows
from app.errors import DatabaseSetupError
from app.tiers import rows as tier_rows
from tests.conftest import execute
from tests.live import fetch

# Loading a room's rows enters its tables into Row.metadata.
ROOMS = (access_rows, dialogue_rows, tier_rows)
_DATABASE = "migrated_here"
_NEEDED = "user_id, written_hash, token_count, message_uuid, chat_type, role, content, terms"

_SHAPE = """
    SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable
        || ' ' || coalesce(generation_expression, column_default, '') AS line
    FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    ORDER BY line
"""


@pytest.fixture
async def empty(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """The URL of a database with nothing in it."""
    await execute(postgres, f"CREATE DATABASE {_DATABASE}")
    yield postgres.url_for(_DATABASE)
    await execute(postgres, f"DROP DATABASE {_DATABASE} WITH (FORCE)")


async def shape(postgres: EmbeddedPostgres) -> list[str]:
    return [row["line"] for row in await fetch(postgres, _DATABASE, _SHAPE)]


async def downgrade(options: MigrationOptions) -> None:
    def down(connection: Connection) -> None:
        config = alembic_config(options)
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        connection.commit()

    engine = create_async_engine(options.url)
    async with engine.connect() as connection:
        await connection.run_sync(down)
    await engine.dispose()


async def test_up_down_and_up_again_is_up(empty: str, postgres: EmbeddedPostgres) -> None:
    options = MigrationOptions(empty, dimensions=64, zone="Asia/Shanghai")
    await migrate(options)
    first = await shape(postgres)
    assert any(line.startswith("index ") and "dialogues" in line for line in first)
    await downgrade(options)
    assert [line for line in await shape(postgres) if "alembic_version" not in line] == []
    await migrate(options)
    assert await shape(postgres) == first
    await migrate(options)
    assert await shape(postgres) == first


async def test_the_row_classes_see_what_the_migrations_make(empty: str) -> None:
    await migrate(MigrationOptions(empty, dimensions=64, zone="Asia/Shanghai"))
    engine = create_async_engine(empty)
    async with engine.connect() as connection:
        differences = await connection.run_sync(_differences)
    await engine.dispose()
    assert differences == []


def _differences(connection: Connection) -> Sequence[Any]:
    context = MigrationContext.configure(
        connection,
        opts={"compare_type": _types_differ, "include_object": _is_compared, "compare_server_default": False},
    )
    return list(compare_metadata(context, Row.metadata))


def _is_compared(_object: object, _name: str | None, kind: str, *_: object) -> bool:
    # Indexes and checks are the database's business alone: no row class repeats them.
    return kind in {"table", "column"}


def _types_differ(
    _context: object, _inspected: object, column: Column[Any], found: object, _declared: object
) -> bool | None:
    if isinstance(column.type, HALFVEC):
        # Its width is decided when the migration runs.
        return not isinstance(found, HALFVEC)
    if isinstance(column.type, BIT) and column.type.length in {None, 1}:
        return not isinstance(found, BIT)
    return None


@pytest.mark.parametrize("dimensions", [8, 384, 1024, 4096])
async def test_vectors_are_as_wide_as_the_settings_say(
    empty: str, postgres: EmbeddedPostgres, dimensions: int
) -> None:
    await migrate(MigrationOptions(empty, dimensions=dimensions, zone="UTC"))
    rows = await fetch(
        postgres,
        _DATABASE,
        "SELECT attname, format_type(atttypid, atttypmod) AS kind FROM pg_attribute"
        " WHERE attrelid = 'dialogues'::regclass AND attname LIKE 'embedding%' AND atttypmod > 0",
    )
    assert {row["attname"]: row["kind"] for row in rows} == {
        "embedding": f"halfvec({dimensions})",
        "embedding_bits": f"bit({dimensions})",
    }
    vector = "[" + ",".join(["0.5"] * dimensions) + "]"
    await fetch(
        postgres,
        _DATABASE,
        f"INSERT INTO dialogues ({_NEEDED}, embedding, embedding_model_id, embedding_status)"
        " VALUES (1, 0, 1, 'a', 'private', 'user', repeat('长', 5000), 0::bit(512),"
        " $1::text::halfvec, 1, 'ready')",
        vector,
    )
    rows = await fetch(postgres, _DATABASE, "SELECT embedding::text AS v FROM dialogues")
    assert rows[0]["v"] == vector


@pytest.mark.parametrize(
    ("zone", "day"),
    [("Asia/Shanghai", "2024-01-17"), ("UTC", "2024-01-16"), ("America/New_York", "2024-01-16")],
)
async def test_created_date_is_the_day_in_the_zone_of_the_migration(
    empty: str, postgres: EmbeddedPostgres, zone: str, day: str
) -> None:
    await migrate(MigrationOptions(empty, dimensions=8, zone=zone))
    for session_zone in ("Pacific/Kiritimati", "America/Los_Angeles"):
        await execute(postgres, f"ALTER DATABASE {_DATABASE} SET timezone = '{session_zone}'")
        await fetch(
            postgres,
            _DATABASE,
            f"INSERT INTO dialogues ({_NEEDED}, created_at)"
            " VALUES (1, 0, 1, $1, 'private', 'user', '话', 0::bit(512), '2024-01-16T18:00:00Z')",
            session_zone,
        )
    rows = await fetch(postgres, _DATABASE, "SELECT DISTINCT created_date::text AS day FROM dialogues")
    assert [row["day"] for row in rows] == [day]


async def test_who_migrate_at_once_do_it_once(empty: str, postgres: EmbeddedPostgres) -> None:
    options = MigrationOptions(empty, dimensions=64, zone="Asia/Shanghai")
    # Alembic's context is one a process: the others are processes.
    code = (
        "import asyncio, sys; from app.database.migrations import *;"
        " asyncio.run(migrate(MigrationOptions(sys.argv[1], dimensions=64, zone='Asia/Shanghai')))"
    )
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, empty, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    for process in started:
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    rows = await fetch(postgres, _DATABASE, "SELECT version_num FROM alembic_version")
    assert [row["version_num"] for row in rows] == [newest_revision()]
    await migrate(options)


async def test_a_failed_migration_leaves_nothing_behind(empty: str, postgres: EmbeddedPostgres) -> None:
    with pytest.raises(DBAPIError):
        # Wider than the type can be.
        await migrate(MigrationOptions(empty, dimensions=20_000, zone="Asia/Shanghai"))
    assert await shape(postgres) == []
    await migrate(MigrationOptions(empty, dimensions=64, zone="Asia/Shanghai"))


async def test_a_later_schema_is_refused(empty: str, postgres: EmbeddedPostgres) -> None:
    options = MigrationOptions(empty, dimensions=64, zone="Asia/Shanghai")
    await migrate(options)
    before = await shape(postgres)
    await fetch(postgres, _DATABASE, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseSetupError, match="9999"):
        await migrate(options)
    assert await shape(postgres) == before
