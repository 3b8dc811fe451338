import asyncio
import gc
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from app.clients.embedding import CachedEmbedder, Embedded, Vector
from app.errors import ProviderBusyError, ProviderRejectedError, ProviderTimeoutError
from app.telemetry import Metrics


class HeldModel:
    """A model that answers when it is let, and tells what it was asked."""

    name = "held"
    dimensions = 2
    batch_size = 3

    def __init__(self) -> None:
        self.document_calls: list[list[str]] = []
        self.query_calls: list[str] = []
        self.running = 0
        self.most_running = 0
        self.free = asyncio.Event()
        self.free.set()
        self.error: Exception | None = None
        self.closed = False

    async def load(self) -> None:
        self.free.set()

    async def embed_documents(self, texts: Sequence[str]) -> list[Embedded]:
        self.document_calls.append(list(texts))
        await self._work()
        return [ProviderRejectedError(text) if "bad" in text else self._vector(1) for text in texts]

    async def embed_query(self, text: str) -> Vector:
        self.query_calls.append(text)
        await self._work()
        if "bad" in text:
            raise ProviderRejectedError(text)
        return self._vector(0)

    async def embed_queries(self, texts: Sequence[str]) -> list[Embedded]:
        return [await self.embed_query(text) for text in texts]

    async def aclose(self) -> None:
        self.closed = True

    async def _work(self) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.free.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.running -= 1

    @staticmethod
    def _vector(place: int) -> Vector:
        vector = np.zeros(2, dtype=np.float32)
        vector[place] = 1
        return vector


@pytest.fixture
def model() -> HeldModel:
    return HeldModel()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def embedder(model: HeldModel, metrics: Metrics) -> AsyncIterator[CachedEmbedder]:
    embedder = CachedEmbedder(model, cache_size=4, concurrency=3, metrics=metrics)
    yield embedder
    await embedder.aclose()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_query_is_embedded_once_and_apart_from_the_same_text_as_a_document(
    model: HeldModel, embedder: CachedEmbedder, metrics: Metrics
) -> None:
    query = await embedder.embed_query("猫")
    assert await embedder.embed_query("猫") is query
    [document] = await embedder.embed_documents(["猫"])
    assert not np.array_equal(query, document)  # type: ignore[arg-type]
    assert model.query_calls == ["猫"]
    assert model.document_calls == [["猫"]]
    assert metrics.registry.get_sample_value("memory_embedding_cache_hits_total") == 1
    assert metrics.registry.get_sample_value("memory_embedding_cache_misses_total") == 2


async def test_who_asks_for_the_same_text_at_once_shares_one_call(
    model: HeldModel, embedder: CachedEmbedder
) -> None:
    model.free.clear()
    callers = [asyncio.create_task(embedder.embed_query("猫")) for _ in range(30)]
    await settle()
    model.free.set()
    vectors = await asyncio.gather(*callers)
    assert model.query_calls == ["猫"]
    assert all(vector is vectors[0] for vector in vectors)


async def test_a_caller_that_goes_leaves_the_call_to_the_others_and_to_the_cache(
    model: HeldModel, embedder: CachedEmbedder
) -> None:
    model.free.clear()
    first = asyncio.create_task(embedder.embed_query("猫"))
    await settle()
    second = asyncio.create_task(embedder.embed_query("猫"))
    await settle()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    model.free.set()
    await second
    await embedder.embed_query("猫")
    assert model.query_calls == ["猫"]


async def test_an_error_reaches_all_who_wait_and_is_not_remembered(
    model: HeldModel, embedder: CachedEmbedder
) -> None:
    model.free.clear()
    model.error = ProviderBusyError("busy")
    callers = [asyncio.create_task(embedder.embed_query("猫")) for _ in range(3)]
    await settle()
    model.free.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(result) for result in results] == [ProviderBusyError] * 3
    model.error = None
    assert (await embedder.embed_query("猫")).shape == (2,)


async def test_after_a_query_that_took_too_long_no_other_waits_and_what_is_known_is_given(
    model: HeldModel, embedder: CachedEmbedder
) -> None:
    known = await embedder.embed_query("猫")
    model.free.clear()
    for text in ("狗", "狗", "鸟"):
        with pytest.raises(ProviderTimeoutError, match="no vector within") as caught:
            await embedder.embed_query(text, patience_s=0.01 if text == "狗" else None)
        assert caught.value.retry_after_s is not None
    assert model.query_calls == ["猫", "狗"]
    assert await embedder.embed_query("猫") is known
    model.free.set()
    await settle()
    assert (await embedder.embed_query("狗")).shape == (2,)


