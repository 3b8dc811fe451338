"""The pool: what may not write cannot; what is lost is opened anew; what is full says so."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import pytest
from asyncpg import ReadOnlySQLTransactionError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from structlog.processors import format_exc_info
from structlog.testing import capture_logs

from app.database import engine, server_process
from app.database.embedded import EmbeddedPostgres, start_embedded
from app.database.engine import Database, fetch_rows
from app.errors import DatabaseUnavailableError, OverloadedError
from tests.conftest import LiveFactory, LiveService, execute
from tests.live import add, eventually, fetch, message, search


@pytest.fixture(params=[False, True], ids=["direct", "pooler"])
async def database(
    postgres: EmbeddedPostgres, database_name: str, request: pytest.FixtureRequest
) -> AsyncIterator[Database]:
    opened = Database(postgres.url_for(database_name), pool_size=2, transaction_pooler=request.param)
    yield opened
    await opened.aclose()


async def ask(database: Database) -> int:
    async with database.read() as session:
        return int((await session.execute(text("SELECT 1"))).scalar_one())


async def test_rows_past_sqlalchemy_take_named_parameters_and_cannot_write(database: Database) -> None:
    statement = "SELECT :b || :a, CAST(:a AS text), length('x'::text) LIMIT :limit"
    async with database.read() as reading:
        for _ in range(2):
            rows = await fetch_rows(reading, statement, {"a": "1", "b": "2", "limit": 5})
            assert [tuple(row) for row in rows] == [("21", "1", 1)]
    with pytest.raises((DBAPIError, ReadOnlySQLTransactionError)):
        async with database.read() as reading:
            await fetch_rows(reading, "DELETE FROM embedding_models", {})


async def test_a_read_can_not_write(database: Database) -> None:
    statement = "INSERT INTO embedding_models (name, dimensions) VALUES ('a', 8)"
    with pytest.raises(DBAPIError, match="read-only"):
        async with database.read() as reading:
            await reading.execute(text(statement))
    async with database.transaction() as writing:
        await writing.execute(text(statement))
    async with database.read() as reading:
        assert (await reading.execute(text("SELECT name FROM embedding_models"))).scalars().all() == ["a"]


async def test_an_unforeseen_database_error_tells_the_log_nothing_that_was_said(
    live_service: LiveService,
    postgres: EmbeddedPostgres,
    database_name: str,
) -> None:
    await fetch(postgres, database_name, "ALTER TABLE embedding_jobs RENAME TO gone_jobs")
    body = message("秘密暗号XYZZY", sender_name="某某人PLUGH")
    with capture_logs(processors=[format_exc_info]) as logs:
        answer = await live_service.client.post("/dialogues", json=body)
    assert answer.status_code == 500
    logged = str(logs)
    assert "embedding_jobs" in logged
    assert not [word for word in ("XYZZY", "PLUGH", "秘密", "某某") if word in logged + answer.text]


async def test_a_failed_transaction_is_rolled_back_and_its_connection_returned(database: Database) -> None:
    async def fail(failure: BaseException) -> None:
        async with database.transaction() as session:
            await session.execute(text("INSERT INTO embedding_models (name, dimensions) VALUES ('a', 8)"))
            raise failure

    for failure in (ValueError("ours"), asyncio.CancelledError()):
        with pytest.raises(type(failure)):
            await fail(failure)
    assert database.checked_out == 0
    async with database.read() as session:
        assert (await session.execute(text("SELECT count(*) FROM embedding_models"))).scalar_one() == 0


@pytest.mark.parametrize("kind", ["read", "transaction"])
async def test_a_full_pool_says_so(
    postgres: EmbeddedPostgres, database_name: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(engine, "_POOL_TIMEOUT_S", 0.1)
    small = Database(postgres.url_for(database_name), pool_size=1)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(getattr(small, kind)())
        assert small.checked_out == 2
        with pytest.raises(OverloadedError):
            await stack.enter_async_context(getattr(small, kind)())
    assert small.checked_out == 0
    assert await ask(small) == 1
    await small.aclose()


async def write(database: Database) -> int:
    async with database.transaction() as session:
        return int((await session.execute(text("SELECT 1"))).scalar_one())


async def test_connections_that_the_server_closed_cost_no_failure(
    database: Database, postgres: EmbeddedPostgres, database_name: str
) -> None:
    for _ in range(2):
        async with database.read(), database.read(), database.transaction(), database.transaction():
            pass
        await execute(
            postgres,
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            f" WHERE datname = '{database_name}'",
        )
        assert [await ask(database), await write(database)] == [1, 1]
    assert database.checked_out == 0


async def test_connections_that_died_in_use_cost_one_failure(
    database: Database, postgres: EmbeddedPostgres, database_name: str
) -> None:
    async def die_in_use() -> None:
        async with database.read() as session:
            await execute(
                postgres,
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
                f" WHERE datname = '{database_name}'",
            )
            await session.execute(text("SELECT 1"))

    with pytest.raises(DatabaseUnavailableError):
        await die_in_use()
    assert [await ask(database) for _ in range(5)] == [1] * 5


class _Relay:
    """A way to PostgreSQL on which something can be said in its name."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._clients: list[asyncio.StreamWriter] = []

    async def lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._socket_path)
        self._clients.append(writer)
        await asyncio.gather(_pour(reader, back), _pour(there, writer))

    async def say(self, message: bytes) -> None:
        for client in self._clients:
            client.write(message)
            await client.drain()


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()


