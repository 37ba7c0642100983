"""Throttles of endpoints that all workers share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from noonday.model.throttle import CallEnd, CallRequest


class Throttles(ABC):
    """One `noonday.model.throttle.Throttle` for each name.

    If the shared memory is lost, each endpoint may get one more burst, and up to twice its concurrency until the calls of
    before have ended.
    """

    @abstractmethod
    async def ask(self, requests: Sequence[CallRequest], now_ms: int) -> list[int]:
        """Return for each request, in order, GO or how long to wait, in ms: positive for the rate, negative for a slot.

        A request that has to wait has a reservation and takes no second token when it returns. Raises SignalsUnavailable: the
        requests may have been counted or not.
        """

    @abstractmethod
    async def end(self, ends: Sequence[CallEnd]) -> None:
        """Free the slots of calls that ended. Freeing a slot twice does no harm.

        Raises SignalsUnavailable: the slots may have been freed or not.
        """
