"""A provider that is slow, refuses or is not there: search answers by words, and gets over it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import LiveService
from tests.doubles.fixtures import EmbeddingProvider

# What the contract calls "does not fail" and a person calls quick, with much room for a busy machine.
_PATIENCE_S = 15.0


async def say(live: LiveService, content: str, **fields: object) -> dict[str, Any]:
    body = {"user_id": 1, "role": "user", "content": content} | fields
    answer = await live.client.post("/dialogues", json=body)
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def ask(live: LiveService, query: str, **fields: object) -> dict[str, Any]:
    answer = await live.client.post("/memory/search", json={"user_id": 1, "query": query} | fields)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


FAULTS: list[dict[str, Any]] = [
    {"delay_s": 20},
    {"fail": [{"status": 401, "times": None, "body": "Api key is invalid"}]},
    {"fail": [{"status": 429, "times": None, "body": {"message": "rate"}, "headers": {"Retry-After": "60"}}]},
    {"fail": [{"status": 500, "times": None, "text": "oops"}]},
    {"fail": [{"status": 503, "times": None, "text": "busy"}]},
    {"hang_up": 10_000},
    {"answer": "garbage"},
    {"answer": "nan"},
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault)[:40])
async def test_a_failing_provider_leaves_the_words(
    serve: Callable[..., Any],
    provided: dict[str, Any],
    embedding_provider: EmbeddingProvider,
    fault: dict[str, Any],
) -> None:
    async with serve(**provided) as live:
        await say(live, "我的订单号是ORD123456", wait=True)
        embedding_provider.control(**fault)
        await say(live, "ORD777是退货单")
        async with asyncio.timeout(_PATIENCE_S):
            answer = await ask(live, "ORD777 退货", min_similarity=0.99, mode="hybrid")
            by_vector = await ask(live, "订单号是什么", mode="vector", top_n=1, window_size=0)
            by_words = await ask(live, "订单号", mode="keyword", top_n=1, window_size=0)
        assert answer["degraded"] is True
        assert answer["memories"][-1]["content"] == "ORD777是退货单"
        assert [one["similarity"] for one in answer["memories"]] == [None] * len(answer["memories"])
        assert by_vector["degraded"] is True
        assert [one["content"] for one in by_vector["memories"]] == ["我的订单号是ORD123456"]
        # Who asks for words alone is not worse off.
        assert by_words["degraded"] is False
        embedding_provider.control()


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503, 504])
async def test_search_after_search_is_answered_while_the_provider_fails(
    serve: Callable[..., Any], provided: dict[str, Any], embedding_provider: EmbeddingProvider, status: int
) -> None:
    async with serve(**provided) as live:
        await say(live, "我的订单号是ORD123456", wait=True)
        embedding_provider.control(fail=[{"status": status, "times": None, "text": "oops"}])
        for place in range(10):
            answer = await ask(live, f"第{place}次问订单号")
            assert answer["degraded"] is True
            assert [one["content"] for one in answer["memories"]] == ["我的订单号是ORD123456"]
        prompt = await live.client.post("/memory/prompt", json={"user_id": 1, "query": "订单号"})
        assert (prompt.status_code, prompt.json()["degraded"]) == (200, True)
        written = await say(live, "ORD777是退货单", wait=True)
        assert written["embedding_status"] == "pending"
        embedding_provider.control()


async def measured(live: LiveService, query: str) -> bool:
    answer = await ask(live, query)
    return not answer["degraded"] and answer["memories"][0]["similarity"] is not None


async def test_search_gets_over_a_failure(
    serve: Callable[..., Any], provided: dict[str, Any], embedding_provider: EmbeddingProvider
) -> None:
    async with serve(**provided) as live:
        embedding_provider.control(fail=[{"status": 503, "times": None, "text": "busy"}])
        await say(live, "我的订单号是ORD123456")
        assert (await ask(live, "订单号"))["degraded"] is True
        embedding_provider.control()
        async with asyncio.timeout(60):
            while not await measured(live, "订单号"):  # noqa: ASYNC110 - it recovers in its own time
                await asyncio.sleep(0.2)
        answer = await ask(live, "订单号")
        assert answer["degraded"] is False
        assert answer["memories"][0]["embedding_status"] == "ready"


@pytest.mark.parametrize("query", ["", " ", "\u3000\n", "\u200b\ufeff", "\u0000"])
async def test_a_blank_query_costs_no_call(
    serve: Callable[..., Any], provided: dict[str, Any], embedding_provider: EmbeddingProvider, query: str
) -> None:
    async with serve(**provided) as live:
        before = embedding_provider.requests()["count"]
        for path in ("/memory/search", "/memory/prompt"):
            answer = await live.client.post(path, json={"user_id": 1, "query": query})
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["pointer"] == "/query"
        assert embedding_provider.requests()["count"] == before


async def test_a_writer_reads_what_it_wrote(
    serve: Callable[..., Any], provided: dict[str, Any], embedding_provider: EmbeddingProvider
) -> None:
    async with serve(**provided) as live:
        for place in range(12):
            text = f"第{place}个秘密在{'甲乙丙丁戊己庚辛壬癸子丑'[place]}盒子里"
            # Now and then the provider is too slow to be waited for: then the words find it.
            embedding_provider.control(delay_s=4 if place % 4 == 3 else 0.1)
            written = await say(live, text)
            found = await ask(live, text, top_n=1, window_size=0)
            assert [one["id"] for one in found["memories"]] == [written["id"]]
            if place % 4 != 3:
                assert found["degraded"] is False
                assert found["memories"][0]["similarity"] == pytest.approx(1.0, abs=1e-3)
        embedding_provider.control()


async def test_a_session_without_memory_has_an_empty_answer(
    serve: Callable[..., Any], provided: dict[str, Any]
) -> None:
    async with serve(**provided) as live:
        answer = await ask(live, "你还记得我吗")
        assert (answer["memories"], answer["token_count"]) == ([], 0)
        assert (answer["truncated"], answer["degraded"]) == (False, False)
