"""Selection against what it promises, on any conversation and any budget."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from app.dialogues.records import Dialogue
from app.recall.neighbourhoods import adjacent, windows
from app.recall.ranking import Ranked
from app.recall.records import Candidate, Neighbourhood
from app.recall.selection import select

START = datetime(2026, 1, 1, tzinfo=UTC)


def dialogue(number: int) -> Dialogue:
    return Dialogue(
        id=number,
        message_uuid=str(number),
        user_id=1,
        group_id=None,
        role="user",
        content=f"第{number}句",
        sender_name=None,
        message_id=None,
        token_count=3,
        score=None,
        expires_at=None,
        pinned=False,
        kind="chat",
        outdated=False,
        embedding_status="ready",
        # Several share a time: then their ids say what came first.
        created_at=START + timedelta(minutes=number // 3),
    )


@dataclass(frozen=True)
class Hit:
    """All that selection asks of a ranked message."""

    dialogue: Dialogue
    relevance: float


def ranked(number: int, relevance: float) -> Ranked:
    return cast("Ranked", Hit(dialogue(number), relevance))


def hoods(numbers: list[int], *, total: int, radius: int) -> list[Neighbourhood]:
    """The messages around each, in a conversation of `total`."""
    return [
        Neighbourhood(
            number,
            [
                Candidate(dialogue(one), None)
                for one in range(max(0, number - radius), min(total, number + radius + 1))
            ],
        )
        for number in numbers
    ]


conversations = st.integers(1, 40).flatmap(
    lambda total: st.tuples(
        st.just(total),
        st.lists(st.integers(0, total - 1), min_size=1, unique=True),
        st.lists(st.integers(1, 90), min_size=total, max_size=total),
    )
)
budgets = st.none() | st.integers(0, 900)


@given(conversations, st.integers(0, 12), st.integers(0, 4), budgets, st.booleans())
def test_what_is_selected(
    conversation: tuple[int, list[int], list[int]],
    top_n: int,
    window_size: int,
    budget_tokens: int | None,
    fill_budget: bool,
) -> None:
    total, hits, costs = conversation
    best = [ranked(number, 1.0 - place / 50) for place, number in enumerate(hits)]
    selection = select(
        best,
        top_n=top_n,
        windows=windows(hoods(hits, total=total, radius=window_size + 1), window_size=window_size),
        budget_tokens=budget_tokens,
        fill_budget=fill_budget,
        cost_of=lambda one: costs[one.id],
        cut_to=lambda _one, _tokens: None,
    )
    chosen = [one.dialogue.id for one in selection.chosen]
    anchors = {one.dialogue.id for one in selection.chosen if one.is_anchor}
    wanted = {
        near
        for number in hits[:top_n]
        for near in range(number - window_size, number + window_size + 1)
        if 0 <= near < total
    }
    assert chosen == sorted(set(chosen))
    assert anchors <= set(hits[:top_n])
    assert selection.truncated is bool(wanted - set(chosen)) or fill_budget
    neighbours = [one for one in selection.chosen if one.ranked is None]
    assert all(one.dialogue.id in wanted and not one.is_anchor for one in neighbours)
    filled = {one.dialogue.id for one in selection.chosen if one.ranked is not None} - anchors
    assert not filled or (fill_budget and budget_tokens is not None)
    assert filled <= set(hits)
    if budget_tokens is None:
        assert set(chosen) == wanted
        assert anchors == set(hits[:top_n])
    else:
        assert sum(costs[number] for number in chosen) <= budget_tokens


@given(conversations, st.integers(1, 12), st.integers(0, 400))
def test_of_lines_of_one_length_the_best_are_kept(
    conversation: tuple[int, list[int], list[int]], top_n: int, budget_tokens: int
) -> None:
    _, hits, _ = conversation
    selection = select(
        [ranked(number, 1.0 - place / 50) for place, number in enumerate(hits)],
        top_n=top_n,
        windows={},
        budget_tokens=budget_tokens,
        fill_budget=False,
        cost_of=lambda _: 30,
        cut_to=lambda _one, _tokens: None,
    )
    room = min(budget_tokens // 30, top_n)
    assert {one.dialogue.id for one in selection.chosen} == set(hits[:room])
    assert selection.truncated is (room < len(hits[:top_n]))


@given(conversations, st.integers(0, 10))
def test_windows_reach_the_same_way_to_both_sides(
    conversation: tuple[int, list[int], list[int]], window_size: int
) -> None:
    total, hits, _ = conversation
    found = windows(hoods(hits, total=total, radius=window_size + 1), window_size=window_size)
    assert set(hits) <= found.keys()
    for number, window in found.items():
        expected = range(max(0, number - window_size), min(total, number + window_size + 1))
        assert [one.id for one in window] == list(expected)


@given(conversations, st.integers(1, 5))
def test_adjacent_are_those_right_before_and_after(
    conversation: tuple[int, list[int], list[int]], radius: int
) -> None:
    total, hits, _ = conversation
    beside = adjacent(hoods(hits, total=total, radius=radius))
    for number in hits:
        assert beside.get(number, set()) == {number - 1, number + 1} & set(range(total))
    assert all(abs(number - other) == 1 for number, others in beside.items() for other in others)
