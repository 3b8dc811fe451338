"""What stands beside what in a conversation. Pure."""

from collections.abc import Callable, Iterable
from itertools import pairwise

from app.dialogues.records import Dialogue
from app.recall.records import Candidate, Neighbourhood


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """By (`created_at`, `id`), the order of a conversation."""
    return sorted(candidates, key=lambda one: (one.dialogue.created_at, one.dialogue.id))


def cut_neighbourhoods(
    conversation: Iterable[Candidate], *, hits: Iterable[Dialogue], radius: int
) -> list[Neighbourhood]:
    """The neighbourhood of each hit, cut from a conversation that is known whole."""
    ordered = in_order(conversation)
    places = {one.dialogue.id: place for place, one in enumerate(ordered)}
    return [
        Neighbourhood(hit.id, ordered[max(0, places[hit.id] - radius) : places[hit.id] + radius + 1])
        for hit in hits
    ]


def adjacent(hoods: Iterable[Neighbourhood]) -> dict[int, set[int]]:
    """Which messages stand right before and after each, by id."""
    beside: dict[int, set[int]] = {}
    for hood in hoods:
        for before, after in pairwise(one.dialogue.id for one in hood.around):
            beside.setdefault(before, set()).add(after)
            beside.setdefault(after, set()).add(before)
    return beside


def windows(
    hoods: Iterable[Neighbourhood], *, window_size: int, without: Callable[[Dialogue], bool] | None = None
) -> dict[int, list[Dialogue]]:
    """The messages around each hit, and around the two beside it, which may have become anchors in its stead.

    Args:
        hoods: neighbourhoods that reach `window_size + 1` messages to either side of their hit.
        window_size: messages to either side.
        without: tells which messages are left out; None: none.
    """
    hoods = list(hoods)
    found: dict[int, list[Dialogue]] = {}
    for hood in hoods:
        rows = [one.dialogue for one in hood.around]
        middle = next((place for place, row in enumerate(rows) if row.id == hood.dialogue_id), None)
        if middle is None:
            continue
        for place in (middle, middle - 1, middle + 1):
            if 0 <= place < len(rows) and (place == middle or rows[place].id not in found):
                window = rows[max(0, place - window_size) : place + window_size + 1]
                found[rows[place].id] = [row for row in window if without is None or not without(row)]
    return found
