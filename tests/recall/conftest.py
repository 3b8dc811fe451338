from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from app.database.embedded import EmbeddedPostgres
from app.services import Services, open_services
from app.settings import Settings
from tests.recall.planting import NOW, World


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
