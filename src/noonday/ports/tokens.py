"""What tenants may start a second, counted where all schedulers see it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from noonday.model.ids import TenantId
from noonday.model.rate import Granted, Rate


@dataclass(frozen=True, slots=True)
class Ask:
    tenant: TenantId
    rate: Rate
    count: int
    """How many are wanted; negative: how many were not used and are given back."""


class Tokens(ABC):
    """May lose its memory: that costs each tenant one burst."""

    @abstractmethod
    async def take(self, asks: Sequence[Ask], now_ms: int) -> list[Granted]:
        """For each tenant as many as its rate allows now, at most as many as it asks for, and when there is more.

        Raises TokensUnavailable if they cannot be counted: then nothing may be taken.
        """
