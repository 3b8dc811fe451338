"""Of two messages that say about the same the newer comes first; nothing else moves."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialogues.records import Dialogue, Kind
from app.recall.ranking import Own, Ranked
from app.recall.records import Candidate
from app.recall.succession import likeness, newer_first
from tests.recall.planting import NOW, Planted, World, best_first, contents

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def _ranked(place: int, content: str, relevance: float, *, age_days: float = 0, user_id: int = 1,
            pinned: bool = False, kind: Kind = "chat") -> Ranked:  # fmt: skip
    dialogue = Dialogue(
        id=place,
        message_uuid=str(place),
        user_id=user_id,
        group_id=7,
        role="user",
        content=content,
        sender_name=None,
        message_id=None,
        token_count=1,
        score=None,
        expires_at=None,
        pinned=pinned,
        kind=kind,
        outdated=False,
        embedding_status="ready",
        created_at=LONG_AGO - timedelta(days=age_days),
    )
    return Ranked(Own(Candidate(dialogue, 0.5), 0.5, 0.0, 0.0, 0.0, 0.5, 1.0), 0.0, relevance)


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(
            ["端口改成8080了", "端口改成9090了", "the cat weighs 4 kilos", "the cat weighs 5 kilos", ""]
        ),
        st.floats(0, 1),
        st.integers(0, 100),
        st.integers(1, 2),
    ),
    max_size=14,
)


@given(MESSAGES)
def test_the_same_messages_at_the_same_relevances(said: list[tuple[str, float, int, int]]) -> None:
    ranked = [
        _ranked(place, content, relevance, age_days=age, user_id=user)
        for place, (content, relevance, age, user) in enumerate(said)
    ]
    ranked.sort(key=lambda one: -one.relevance)
    after = newer_first(ranked)
    assert sorted(one.dialogue.id for one in after) == sorted(one.dialogue.id for one in ranked)
    assert [one.relevance for one in after] == [one.relevance for one in ranked]
    assert {one.dialogue.id: one.own for one in after} == {one.dialogue.id: one.own for one in ranked}


@given(st.lists(st.integers(0, 50), min_size=2, max_size=10, unique=True))
def test_all_that_say_the_same_stand_newest_first(ages: list[int]) -> None:
    ranked = [
        _ranked(place, f"服务器的端口改成808{place}了", 0.9 - place / 1000, age_days=age)
        for place, age in enumerate(ages)
    ]
    after = newer_first(ranked)
    assert [LONG_AGO - one.dialogue.created_at for one in after] == [
        timedelta(days=age) for age in sorted(ages)
    ]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"content": "端口改成8080了"}, {"content": "端口改成9090了", "relevance": 0.7}),
        ({"content": "端口改成8080了"}, {"content": "今天去爬山"}),
        ({"content": "端口改成8080了"}, {"content": "端口改成9090了", "user_id": 2}),
        ({"content": "端口改成8080了", "pinned": True}, {"content": "端口改成9090了"}),
        ({"content": "端口改成8080了"}, {"content": "端口改成9090了吗？"}),
        ({"content": "the port is now 8080"}, {"content": "is the port now 9090?"}),
        ({"content": "端口改成8080了", "kind": "decision"}, {"content": "端口改成9090了"}),
    ],
    ids=[
        "far less relevant",
        "something else",
        "somebody else",
        "pinned",
        "asks",
        "asks in English",
        "weighs less",
    ],
)
def test_what_does_not_succeed_stays_behind(older: dict[str, object], newer: dict[str, object]) -> None:
    ranked = [
        _ranked(1, **{"relevance": 0.9, "age_days": 50, **older}),  # type: ignore[arg-type]
        _ranked(2, **{"relevance": 0.89, "age_days": 1, **newer}),  # type: ignore[arg-type]
    ]
    assert newer_first(ranked) == ranked


@given(st.frozensets(st.text(max_size=2)), st.frozensets(st.text(max_size=2)))
def test_likeness_is_a_share_and_goes_both_ways(one: frozenset[str], other: frozenset[str]) -> None:
    assert 0 <= likeness(one, other) == likeness(other, one) <= 1
    assert likeness(one, one) == (1 if one else 0)


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
async def test_a_search_gives_what_holds_now_before_what_held(world: World, mode: str) -> None:
    asked = "服务器端口是多少？"
    query = await world.vector_of_query(asked)
    other = await world.vector_of_query("今天天气不错")
    slightly_less = query * 0.999 + other * 0.001
    await world.plant(
        [
            Planted("服务器的端口改成8080了，端口", NOW - timedelta(days=60), vector=query),
            Planted("服务器的端口改成9090了", NOW - timedelta(days=1), vector=slightly_less),
            *(Planted(f"第{place}天的闲聊", NOW - timedelta(days=place)) for place in range(2, 50)),
        ]
    )
    found = best_first(await world.search(asked, mode=mode, top_n=2))
    assert contents(found) == ["服务器的端口改成9090了", "服务器的端口改成8080了，端口"]
    as_it_fits = best_first(await world.search(asked, mode=mode, top_n=2, decay=False))
    assert contents(as_it_fits) == ["服务器的端口改成8080了，端口", "服务器的端口改成9090了"]
