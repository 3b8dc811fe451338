"""A reranker's say in the order: the arithmetic, and a service whose provider answers, fails and is slow."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clients.reranker import MOST_DOCUMENTS
from app.dialogues.records import Dialogue
from app.errors import SettingsError
from app.recall.ranking import Own, Ranked
from app.recall.records import Candidate
from app.recall.reranking import rerank
from app.settings import Settings
from tests.conftest import LiveFactory
from tests.doubles.rerank_provider import RerankProvider
from tests.live import add, add_batch, eventually, message, search

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SAID = [
    "团子昨天打了疫苗，有点没精神",
    "疫苗本放在电视柜下面的抽屉里",
    "宠物医院说疫苗要打三针",
    "打疫苗之前要先给猫称体重",
    "下次带团子去的时候别忘了猫包",
]
QUESTION = "疫苗本放哪儿了？"
LATER = "2027-01-01T00:00:00+08:00"


def _ranked(place: int, relevance: float, decay: float) -> Ranked:
    dialogue = Dialogue(
        id=place,
        message_uuid=str(place),
        user_id=1,
        group_id=None,
        role="user",
        content=str(place),
        sender_name=None,
        message_id=None,
        token_count=1,
        score=None,
        expires_at=None,
        pinned=False,
        kind="chat",
        outdated=False,
        embedding_status="ready",
        created_at=NOW - timedelta(days=place % 3),
    )
    own = Own(Candidate(dialogue, 0.5), 0.5, 0.0, 0.0, 0.0, 0.5, decay)
    return Ranked(own, 0.0, relevance)


SHARES = st.floats(0, 1)
FOUND = st.lists(st.tuples(SHARES, SHARES, SHARES | st.none()), max_size=8)


@given(FOUND)
def test_all_come_back_best_first_and_within_0_and_1(found: list[tuple[float, float, float | None]]) -> None:
    ranked = [_ranked(place, relevance, decay) for place, (relevance, decay, _) in enumerate(found)]
    scores = {place: score for place, (_, _, score) in enumerate(found) if score is not None}
    after = rerank(ranked, scores)
    assert sorted(one.dialogue.id for one in after) == list(range(len(found)))
    keys = [(one.relevance, one.dialogue.created_at, one.dialogue.id) for one in after]
    assert keys == sorted(keys, reverse=True)
    assert all(0 <= one.relevance <= 1 for one in after)


@given(FOUND, SHARES)
def test_one_score_for_all_leaves_the_order(
    found: list[tuple[float, float, float | None]], score: float
) -> None:
    # Of no age: decay has its say on the score, too.
    ranked = [_ranked(place, relevance, 1.0) for place, (relevance, _, _) in enumerate(found)]
    ranked.sort(key=lambda one: (one.relevance, one.dialogue.created_at, one.dialogue.id), reverse=True)
    after = rerank(ranked, {one.dialogue.id: score for one in ranked})
    assert [one.relevance for one in after] == sorted((one.relevance for one in after), reverse=True)
    assert {one.dialogue.id: one.relevance for one in after} == {
        one.dialogue.id: pytest.approx(one.relevance / 2 + score / 2) for one in ranked
    }


@given(SHARES, SHARES, SHARES, SHARES)
def test_a_higher_score_never_lowers(relevance: float, decay: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    ranked = [_ranked(1, relevance, decay)]
    assert rerank(ranked, {1: low})[0].relevance <= rerank(ranked, {1: high})[0].relevance


@pytest.fixture
def with_reranker(rerank_provider: RerankProvider) -> dict[str, object]:
    return {
        "rerank_model": rerank_provider.model,
        "rerank_base_url": rerank_provider.base_url,
        "rerank_api_key": rerank_provider.key,
    }


async def _order(live: Any, **fields: Any) -> list[str]:
    found = await search(live, QUESTION, window_size=0, top_n=5, **fields)
    anchors = sorted(found["memories"], key=lambda one: -one["relevance"])
    return [one["content"] for one in anchors]


async def test_what_the_model_finds_comes_first_and_says_why(
    serve: LiveFactory, rerank_provider: RerankProvider, with_reranker: dict[str, object]
) -> None:
    async with serve(**with_reranker) as live:
        await add_batch(live, [message(content, wait=True, sender_name="小明") for content in SAID])
        without = await _order(live, mode="keyword")
        assert rerank_provider.requests == [], "words alone ask no model"
        rerank_provider.relevant = (SAID[4],)
        assert (await _order(live))[0] == SAID[4] != without[0]
        rerank_provider.relevant = (SAID[2],)
        found = await search(live, QUESTION, top_n=1, window_size=1, explain=True)
        (best,) = (one for one in found["memories"] if one["is_anchor"])
        assert (best["content"], best["explain"]["rerank"]) == (SAID[2], 0.99)
        # The window is that of the message that has come first, not of the one that was.
        assert [one["content"] for one in found["memories"]] == SAID[1:4]
        request = rerank_provider.requests[-1]
        assert request["query"] == QUESTION
        assert set(request["documents"]) == {f"小明: {content}" for content in SAID}


FAULTS: list[dict[str, Any]] = [
    {"status": 429, "body": {"message": "TPM limit reached."}},
    {"status": 500, "text": "oops"},
    {"status": 401, "body": "Api key is invalid"},
    {"delay_s": 5.0},
    {"hangs_up": True},
    {"answer": "garbage"},
    {"answer": "short"},
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_a_reranker_that_fails_leaves_the_search_as_it_is_without(
    serve: LiveFactory,
    rerank_provider: RerankProvider,
    with_reranker: dict[str, object],
    fault: dict[str, Any],
) -> None:
    rerank_provider.relevant = (SAID[4],)
    async with serve(**with_reranker, rerank_timeout_s=0.5) as live:
        await add_batch(live, [message(content, wait=True) for content in SAID])
        for name, value in fault.items():
            setattr(rerank_provider, name, value)
        found = [await search(live, QUESTION, now=LATER) for _ in range(3)]
        assert len(rerank_provider.requests) == 1
        metrics = (await live.client.get("/metrics")).text
    async with serve() as plain:
        assert found == [await search(plain, QUESTION, now=LATER)] * 3
    assert found[0]["degraded"] is False
    assert 'memory_rerank_requests_total{outcome="ok"} 0.0' in metrics
    assert rerank_provider.key not in metrics


async def test_no_session_is_held_while_the_model_reads(
    serve: LiveFactory, rerank_provider: RerankProvider, with_reranker: dict[str, object]
) -> None:
    async with serve(**with_reranker) as live:
        await add(live, SAID[1], wait=True)
        rerank_provider.delay_s = 1.0
        asking = asyncio.create_task(search(live, QUESTION))

        async def is_asked() -> bool:
            return bool(rerank_provider.requests)

        await eventually(is_asked)
        database = live.services.recall._database
        assert database.checked_out == 0
        assert (await asking)["memories"]


async def test_a_long_session_costs_one_request_of_bounded_size(
    serve: LiveFactory, rerank_provider: RerankProvider, with_reranker: dict[str, object]
) -> None:
    async with serve(**with_reranker) as live:
        await add_batch(live, [message(f"第{place}次打疫苗", wait=True) for place in range(120)])
        await search(live, QUESTION, top_n=100)
        (request,) = rerank_provider.requests
        assert len(request["documents"]) == request["top_n"] == MOST_DOCUMENTS
        assert not (await search(live, QUESTION, user_id=2))["memories"]
        assert len(rerank_provider.requests) == 1, "of nothing found, nobody is asked"


def test_without_a_service_to_ask_the_start_stops(make_settings: Callable[..., Settings]) -> None:
    with pytest.raises(SettingsError, match="RERANK_MODEL"):
        make_settings(rerank_model="BAAI/bge-reranker-v2-m3")


async def test_with_the_provider_of_vectors_the_key_is_that_one(
    serve: LiveFactory, provided: dict[str, object], rerank_provider: RerankProvider
) -> None:
    provided |= {"embedding_base_url": rerank_provider.base_url, "embedding_api_key": rerank_provider.key}
    async with serve(**provided, rerank_model=rerank_provider.model) as live:
        reranker = live.services.recall._reranker
        assert reranker is not None
        assert await reranker.score("疫苗", ["猫", "狗"]) == [0.01, 0.01]
