import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from app.clients.embedding import open_embedding_model
from app.clients.embedding_http import RemoteEmbeddingModel
from app.clients.embedding_model import Vector
from app.clients.embedding_offline import OfflineEmbeddingModel
from app.errors import (
    ProviderBusyError,
    ProviderDeniedError,
    ProviderError,
    ProviderRejectedError,
    ProviderTimeoutError,
)
from app.telemetry import Metrics
from tests.doubles.embedding_provider import embed
from tests.doubles.fixtures import EmbeddingProvider

QWEN = "Qwen/Qwen3-Embedding-0.6B"
DIMENSIONS = 64
TEXTS = [f"第{number}条消息，谈的是天气" for number in range(32)]

Opener = Callable[..., RemoteEmbeddingModel]


class HandClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def open_model(
    embedding_provider: EmbeddingProvider, clock: HandClock, metrics: Metrics
) -> AsyncIterator[Opener]:
    opened: list[RemoteEmbeddingModel] = []

    def open_one(
        *,
        model: str = QWEN,
        dimensions: int = DIMENSIONS,
        batch_size: int = 32,
        timeout_s: float = 20,
        api_key: str | None = embedding_provider.key,
        base_url: str = embedding_provider.base_url,
    ) -> RemoteEmbeddingModel:
        opened.append(
            RemoteEmbeddingModel(
                base_url=base_url,
                api_key=api_key,
                model=model,
                dimensions=dimensions,
                batch_size=batch_size,
                timeout_s=timeout_s,
                metrics=metrics,
                monotonic=clock,
            )
        )
        return opened[-1]

    yield open_one
    for model in opened:
        await model.aclose()


@pytest.fixture
def model(open_model: Opener) -> RemoteEmbeddingModel:
    return open_model()


def is_vector_of(embedded: object, text: str, dimensions: int = DIMENSIONS) -> bool:
    return isinstance(embedded, np.ndarray) and np.allclose(embedded, embed(text, dimensions), atol=1e-5)


async def test_a_batch_is_one_request_and_its_vectors_are_in_order(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, metrics: Metrics
) -> None:
    embedding_provider.control(answer="shuffled")
    embedded = await model.embed_documents(TEXTS)
    assert all(is_vector_of(one, text) for one, text in zip(embedded, TEXTS, strict=True))
    log = embedding_provider.requests()
    assert log["batch_sizes"] == [32]
    assert log["bodies"] == [{"model": QWEN, "encoding_format": "float", "dimensions": DIMENSIONS}]
    assert log["authorizations"] == [f"Bearer {embedding_provider.key}"]
    assert metrics.registry.get_sample_value("memory_embedding_requests_total", {"outcome": "ok"}) == 1


async def test_a_query_is_instructed_and_a_document_is_not(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider
) -> None:
    assert is_vector_of(await model.embed_query("猫在哪里"), "猫在哪里")
    await model.embed_documents(["猫在哪里"])
    [[query], [document]] = embedding_provider.requests()["inputs"]
    assert query.startswith("Instruct: ")
    assert query.endswith("\nQuery:猫在哪里")
    assert document == "猫在哪里"


async def test_bge_gets_neither_dimensions_nor_an_instruction(
    open_model: Opener, embedding_provider: EmbeddingProvider
) -> None:
    model = open_model(model="BAAI/bge-m3", dimensions=1024)
    assert is_vector_of(await model.embed_query("猫"), "猫", 1024)
    log = embedding_provider.requests()
    assert log["inputs"] == [["猫"]]
    assert log["bodies"] == [{"model": "BAAI/bge-m3", "encoding_format": "float"}]


async def test_without_a_key_there_is_no_header(
    open_model: Opener, embedding_provider: EmbeddingProvider
) -> None:
    with pytest.raises(ProviderDeniedError):
        await open_model(api_key=None).embed_query("猫")
    assert embedding_provider.requests()["authorizations"] == [None]


