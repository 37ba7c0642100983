"""Who is better left alone for a while, as all workers know it together."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import msgspec

from noonday.model.breaker import MIN_CALLS


class Told(msgspec.Struct, frozen=True):
    """What came of calls since it was last told."""

    calls: int = 0
    failures: int = 0
    probe_failed: bool | None = None
    """What came of a call that was let go to see whether it works again."""
    least: int = MIN_CALLS
    """How many calls in a minute it takes to open it."""


class Breakers(ABC):
    """One `noonday.model.breaker.Breaker` for each name, shared by all workers. It may lose its memory: then all are closed."""

    @abstractmethod
    async def tell(self, told: Mapping[str, Told], now_ms: int) -> Mapping[str, int]:
        """Answers of each for how long it is open, in ms: CLOSED; or less than that, if its time is over and nobody has called
        since. Raises SignalsUnavailable: perhaps it was counted, perhaps not."""

    @abstractmethod
    async def ask(self, name: str, now_ms: int) -> int:
        """Whether to call: CLOSED, PROBE (and nobody else), or how long to wait, in ms. Raises SignalsUnavailable."""
