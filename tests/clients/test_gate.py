from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clients.gate import ProviderGate
from app.errors import ProviderBusyError, ProviderDeniedError


class HandClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def fail(gate: ProviderGate, started_s: float, retry_after_s: float | None = None) -> float:
    error = ProviderBusyError("busy", retry_after_s=retry_after_s)
    raised = gate.fail(error, started_s=started_s, first_s=10, limit_s=60)
    assert raised.retry_after_s is not None
    return raised.retry_after_s


def test_a_failure_closes_the_gate_for_all_and_only_for_its_pause() -> None:
    clock = HandClock()
    gate = ProviderGate(clock)
    gate.fail(ProviderDeniedError("no key"), started_s=gate.enter(), first_s=30, limit_s=30)
    clock.now_s += 29
    with pytest.raises(ProviderDeniedError, match="no key") as caught:
        gate.enter()
    assert caught.value.retry_after_s is not None
    assert 1 <= caught.value.retry_after_s <= 7
    clock.now_s += 7
    assert gate.enter() == clock.now_s


def test_calls_refused_together_are_one_failure() -> None:
    clock = HandClock()
    gate = ProviderGate(clock)
    started = [gate.enter() for _ in range(10)]
    clock.now_s += 1
    pauses = [fail(gate, started_s) for started_s in started]
    assert len(set(pauses)) == 1
    assert 10 <= pauses[0] <= 12


@given(st.integers(min_value=1, max_value=100))
def test_pauses_grow_up_to_the_limit(failures: int) -> None:
    clock = HandClock()
    gate = ProviderGate(clock)
    pauses = []
    for _ in range(failures):
        pauses.append(fail(gate, gate.enter()))
        clock.now_s += pauses[-1]
    assert 10 <= pauses[0] <= 12
    assert all(later > earlier for earlier, later in pairwise(pauses[:5]))
    assert max(pauses) <= 72
    assert failures < 6 or pauses[-1] >= 60


def test_a_success_makes_the_next_pause_a_first_one() -> None:
    clock = HandClock()
    gate = ProviderGate(clock)
    for _ in range(3):
        clock.now_s += fail(gate, gate.enter())
    gate.succeed(gate.enter())
    assert fail(gate, gate.enter()) <= 12


def test_a_call_from_before_the_pause_does_not_end_it() -> None:
    clock = HandClock()
    gate = ProviderGate(clock)
    early = gate.enter()
    clock.now_s += 1
    fail(gate, gate.enter())
    gate.succeed(early)
    with pytest.raises(ProviderBusyError):
        gate.enter()


def test_the_pause_asked_for_is_the_pause() -> None:
    clock = HandClock()
    gate = ProviderGate(clock)
    assert fail(gate, gate.enter(), retry_after_s=3) == 3
    clock.now_s += 3
    gate.enter()
