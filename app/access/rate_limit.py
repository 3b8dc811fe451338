"""How often one caller may ask: a bucket for each, which fills evenly. Pure.

A bucket holds as many requests as the limit allows in its time, each request takes one, and the bucket fills
at that even rate: a caller that was quiet may send all of them at once, and in the long run nobody gets more.

Source: the generic cell rate algorithm (ITU-T I.371, annex A), which keeps one number for each caller.
"""

import math
from dataclasses import dataclass
from typing import Final

_TIDY_ABOVE: Final = 1024
_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Attributes: `requests`, 1 or more, in `window_s` seconds, 1 or more."""

    requests: int
    window_s: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a request may pass.

    Attributes:
        is_allowed: it may.
        remaining: how many more may pass at this moment.
        full_in_s: when the bucket is full again, if nobody asks; whole seconds, rounded up.
        retry_after_s: when the next one may pass; whole seconds, rounded up; 0: now.
    """

    is_allowed: bool
    remaining: int
    full_in_s: int
    retry_after_s: int


class RateLimiter:
    """The buckets of all callers, in this process."""

    def __init__(self, limit: RateLimit) -> None:
        self.limit: Final = limit
        # In whole numbers of a nanosecond's `requests`-th part nothing is ever rounded: one request is then
        # exactly as long as the window is in nanoseconds.
        self._part_s: Final = 1 / (_NS * limit.requests)
        self._one: Final = limit.window_s * _NS
        self._full: Final = self._one * limit.requests
        # When each bucket is full again; one that is full is as good as none.
        self._full_at: dict[str, int] = {}

    def take(self, caller: str, *, now_s: float) -> Verdict:
        """Take one request from a caller's bucket, if there is one in it.

        Args:
            caller: tells callers apart.
            now_s: by a clock that never goes back.
        """
        now = round(now_s * _NS) * self.limit.requests
        if len(self._full_at) > _TIDY_ABOVE:
            self._full_at = {name: at for name, at in self._full_at.items() if at > now}
        missing = max(self._full_at.get(caller, now) - now, 0)
        is_allowed = missing + self._one <= self._full
        if is_allowed:
            missing += self._one
            self._full_at[caller] = now + missing
        remaining = (self._full - missing) // self._one
        waits = 0 if remaining else missing + self._one - self._full
        return Verdict(
            is_allowed, remaining, math.ceil(missing * self._part_s), math.ceil(waits * self._part_s)
        )
