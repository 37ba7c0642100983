from bisect import bisect_left, bisect_right
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonday.model.endpoint import EndpointLimits
from noonday.model.throttle import GO, LATE_MS, Throttle

LEASE_MS = 10_000_000
DELAYS = st.lists(st.integers(0, 3_000), min_size=60, max_size=60)
LIMITS = st.builds(
    EndpointLimits, st.none() | st.integers(1, 5), st.sampled_from([0.5, 3.0, 10.0, 50.0]), st.integers(1, 5)
)


class Callers:
    """Simulated callers that arrive, come back when they were told to (or a little later), run, and end."""

    def __init__(self, limits: EndpointLimits) -> None:
        self.limits = limits
        self.throttle = Throttle()
        self.begun: list[int] = []
        self.asked: dict[str, int] = {}
        self.most_inside = 0

    def play(self, arrivals: list[int], late: list[int], run_ms: list[int]) -> None:
        events: list[tuple[int, int, str]] = []
        for n, at in enumerate(arrivals):
            heappush(events, (at, 1, f"{n}"))
        inside = 0
        while events:
            now_ms, is_coming, name = heappop(events)
            n = int(name)
            if not is_coming:
                self.throttle.end(name, run_ms[n])
                inside -= 1
                continue
            self.asked[name] = self.asked.get(name, 0) + 1
            wait = self.throttle.ask(name, self.limits, LEASE_MS, now_ms)
            if wait == GO:
                self.begun.append(now_ms)
                inside += 1
                self.most_inside = max(self.most_inside, inside)
                heappush(events, (now_ms + run_ms[n] + 1, 0, name))
            else:
                heappush(events, (now_ms + abs(wait) + late[n], 1, name))

    def is_within(self, slack_ms: int) -> bool:
        """Whether no window of any length has more starts than burst and rate allow."""
        rate = (self.limits.rate_per_sec or 0) / 1000
        return all(
            bisect_right(self.begun, end) - bisect_left(self.begun, start)
            <= self.limits.burst + rate * (end - start + slack_ms) + 1e-6
            for start in self.begun
            for end in self.begun
            if end >= start
        )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(LIMITS, DELAYS, DELAYS, DELAYS)
def test_never_more_than_the_limits_allow(
    limits: EndpointLimits, arrivals: list[int], late: list[int], run_ms: list[int]
) -> None:
    callers = Callers(limits)
    callers.play(arrivals, late, run_ms)
    assert len(callers.begun) == len(arrivals), "every caller has a turn"
    assert limits.max_concurrency is None or callers.most_inside <= limits.max_concurrency
    assert callers.is_within(LATE_MS)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(LIMITS, DELAYS)
def test_caller_that_comes_back_in_time_pays_once_and_waits_once(limits: EndpointLimits, arrivals: list[int]) -> None:
    callers = Callers(EndpointLimits(None, limits.rate_per_sec, limits.burst))
    callers.play(arrivals, [0] * 60, [0] * 60)
    assert max(callers.asked.values()) <= 2
    assert callers.is_within(1), "apart from the rounding of instants"


def test_no_token_is_paid_twice() -> None:
    callers = Callers(EndpointLimits(None, 10.0, 1))
    callers.play([0] * 60, [0] * 60, [0] * 60)
    assert callers.begun == [n * 100 for n in range(60)]
    assert callers.throttle.spent_ms == 6_000
