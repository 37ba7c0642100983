"""Breakers in the memory of one process."""

from collections.abc import Mapping

from noonday.model.breaker import Breaker, CallCounts
from noonday.ports.breakers import Breakers

_MAX_BREAKERS = 100_000
"""Most breakers that are kept. The one used longest ago is dropped first."""


class MemoryBreakers(Breakers):
    def __init__(self) -> None:
        self._breakers: dict[str, Breaker] = {}

    async def add_counts(self, counts: Mapping[str, CallCounts], now_ms: int) -> Mapping[str, int]:
        return {name: self._count(name, each, now_ms) for name, each in counts.items()}

    async def ask(self, name: str, now_ms: int) -> int:
        return self._of(name).ask(now_ms)

    def _count(self, name: str, counts: CallCounts, now_ms: int) -> int:
        breaker = self._of(name)
        if counts.probe_failed is not None:
            state = breaker.record_probe(counts.probe_failed, now_ms)
            if counts.probe_failed:
                return state
        return breaker.add_counts(counts.calls, counts.failures, now_ms, counts.least)

    def _of(self, name: str) -> Breaker:
        breaker = self._breakers.pop(name, None) or Breaker()
        self._breakers[name] = breaker
        while len(self._breakers) > _MAX_BREAKERS:
            del self._breakers[next(iter(self._breakers))]
        return breaker