async def test_an_error_that_nobody_waits_for_any_more_is_no_warning(
    model: HeldModel, embedder: CachedEmbedder
) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    model.free.clear()
    model.error = ProviderBusyError("busy")
    caller = asyncio.create_task(embedder.embed_query("猫"))
    await settle()
    caller.cancel()
    model.free.set()
    await settle()
    assert model.running == 0
    del caller  # its traceback holds the call
    gc.collect()
    assert complaints == []


async def test_documents_keep_their_order_are_embedded_once_and_go_in_batches(
    model: HeldModel, embedder: CachedEmbedder
) -> None:
    embedded = await embedder.embed_documents(["a", "b", "a", "bad", "c", "d", "bad"])
    assert [isinstance(one, ProviderRejectedError) for one in embedded] == [
        False, False, False, True, False, False, True,
    ]  # fmt: skip
    assert model.document_calls == [["a", "b", "bad"], ["c", "d"]]


async def test_what_is_rejected_is_asked_again(model: HeldModel, embedder: CachedEmbedder) -> None:
    for _ in range(2):
        with pytest.raises(ProviderRejectedError):
            await embedder.embed_query("bad")
        await embedder.embed_documents(["bad"])
    assert len(model.query_calls) == len(model.document_calls) == 2


async def test_no_documents_need_no_call(model: HeldModel, embedder: CachedEmbedder) -> None:
    assert await embedder.embed_documents([]) == []
    assert model.document_calls == []


async def test_documents_leave_room_for_a_query(model: HeldModel, embedder: CachedEmbedder) -> None:
    model.free.clear()
    documents = asyncio.create_task(embedder.embed_documents([str(number) for number in range(30)]))
    await settle()
    assert model.running == 2
    queries = [asyncio.create_task(embedder.embed_query(f"q{number}")) for number in range(5)]
    await settle()
    assert model.query_calls == ["q0"]
    model.free.set()
    await asyncio.gather(documents, *queries)
    assert model.most_running == 3


async def test_what_somebody_waits_for_overtakes_the_background(
    model: HeldModel, embedder: CachedEmbedder
) -> None:
    model.free.clear()
    texts = [str(number) for number in range(30)]
    behind = asyncio.create_task(embedder.embed_documents(texts, background=True))
    await settle()
    assert model.running == 2
    wanted = asyncio.create_task(embedder.embed_documents(["now"]))
    await settle()
    model.free.set()
    await asyncio.gather(behind, wanted)
    assert model.document_calls.index(["now"]) == 2
    assert len(model.document_calls) == 11


async def test_the_batches_that_came_are_remembered_though_one_failed(
    model: HeldModel, embedder: CachedEmbedder
) -> None:
    await embedder.embed_documents(["a", "b", "c"])
    model.error = ProviderBusyError("busy")
    with pytest.raises(ProviderBusyError):
        await embedder.embed_documents(["a", "b", "c", "d"])
    model.error = None
    await embedder.embed_documents(["a", "b", "c", "d"])
    assert model.document_calls[1:] == [["d"], ["d"]]


async def test_the_least_recently_used_goes_first(model: HeldModel, embedder: CachedEmbedder) -> None:
    for text in "abcd":
        await embedder.embed_query(text)
    await embedder.embed_query("a")
    await embedder.embed_query("e")
    await embedder.embed_query("a")
    assert model.query_calls == list("abcde")
    await embedder.embed_query("b")
    assert model.query_calls == list("abcdeb")


async def test_nothing_is_remembered_where_there_is_no_room(model: HeldModel, metrics: Metrics) -> None:
    embedder = CachedEmbedder(model, cache_size=0, concurrency=1, metrics=metrics)
    await embedder.embed_query("a")
    await embedder.embed_query("a")
    await embedder.embed_documents(["a"])
    await embedder.aclose()
    assert model.query_calls == ["a", "a"]


async def test_a_vector_that_is_shared_cannot_be_written(embedder: CachedEmbedder) -> None:
    vector = await embedder.embed_query("a")
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 7


async def test_closing_frees_who_waits_and_closes_the_model(
    model: HeldModel, embedder: CachedEmbedder
) -> None:
    model.free.clear()
    query = asyncio.create_task(embedder.embed_query("a"))
    documents = asyncio.create_task(embedder.embed_documents(list("abcdefghijkl")))
    await settle()
    await embedder.aclose()
    results = await asyncio.gather(query, documents, return_exceptions=True)
    assert [type(result) for result in results] == [ProviderBusyError, ProviderBusyError]
    assert model.closed
    assert model.running == 0
