"""The rerank client on a real HTTP provider: protocol, every failure, pauses, and what is told of them."""

import math
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from app.clients.rerank_wire import read_scores, rerank_payload
from app.clients.reranker import Reranker
from app.errors import (
    ProviderBusyError,
    ProviderDeniedError,
    ProviderError,
    ProviderTimeoutError,
    SettingsError,
)
from app.telemetry import Metrics
from tests.doubles.rerank_provider import RerankProvider

DOCUMENTS = ["今天天气不错", "小明: 团子打了疫苗", "周末去爬山"]


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def reranker(
    rerank_provider: RerankProvider, clock: _Clock, metrics: Metrics
) -> AsyncIterator[Reranker]:
    rerank_provider.relevant = ("疫苗",)
    made = Reranker(
        base_url=rerank_provider.base_url,
        api_key=rerank_provider.key,
        model=rerank_provider.model,
        timeout_s=1,
        metrics=metrics,
        monotonic=clock,
    )
    yield made
    await made.aclose()


def _count(metrics: Metrics, outcome: str) -> float:
    value = metrics.registry.get_sample_value("memory_rerank_requests_total", {"outcome": outcome})
    assert value is not None
    return value


async def test_scores_come_in_the_order_of_the_documents(
    reranker: Reranker, rerank_provider: RerankProvider, metrics: Metrics
) -> None:
    assert await reranker.score("疫苗打了吗", DOCUMENTS) == [0.01, 0.99, 0.01]
    (request,) = rerank_provider.requests
    assert request == {
        "path": "/v1/rerank",
        "model": rerank_provider.model,
        "query": "疫苗打了吗",
        "documents": DOCUMENTS,
        "top_n": 3,
        "return_documents": False,
    }
    assert _count(metrics, "ok") == 1


async def test_logits_become_shares(reranker: Reranker, rerank_provider: RerankProvider) -> None:
    rerank_provider.answer = "logits"
    scores = await reranker.score("疫苗打了吗", DOCUMENTS)
    assert scores == pytest.approx([0.0001234, 0.9998766, 0.0001234], abs=1e-6)


async def test_long_texts_are_cut(reranker: Reranker, rerank_provider: RerankProvider) -> None:
    await reranker.score("问" * 8_000, ["长" * 100_000, "短"])
    (request,) = rerank_provider.requests
    assert len(request["query"]) == 1_000
    assert [len(one) for one in request["documents"]] == [2_000, 1]


@pytest.mark.parametrize(
    ("fault", "error", "outcome"),
    [
        ({"status": 429, "body": {"message": "TPM limit reached."}}, ProviderBusyError, "busy"),
        ({"status": 500, "text": "oops"}, ProviderBusyError, "busy"),
        ({"status": 503, "body": {"code": 50505, "message": "busy"}}, ProviderBusyError, "busy"),
        ({"status": 504, "text": ""}, ProviderTimeoutError, "timeout"),
        ({"status": 401, "body": "Api key is invalid"}, ProviderDeniedError, "denied"),
        ({"status": 400, "body": {"code": 20012, "message": "no model"}}, ProviderDeniedError, "denied"),
        ({"status": 413, "body": {"message": "too many"}}, ProviderDeniedError, "denied"),
        ({"delay_s": 3.0}, ProviderTimeoutError, "timeout"),
        ({"hangs_up": True}, ProviderBusyError, "busy"),
        *(
            ({"answer": answer}, ProviderError, "failed")
            for answer in (
                "short",
                "duplicate",
                "foreign_index",
                "nan",
                "strings",
                "garbage",
                "empty",
                "huge",
                "no_list",
            )
        ),
    ],
    ids=str,
)
async def test_a_failure_is_one_call_one_line_and_a_pause(  # noqa: PLR0917 - fixtures
    reranker: Reranker,
    rerank_provider: RerankProvider,
    clock: _Clock,
    metrics: Metrics,
    fault: dict[str, Any],
    error: type[ProviderError],
    outcome: str,
) -> None:
    for name, value in fault.items():
        setattr(rerank_provider, name, value)
    with capture_logs() as lines:
        for _ in range(4):
            with pytest.raises(error):
                await reranker.score("疫苗", DOCUMENTS)
        clock.now_s += 200
        with pytest.raises(error):
            await reranker.score("疫苗", DOCUMENTS)
        assert len(rerank_provider.requests) == 2, "one, a pause in which nobody calls, one more"
        rerank_provider.behave()
        clock.now_s += 200
        assert await reranker.score("疫苗", DOCUMENTS) == [0.01, 0.99, 0.01]
    told = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert told == ["provider_fails", "provider_answers_again"]
    assert rerank_provider.key not in str(lines)
    assert (_count(metrics, outcome), _count(metrics, "ok")) == (2, 1)


async def test_a_pause_is_as_long_as_the_provider_asks_for(
    reranker: Reranker, rerank_provider: RerankProvider, clock: _Clock
) -> None:
    rerank_provider.status, rerank_provider.headers = 429, {"Retry-After": "120"}
    with pytest.raises(ProviderBusyError):
        await reranker.score("疫苗", DOCUMENTS)
    rerank_provider.behave()
    clock.now_s += 119
    with pytest.raises(ProviderBusyError):
        await reranker.score("疫苗", DOCUMENTS)
    clock.now_s += 2
    assert len(await reranker.score("疫苗", DOCUMENTS)) == 3


async def test_a_provider_that_is_not_there(metrics: Metrics) -> None:
    gone = Reranker(base_url="http://127.0.0.1:9", api_key=None, model="m", timeout_s=1, metrics=metrics)
    with pytest.raises(ProviderBusyError):
        await gone.score("q", ["d"])
    await gone.aclose()


@pytest.mark.parametrize(("url", "key"), [("ftp://a", None), ("http://a", "with blank"), ("http://", None)])
def test_what_cannot_be_used_names_its_setting(metrics: Metrics, url: str, key: str | None) -> None:
    with pytest.raises(SettingsError, match="RERANK_"):
        Reranker(base_url=url, api_key=key, model="m", timeout_s=1, metrics=metrics)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.randoms())
def test_any_order_of_results_gives_the_scores_by_document(scores: list[float], random: Any) -> None:
    results = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
    random.shuffle(results)
    read = read_scores(orjson.dumps({"results": results}), count=len(scores))
    assert all(0 <= one <= 1 and math.isfinite(one) for one in read)
    pairs = zip(sorted(range(len(scores)), key=scores.__getitem__), sorted(read), strict=True)
    assert all(read[index] == pytest.approx(value) for index, value in pairs)


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["results", "index", "relevance_score"]), inner),
).map(orjson.dumps))  # fmt: skip
def test_whatever_is_answered_is_scores_or_a_reason(body: bytes) -> None:
    try:
        scores = read_scores(body, count=2)
    except ValueError as error:
        scores = [0.0] * 2 if str(error) else []
    assert len(scores) == 2


def test_every_document_is_asked_for() -> None:
    assert rerank_payload(model="m", query="q", documents=("a", "b"))["top_n"] == 2
