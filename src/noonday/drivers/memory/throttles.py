"""Throttles in the memory of one process."""

from collections.abc import Sequence

from noonday.model.throttle import CallEnd, CallRequest, Throttle
from noonday.ports.throttles import Throttles

_TIDY_MIN = 10_000
"""Number of throttles from which on idle ones are dropped."""


class MemoryThrottles(Throttles):
    def __init__(self) -> None:
        self._throttles: dict[str, Throttle] = {}
        self._tidy_at = _TIDY_MIN

    async def ask(self, requests: Sequence[CallRequest], now_ms: int) -> list[int]:
        answers = [self._of(each.throttle).ask(each.execution, each.limits, each.lease_ms, now_ms) for each in requests]
        if len(self._throttles) > self._tidy_at:
            self._throttles = {name: each for name, each in self._throttles.items() if not each.is_idle(now_ms)}
            self._tidy_at = 2 * len(self._throttles) + _TIDY_MIN
        return answers

    async def end(self, ends: Sequence[CallEnd]) -> None:
        for each in ends:
            if throttle := self._throttles.get(each.throttle):
                throttle.end(each.execution, each.ran_ms)

    def _of(self, name: str) -> Throttle:
        return self._throttles.setdefault(name, Throttle())
