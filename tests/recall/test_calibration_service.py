"""A provider's model is measured once, whoever asks, whatever fails, and never again after a restart."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import make_url

from app.clients.embedding import CachedEmbedder
from app.clients.embedding_http import RemoteEmbeddingModel
from app.database.embedded import EmbeddedPostgres
from app.database.engine import Database
from app.dialogues import embedding_store
from app.recall import calibration_service as module
from app.recall.calibration import Calibration, reference_answers, reference_questions
from app.recall.calibration_service import CalibrationService
from app.telemetry import Metrics
from tests.conftest import LiveFactory
from tests.doubles.fixtures import EmbeddingProvider
from tests.live import add, fetch, search

_WIDTH = 64


class _World:
    """One database and one provider; each `opened` is a start of the service."""

    def __init__(self, url: str, provider: EmbeddingProvider) -> None:
        self.database = Database(url, pool_size=2, transaction_pooler=False)
        self.provider = provider
        self._opened: list[tuple[CalibrationService, CachedEmbedder]] = []

    async def opened(self) -> CalibrationService:
        metrics = Metrics()
        model = RemoteEmbeddingModel(
            base_url=self.provider.base_url,
            api_key=self.provider.key,
            model="Qwen/Qwen3-Embedding-0.6B",
            dimensions=_WIDTH,
            batch_size=32,
            timeout_s=5,
            metrics=metrics,
        )
        embedder = CachedEmbedder(model, cache_size=10, concurrency=4, metrics=metrics)
        async with self.database.transaction() as session:
            model_id = await embedding_store.register_model(session, name=model.name, dimensions=_WIDTH)
        service = CalibrationService(database=self.database, embedder=embedder, model_id=model_id)
        self._opened.append((service, embedder))
        return service

    def asked(self) -> list[str]:
        return [text for texts in self.provider.requests()["inputs"] for text in texts]

    async def aclose(self) -> None:
        for service, embedder in self._opened:
            await service.aclose()
            await embedder.aclose()
        await self.database.aclose()


@pytest.fixture
async def world(
    postgres: EmbeddedPostgres, database_name: str, embedding_provider: EmbeddingProvider
) -> AsyncIterator[_World]:
    made = _World(postgres.url_for(database_name), embedding_provider)
    yield made
    await made.aclose()


async def test_many_ask_and_it_is_measured_once_for_all_time(world: _World) -> None:
    first = await world.opened()
    found = await asyncio.gather(*(first.current() for _ in range(20)))
    assert isinstance(found[0], Calibration)
    assert found == [found[0]] * 20
    asked = world.asked()
    assert len(asked) == len(reference_questions()) + len(reference_answers())
    # Questions as queries, which this model wants to be told apart.
    assert sum(text.startswith("Instruct: ") for text in asked) == len(reference_questions())
    again = await world.opened()
    assert await again.current() == found[0]
    assert len(world.asked()) == len(asked)


@pytest.mark.parametrize(
    "fault",
    [
        {"fail": [{"status": 500, "times": None, "text": "oops"}]},
        {"fail": [{"status": 429, "times": None, "body": {"message": "rate"}}]},
        {"fail": [{"status": 401, "times": None, "body": "Api key is invalid"}]},
        {"answer": "garbage"},
        {"answer": "nan"},
        {"answer": "null", "answer_for": "牙科"},
        {"hang_up": 1000},
    ],
    ids=str,
)
async def test_a_failure_is_no_calibration_and_is_not_tried_at_each_search(
    world: _World, fault: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.provider.control(**fault)
    service = await world.opened()
    assert await service.current() is None
    tried = len(world.asked())
    assert tried > 0
    for _ in range(5):
        assert await service.current() is None
    assert len(world.asked()) == tried
    world.provider.reset()
    later = await world.opened()
    assert await later.current() is not None


async def test_who_searches_waits_for_it_only_so_long(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    world.provider.control(delay_s=0.5)
    service = await world.opened()
    assert await service.current() is None
    world.provider.control()
    monkeypatch.setattr(module, "_PATIENCE_S", 30)
    assert await service.current() is not None


async def test_a_search_on_a_provider_calibrates_it_and_keeps_it_with_the_model(
    serve: LiveFactory, provided: dict[str, object], postgres: EmbeddedPostgres
) -> None:
    async with serve(**provided) as live:
        await add(live, "我的订单号是ORD123456", wait=True)
        found = await search(live, "我的订单号是ORD123456")
    assert found["memories"][0]["match"] == pytest.approx(1, abs=0.01)
    database = make_url(str(provided["database_url"])).database or ""
    rows = await fetch(postgres, database, "SELECT calibration IS NOT NULL FROM embedding_models")
    assert [row[0] for row in rows] == [True]


async def test_before_that_the_least_similarity_is_the_cosine_and_words_tell_of_an_answer(
    serve: LiveFactory,
    provided: dict[str, object],
    embedding_provider: EmbeddingProvider,
) -> None:
    async with serve(**provided) as live:
        await add(live, "我的订单号是ORD123456", wait=True)
        embedding_provider.control(reject=["牙"])
        exact = await search(live, "我的订单号是ORD123456", min_similarity=0.9)
        other = await search(live, "火车几点开", min_similarity=0.9)
        assert (exact["no_match"], exact["degraded"]) == (False, False)
        assert exact["memories"][0]["match"] is None
        assert exact["memories"][0]["similarity"] > 0.9
        assert (other["no_match"], other["memories"]) == (True, [])
