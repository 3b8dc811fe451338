"""Whether there is an answer at all: the arithmetic, and what a service says with and without one."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.recall.confidence import NO_MATCH_BELOW, confidence, coverage, rarities
from tests.conftest import LiveService
from tests.live import add, search

SHARES = st.none() | st.floats(0, 1)
HITS = st.lists(st.tuples(SHARES, SHARES), max_size=5)


@given(HITS)
def test_confidence_lies_between_0_and_1(hits: list[tuple[float | None, float | None]]) -> None:
    assert 0 <= confidence(hits) <= 1


@given(HITS, st.tuples(SHARES, SHARES))
def test_one_hit_more_lowers_nothing(
    hits: list[tuple[float | None, float | None]], hit: tuple[float | None, float | None]
) -> None:
    assert confidence([*hits, hit]) >= confidence(hits)


@given(st.floats(0, 1), st.floats(0, 1), SHARES)
def test_confidence_rises_with_either_side(one: float, other: float, side: float | None) -> None:
    low, high = sorted((one, other))
    assert confidence([(low, side)]) <= confidence([(high, side)]) + 1e-12
    assert confidence([(side, low)]) <= confidence([(side, high)]) + 1e-12


def test_of_nothing_there_is_no_confidence() -> None:
    assert confidence([]) == 0 < NO_MATCH_BELOW


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 1), min_size=1),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 300)),
    st.data(),
)
def test_coverage_is_a_share_and_all_terms_are_all_of_it(
    terms: dict[str, float], frequencies: dict[str, int], data: st.DataObject
) -> None:
    worth = rarities(terms, frequencies, documents=300)
    found = data.draw(st.sets(st.sampled_from(sorted(terms))))
    part, whole = coverage(found, worth), coverage(terms, worth)
    assert part is not None
    assert 0 <= part <= 1 + 1e-9
    assert whole == pytest.approx(1)
    assert coverage([], worth) == 0


def test_the_rarer_term_is_worth_more_and_a_tiny_session_makes_no_word_common() -> None:
    worth = rarities({"a": 1, "b": 1}, {"a": 90, "b": 1}, documents=100)
    assert worth["b"] > 3 * worth["a"]
    tiny = rarities({"a": 1, "b": 1}, {"a": 1}, documents=1)
    assert coverage(["a"], tiny) == pytest.approx(
        math.log(67.33) / (math.log(67.33) + math.log(202)), abs=0.01
    )


def test_a_query_without_terms_has_no_coverage() -> None:
    assert coverage([], rarities({}, {}, documents=5)) is None


SAID = [
    "我养了一只橘猫，名字叫团子",
    "下周三下午三点去医院复查膝盖",
    "新来的同事小林负责对账系统",
    "My bike was stolen in front of the library yesterday",
    "I promised Sarah to bring a cheesecake to her birthday",
    "The deployment failed because the disk was full",
]
ANSWERED = ["我的猫叫什么名字？", "什么时候去医院复查？", "谁负责对账系统？", "Where was my bike stolen?",
            "What did I promise to bring to Sarah's birthday?", "Why did the deployment fail?"]  # fmt: skip
UNANSWERED = ["去年滑雪摔断腿的是哪位教练？", "明信片上的灯塔在哪座岛？",
              "How many goats does Igor's uncle keep?", "Which opera made Hannah fall asleep?"]  # fmt: skip


@pytest.mark.parametrize("said", [SAID, None], ids=["together", "alone"])
@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
async def test_a_question_without_an_answer_has_no_match(
    live_service: LiveService, said: list[str] | None, mode: str
) -> None:
    """Each alone in its session, too: a tiny store has the same scale."""
    for place, content in enumerate(SAID):
        await add(live_service, content, wait=True, user_id=1 if said else 1 + place)
    for place, question in enumerate(ANSWERED):
        found = await search(live_service, question, mode=mode, user_id=1 if said else 1 + place)
        assert found["no_match"] is False, (question, found["confidence"])
        assert found["confidence"] >= NO_MATCH_BELOW
        assert SAID[place] in {one["content"] for one in found["memories"]}
    for question in UNANSWERED:
        found = await search(live_service, question, mode=mode)
        assert found["no_match"] is True, (question, found["confidence"])


async def test_where_nothing_is_remembered_nothing_matches(live_service: LiveService) -> None:
    found = await search(live_service, "我的猫叫什么名字？")
    assert (found["no_match"], found["confidence"], found["memories"]) == (True, 0, [])


async def test_a_match_is_told_and_the_least_of_it_is_kept(live_service: LiveService) -> None:
    for content in SAID:
        await add(live_service, content, wait=True)
    every = (await search(live_service, ANSWERED[0], top_n=100, window_size=0))["memories"]
    matches: dict[str, float] = {one["content"]: one["match"] for one in every}
    assert set(matches) == set(SAID)
    assert max(matches, key=matches.__getitem__) == SAID[0]
    assert matches[SAID[0]] > 0.4
    assert all(value < 0.4 for content, value in matches.items() if content != SAID[0])
    least: Any
    for least in (0, 0.2, 0.4, 1):
        found = await search(live_service, ANSWERED[0], top_n=100, window_size=0, min_similarity=least)
        assert {one["content"] for one in found["memories"]} == {
            content for content, value in matches.items() if value >= least
        }


async def test_a_text_asked_for_in_its_own_words_is_a_full_match(live_service: LiveService) -> None:
    for content in SAID:
        await add(live_service, content, wait=True)
        best = (await search(live_service, content, top_n=1, window_size=0))["memories"][0]
        assert best["content"] == content
        assert best["match"] > 0.85


async def test_a_prompt_says_it_too(live_service: LiveService) -> None:
    # Of some time ago: what was said just now stands in the window, and is not recalled.
    await add(live_service, SAID[0], wait=True, created_at="2026-11-30T12:00:00+08:00")
    for question, no_match in ((ANSWERED[0], False), (UNANSWERED[0], True)):
        answer = await live_service.client.post("/memory/prompt", json={"user_id": 1, "query": question})
        assert answer.json()["no_match"] is no_match
        assert (answer.json()["confidence"] < NO_MATCH_BELOW) is no_match
