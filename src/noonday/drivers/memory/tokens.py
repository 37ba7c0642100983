"""Rate tokens of tenants in the memory of the one process that dispatches."""

from collections.abc import Sequence

from noonday.model.ids import TenantId
from noonday.model.rate import TokenGrant, TokenRequest, take
from noonday.ports.tokens import Tokens

_TIDY_MIN = 10_000
"""Number of tenants from which on those with unspent rates are dropped."""


class MemoryTokens(Tokens):
    def __init__(self) -> None:
        self._spent: dict[TenantId, float] = {}
        """The instant, in ms, until which each tenant's rate is spent."""
        self._tidy_at = _TIDY_MIN

    async def take(self, requests: Sequence[TokenRequest], now_ms: int) -> list[TokenGrant]:
        answers = []
        for request in requests:
            granted, spent = take(request.rate, self._spent.get(request.tenant, 0.0), request.count, now_ms)
            self._spent[request.tenant] = spent
            answers.append(granted)
        if len(self._spent) > self._tidy_at:
            self._spent = {tenant: spent for tenant, spent in self._spent.items() if spent > now_ms}
            self._tidy_at = 2 * len(self._spent) + _TIDY_MIN
        return answers
