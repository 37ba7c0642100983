"""Circuit breakers that all workers share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import msgspec

from noonday.model.breaker import MIN_CALLS


class CallCounts(msgspec.Struct, frozen=True):
    """The calls of one worker since its last report to a breaker."""

    calls: int = 0
    failures: int = 0
    probe_failed: bool | None = None
    """Whether the probe failed. None if no probe ended."""
    least: int = MIN_CALLS
    """Minimum number of calls in a minute before the breaker may open."""


class Breakers(ABC):
    """One `noonday.model.breaker.Breaker` for each name. If the shared memory is lost, all breakers are closed."""

    @abstractmethod
    async def tell(self, counts: Mapping[str, CallCounts], now_ms: int) -> Mapping[str, int]:
        """Count calls and failures. Returns for each breaker CLOSED or how long it stays open, in ms.

        A negative value means that its time is over and a probe has not succeeded yet. Raises SignalsUnavailable: the calls
        may have been counted or not.
        """

    @abstractmethod
    async def ask(self, name: str, now_ms: int) -> int:
        """Return whether to call: CLOSED, PROBE (no other caller gets it), or how long to wait, in ms.

        Raises SignalsUnavailable.
        """