@pytest.mark.parametrize("answer", ["base64", "integers", "no_index"])
async def test_other_forms_of_an_answer_are_read(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, answer: str
) -> None:
    embedding_provider.control(answer=answer)
    embedded = await model.embed_documents(["猫在睡觉", "狗在跑步"])
    for vector, text in zip(embedded, ["猫在睡觉", "狗在跑步"], strict=True):
        assert not isinstance(vector, ProviderRejectedError)
        assert float(vector @ np.array(embed(text, DIMENSIONS))) > 0.99
        assert float(np.linalg.norm(vector)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("answer", ["nan", "zero", "null", "strings", "wrong_width"])
async def test_a_spoilt_vector_is_refused_and_spoils_no_other(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, answer: str
) -> None:
    embedding_provider.control(answer=answer, answer_for="毒")
    good, spoilt = await model.embed_documents(["好的", "有毒"])
    assert is_vector_of(good, "好的")
    assert isinstance(spoilt, ProviderRejectedError)
    with pytest.raises(ProviderRejectedError):
        await model.embed_query("有毒")


@pytest.mark.parametrize("answer", ["nan", "zero", "null", "strings", "wrong_width"])
@pytest.mark.parametrize("count", [1, 32])
async def test_a_model_without_a_good_vector_is_not_the_fault_of_the_texts(
    model: RemoteEmbeddingModel,
    embedding_provider: EmbeddingProvider,
    clock: HandClock,
    answer: str,
    count: int,
) -> None:
    embedding_provider.control(answer=answer)
    pause_s = 0.0
    for ask in (model.embed_documents(TEXTS[:count]), model.embed_query("猫")):
        with pytest.raises(ProviderError, match="no vectors at present") as caught:
            await ask
        assert type(caught.value) is ProviderError
        assert caught.value.retry_after_s is not None
        pause_s = caught.value.retry_after_s
    assert embedding_provider.requests()["count"] == 2
    embedding_provider.control()
    clock.now_s += pause_s
    embedded = await model.embed_documents(TEXTS[:count])
    assert all(is_vector_of(one, text) for one, text in zip(embedded, TEXTS[:count], strict=True))


@pytest.mark.parametrize("answer", ["nan", "wrong_width"])
async def test_texts_that_are_all_spoilt_are_refused_where_a_harmless_one_is_not(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, answer: str
) -> None:
    embedding_provider.control(answer=answer, answer_for="毒")
    embedded = await model.embed_documents(["一毒", "二毒", "三毒"])
    assert all(isinstance(one, ProviderRejectedError) for one in embedded)


async def test_blank_texts_are_never_sent(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider
) -> None:
    blank, good, zero_width = await model.embed_documents([" ", "好", "\u200b"])
    assert isinstance(blank, ProviderRejectedError)
    assert is_vector_of(good, "好")
    assert isinstance(zero_width, ProviderRejectedError)
    await model.embed_documents(["", "\n"])
    with pytest.raises(ProviderRejectedError):
        await model.embed_query("\u3000")
    assert embedding_provider.requests()["inputs"] == [["好"]]


async def test_a_batch_over_the_limit_is_split_and_the_limit_is_learnt(
    open_model: Opener, embedding_provider: EmbeddingProvider
) -> None:
    model = open_model(batch_size=100)
    texts = [f"消息{number}" for number in range(100)]
    embedded = await model.embed_documents(texts)
    assert all(is_vector_of(one, text) for one, text in zip(embedded, texts, strict=True))
    assert model.batch_size == 32
    await model.embed_documents(texts)
    assert embedding_provider.requests()["batch_sizes"] == [100, 32, 32, 32, 4, 32, 32, 32, 4]


@pytest.mark.parametrize("poisoned", [[0], [17], [3, 4, 31], list(range(32))])
async def test_only_the_poison_is_rejected(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, poisoned: list[int]
) -> None:
    embedding_provider.control(reject=["毒"])
    texts = [text + ("毒" if number in poisoned else "") for number, text in enumerate(TEXTS)]
    embedded = await model.embed_documents(texts)
    for number, (one, text) in enumerate(zip(embedded, texts, strict=True)):
        if number in poisoned:
            assert isinstance(one, ProviderRejectedError)
            assert "20015" in str(one)
        else:
            assert is_vector_of(one, text)
    assert embedding_provider.requests()["count"] <= min(64, 2 + 10 * len(poisoned))
    assert model.batch_size == 32


async def test_a_text_that_the_provider_fails_on_does_not_hold_up_the_others(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider
) -> None:
    embedding_provider.control(reject=["毒"], reject_status=500)
    good, spoilt = await model.embed_documents(["好的", "有毒"])
    assert is_vector_of(good, "好的")
    assert isinstance(spoilt, ProviderRejectedError)
    [alone] = await model.embed_documents(["有毒"])
    assert isinstance(alone, ProviderRejectedError)


async def test_a_text_is_not_blamed_for_one_bad_spell_of_the_provider(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider
) -> None:
    embedding_provider.control(fail=[{"status": 500, "times": 3, "text": "oops"}])
    [embedded] = await model.embed_documents(["好的"])
    assert is_vector_of(embedded, "好的")


async def test_when_the_provider_fails_on_everything_no_text_is_blamed(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider
) -> None:
    embedding_provider.control(fail=[{"status": 500, "times": None, "text": "oops"}])
    with pytest.raises(ProviderBusyError, match="oops"):
        await model.embed_documents(TEXTS)
    assert embedding_provider.requests()["count"] <= 6


async def test_a_text_that_is_too_long_is_embedded_by_its_beginning(
    open_model: Opener, embedding_provider: EmbeddingProvider
) -> None:
    model = open_model(model="BAAI/bge-large-zh-v1.5", dimensions=1024)
    long = "天气预报说明天有雨。" * 300
    embedded = await model.embed_documents(["短", long, "也短"])
    assert not any(isinstance(one, ProviderRejectedError) for one in embedded)
    lengths = [len(text) for texts in embedding_provider.requests()["inputs"] for text in texts]
    assert any(400 < length < 512 for length in lengths)


async def test_what_is_longer_than_any_use_is_cut_before_it_is_sent(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider
) -> None:
    await model.embed_documents(["长" * 100_000])
    assert [len(text) for [text] in embedding_provider.requests()["inputs"]] == [8000]


async def test_when_our_requests_are_wrong_no_text_is_blamed_and_few_are_sent(
    open_model: Opener, embedding_provider: EmbeddingProvider
) -> None:
    model = open_model(dimensions=100)  # not one that the provider has
    for _ in range(5):
        with pytest.raises(ProviderDeniedError, match="20015"):
            await model.embed_documents(TEXTS)
    assert embedding_provider.requests()["count"] <= 3


async def test_an_unknown_model_is_not_the_fault_of_the_texts(
    open_model: Opener, embedding_provider: EmbeddingProvider
) -> None:
    with pytest.raises(ProviderDeniedError, match="20012"):
        await open_model(model="Qwen/Qwen9").embed_documents(TEXTS)
    assert embedding_provider.requests()["count"] == 1


async def test_a_server_that_refuses_dimensions_is_asked_without(
    open_model: Opener, embedding_provider: EmbeddingProvider
) -> None:
    embedding_provider.control(dimensions_refused=True)
    model = open_model(dimensions=1024)
    embedded = await model.embed_documents(TEXTS)
    assert all(is_vector_of(one, text, 1024) for one, text in zip(embedded, TEXTS, strict=True))
    await model.embed_documents(TEXTS)
    assert embedding_provider.requests()["statuses"] == [400, 400, 200, 200, 200]


@pytest.mark.parametrize(
    "failure",
    [
        {"status": 401, "body": "Api key is invalid"},
        {"status": 402, "body": {"code": 30001, "message": "balance"}},
        {"status": 403, "text": ""},
        {"status": 404, "text": "404 page not found"},
        {"status": 302, "text": "", "headers": {"location": "/v1/elsewhere"}},
    ],
)
async def test_a_refusal_is_remembered_and_asked_again_later(
    model: RemoteEmbeddingModel,
    embedding_provider: EmbeddingProvider,
    clock: HandClock,
    failure: dict[str, object],
) -> None:
    embedding_provider.control(fail=[failure])
    for _ in range(3):
        with pytest.raises(ProviderDeniedError, match=str(failure["status"])) as caught:
            await model.embed_query("猫")
    assert caught.value.retry_after_s is not None
    assert embedding_provider.requests()["count"] == 1
    clock.now_s += caught.value.retry_after_s
    assert is_vector_of(await model.embed_query("猫"), "猫")


async def test_a_rate_limit_holds_for_all_callers_and_is_not_knocked_at(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, clock: HandClock
) -> None:
    body = {"message": "Request was rejected due to rate limiting. Details: TPM limit reached.", "data": None}
    embedding_provider.control(fail=[{"status": 429, "times": 2, "body": body}])
    with pytest.raises(ProviderBusyError, match="TPM limit") as caught:
        await model.embed_documents(TEXTS)
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s >= 10
    for _ in range(20):
        with pytest.raises(ProviderBusyError):
            await model.embed_query("猫")
    assert embedding_provider.requests()["count"] == 1
    clock.now_s += caught.value.retry_after_s
    with pytest.raises(ProviderBusyError) as again:
        await model.embed_query("猫")
    assert again.value.retry_after_s is not None
    assert 15 <= again.value.retry_after_s <= 60
    clock.now_s += again.value.retry_after_s
    assert is_vector_of(await model.embed_query("猫"), "猫")
    assert embedding_provider.requests()["count"] == 3


@pytest.mark.parametrize("status", [429, 503])
async def test_the_pause_that_is_asked_for_is_kept(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, status: int
) -> None:
    embedding_provider.control(fail=[{"status": status, "headers": {"retry-after": "37"}}])
    with pytest.raises(ProviderBusyError) as caught:
        await model.embed_query("猫")
    assert caught.value.retry_after_s == 37
    assert embedding_provider.requests()["count"] == 1


@pytest.mark.parametrize(
    "faults",
    [
        {"fail": [{"status": 503, "body": {"code": 50505, "message": "busy"}}]},
        {"fail": [{"status": 500, "text": "<html>oops</html>"}]},
        {"hang_up": 1},
    ],
)
async def test_what_passes_at_once_is_tried_again_at_once(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, faults: dict[str, object]
) -> None:
    await model.embed_query("先连上")
    embedding_provider.control(**faults)
    assert is_vector_of(await model.embed_query("猫"), "猫")


@pytest.mark.parametrize("answer", ["garbage", "empty", "missing", "duplicate_index", "huge"])
async def test_an_answer_that_is_none_is_the_providers_fault_and_no_texts(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, answer: str
) -> None:
    embedding_provider.control(answer=answer)
    with pytest.raises(ProviderError) as caught:
        await model.embed_documents(["a", "b"])
    assert not isinstance(caught.value, (ProviderRejectedError, ProviderDeniedError))
    assert caught.value.retry_after_s is not None
    assert embedding_provider.requests()["count"] == 3


async def test_a_provider_that_is_down_is_left_alone_for_longer_and_longer(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider, clock: HandClock, metrics: Metrics
) -> None:
    embedding_provider.control(fail=[{"status": 502, "times": None, "text": ""}])
    pauses = []
    for _ in range(3):
        with pytest.raises(ProviderBusyError) as caught:
            await model.embed_query("猫")
        assert caught.value.retry_after_s is not None
        pauses.append(caught.value.retry_after_s)
        clock.now_s += pauses[-1]
    assert pauses == sorted(set(pauses))
    assert embedding_provider.requests()["count"] == 6
    assert metrics.registry.get_sample_value("memory_embedding_requests_total", {"outcome": "busy"}) == 6


def failing(status: int) -> dict[str, object]:
    return {"fail": [{"status": status, "times": None, "text": "oops"}]}


CLOSING: list[tuple[dict[str, object], type[ProviderError]]] = [
    *((failing(status), ProviderDeniedError) for status in (400, 401, 404, 413)),
    *((failing(status), ProviderBusyError) for status in (409, 429, 500, 502, 503)),
    *((failing(status), ProviderTimeoutError) for status in (408, 504)),
    ({"hang_up": 1000}, ProviderBusyError),
    ({"answer": "garbage"}, ProviderError),
    ({"answer": "nan"}, ProviderError),
]


@pytest.mark.parametrize(("faults", "kind"), CLOSING, ids=[str(faults)[:24] for faults, _ in CLOSING])
async def test_while_the_gate_is_closed_each_call_gets_the_error_that_closed_it(
    model: RemoteEmbeddingModel,
    embedding_provider: EmbeddingProvider,
    faults: dict[str, object],
    kind: type[ProviderError],
) -> None:
    embedding_provider.control(**faults)
    messages = set()
    asked = []
    for _ in range(3):
        with pytest.raises(kind) as caught:
            await model.embed_query("猫")
        assert type(caught.value) is kind
        assert caught.value.retry_after_s is not None
        messages.add(str(caught.value))
        with pytest.raises(kind):
            await model.embed_documents(["狗"])
        asked.append(embedding_provider.requests()["count"])
    assert len(messages) == 1
    assert len(set(asked)) == 1


async def test_nobody_listens(open_model: Opener) -> None:
    with pytest.raises(ProviderBusyError, match=r"127\.0\.0\.1"):
        await open_model(base_url="http://127.0.0.1:9/v1").embed_query("猫")


@pytest.mark.parametrize("faults", [{"delay_s": 3}, {"drip_s": 0.05}])
async def test_no_answer_in_time_is_given_up(
    open_model: Opener, embedding_provider: EmbeddingProvider, faults: dict[str, object]
) -> None:
    embedding_provider.control(**faults)
    with pytest.raises(ProviderTimeoutError):
        await open_model(timeout_s=0.3).embed_query("猫")


async def test_a_caller_that_goes_ends_its_request(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider
) -> None:
    embedding_provider.control(delay_s=0.5)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await model.embed_query("猫")
    embedding_provider.control()
    assert is_vector_of(await model.embed_query("猫"), "猫")


async def test_no_error_holds_the_key(
    model: RemoteEmbeddingModel, embedding_provider: EmbeddingProvider
) -> None:
    key = embedding_provider.key
    echo = {"code": key, "message": f"wrong key: Bearer {key} / {key}"}
    embedding_provider.control(
        fail=[{"status": 401, "body": echo, "headers": {"x-siliconcloud-trace-id": key}}]
    )
    for _ in range(2):
        with pytest.raises(ProviderDeniedError) as caught:
            await model.embed_query("猫")
        assert key not in repr(caught.value)
        assert "0123456789" not in str(caught.value)
        assert caught.value.__cause__ is None
    assert key not in repr(model)


async def test_the_settings_choose_the_model(embedding_provider: EmbeddingProvider) -> None:
    async def open_it(base_url: str | None, api_key: str | None) -> tuple[str, int]:
        model = open_embedding_model(
            base_url=base_url,
            api_key=api_key,
            model=QWEN,
            dimensions=DIMENSIONS,
            batch_size=32,
            timeout_s=5,
            metrics=Metrics(),
        )
        await model.aclose()
        return model.name, model.dimensions

    assert await open_it(None, None) == (OfflineEmbeddingModel.name, OfflineEmbeddingModel.dimensions)
    assert await open_it(None, "sk-1") == (QWEN, DIMENSIONS)
    assert await open_it(embedding_provider.base_url + "/embeddings/", None) == (QWEN, DIMENSIONS)


async def test_similar_texts_of_the_double_are_similar(model: RemoteEmbeddingModel) -> None:
    async def vector(text: str) -> Vector:
        return await model.embed_query(text)

    order = await vector("我的订单号是ORD123456")
    assert float(order @ await vector("订单号是多少")) > float(order @ await vector("今天天气不错"))
