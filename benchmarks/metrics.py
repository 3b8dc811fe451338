"""What is computed from measurements: percentiles, rank measures, recall, and Markdown tables. Pure."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies, linear between neighbours.

    Args:
        values: at least one, in any order.
        share: 0 to 1.

    Source:
        Hyndman and Fan 1996, type 7 (the default of numpy and R).
    """
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    low = math.floor(position)
    high = math.ceil(position)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def any_within(ranked: Sequence[str], wanted: Collection[str], depth: int) -> bool:
    """Whether at least one of the wanted is among the first `depth` of the ranked."""
    return any(item in wanted for item in ranked[:depth])


def reciprocal_rank(ranked: Sequence[str], wanted: Collection[str]) -> float:
    """One over the rank (from 1) of the first wanted item; 0 where none is ranked."""
    return next((1 / rank for rank, item in enumerate(ranked, start=1) if item in wanted), 0.0)


def recall(found: Collection[int], exact: Collection[int]) -> float:
    """The share of the exact answer that was found; 1 where there was nothing to find."""
    return len(set(found) & set(exact)) / len(set(exact)) if exact else 1.0


def area_under_roc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """How likely one of the positive scores is above one of the negative; equal ones count half.

    Args:
        positive: scores of what should score high, at least one.
        negative: scores of what should score low, at least one.

    Source:
        Hanley and McNeil 1982: the area under the ROC curve is the Wilcoxon statistic.
    """
    if not positive or not negative:
        raise ValueError("an area of nothing")
    ordered = sorted(negative)
    below = sum(bisect_left(ordered, one) + bisect_right(ordered, one) for one in positive)
    return below / 2 / len(positive) / len(negative)


@dataclass(frozen=True)
class Outcome:
    """What came back for one question.

    Attributes:
        evidence: ids of the messages that answer the question, at least one.
        listed: ids of every memory inside the token budget.
        ranked: ids of the anchors of a plain search, best first.
        tokens: of all their lines, as the model counts them.
        prompt_ms: wall time of the call that filled the budget.
        search_ms: wall time of the plain search.
    """

    set_name: str
    category: str
    evidence: frozenset[str]
    listed: frozenset[str]
    ranked: tuple[str, ...]
    tokens: int
    prompt_ms: float
    search_ms: float

    @property
    def has_any(self) -> bool:
        return bool(self.evidence & self.listed)

    @property
    def has_all(self) -> bool:
        return self.evidence <= self.listed


@dataclass(frozen=True)
class Summary:
    """One row of the retrieval table; shares are 0 to 1."""

    set_name: str
    category: str
    questions: int
    any_share: float
    all_share: float
    any_at_1: float
    any_at_5: float
    any_at_10: float
    mean_reciprocal_rank: float
    mean_tokens: float
    mean_prompt_ms: float
    mean_search_ms: float


def summarise(outcomes: Sequence[Outcome]) -> list[Summary]:
    """One row for each category, and one named `all` at the end of each set, in order of first appearance."""
    rows: list[Summary] = []
    for set_name in dict.fromkeys(outcome.set_name for outcome in outcomes):
        of_set = [outcome for outcome in outcomes if outcome.set_name == set_name]
        rows.extend(
            _summary(category, [outcome for outcome in of_set if outcome.category == category])
            for category in dict.fromkeys(outcome.category for outcome in of_set)
        )
        rows.append(_summary("all", of_set))
    return rows


def _summary(category: str, outcomes: Sequence[Outcome]) -> Summary:
    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(outcomes)

    def share_at(depth: int) -> float:
        return mean([any_within(outcome.ranked, outcome.evidence, depth) for outcome in outcomes])

    return Summary(
        set_name=outcomes[0].set_name,
        category=category,
        questions=len(outcomes),
        any_share=mean([outcome.has_any for outcome in outcomes]),
        all_share=mean([outcome.has_all for outcome in outcomes]),
        any_at_1=share_at(1),
        any_at_5=share_at(5),
        any_at_10=share_at(10),
        mean_reciprocal_rank=mean([reciprocal_rank(item.ranked, item.evidence) for item in outcomes]),
        mean_tokens=mean([outcome.tokens for outcome in outcomes]),
        mean_prompt_ms=mean([outcome.prompt_ms for outcome in outcomes]),
        mean_search_ms=mean([outcome.search_ms for outcome in outcomes]),
    )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; floats are shown with one digit after the point below 100, and none above."""
    lines = [[_cell(cell) for cell in row] for row in (header, ["---"] * len(header), *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")
