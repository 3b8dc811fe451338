import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialogues.records import Kind
from app.recall.decay import decay, resists_decay

days = st.floats(-1e6, 1e6)
settings_of_decay = st.fixed_dictionaries(
    {"grace_days": st.floats(0, 1e4), "horizon_days": st.floats(0, 1e4), "floor": st.floats(0, 1)}
)


@pytest.mark.parametrize(
    ("age_days", "factor"),
    [(-3, 1.0), (0, 1.0), (7, 1.0), (48.5, 0.85), (90, 0.7), (91, 0.7), (4000, 0.7)],
)
def test_nothing_fades_for_a_week_and_the_floor_is_reached_in_ninety_days(
    age_days: float, factor: float
) -> None:
    assert decay(age_days, grace_days=7, horizon_days=90, floor=0.7) == pytest.approx(factor)


@given(days, days, settings_of_decay)
def test_decay_stays_between_floor_and_one_and_never_rises_with_age(
    one: float, other: float, options: dict[str, float]
) -> None:
    young, old = sorted((one, other))
    fresh, faded = decay(young, **options), decay(old, **options)
    assert options["floor"] <= faded <= fresh + 1e-12 <= 1.0 + 1e-12
    assert math.isfinite(faded)


def test_a_horizon_inside_the_grace_falls_at_once() -> None:
    assert decay(10, grace_days=10, horizon_days=5, floor=0.2) == 1.0
    assert decay(10.1, grace_days=10, horizon_days=5, floor=0.2) == 0.2
    assert decay(0.1, grace_days=0, horizon_days=0, floor=0.2) == 0.2


@pytest.mark.parametrize(
    ("score", "pinned", "kind", "lasting"),
    [
        (None, False, "chat", False),
        (90, False, "chat", False),
        (91, False, "chat", True),
        (None, True, "chat", True),
        (0, False, "preference", True),
        (None, False, "decision", True),
        (None, False, "fact", True),
        (None, False, "summary", False),
    ],
)
def test_what_is_important_does_not_fade(score: int | None, pinned: bool, kind: Kind, lasting: bool) -> None:
    assert resists_decay(score=score, pinned=pinned, kind=kind) is lasting
