"""Rate tokens of tenants that all schedulers share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from noonday.model.ids import TenantId
from noonday.model.rate import Granted, Rate


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for tokens of a tenant's rate."""

    tenant: TenantId
    rate: Rate
    count: int
    """Number of tokens requested. A negative number returns unused tokens."""


class Tokens(ABC):
    """Count the tokens of tenants. If the shared memory is lost, each tenant may get one more burst."""

    @abstractmethod
    async def take(self, asks: Sequence[Ask], now_ms: int) -> list[Granted]:
        """Take up to the requested tokens for each tenant, as its rate allows now. Returns how many, and when there are more.

        Raises TokensUnavailable if tokens cannot be counted: then nothing may be taken.
        """
