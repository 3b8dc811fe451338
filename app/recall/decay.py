"""How relevance fades with age, and what does not fade. Pure."""

from typing import Final

from app.dialogues.records import Kind

_LASTING_SCORE: Final = 91
_LASTING_KINDS: Final = frozenset[Kind]({"fact", "preference", "decision"})


def decay(age_days: float, *, grace_days: float, horizon_days: float, floor: float) -> float:
    """Returns the factor by which the relevance of a message of this age is multiplied.

    It is 1 up to `grace_days`, falls linearly to `floor` at `horizon_days`, and stays there. Where the
    horizon is not after the grace it falls at once.

    Args:
        age_days: negative for a message from the future, which counts as new.
        grace_days: how long nothing fades.
        horizon_days: when the floor is reached.
        floor: 0 to 1.
    """
    if age_days <= grace_days:
        return 1.0
    if age_days >= horizon_days:
        return floor
    return 1.0 - (1.0 - floor) * (age_days - grace_days) / (horizon_days - grace_days)


def resists_decay(*, score: int | None, pinned: bool, kind: Kind) -> bool:
    """Tells whether a message is too important to fade: kept forever by its score, pinned, or knowledge."""
    return pinned or kind in _LASTING_KINDS or (score is not None and score >= _LASTING_SCORE)
