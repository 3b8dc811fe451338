"""What goes wrong in PostgreSQL is told without the values: those are what people said."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from asyncpg import DataError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.database.embedded import EmbeddedPostgres
from app.database.engine import Database, fetch_rows

SECRET = "西瓜是秘密 sk 42"
Fault = Callable[[Database], Awaitable[object]]


@pytest.fixture(params=[False, True], ids=["direct", "pooler"])
async def database(
    postgres: EmbeddedPostgres, database_name: str, request: pytest.FixtureRequest
) -> AsyncIterator[Database]:
    opened = Database(postgres.url_for(database_name), pool_size=2, transaction_pooler=request.param)
    yield opened
    await opened.aclose()


def written(statement: str) -> Fault:
    """Run as a transaction, through SQLAlchemy."""

    async def run(database: Database) -> None:
        async with database.transaction() as session:
            await session.execute(text(statement), {"secret": SECRET})

    return run


def fetched(statement: str, value: Any = SECRET) -> Fault:
    """Run past SQLAlchemy."""

    async def run(database: Database) -> None:
        async with database.read() as session:
            await fetch_rows(session, statement, {"secret": value})

    return run


def put(statement: str) -> Fault:
    """Run as one statement that writes, past SQLAlchemy."""

    async def run(database: Database) -> None:
        await database.write_rows(statement, {"secret": SECRET})

    return run


_ROW = (
    "INSERT INTO window_messages (user_id, role, content, token_count, created_at)"
    " VALUES (1, 'nobody', :secret, 1, now())"
)
_TWICE = "INSERT INTO embedding_models (name, dimensions) VALUES (:secret, 8), (:secret, 8)"
FAULTS: dict[str, Fault] = {
    "a failing row": written(_ROW),
    "a failing row, past SQLAlchemy": put(_ROW),
    "a key that is there": written(_TWICE),
    "a key that is there, past SQLAlchemy": put(_TWICE),
    "no number": written("SELECT CAST(CAST(:secret AS text) AS bigint)"),
    "no number, past SQLAlchemy": fetched("SELECT CAST(CAST(:secret AS text) AS bigint)"),
    "no date": fetched("SELECT CAST(CAST(:secret AS text) AS timestamptz)"),
    "no JSON": fetched("SELECT CAST(CAST(:secret AS text) AS jsonb)"),
    "no pattern": fetched("SELECT 'a' ~ (CAST(:secret AS text) || '(')"),
    "no value for a number": written("SELECT CAST(:secret AS bigint)"),
    "no value for a number, past SQLAlchemy": fetched("SELECT CAST(:secret AS bigint)"),
    "no value for a list": fetched("SELECT CAST(:secret AS bigint[])", [SECRET]),
    "no text": fetched("SELECT CAST(:secret AS text)", [SECRET]),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_no_value_is_quoted(database: Database, fault: Fault) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is, what it says is the matter
        await fault(database)
    told = "".join(traceback.format_exception(caught.value))
    # The test's own lines are quoted with the frames, by their variables' names.
    assert "西瓜" not in told
    assert "秘密" not in told
    # What is wrong is still told.
    assert "rror" in told


async def test_a_check_that_fails_is_named(database: Database) -> None:
    with pytest.raises(Exception, match="window_messages_role_check"):
        await FAULTS["a failing row"](database)
    with pytest.raises(Exception, match="window_messages_role_check"):
        await FAULTS["a failing row, past SQLAlchemy"](database)


async def test_a_value_that_does_not_fit_is_no_outage(database: Database) -> None:
    """It is a fault of ours: who is told to come back later comes back in vain."""
    for name in ("no value for a number", "no value for a number, past SQLAlchemy"):
        with pytest.raises((DBAPIError, DataError)):
            await FAULTS[name](database)
    async with database.read() as session:
        assert (await session.execute(text("SELECT 1"))).scalar_one() == 1


async def test_faults_in_the_background_are_logged_without_values(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(fault: Fault) -> None:
        try:
            await fault(database)
        except Exception:
            logging.getLogger("test").exception("failed")

    await asyncio.gather(*map(fail, FAULTS.values()))
    assert len(caplog.records) == len(FAULTS)
    assert "西瓜" not in caplog.text
