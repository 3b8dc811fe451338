"""A live service on a provider that fails on command."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count

import pytest

from app.database.embedded import EmbeddedPostgres
from tests.conftest import execute
from tests.doubles.fixtures import EmbeddingProvider

_NUMBERS = count(1)
DIMENSIONS = 64


@dataclass(frozen=True)
class Provided:
    """Settings of a service on the double, and the names of what it uses."""

    settings: dict[str, object]
    database: str
    provider: EmbeddingProvider
    dimensions: int = DIMENSIONS


@pytest.fixture
async def provided(
    postgres: EmbeddedPostgres, embedding_provider: EmbeddingProvider
) -> AsyncIterator[Provided]:
    """An empty database, and settings by which a service migrates it and embeds with the double."""
    name = f"provided{next(_NUMBERS)}"
    await execute(postgres, f"CREATE DATABASE {name}")
    settings: dict[str, object] = {
        "database_url": postgres.url_for(name),
        "embedding_base_url": embedding_provider.base_url,
        "embedding_api_key": EmbeddingProvider.key,
        "embedding_dimensions": DIMENSIONS,
    }
    yield Provided(settings, name, embedding_provider)
    await execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")
