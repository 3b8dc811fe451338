"""The services on a clock that tests set, and messages planted as they would lie in the database."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from app.database.embedded import EmbeddedPostgres
from app.services import Services, open_services
from app.settings import Settings
from tests.recall.planting import World


@dataclass
class SetClock:
    """Tells the time that it was set to."""

    now: datetime = field(default_factory=lambda: datetime(2026, 11, 30, 4, 0, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def services(make_settings: Callable[..., Settings], clock: SetClock) -> AsyncIterator[Services]:
    """The services on a fresh database without their loops: a test does each step when it wants it done."""
    async with open_services(make_settings(), clock=clock, background=False) as opened:
        yield opened


@pytest.fixture
async def world(services: Services, postgres: EmbeddedPostgres, database_name: str) -> AsyncIterator[World]:
    """The services, and a connection past them."""
    connection = await asyncpg.connect(postgres.dsn_for(database_name))
    yield World(services, connection)
    await connection.close()
