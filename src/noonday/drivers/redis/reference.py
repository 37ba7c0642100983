"""The store's clock, for processes without access to the store."""

from collections.abc import Awaitable, Callable

from noonday.drivers.redis.connection import Connection
from noonday.model.errors import SignalsUnavailable


class RedisReference:
    """The clock of Redis plus its offset to the store's clock, which processes that read both clocks have stored in Redis."""

    def __init__(self, connection: Connection, prefix: str = "noonday") -> None:
        self._connection = connection
        self._key = f"{prefix}:clock-skew-ms"

    async def note(self, read_store_ms: Callable[[], Awaitable[int]]) -> int:
        """Read the store's clock between two reads of Redis' clock, and store their difference. Returns the store's time."""
        before_ms = await self._connection.time_ms()
        store_ms = await read_store_ms()
        after_ms = await self._connection.time_ms()
        skew_ms = store_ms - (before_ms + after_ms) // 2
        uncertainty_ms = (after_ms - before_ms) // 2 + 1
        stored_ms = 0 if abs(skew_ms) <= uncertainty_ms else skew_ms
        await self._connection.run([("SET", self._key, stored_ms)], SignalsUnavailable)
        return store_ms

    async def read_ms(self) -> int:
        time, skew_ms = await self._connection.run([("TIME",), ("GET", self._key)], SignalsUnavailable)
        if skew_ms is None:
            # Without the difference, the clock of Redis may be wrong. Callers keep the offset that they have.
            raise SignalsUnavailable("the store's clock is not known yet: start a scheduler or a recorder")
        return _ms(time) + int(skew_ms)


def _ms(time: tuple[bytes, bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000
