"""The vector side against brute force, filters against a model."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from app.dialogues.records import DialogueChange, Session
from tests.recall.planting import DIMENSIONS, NOW, Planted, Vectors, World, best_first, contents, unit

QUERY = "我养的猫叫什么名字"


def clustered(number: int, *, around: Vectors, seed: int) -> Vectors:
    """Vectors like an embedding model's: one common direction, and topics."""
    random = np.random.default_rng(seed)
    common = unit(around + 1.5 * random.standard_normal(DIMENSIONS) / np.sqrt(DIMENSIONS))
    topics = random.standard_normal((24, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    of_topic = topics[random.integers(0, len(topics), number)]
    own = 0.5 * random.standard_normal((number, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    return unit(common + of_topic + own)


def scattered(number: int, *, around: Vectors, seed: int) -> Vectors:
    """Vectors without any order, a few of them drawn towards the query."""
    random = np.random.default_rng(seed)
    vectors = unit(random.standard_normal((number, DIMENSIONS)))
    pull = random.uniform(0.0, 1.0, (number, 1)) ** 4
    return unit(vectors + pull * around)


def cosines(vectors: Vectors, query: Vectors) -> Vectors:
    """As the database knows them: stored with 16 bits."""
    stored = vectors.astype(np.float16).astype(np.float32)
    asked = query.astype(np.float16).astype(np.float32)
    found: Vectors = (stored @ asked) / (np.linalg.norm(stored, axis=1) * np.linalg.norm(asked))
    return found


async def found_by_vector(world: World, **fields: Any) -> dict[str, float]:
    """What the vector side brings, by content."""
    result = await world.search(QUERY, mode="vector", decay=False, top_n=100, **fields)
    assert not result.degraded
    similarities = {one.dialogue.content: one.similarity for one in result.memories}
    assert all(one is not None and 0.0 <= one <= 1.0 for one in similarities.values())
    return {content: one for content, one in similarities.items() if one is not None}


def assert_equal_to_brute_force(found: dict[str, float], expected: dict[str, float], *, depth: int) -> None:
    nearest = sorted(expected, key=expected.__getitem__, reverse=True)[:depth]
    assert set(nearest) <= found.keys()
    for content, similarity in found.items():
        assert similarity == pytest.approx(max(0.0, expected[content]), abs=2e-3)


@pytest.mark.parametrize("make", [clustered, scattered])
@pytest.mark.parametrize("number", [1, 60, 3000])
async def test_the_nearest_are_those_of_brute_force(
    world: World, make: Callable[..., Vectors], number: int
) -> None:
    query = await world.vector_of_query(QUERY)
    vectors = make(number, around=query, seed=number)
    names = [f"m{place}" for place in range(number)]
    await world.plant(
        Planted(name, NOW - timedelta(minutes=place), vector=vectors[place])
        for place, name in enumerate(names)
    )
    expected = dict(zip(names, cosines(vectors, query).tolist(), strict=True))
    found = await found_by_vector(world)
    assert len(found) == min(number, 100)
    assert_equal_to_brute_force(found, expected, depth=min(number, 10))


async def test_a_small_session_beside_a_large_one_is_searched_whole(world: World) -> None:
    query = await world.vector_of_query(QUERY)
    # All of user 1's messages are nearer than user 2's: an index over both would never reach these.
    near = unit(query + 0.02 * np.random.default_rng(1).standard_normal((3000, DIMENSIONS)))
    far = unit(np.random.default_rng(2).standard_normal((12, DIMENSIONS)))
    await world.plant(Planted(f"a{place}", vector=one) for place, one in enumerate(near))
    await world.plant(Planted(f"b{place}", user_id=2, vector=one) for place, one in enumerate(far))
    found = await found_by_vector(world, of=Session(2))
    assert sorted(found) == sorted(f"b{place}" for place in range(12))
    assert_equal_to_brute_force(
        found, {f"b{place}": one for place, one in enumerate(cosines(far, query).tolist())}, depth=12
    )


def graded(number: int, *, around: Vectors, steps: int, seed: int) -> Vectors:
    """Vectors of which the first `steps` are ever farther from the query, and the others far."""
    random = np.random.default_rng(seed)
    drawn = random.standard_normal((number, DIMENSIONS))
    aside = unit(drawn - (drawn @ around)[:, None] * around)
    nearness = np.concatenate([np.linspace(0.95, 0.3, steps), np.zeros(number - steps)])[:, None]
    return unit(nearness * around + np.sqrt(1 - nearness**2) * aside)


async def test_the_nearest_after_deletion_expiry_and_change(world: World) -> None:
    query = await world.vector_of_query(QUERY)
    vectors = graded(1500, around=query, steps=200, seed=5)
    places = np.random.default_rng(6).permutation(1500)
    messages = [
        Planted(f"m{place}", NOW - timedelta(minutes=int(places[place])), vector=one)
        for place, one in enumerate(vectors)
    ]
    ids = await world.plant(messages)
    expected = {f"m{place}": one for place, one in enumerate(cosines(vectors, query).tolist())}
    # The best go in four ways; what is left must be found as if they had never been.
    await world.connection.execute("DELETE FROM dialogues WHERE id = ANY($1)", ids[:60])
    dialogues = world.services.dialogues
    for dialogue_id in ids[60:70]:
        await dialogues.delete("default", dialogue_id)
    for dialogue_id in ids[70:90]:
        await dialogues.change("default", dialogue_id, DialogueChange(expires_at=NOW - timedelta(seconds=1)))
    for dialogue_id in ids[90:100]:
        await dialogues.change("default", dialogue_id, DialogueChange(outdated=True))
    for dialogue_id in ids[100:110]:
        await dialogues.change("default", dialogue_id, DialogueChange(pinned=True, score=95))
    left = {f"m{place}": expected[f"m{place}"] for place in range(100, 1500)}
    found = await found_by_vector(world)
    assert found.keys() <= left.keys()
    assert_equal_to_brute_force(found, left, depth=10)
    with_outdated = await found_by_vector(world, include_outdated=True)
    assert {f"m{place}" for place in range(90, 100)} <= with_outdated.keys()
    assert not {f"m{place}" for place in range(90)} & with_outdated.keys()


async def test_a_group_is_searched_whole_by_its_scope(world: World) -> None:
    query = await world.vector_of_query(QUERY)
    vectors = clustered(600, around=query, seed=9)
    await world.plant(
        Planted(f"m{place}", NOW - timedelta(minutes=place), user_id=place % 40 + 1, group_id=-7, vector=one)
        for place, one in enumerate(vectors)
    )
    expected = {f"m{place}": one for place, one in enumerate(cosines(vectors, query).tolist())}
    found = await found_by_vector(world, of=Session(1, -7), scope="group")
    assert len(found) == 100
    assert_equal_to_brute_force(found, expected, depth=10)
    own = {name: one for place, (name, one) in enumerate(expected.items()) if place % 40 == 0}
    assert (await found_by_vector(world, of=Session(1, -7))).keys() == own.keys()


async def test_a_changed_message_is_found_by_its_new_text_only(world: World) -> None:
    ids = await world.plant(Planted(text) for text in ("我住在杭州", "我喜欢爬山", "今天下雨了"))
    await world.services.dialogues.change("default", ids[0], DialogueChange(content="我的猫叫团子"))
    by_word = await world.search("杭州", mode="keyword")
    assert by_word.memories == []
    found = best_first(await world.search("我的猫叫团子", mode="vector"))
    assert contents(found)[0] == "我的猫叫团子"
    assert found[0].similarity == pytest.approx(1.0, abs=0.15)


SAID = [
    "我的订单号是ORD123456",
    "我对花生过敏",
    "周末打算去爬黄山",
    "My sister lives in Berlin",
    "小猫团子今年三岁了",
    "我在学弹吉他",
    "明天下午三点开会",
    "I forgot my umbrella on the train",
]


async def test_what_was_said_is_found_first_by_itself(world: World) -> None:
    for text in SAID:
        vector = await world.services.embedder.embed_documents([text])
        await world.plant([Planted(text, NOW - timedelta(days=2), vector=np.asarray(vector[0]))])
    for text in SAID:
        for mode in ("hybrid", "vector", "keyword"):
            found = best_first(await world.search(text, mode=mode))
            assert found[0].dialogue.content == text
            relevances = [one.relevance for one in found]
            assert all(one is not None and 0.0 <= one <= 1.0 for one in relevances)


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
async def test_what_stands_in_opposite_direction_is_clamped_to_zero(world: World, mode: str) -> None:
    query = await world.vector_of_query(QUERY)
    await world.plant([Planted("猫叫团子", vector=-query), Planted("猫", vector=query)])
    found = best_first(await world.search(QUERY, mode=mode))
    assert len(found) == 2
    by_content = {one.dialogue.content: one.similarity for one in found}
    if mode == "keyword":
        assert by_content == {"猫叫团子": None, "猫": None}
    else:
        assert by_content["猫叫团子"] == 0.0
        assert by_content["猫"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
async def test_the_newest_of_many_equal_ones_comes_first_with_its_window(world: World, mode: str) -> None:
    await world.plant(
        Planted("早上好", NOW - timedelta(hours=hour), vector=np.ones(DIMENSIONS, np.float32))
        for hour in range(1, 301)
    )
    result = await world.search("早上好", mode=mode, top_n=1, window_size=1)
    ages = [(NOW - one.dialogue.created_at, one.is_anchor) for one in result.memories]
    assert ages == [(timedelta(hours=2), False), (timedelta(hours=1), True)]
