"""Circuit breakers that all workers share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from noonday.model.breaker import CallCounts


class Breakers(ABC):
    """One `noonday.model.breaker.Breaker` for each name. If the shared memory is lost, all breakers are closed."""

    @abstractmethod
    async def add_counts(self, counts: Mapping[str, CallCounts], now_ms: int) -> Mapping[str, int]:
        """Count calls and failures. Returns for each breaker CLOSED or how long it stays open, in ms.

        A negative value means that its time is over and a probe has not succeeded yet. Raises SignalsUnavailable: the calls
        may have been counted or not.
        """

    @abstractmethod
    async def ask(self, name: str, now_ms: int) -> int:
        """Return whether to call: CLOSED, PROBE (no other caller gets it), or how long to wait, in ms.

        Raises SignalsUnavailable.
        """
