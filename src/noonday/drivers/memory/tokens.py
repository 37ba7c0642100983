"""Rates of tenants, in the one process that hands out."""

from collections.abc import Sequence

from noonday.model.ids import TenantId
from noonday.model.rate import Granted, take
from noonday.ports.tokens import Ask, Tokens

_MANY = 10_000


class MemoryTokens(Tokens):
    def __init__(self) -> None:
        self._spent: dict[TenantId, float] = {}
        """Until when each tenant's rate is spent."""
        self._tidy_at = _MANY

    async def take(self, asks: Sequence[Ask], now_ms: int) -> list[Granted]:
        answers = []
        for ask in asks:
            granted, spent = take(ask.rate, self._spent.get(ask.tenant, 0.0), ask.count, now_ms)
            self._spent[ask.tenant] = spent
            answers.append(granted)
        if len(self._spent) > self._tidy_at:
            self._spent = {tenant: spent for tenant, spent in self._spent.items() if spent > now_ms}
            self._tidy_at = 2 * len(self._spent) + _MANY
        return answers