@pytest.mark.parametrize("way", ["read", "transaction", "write_rows", "fetch_rows"])
async def test_a_connection_whose_end_is_announced_costs_one_failure(
    postgres: EmbeddedPostgres, database_name: str, way: str
) -> None:
    relay = _Relay(f"{postgres._socket_dir}/.s.PGSQL.5432")
    listener = await asyncio.start_server(relay.lead, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    database = Database(f"postgresql+asyncpg://postgres@127.0.0.1:{port}/{database_name}", pool_size=2)

    async def use() -> None:
        if way == "write_rows":
            await database.write_rows("SELECT 1", {})
        elif way == "fetch_rows":
            async with database.read() as reading:
                await fetch_rows(reading, "SELECT 1", {})
        else:
            await (ask if way == "read" else write)(database)

    await use()
    fields = (b"SFATAL", b"VFATAL", b"C57P01", b"Mterminating connection due to administrator command", b"")
    body = b"".join(field + b"\0" for field in fields)
    await relay.say(b"E" + (len(body) + 4).to_bytes(4, "big") + body)
    # It is one write into a socket of this machine, so that our end has it before it asks.
    await asyncio.sleep(0.1)
    with pytest.raises(DatabaseUnavailableError):
        await use()
    for _ in range(3):
        await use()
    assert database.checked_out == 0
    await database.aclose()
    listener.close()
    await listener.wait_closed()


@pytest.mark.parametrize(
    "code",
    [
        "disk_full",
        "out_of_memory",
        "too_many_connections",
        "configuration_limit_exceeded",
        "io_error",
        "internal_error",
    ],
)
async def test_a_server_short_of_resources_is_unavailable_and_no_fault_of_ours(
    database: Database, code: str
) -> None:
    refusal = f"DO $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '{code}'; END $$"
    with pytest.raises(DatabaseUnavailableError, match="short of disk") as caught:
        async with database.transaction() as writing:
            await writing.execute(text(refusal))
    assert caught.value.retry_after_s == 10
    with pytest.raises(DatabaseUnavailableError, match="short of disk"):
        async with database.read() as reading:
            await fetch_rows(reading, refusal, {})
    assert [await ask(database), await write(database)] == [1, 1]


async def test_the_first_look_at_a_server_that_was_killed_and_is_back_succeeds(tmp_path: Path) -> None:
    with await asyncio.to_thread(start_embedded, tmp_path / "data", durable=True) as server:
        database = Database(server.url, pool_size=2)
        async with database.read(), database.read(), database.transaction(), database.transaction():
            pass
        pid = server_process.postmaster(server._cluster)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: _is_gone(server, pid))
        await asyncio.to_thread(server.revive)
        assert [await ask(database), await write(database), await ask(database)] == [1, 1, 1]
        await database.aclose()


async def _is_gone(server: EmbeddedPostgres, pid: int) -> bool:
    return server_process.postmaster(server._cluster) != pid


async def _answers(call: Callable[[], Awaitable[httpx.Response]], status: int) -> httpx.Response:
    """The first answer with this status."""
    last: list[httpx.Response] = []

    async def holds() -> bool:
        last[:] = [await call()]
        return last[0].status_code == status

    await eventually(holds)
    return last[0]


async def test_a_database_that_goes_away_and_comes_back_needs_no_restart(
    serve: LiveFactory, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    first = await asyncio.to_thread(start_embedded, data_dir, durable=True)
    async with serve(database_url=first.url) as live:
        await add(live, "停电之前的话", wait=True)
        pid = server_process.postmaster(first._cluster)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        down = await _answers(lambda: live.client.get("/health/ready"), 503)
        assert down.json()["type"] == "/problems/unavailable"
        assert "database" in down.json()["detail"]
        for answer in await asyncio.gather(
            *(
                live.client.request(method, path, json=body)
                for method, path, body in (
                    ("POST", "/dialogues", message("停电时的话")),
                    ("POST", "/dialogues/batch", {"dialogues": [message()]}),
                    ("GET", "/dialogues?user_id=1", None),
                    ("GET", "/dialogues/1", None),
                    ("PATCH", "/dialogues/1", {"pinned": True}),
                    ("DELETE", "/dialogues/1", None),
                    ("POST", "/memory/search", {"user_id": 1, "query": "话"}),
                    ("POST", "/memory/prompt", {"user_id": 1, "query": "话"}),
                    ("GET", "/sessions", None),
                    ("GET", "/sessions/1/window", None),
                    ("DELETE", "/users/1", None),
                    ("GET", "/stats", None),
                )
            )
        ):
            assert answer.status_code == 503, answer.url
            assert answer.json()["type"] == "/problems/database-unavailable"
            assert int(answer.headers["retry-after"]) > 0
        assert (await live.client.get("/health/live")).status_code == 200
        assert (await live.client.get("/metrics")).status_code == 200
        second = await asyncio.to_thread(start_embedded, data_dir, durable=True)
        await _answers(lambda: live.client.get("/health/ready"), 200)
        found = await search(live, "停电之前的话", top_n=1, window_size=0)
        assert [one["content"] for one in found["memories"]] == ["停电之前的话"]
        stored = await add(live, "来电之后的话")

        async def is_ready() -> bool:
            answer = await live.client.get(f"/dialogues/{stored['id']}")
            return bool(answer.json()["embedding_status"] == "ready")

        await eventually(is_ready)
    for server in (first, second):
        await asyncio.to_thread(server.close)
