import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from app.database.embedded import EmbeddedPostgres
from app.database.migrations import MigrationOptions, migrate
from app.services import Services, open_services
from app.settings import Settings
from tests.conftest import execute
from tests.doubles.fixtures import EmbeddingProvider
from tests.recall.planting import NOW, World

_WIDTH = 64


@pytest.fixture
async def services(make_settings: Callable[..., Settings]) -> AsyncIterator[Services]:
    """The services on a fresh database, by a clock that stands still at `NOW`."""
    async with open_services(make_settings(), clock=lambda: NOW) as opened:
        yield opened


@pytest.fixture
async def world(services: Services, postgres: EmbeddedPostgres, database_name: str) -> AsyncIterator[World]:
    """The services on a fresh database, and a connection that plants messages there."""
    connection = await asyncpg.connect(postgres.dsn_for(database_name))
    yield World(services, connection)
    await connection.close()


@pytest.fixture
async def provided(postgres: EmbeddedPostgres, embedding_provider: EmbeddingProvider) -> Any:
    """Settings of a service on the provider double, in a database of its width."""
    name = f"degraded_{time.monotonic_ns()}"
    await execute(postgres, f"CREATE DATABASE {name}")
    url = postgres.url_for(name)
    await migrate(MigrationOptions(url, dimensions=_WIDTH, zone="Asia/Shanghai"))
    yield {
        "database_url": url,
        "embedding_base_url": embedding_provider.base_url,
        "embedding_api_key": embedding_provider.key,
        "embedding_dimensions": _WIDTH,
    }
    await execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")
