"""What tests run on: an embedded PostgreSQL a worker, migrated once; a clone of it a test; real HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import asyncpg
import httpx
import pytest
import uvicorn
from blockbuster import blockbuster_ctx
from hypothesis import settings as hypothesis_settings

from app.commands.serving import bind
from app.database.embedded import EmbeddedPostgres, start_embedded
from app.database.migrations import MigrationOptions, migrate
from app.main import create_app
from app.services import Services, open_services
from app.settings import Settings, load_settings

# A shared machine is slow at times; a slow example is no fault.
hypothesis_settings.register_profile("default", deadline=None)
hypothesis_settings.load_profile("default")

pytest_plugins = ["tests.doubles.fixtures", "tests.doubles.chat_fixtures", "tests.doubles.rerank_provider"]

_NUMBERS = count(1)
_TEMPLATE = "template_migrated"
OFFLINE_DIMENSIONS = 384
# A start reads files, before the first request. Later a zone that was not named before, the source lines of a
# stack, and the driver's search for a file of passwords: each a few small reads.
_MAY_READ_FILES = (
    ("app/settings.py", "load_settings"),
    ("app/api/application.py", "build_api"),
    ("app/telemetry.py", "_begin_at_zero"),
    ("app/services.py", "open_services"),
    ("app/models.py", "open_models"),
    ("tests/test_health.py", "processes"),
    ("app/api/fields.py", "read_zone"),
    ("structlog/_base.py", "_process_event"),
    ("asyncpg/connect_utils.py", "_parse_connect_dsn_and_args"),
)
# Commands have a loop to themselves, blocking is what the class TemporalMemory is for, and the service calls
# these of the database in threads.
_WAITS_FOR_NOTHING_ELSE = (
    "app.cli",
    "app.commands",
    "app.database.binaries",
    "app.database.cluster",
    "app.database.dump",
    "app.database.embedded",
    "app.database.migrations",
    "app.database.server_process",
    "app.temporal_memory",
)


@pytest.fixture(autouse=True)
def _no_call_of_ours_blocks_the_loop() -> Iterator[None]:
    """Whatever of app/ waits for a file, a socket, a lock or a pause on the event loop fails its test."""
    with blockbuster_ctx("app", excluded_modules=_WAITS_FOR_NOTHING_ELSE) as guard:
        for function in guard.functions.values():
            for file, name in _MAY_READ_FILES:
                function.can_block_in(file, name)
        yield


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A real server of this worker's own."""
    with start_embedded(tmp_path_factory.mktemp("pg"), durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def template(postgres: EmbeddedPostgres) -> str:
    """A migrated database to be cloned, with vectors as wide as the offline model's."""

    async def make() -> None:
        await execute(postgres, f"CREATE DATABASE {_TEMPLATE}")
        await migrate(
            MigrationOptions(postgres.url_for(_TEMPLATE), dimensions=OFFLINE_DIMENSIONS, zone="Asia/Shanghai")
        )

    asyncio.run(make())
    return _TEMPLATE


@pytest.fixture
async def database_name(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[str]:
    """A fresh migrated database."""
    name = f"t{next(_NUMBERS)}"
    await execute(postgres, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield name
    await execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def make_settings(
    postgres: EmbeddedPostgres, database_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Settings]:
    """Settings on the test's database and the offline model; arguments are settings by lower-case name."""
    monkeypatch.chdir(tmp_path)

    def make(**overrides: object) -> Settings:
        defaults: dict[str, object] = {
            "database_url": postgres.url_for(database_name),
            "log_level": "WARNING",
        }
        return load_settings(defaults | overrides)

    return make


@pytest.fixture
async def services(make_settings: Callable[..., Settings]) -> AsyncIterator[Services]:
    """The services on a fresh database, background loops running."""
    async with open_services(make_settings()) as opened:
        yield opened


@dataclass(frozen=True)
class LiveService:
    """A service that answers on loopback."""

    url: str
    client: httpx.AsyncClient
    services: Services


LiveFactory = Callable[..., AbstractAsyncContextManager[LiveService]]


@pytest.fixture
def serve(make_settings: Callable[..., Settings]) -> LiveFactory:
    """Start a live service with these settings: `async with serve(api_keys="a=b") as live`."""

    @asynccontextmanager
    async def start(**overrides: object) -> AsyncIterator[LiveService]:
        app = create_app(make_settings(**overrides))
        # As the service binds it: asyncio leaves Nagle's algorithm on for a socket that does not say TCP,
        # and each request then waits 40 ms for an acknowledgement.
        listener = bind("127.0.0.1", 0)
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=5)
        )
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                if task.done():
                    await task
                    raise RuntimeError("the service did not start")
                await asyncio.sleep(0.01)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                yield LiveService(url, client, app.state.services)
        finally:
            server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await task
            listener.close()

    return start


@pytest.fixture
async def live_service(serve: LiveFactory) -> AsyncIterator[LiveService]:
    """A live service with the default settings, open to anybody on loopback."""
    async with serve() as live:
        yield live


async def execute(postgres: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(postgres.dsn_for("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
