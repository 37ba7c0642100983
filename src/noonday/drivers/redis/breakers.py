"""Breakers in Redis, shared by all workers."""

from collections.abc import Mapping

from noonday.drivers.redis.connection import Connection, Script
from noonday.model.breaker import CallCounts
from noonday.model.errors import SignalsUnavailable
from noonday.ports.breakers import Breakers

_BREAKER = Script("breaker")


class RedisBreakers(Breakers):
    def __init__(self, connection: Connection, prefix: str = "noonday") -> None:
        self._connection = connection
        self._prefix = prefix

    async def add_counts(self, counts: Mapping[str, CallCounts], now_ms: int) -> Mapping[str, int]:
        commands = [
            _BREAKER(
                self._key(name),
                "count",
                now_ms,
                each.calls,
                each.failures,
                _probe_argument(each.probe_failed),
                each.least,
            )
            for name, each in counts.items()
        ]
        answers = await self._connection.run(commands, SignalsUnavailable)
        return dict(zip(counts, answers, strict=True))

    async def ask(self, name: str, now_ms: int) -> int:
        (answer,) = await self._connection.run([_BREAKER(self._key(name), "ask", now_ms)], SignalsUnavailable)
        return int(answer)

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{{b:{name}}}"


def _probe_argument(probe_failed: bool | None) -> str:
    return "" if probe_failed is None else str(int(probe_failed))
