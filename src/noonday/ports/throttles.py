"""What may be called now, as all workers count it together."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from noonday.model.endpoint import EndpointLimits
from noonday.model.ids import ExecutionId


class Knock(NamedTuple):
    """Somebody who wants to call."""

    whom: str
    """The name of a throttle: an endpoint of a tenant."""
    execution: ExecutionId
    limits: EndpointLimits
    lease_ms: int
    """For how long it holds its place, if nothing is heard of it any more."""


class Left(NamedTuple):
    """Somebody who went, and has ended."""

    whom: str
    execution: ExecutionId
    ran_ms: int
    """How long the call took; 0 if it was not made after all."""


class Throttles(ABC):
    """One `noonday.model.throttle.Throttle` for each name, shared by all workers. It may lose its memory: that costs each
    endpoint one more burst, and as many calls more at once as it allows, for as long as calls take."""

    @abstractmethod
    async def ask(self, knocks: Sequence[Knock], now_ms: int) -> list[int]:
        """For each in its place whether it may go: GO, or how long to wait, in ms: positive for the rate, negative for a place.

        Whoever waits has a reservation, and pays no second time when it is back. Raises SignalsUnavailable: perhaps it was
        counted, perhaps not.
        """

    @abstractmethod
    async def leave(self, left: Sequence[Left]) -> None:
        """Give back places. Told twice it does no harm. Raises SignalsUnavailable: perhaps they were given back."""
