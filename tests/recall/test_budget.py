"""What is given back fits the budget, and what matters least goes first."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
import regex

from app.dialogues.tokens import count_tokens
from app.recall.writing import line_cost
from tests.recall.planting import NOW, Planted, World, best_first, contents

PIECES = [
    "我的猫叫团子",
    "，",
    "好",
    "\n",
    "ORD123456",
    "👨‍👩‍👧‍👦",
    "🇨🇳",
    "the quick fox ",
    "é",
    "  ",
    "\u2028",
    "……",
    "\r\n\r\n",
]


def lines_of(prompt: str) -> str:
    """The memory's part of a prompt."""
    return prompt.split("--- 相关记忆 ---\n", 1)[1]


@pytest.mark.parametrize("seed", range(3))
async def test_no_answer_is_longer_than_its_budget(world: World, seed: int) -> None:
    rng = Random(seed)  # noqa: S311 - no secret
    await world.plant(
        Planted(
            "团子" + "".join(rng.choices(PIECES, k=rng.choice([1, 5, 40, 400]))),
            NOW - timedelta(hours=rng.randrange(5000)),
            sender_name=rng.choice([None, "小明", "Ann (x)"]),
        )
        for _ in range(40)
    )
    for _ in range(25):
        budget = rng.choice([0, 1, 7, 20, 33, 80, 200, 1000, 5000])
        asked: dict[str, Any] = {"top_n": rng.choice([0, 1, 3, 50]), "window_size": rng.choice([0, 2, 10])}
        result = await world.search("团子", budget_tokens=budget, fill_budget=rng.random() < 0.5, **asked)
        text = "\n".join(one.line for one in result.memories)
        assert result.token_count == count_tokens(text) <= budget
        if result.memories:
            assert lines_of(result.prompt) == text
        whole = await world.search("团子", **asked)
        if budget == 0:
            assert result.memories == []
        left_out = {one.dialogue.id for one in whole.memories} - {one.dialogue.id for one in result.memories}
        shortened = [one for one in result.memories if one.dialogue.content.endswith("…")]
        assert result.truncated is bool(left_out or shortened)


async def test_the_least_relevant_goes_first(world: World) -> None:
    topics = ["猫", "团子", "疫苗", "医院", "周末", "打针", "小区", "门口"]
    await world.plant(
        Planted(
            "我说" + "".join(topics[: 8 - place]) + "啊" * (2 * place), NOW - timedelta(days=place, hours=1)
        )
        for place in range(8)
    )
    whole = best_first(await world.search("".join(topics), top_n=8))
    costs = [line_cost(one.line) for one in whole]
    for kept in range(len(whole) + 1):
        budget = sum(costs[:kept])
        result = await world.search("".join(topics), top_n=8, budget_tokens=budget)
        found = best_first(result)
        assert contents(found)[:kept] == contents(whole)[:kept]
        assert result.truncated is (kept < len(whole))


async def test_the_best_is_not_dropped_for_its_neighbours(world: World) -> None:
    await world.plant(
        [
            Planted("在吗", NOW - timedelta(minutes=3)),
            Planted("团子的疫苗本在抽屉里。" * 60, NOW - timedelta(minutes=2), role="assistant"),
            Planted("好", NOW - timedelta(minutes=1)),
        ]
    )
    result = await world.search("团子的疫苗本在哪", mode="keyword", top_n=1, window_size=2, budget_tokens=200)
    assert [one.dialogue.content[:5] for one in result.memories if one.is_anchor] == ["团子的疫苗"]
    assert result.truncated


async def test_the_best_is_not_dropped_for_a_worse_one_that_is_shorter(world: World) -> None:
    await world.plant(
        [
            Planted("团子的疫苗本在抽屉里。" * 60, NOW - timedelta(minutes=30)),
            Planted("团子很乖", NOW - timedelta(minutes=2)),
        ]
    )
    result = await world.search("团子的疫苗本在哪", mode="keyword", top_n=2, budget_tokens=200)
    assert any("抽屉" in one for one in contents(result.memories))


async def test_a_message_longer_than_the_budget_is_cut_between_graphemes(world: World) -> None:
    family = "👨‍👩‍👧‍👦"
    await world.plant([Planted("团子" + family * 200)])
    for budget in range(20, 120, 7):
        result = await world.search("团子", budget_tokens=budget)
        assert result.token_count <= budget
        for content in contents(result.memories):
            assert content.endswith("…")
            body = content.removesuffix("…").removeprefix("团子")
            assert body == family * len(regex.findall(r"\X", body))
            assert result.truncated
    roomy = await world.search("团子", budget_tokens=200)
    assert len(roomy.memories) == 1
    assert roomy.token_count > 150


async def test_a_filled_budget_holds_more_and_says_what_is_an_anchor(world: World) -> None:
    await world.plant(
        Planted(f"团子第{place}次打疫苗", NOW - timedelta(days=1, minutes=place)) for place in range(60)
    )
    plain = await world.search("团子打疫苗", top_n=2, budget_tokens=600)
    filled = await world.search("团子打疫苗", top_n=2, budget_tokens=600, fill_budget=True)
    assert len(plain.memories) == 2
    assert len(filled.memories) > 10
    assert filled.token_count <= 600
    assert sum(one.is_anchor for one in filled.memories) == 2
    assert not filled.truncated
    for one in filled.memories:
        assert None not in (one.similarity, one.decay, one.relevance)
    least = min(one.relevance or 0.0 for one in filled.memories if one.is_anchor)
    assert all((one.relevance or 0.0) <= least for one in filled.memories if not one.is_anchor)


async def test_nothing_is_asked_for_and_nothing_is_given(world: World) -> None:
    await world.plant([Planted("团子很乖")])
    cases: list[dict[str, Any]] = [
        {"top_n": 0},
        {"top_n": 0, "fill_budget": True, "budget_tokens": 500},
        {"budget_tokens": 0},
    ]
    for fields in cases:
        result = await world.search("团子", window_size=2, **fields)
        assert (result.memories, result.token_count) == ([], 0)


async def test_walls_of_text_are_cut_too(world: World) -> None:
    await world.plant(
        Planted(f"团子{place}" + "喵呜汪" * 33_000, NOW - timedelta(minutes=place)) for place in range(6)
    )
    result = await world.search("团子", budget_tokens=300, fill_budget=True, window_size=2)
    assert 0 < result.token_count <= 300
    assert result.truncated
