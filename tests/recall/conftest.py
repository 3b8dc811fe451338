from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.database.embedded import EmbeddedPostgres
from app.services import Services
from tests.recall.planting import World


@pytest.fixture
async def world(services: Services, postgres: EmbeddedPostgres, database_name: str) -> AsyncIterator[World]:
    """The services on a fresh database, and a connection that plants messages there."""
    connection = await asyncpg.connect(postgres.dsn_for(database_name))
    yield World(services, connection)
    await connection.close()
