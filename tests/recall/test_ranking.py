"""Order and scores of what is found: decay, preferred times, what explains them."""

from dataclasses import asdict
from datetime import timedelta

import numpy as np
import pytest

from app.dialogues.records import Session
from app.recall.records import Memory
from tests.recall.planting import DIMENSIONS, NOW, Planted, World, best_first, contents

MODES = ["hybrid", "vector", "keyword"]


@pytest.mark.parametrize("mode", MODES)
async def test_of_two_equal_ones_the_newer_comes_first(world: World, mode: str) -> None:
    for user, (newer, older) in enumerate(
        [(0, 1), (6, 8), (8, 30), (30, 89), (80, 400), (100, 400)], start=1
    ):
        await world.plant(
            Planted("团子打疫苗", NOW - timedelta(days=age), user_id=user) for age in (newer, older)
        )
        first = (await world.search("团子打疫苗", of=Session(user), mode=mode, top_n=1)).memories
        assert [(NOW - one.dialogue.created_at).days for one in first] == [newer]
        both = [
            one.relevance for one in (await world.search("团子打疫苗", of=Session(user), mode=mode)).memories
        ]
        assert None not in both
        # In order of time, so the older first; equal where both are new, or both on the floor.
        assert (both[0] < both[1]) is (older > 7 and newer < 90)  # type: ignore[operator]


async def test_decay_is_what_the_contract_says(world: World) -> None:
    # 1 to 7 days; then in a straight line to the floor (0.985) at 90; then the floor. The future is new.
    expected = {-1: 1.0, 0: 1.0, 7: 1.0, 8: 1 - 0.015 / 83, 48.5: 0.9925, 90: 0.985, 91: 0.985, 3000: 0.985}
    ids = await world.plant(Planted(f"团子{age}", NOW - timedelta(days=age)) for age in expected)
    for mode in MODES:
        found = {one.dialogue.id: one for one in (await world.search("团子", mode=mode, top_n=100)).memories}
        for dialogue_id, factor in zip(ids, expected.values(), strict=True):
            assert found[dialogue_id].decay == pytest.approx(factor)
        plain = await world.search("团子", mode=mode, top_n=100, decay=False)
        assert {one.decay for one in plain.memories} == {1.0}


async def test_the_age_is_counted_from_the_moment_that_is_asked_for(world: World) -> None:
    await world.plant([Planted("团子", NOW)])
    for days, factor in ((0, 1.0), (48.5, 0.9925), (1000, 0.985)):
        result = await world.search("团子", now=NOW + timedelta(days=days))
        assert result.memories[0].decay == pytest.approx(factor)


async def test_what_is_important_does_not_fade(world: World) -> None:
    old = NOW - timedelta(days=500)
    await world.plant(
        [
            Planted("团子甲", old, pinned=True),
            Planted("团子乙", old, score=91),
            Planted("团子丙", old, score=100),
            Planted("团子丁", old, score=90),
            Planted("团子戊", old),
        ]
    )
    result = await world.search("团子", top_n=10)
    assert [one.decay for one in result.memories] == pytest.approx([1.0, 1.0, 1.0, 0.985, 0.985])


@pytest.mark.parametrize("mode", MODES)
async def test_the_only_answer_is_found_though_it_is_old(world: World, mode: str) -> None:
    query = await world.vector_of_query("团子打了什么疫苗")
    noise = 0.5 * np.random.default_rng(4).standard_normal(DIMENSIONS) / np.sqrt(DIMENSIONS)
    await world.plant(Planted(f"今天聊点别的{place}", NOW - timedelta(hours=place)) for place in range(300))
    await world.plant([Planted("团子打了狂犬疫苗", NOW - timedelta(days=300), vector=query + noise)])
    found = best_first(await world.search("团子打了什么疫苗", mode=mode))
    assert contents(found)[0] == "团子打了狂犬疫苗"


async def test_a_time_in_the_question_prefers_and_does_not_filter(world: World) -> None:
    yesterday, last_week = NOW - timedelta(days=1), NOW - timedelta(days=9)
    await world.plant([Planted("去爬了黄山", last_week), Planted("去爬了泰山", yesterday)])
    result = await world.search("昨天去爬了什么山", top_n=2)
    assert result.time_range is not None
    assert result.time_range.text == "昨天"
    assert result.time_range.since <= yesterday < result.time_range.until
    assert contents(best_first(result)) == ["去爬了泰山", "去爬了黄山"]
    only_old = await world.search("昨天去爬了什么山", top_n=2, until=NOW - timedelta(days=5))
    assert contents(only_old.memories) == ["去爬了黄山"]
    assert (await world.search("去爬了什么山")).time_range is None


