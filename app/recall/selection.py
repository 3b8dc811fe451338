"""Which of the ranked messages are given back: anchors, their windows, what else fits the budget. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.dialogues.records import Dialogue
from app.recall.ranking import Ranked

# Below this share of the best hit's relevance, filling a budget would be padding.
_FILL_DOWN_TO = 0.2
_CUT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Chosen:
    """A message that is given back; `ranked` is None for a neighbour that only stands beside an anchor."""

    dialogue: Dialogue
    ranked: Ranked | None
    is_anchor: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """What is given back, in order of time, and whether the budget left something of it out."""

    chosen: list[Chosen]
    truncated: bool


def select(
    ranked: Sequence[Ranked],
    *,
    top_n: int,
    windows: Mapping[int, Sequence[Dialogue]],
    budget_tokens: int | None,
    fill_budget: bool,
    cost_of: Callable[[Dialogue], int],
    cut_to: Callable[[Dialogue, int], Dialogue | None],
) -> Selection:
    """Take anchors, then their neighbours, then (on request) what else is relevant, while the budget lasts.

    Args:
        ranked: what may be an anchor, best first.
        top_n: at most this many anchors.
        windows: the messages around each message that may become an anchor, by its id.
        budget_tokens: None: no limit.
        fill_budget: go on with what else is relevant after the anchors and their windows.
        cost_of: the tokens of a message's line.
        cut_to: the message with as much of its text as so many tokens hold; None where nothing fits.
    """
    anchors = list(ranked[:top_n])
    budget = _Budget(budget_tokens, cost_of)
    chosen: dict[int, Chosen] = {}
    for place, anchor in enumerate(anchors):
        dialogue: Dialogue | None = anchor.dialogue
        if place == 0 and not budget.holds(anchor.dialogue):
            # As much of the best hit as fits is worth more than all of a worse one; beside others, half.
            shares = (1.0,) if len(anchors) == 1 else (_CUT_SHARE, 1.0)
            cuts = (cut_to(anchor.dialogue, budget.share(share)) for share in shares)
            dialogue = next((cut for cut in cuts if cut is not None), None)
            budget.refused = True
        if dialogue is not None and budget.take(dialogue):
            chosen[dialogue.id] = Chosen(dialogue, anchor, is_anchor=True)
    relevances = {one.dialogue.id: one for one in ranked}
    for neighbour in _neighbours_by_worth(anchors, windows, relevances):
        if neighbour.id not in chosen and budget.take(neighbour):
            chosen[neighbour.id] = Chosen(neighbour, None, is_anchor=False)
    truncated = budget.refused
    if fill_budget and budget_tokens is not None and anchors:
        _fill(chosen, ranked[top_n:], budget, worth_from=anchors[0].relevance * _FILL_DOWN_TO)
    return Selection(
        sorted(chosen.values(), key=lambda one: (one.dialogue.created_at, one.dialogue.id)), truncated
    )


def _fill(chosen: dict[int, Chosen], rest: Iterable[Ranked], budget: "_Budget", *, worth_from: float) -> None:
    seen = {_sameness(one.dialogue) for one in chosen.values()}
    for one in rest:
        if one.relevance < worth_from or budget.exhausted:
            break
        if one.dialogue.id in chosen or budget.is_far_below(one.dialogue):
            continue
        if _sameness(one.dialogue) in seen or not budget.take(one.dialogue):
            continue
        chosen[one.dialogue.id] = Chosen(one.dialogue, one, is_anchor=False)
        seen.add(_sameness(one.dialogue))


class _Budget:
    """Tokens left; what does not fit is refused, and something shorter may still fit."""

    _SHORTEST_LINE_TOKENS = 25
    # The blank before a text may spell its first word otherwise, by fewer tokens than so many.
    _OTHER_SPLIT_TOKENS = 16

    def __init__(self, tokens: int | None, cost_of: Callable[[Dialogue], int]) -> None:
        self._left = tokens
        self._cost_of = cost_of
        self.refused = False

    def holds(self, dialogue: Dialogue) -> bool:
        return self._left is None or self._cost_of(dialogue) <= self._left

    def is_far_below(self, dialogue: Dialogue) -> bool:
        """Whether the text alone is too long, so that its line need not be written and counted."""
        return self._left is not None and dialogue.token_count > self._left + self._OTHER_SPLIT_TOKENS

    def share(self, part: float) -> int:
        return int((self._left or 0) * part)

    def take(self, dialogue: Dialogue) -> bool:
        if self._left is None:
            return True
        cost = self._cost_of(dialogue)
        if cost > self._left:
            self.refused = True
            return False
        self._left -= cost
        return True

    @property
    def exhausted(self) -> bool:
        return self._left is not None and self._left < self._SHORTEST_LINE_TOKENS


def _neighbours_by_worth(
    anchors: Iterable[Ranked], windows: Mapping[int, Sequence[Dialogue]], relevances: Mapping[int, Ranked]
) -> list[Dialogue]:
    """The anchors' neighbours, each once: the more relevant first, then those nearer to a better anchor."""
    worth: dict[int, tuple[float, int, int]] = {}
    by_id: dict[int, Dialogue] = {}
    for place, anchor in enumerate(anchors):
        window = windows.get(anchor.dialogue.id, ())
        ids = [one.id for one in window]
        middle = ids.index(anchor.dialogue.id) if anchor.dialogue.id in ids else 0
        for offset, one in enumerate(window):
            known = relevances.get(one.id)
            value = (-(known.relevance if known else 0.0), abs(offset - middle), place)
            by_id[one.id] = one
            worth[one.id] = min(worth.get(one.id, value), value)
    return [by_id[one] for one in sorted(worth, key=worth.__getitem__)]


def _sameness(dialogue: Dialogue) -> tuple[str, str]:
    return dialogue.role, "".join(dialogue.content.split()).casefold()
