import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.metrics import (
    Outcome,
    any_within,
    area_under_roc,
    markdown_table,
    percentile,
    recall,
    reciprocal_rank,
    summarise,
)

_finite = st.floats(min_value=-1e9, max_value=1e9)


@given(st.lists(_finite, min_size=1), st.floats(min_value=0, max_value=1))
def test_percentile_is_numpys(values: list[float], share: float) -> None:
    assert math.isclose(percentile(values, share), np.quantile(values, share), rel_tol=1e-9, abs_tol=1e-3)


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_rank_measures() -> None:
    ranked = ["a", "b", "c"]
    assert reciprocal_rank(ranked, {"c", "b"}) == 0.5
    assert reciprocal_rank(ranked, {"z"}) == 0
    assert not any_within(ranked, {"b"}, 1)
    assert any_within(ranked, {"b"}, 2)


@given(st.sets(st.integers()), st.sets(st.integers()))
def test_recall_is_a_share_and_whole_for_the_exact_answer(found: set[int], exact: set[int]) -> None:
    assert 0 <= recall(found, exact) <= 1
    assert recall(found | exact, exact) == 1


def test_recall_counts_the_exact_answer_not_the_found_one() -> None:
    assert recall([1, 2, 3, 4], [1, 9]) == 0.5


def _outcome(category: str, *, listed: set[str], ranked: tuple[str, ...], set_name: str = "s") -> Outcome:
    return Outcome(
        set_name=set_name,
        category=category,
        evidence=frozenset({"e1", "e2"}),
        listed=frozenset(listed),
        ranked=ranked,
        tokens=100,
        prompt_ms=2,
        search_ms=1,
    )


def test_summary_counts_any_and_all_by_category_and_set() -> None:
    rows = summarise(
        [
            _outcome("facts", listed={"e1", "x"}, ranked=("x", "e1")),
            _outcome("facts", listed={"e1", "e2"}, ranked=("e2",)),
            _outcome("times", listed=set(), ranked=()),
            _outcome("times", listed={"e1", "e2"}, ranked=("e1",), set_name="other"),
        ]
    )
    assert [(row.set_name, row.category, row.questions) for row in rows] == [
        ("s", "facts", 2),
        ("s", "times", 1),
        ("s", "all", 3),
        ("other", "times", 1),
        ("other", "all", 1),
    ]
    facts, times, every = rows[:3]
    assert (facts.any_share, facts.all_share, facts.any_at_1, facts.any_at_5) == (1, 0.5, 0.5, 1)
    assert facts.mean_reciprocal_rank == 0.75
    assert (times.any_share, times.all_share, times.any_at_10, times.mean_reciprocal_rank) == (0, 0, 0, 0)
    assert every.any_share == pytest.approx(2 / 3)


def test_table_escapes_bars_and_rounds() -> None:
    assert markdown_table(("a", "b"), [("x|y", 1.25), ("z", 12345.6), ("n", 12345)]) == (
        "| a | b |\n| --- | --- |\n| x\\|y | 1.2 |\n| z | 12,346 |\n| n | 12,345 |"
    )


def test_the_area_under_roc_is_the_share_of_pairs_in_the_right_order() -> None:
    assert area_under_roc([2, 3], [0, 1]) == 1
    assert area_under_roc([0, 1], [2, 3]) == 0
    assert area_under_roc([1, 1], [1]) == 0.5
    assert area_under_roc([1, 3], [2, 0]) == 0.75
    with pytest.raises(ValueError, match="nothing"):
        area_under_roc([], [1])


@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_the_area_is_that_of_counting_all_pairs(positive: list[int], negative: list[int]) -> None:
    pairs = [(p > n) + (p == n) / 2 for p in positive for n in negative]
    assert area_under_roc(positive, negative) == pytest.approx(sum(pairs) / len(pairs))