@pytest.mark.parametrize("mode", MODES)
async def test_a_preferred_time_brings_its_own_out_of_a_large_session(world: World, mode: str) -> None:
    # All alike, and the one of yesterday hidden among newer and older ones, more than any side names.
    alike = np.ones(DIMENSIONS, np.float32)
    ages = [timedelta(minutes=minute) for minute in range(1, 200)]
    ages += [timedelta(days=40, minutes=minute) for minute in range(400)]
    await world.plant(Planted("团子的事", NOW - age, vector=alike) for age in [*ages, timedelta(days=1)])
    first = await world.search("昨天团子的事", mode=mode, top_n=1)
    assert [NOW - one.dialogue.created_at for one in first.memories] == [timedelta(days=1)]


def parts(memory: Memory) -> dict[str, float]:
    """What the explanation adds up, without the sides that had no say."""
    explanation = memory.explanation
    assert explanation is not None
    return {name: part for name, part in asdict(explanation).items() if part is not None}


async def test_an_explanation_shows_the_sides_that_had_a_say(world: World) -> None:
    texts = ["团子打疫苗了吗？", "团子打了狂犬疫苗", "好", "团子很乖", "今天下雨"]
    await world.plant(Planted(text, NOW - timedelta(minutes=10 - place)) for place, text in enumerate(texts))
    sides = {"hybrid": {"vector", "lexical"}, "vector": {"vector"}, "keyword": {"lexical"}}
    for mode in MODES:
        result = await world.search("团子打疫苗", mode=mode, top_n=2, window_size=1, explain=True)
        assert [one.explanation is not None for one in result.memories] == [
            one.is_anchor for one in result.memories
        ]
        for one in best_first(result):
            said = parts(one)
            assert said.keys() & {"vector", "lexical"} == sides[mode]
            assert all(0.0 <= part <= 1.0 for part in said.values())
            assert said["time_boost"] == 0.0
    plain = await world.search("团子打疫苗", top_n=2)
    assert {one.explanation for one in plain.memories} == {None}


async def test_an_explanation_accounts_for_the_order(world: World) -> None:
    await world.plant(
        Planted(text, NOW - timedelta(days=day, hours=1))
        for day, text in enumerate(["团子打疫苗了", "团子打疫苗", "团子", "疫苗", "下雨", "团子昨天打疫苗"])
    )
    for mode in MODES:
        found = best_first(
            await world.search("昨天团子打疫苗", mode=mode, top_n=10, explain=True, decay=False)
        )
        sides = 2 if mode == "hybrid" else 1
        totals = []
        for one in found:
            said = parts(one)
            own = sum(said.pop(side, 0.0) for side in ("vector", "lexical")) / sides
            totals.append(own + sum(said.values()))
        assert totals == pytest.approx(sorted(totals, reverse=True))
        boosted = {one.dialogue.content for one in found if parts(one)["time_boost"] > 0}
        assert boosted == {"团子打疫苗"}


async def test_a_message_beside_a_good_hit_is_explained_by_it(world: World) -> None:
    alike = np.ones(DIMENSIONS, np.float32)
    await world.plant(
        [
            Planted("团子疫苗", NOW - timedelta(minutes=9), vector=alike),
            Planted("说到团子呢", NOW - timedelta(minutes=8), vector=alike),
            *(Planted(f"别的{place}", NOW - timedelta(minutes=7)) for place in range(5)),
            Planted("说到团子呢", NOW - timedelta(minutes=1), vector=alike),
        ]
    )
    found = [one for one in best_first(await world.search("团子疫苗", top_n=10, explain=True))
             if one.dialogue.content == "说到团子呢"]  # fmt: skip
    beside, alone = found
    assert beside.dialogue.created_at < alone.dialogue.created_at
    assert parts(beside)["neighbour"] > parts(alone)["neighbour"]


async def test_scores_are_finite_and_in_range_for_degenerate_vectors(world: World) -> None:
    query = await world.vector_of_query("团子")
    tiny = np.zeros(DIMENSIONS, np.float32)
    tiny[0] = 1e-7
    await world.plant(
        [Planted("一", vector=query * 1000), Planted("二", vector=tiny), Planted("三", vector=-query)]
    )
    for mode in ("hybrid", "vector"):
        result = await world.search("团子", mode=mode, top_n=10, of=Session(1))
        assert result.memories
        for one in result.memories:
            assert one.similarity is None or 0.0 <= one.similarity <= 1.0
            assert one.relevance is not None
            assert 0.0 <= one.relevance <= 1.0
