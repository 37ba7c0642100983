"""Rate tokens of tenants that all schedulers share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from noonday.model.rate import TokenGrant, TokenRequest


class Tokens(ABC):
    """Count the tokens of tenants. If the shared memory is lost, each tenant may get one more burst."""

    @abstractmethod
    async def take(self, asks: Sequence[TokenRequest], now_ms: int) -> list[TokenGrant]:
        """Take up to the requested tokens for each tenant, as its rate allows now. Returns how many, and when there are more.

        Raises TokensUnavailable if tokens cannot be counted: then nothing may be taken.
        """
