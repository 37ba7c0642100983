"""Rate tokens of tenants in Redis, shared by all schedulers."""

from collections.abc import Sequence

from noonday.drivers.redis.connection import Connection, Script
from noonday.model.errors import TokensUnavailable
from noonday.model.rate import TokenGrant, TokenRequest
from noonday.ports.tokens import Tokens

_TAKE = Script("tokens")


class RedisTokens(Tokens):
    """Rate tokens in Redis: one key for each tenant, in its own slot, which expires when no token is spent."""

    def __init__(self, connection: Connection, prefix: str = "noonday") -> None:
        self._connection = connection
        self._prefix = prefix

    async def take(self, requests: Sequence[TokenRequest], now_ms: int) -> list[TokenGrant]:
        commands = [
            _TAKE(
                f"{self._prefix}:{{t:{request.tenant}}}:spent",
                now_ms,
                repr(request.rate.interval_ms),
                request.rate.burst,
                request.count,
            )
            for request in requests
        ]
        answers = await self._connection.run(commands, TokensUnavailable)
        return [TokenGrant(count, more_ms) for count, more_ms in answers]
