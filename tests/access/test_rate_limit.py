from hypothesis import given
from hypothesis import strategies as st

from app.access.rate_limit import RateLimit, RateLimiter

limits = st.builds(RateLimit, st.integers(1, 50), st.sampled_from([1, 60, 3600]))
waits = st.lists(st.floats(0, 30), min_size=1, max_size=200)


@given(limits, waits)
def test_no_stretch_of_time_has_more_than_a_full_bucket_and_what_flows_in(
    limit: RateLimit, waits_s: list[float]
) -> None:
    limiter, now_s, passed = RateLimiter(limit), 1000.0, []
    for wait_s in waits_s:
        now_s += wait_s
        if limiter.take("a", now_s=now_s).is_allowed:
            passed.append(now_s)
    for first, begin_s in enumerate(passed):
        for last in range(first, len(passed)):
            most = limit.requests * (1 + (passed[last] - begin_s) / limit.window_s)
            assert last - first + 1 <= most + 1e-3


@given(limits, st.integers(0, 300))
def test_who_asks_no_faster_than_the_limit_is_never_refused(limit: RateLimit, asked: int) -> None:
    limiter = RateLimiter(limit)
    for place in range(asked):
        # A nanosecond is what a clock rounds to.
        now_s = 5.0 + place * (limit.window_s / limit.requests + 1e-9)
        assert limiter.take("a", now_s=now_s).is_allowed


@given(limits, waits)
def test_what_a_verdict_says_comes_true(limit: RateLimit, waits_s: list[float]) -> None:
    limiter, now_s = RateLimiter(limit), 7.0
    for wait_s in waits_s:
        verdict = limiter.take("a", now_s=now_s)
        assert 0 <= verdict.remaining < limit.requests
        assert 0 <= verdict.full_in_s <= limit.window_s + 1
        assert (verdict.retry_after_s == 0) == (verdict.remaining > 0)
        if verdict.retry_after_s:
            # Who waits as told is served; who asks at once, again, is not.
            assert not limiter.take("a", now_s=now_s).is_allowed
            now_s += verdict.retry_after_s
            assert limiter.take("a", now_s=now_s).is_allowed
        now_s += wait_s


@given(limits, st.lists(st.sampled_from("abc"), max_size=200))
def test_one_caller_takes_nothing_from_another(limit: RateLimit, callers: list[str]) -> None:
    together, alone = RateLimiter(limit), {caller: RateLimiter(limit) for caller in "abc"}
    for place, caller in enumerate(callers):
        now_s = place * 0.01
        assert together.take(caller, now_s=now_s) == alone[caller].take(caller, now_s=now_s)


@given(limits)
def test_a_burst_of_exactly_the_limit_passes(limit: RateLimit) -> None:
    limiter = RateLimiter(limit)
    verdicts = [limiter.take("a", now_s=1e9) for _ in range(limit.requests + 1)]
    assert [verdict.is_allowed for verdict in verdicts] == [True] * limit.requests + [False]
    assert [verdict.remaining for verdict in verdicts] == [*range(limit.requests - 1, -1, -1), 0]


def test_full_buckets_are_forgotten() -> None:
    limiter = RateLimiter(RateLimit(10, 1))
    for place in range(5000):
        limiter.take(f"caller {place}", now_s=float(place))
    assert len(limiter._full_at) < 1100
