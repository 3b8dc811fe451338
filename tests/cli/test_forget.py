"""`temporal-memory forget`, as it is called."""

import asyncio
from collections.abc import Callable

import asyncpg
import pytest

from app.cli import _exit_code
from app.database.embedded import EmbeddedPostgres
from app.settings import Settings

_PLANT = """
    INSERT INTO dialogues (namespace, message_uuid, user_id, chat_type, role, content, created_at, stored_at,
        expires_at, written_hash, token_count, terms)
    SELECT namespace, gen_random_uuid(), 1, 'private', 'user', '话', now() - age, now() - age,
        CASE WHEN ends THEN now() - interval '1 hour' END, 0, 1, repeat('0', 512)::bit(512)
    FROM unnest(ARRAY['default', 'bot']) AS namespace,
        (VALUES (interval '1 day', true), (interval '91 days', false), (interval '1 day', false))
            AS t (age, ends)
"""


@pytest.fixture
def database(
    make_settings: Callable[..., Settings],
    postgres: EmbeddedPostgres,
    database_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The database that commands work on, by its DSN; two namespaces hold three messages each."""
    make_settings()
    monkeypatch.setenv("DATABASE_URL", postgres.url_for(database_name))
    dsn = postgres.dsn_for(database_name)
    fetch(dsn, _PLANT)
    return dsn


def fetch(dsn: str, query: str) -> list[asyncpg.Record]:
    async def ask() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(dsn)
        try:
            return list(await connection.fetch(query))
        finally:
            await connection.close()

    return asyncio.run(ask())


def left(dsn: str) -> dict[str, int]:
    return {
        row["namespace"]: row["count"]
        for row in fetch(dsn, "SELECT namespace, count(*) FROM dialogues GROUP BY 1")
    }


def test_a_dry_run_counts_and_a_run_deletes_in_one_namespace_or_all(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _exit_code(["forget", "--dry-run"]) == 0
    assert capsys.readouterr().out == "1 expired, 1 unretrieved would be deleted\n"
    assert left(database) == {"default": 3, "bot": 3}
    assert _exit_code(["forget", "--namespace", "bot"]) == 0
    assert capsys.readouterr().out == "1 expired, 1 unretrieved deleted\n"
    assert left(database) == {"default": 3, "bot": 1}
    assert _exit_code(["forget", "--dry-run", "--namespace", "all"]) == 0
    assert capsys.readouterr().out == "1 expired, 1 unretrieved would be deleted\n"
    assert _exit_code(["forget", "--namespace", "all"]) == 0
    assert capsys.readouterr().out == "1 expired, 1 unretrieved deleted\n"
    assert left(database) == {"default": 1, "bot": 1}
    assert _exit_code(["forget", "--namespace", "nobody"]) == 0
    assert capsys.readouterr().out == "0 expired, 0 unretrieved deleted\n"
    told = fetch(
        database, "SELECT actor, action, namespace, counts::text AS counts FROM audit_log ORDER BY id"
    )
    counts = '{"expired": 1, "unretrieved": 1}'
    assert [tuple(row) for row in told] == [
        ("program", "memory_forgotten", "bot", counts),
        ("program", "memory_forgotten", None, counts),
    ]
