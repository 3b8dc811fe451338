"""When the evaluator is asked, and when it is left alone."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import (
    ProviderBusyError,
    ProviderDeniedError,
    ProviderError,
    ProviderRejectedError,
    ProviderTimeoutError,
)
from app.evaluation.outage import LONGEST_WAIT_S, EvaluatorAwayError, Outage

_BUSY = ProviderBusyError("cannot be reached")
_SLOW = ProviderTimeoutError("no answer in time")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ask(outage: Outage, error: ProviderError | None = None) -> None:
    """A call that ends so."""
    with outage.asking():
        if error is not None:
            raise error


def state_of(outage: Outage) -> str:
    return outage.state


def fail(outage: Outage, error: ProviderError) -> None:
    with pytest.raises(type(error)):
        ask(outage, error)


@pytest.mark.parametrize("error", [_BUSY, ProviderDeniedError("no balance")])
def test_who_is_out_of_reach_is_asked_by_one_call_now_and_then(clock: Clock, error: ProviderError) -> None:
    outage = Outage(clock)
    waits = []
    for _ in range(12):
        fail(outage, error)
        assert state_of(outage) == "away"
        waits.append(outage.wait_s)
        with pytest.raises(EvaluatorAwayError):
            ask(outage)
        clock.now_s += outage.wait_s
        assert state_of(outage) == "to_be_tried"
    assert waits == [1, 2, 4, 8, 16, 32, *[LONGEST_WAIT_S] * 6]
    ask(outage)
    assert state_of(outage) == "reachable"
    fail(outage, error)
    assert outage.wait_s == 1


def test_while_somebody_tries_nobody_else_does(clock: Clock) -> None:
    outage = Outage(clock)
    fail(outage, _BUSY)
    clock.now_s += 1
    with outage.asking():
        assert state_of(outage) == "away"
        with pytest.raises(EvaluatorAwayError):
            ask(outage)
    assert state_of(outage) == "reachable"


@pytest.mark.parametrize("end", [asyncio.CancelledError, RuntimeError])
def test_a_try_that_comes_to_nothing_leaves_it_to_the_next(clock: Clock, end: type[BaseException]) -> None:
    outage = Outage(clock)
    fail(outage, _BUSY)
    clock.now_s += 1
    with pytest.raises(end), outage.asking():
        raise end
    assert state_of(outage) == "to_be_tried"


@pytest.mark.parametrize("error", [ProviderError("garbage"), ProviderRejectedError("not this text")])
def test_an_answer_that_nobody_can_read_is_an_answer(clock: Clock, error: ProviderError) -> None:
    outage = Outage(clock)
    for _ in range(5):
        fail(outage, error)
        assert state_of(outage) == "reachable"
    fail(outage, _BUSY)
    clock.now_s += 1
    fail(outage, error)
    assert state_of(outage) == "reachable"


def test_one_turn_may_take_too_long_but_not_two_in_a_row(clock: Clock) -> None:
    outage = Outage(clock)
    fail(outage, _SLOW)
    ask(outage)
    fail(outage, _SLOW)
    assert state_of(outage) == "reachable"
    fail(outage, _SLOW)
    assert state_of(outage) == "away"
    clock.now_s += outage.wait_s
    fail(outage, _SLOW)
    assert state_of(outage) == "away"


def test_calls_that_were_under_way_neither_prolong_nor_end_it(clock: Clock) -> None:
    outage = Outage(clock)

    def ask_while_it_begins(error: ProviderError | None) -> None:
        with outage.asking():
            clock.now_s += 5
            fail(outage, _BUSY)
            clock.now_s += 0.25
            if error:
                raise error

    with pytest.raises(ProviderBusyError):
        ask_while_it_begins(_BUSY)
    assert (state_of(outage), outage.wait_s) == ("away", 1.0)
    clock.now_s += 1
    ask(outage)
    ask_while_it_begins(None)
    assert state_of(outage) == "away"


@given(st.lists(st.tuples(st.sampled_from(["good", "busy", "slow", "unclear"]), st.floats(0, 100))))
def test_whatever_happens_it_is_asked_again_within_the_longest_wait(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    outage = Outage(clock)
    ends = {"good": None, "busy": _BUSY, "slow": _SLOW, "unclear": ProviderError("garbage")}
    for name, later_s in steps:
        clock.now_s += later_s
        with suppress(ProviderError):
            ask(outage, ends[name])
        assert 0 <= outage.wait_s <= LONGEST_WAIT_S
    clock.now_s += LONGEST_WAIT_S
    ask(outage)
    assert state_of(outage) == "reachable"


def test_a_pause_that_the_provider_asks_for_is_kept_within_reason(clock: Clock) -> None:
    outage = Outage(clock)
    fail(outage, ProviderBusyError("slow down", retry_after_s=20))
    assert outage.wait_s == 20
    clock.now_s += 20
    fail(outage, ProviderBusyError("slow down", retry_after_s=3600))
    assert outage.wait_s == LONGEST_WAIT_S
