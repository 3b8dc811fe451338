"""Windows against a model: the timeline of the session as a list, and places in it."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest

from app.dialogues.records import Session
from app.recall.records import SearchResult
from tests.recall.planting import NOW, Planted, World, in_order, vector_of

TOPICS = ["猫", "爬山", "订单", "吉他", "杭州", "花生", "会议", "雨伞"]


def conversation(rng: Random, number: int, *, users: Sequence[int], group_id: int | None) -> list[Planted]:
    """Many share a timestamp; late imports of old messages come last by id; some have expired."""
    messages = []
    for place in range(number):
        minutes = rng.randrange(number) if rng.random() < 0.3 else number - place
        messages.append(
            Planted(
                f"第{place}句，说的是{rng.choice(TOPICS)}",
                NOW - timedelta(minutes=minutes // 3 * 3 + 1),
                user_id=rng.choice(users),
                group_id=group_id,
                role=rng.choice(["user", "assistant"]),
                expires_at=rng.choice(
                    [None, None, None, NOW + timedelta(days=1), NOW - timedelta(minutes=1)]
                ),
            )
        )
    return messages


def assert_windows(
    result: SearchResult, messages: Sequence[Planted], ids: Sequence[int], *, window_size: int, top_n: int
) -> None:
    """The answer is exactly the anchors and what stands beside them in the unexpired timeline."""
    timeline = [
        dialogue_id
        for _, dialogue_id in sorted(
            (one.created_at, dialogue_id)
            for one, dialogue_id in zip(messages, ids, strict=True)
            if one.expires_at is None or one.expires_at > NOW
        )
    ]
    anchors = {one.dialogue.id for one in result.memories if one.is_anchor}
    expected = {
        timeline[place]
        for anchor in anchors
        for place in range(
            max(0, timeline.index(anchor) - window_size),
            min(len(timeline), timeline.index(anchor) + window_size + 1),
        )
    }
    assert len(anchors) == min(top_n, len(timeline))
    assert [one.dialogue.id for one in result.memories] == [one for one in timeline if one in expected]
    assert in_order([one.dialogue for one in result.memories])
    for one in result.memories:
        scores = (one.similarity, one.decay, one.relevance)
        assert None not in scores if one.is_anchor else scores == (None, None, None)


@pytest.mark.parametrize("seed", range(4))
async def test_windows_are_what_stands_beside_an_anchor_in_its_session(world: World, seed: int) -> None:
    rng = Random(seed)  # noqa: S311 - no secret
    number = rng.choice([1, 7, 30, 150])
    messages = conversation(rng, number, users=[1], group_id=rng.choice([None, -100, 5]))
    await world.plant(conversation(rng, 40, users=[1], group_id=77))
    await world.plant(conversation(rng, 40, users=[2, 11], group_id=messages[0].group_id))
    ids = await world.plant(messages)
    for _ in range(12):
        window_size, top_n = rng.randint(0, 10), rng.choice([0, 1, 3, 20, 100])
        result = await world.search(
            rng.choice(TOPICS), of=messages[0].session, window_size=window_size, top_n=top_n
        )
        assert_windows(result, messages, ids, window_size=window_size, top_n=top_n)


async def test_in_the_scope_of_a_group_windows_follow_its_timeline(world: World) -> None:
    rng = Random(99)  # noqa: S311 - no secret
    messages = conversation(rng, 200, users=[1, 2, 11], group_id=-100)
    await world.plant(conversation(rng, 60, users=[1, 2], group_id=100))
    await world.plant(conversation(rng, 60, users=[1, 2], group_id=None))
    ids = await world.plant(messages)
    for _ in range(12):
        window_size, top_n = rng.randint(0, 10), rng.choice([1, 3, 60])
        result = await world.search(
            rng.choice(TOPICS), of=Session(1, -100), scope="group", window_size=window_size, top_n=top_n
        )
        assert_windows(result, messages, ids, window_size=window_size, top_n=top_n)


async def test_a_neighbour_need_not_pass_the_filters_of_an_anchor(world: World) -> None:
    await world.plant(
        Planted(text, NOW - timedelta(minutes=10 - place), role="assistant" if place % 2 else "user")
        for place, text in enumerate(["你的猫叫什么", "它叫团子", "真可爱", "谢谢"])
    )
    result = await world.search("团子叫什么", role="assistant", top_n=1, window_size=1, keywords=("团子",))
    assert [(one.dialogue.role, one.dialogue.content, one.is_anchor) for one in result.memories] == [
        ("user", "你的猫叫什么", False),
        ("assistant", "它叫团子", True),
        ("user", "真可爱", False),
    ]


async def test_a_late_import_stands_where_it_was_said(world: World) -> None:
    await world.plant(Planted(f"第{place}句", NOW - timedelta(minutes=10 - place)) for place in (0, 2, 3))
    await world.plant([Planted("我的猫叫团子", NOW - timedelta(minutes=9))])
    result = await world.search("猫叫团子", mode="keyword", top_n=1, window_size=1)
    assert [one.dialogue.content for one in result.memories] == ["第0句", "我的猫叫团子", "第2句"]


@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
async def test_an_anchor_has_its_window_however_many_resemble_it(world: World, mode: str) -> None:
    # The newest is the best by decay alone, behind more equal ones than are looked around at first.
    other = vector_of("别的")
    nights = [NOW - timedelta(days=day) for day in range(10, 310)]
    await world.plant(
        [Planted("晚安", night) for night in [*nights, NOW - timedelta(days=1)]]
        + [Planted(f"{night}", night + timedelta(seconds=1), vector=other) for night in nights]
        + [Planted("做个好梦", NOW - timedelta(hours=23), vector=other)]
    )
    result = await world.search("晚安", mode=mode, top_n=1, window_size=1)
    assert [one.dialogue.content for one in result.memories][-2:] == ["晚安", "做个好梦"]


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
async def test_a_window_reaches_over_the_edges_of_the_range_that_was_asked_for(
    world: World, mode: str
) -> None:
    await world.plant(Planted(f"团子第{place}天", NOW - timedelta(minutes=10 - place)) for place in range(7))
    since, until = NOW - timedelta(minutes=7), NOW - timedelta(minutes=6)
    result = await world.search("团子", mode=mode, since=since, until=until, top_n=5, window_size=2)
    assert [(one.dialogue.content, one.is_anchor) for one in result.memories] == [
        (f"团子第{place}天", place == 3) for place in (1, 2, 3, 4, 5)
    ]
