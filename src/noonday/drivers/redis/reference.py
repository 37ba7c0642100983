"""The one clock that an installation goes by, for those who have no access to the store."""

from collections.abc import Awaitable, Callable

from noonday.drivers.redis.connection import Connection
from noonday.model.errors import SignalsUnavailable


class RedisReference:
    """Redis' own clock, and how far it is from the store's, as whoever knows both has noted."""

    def __init__(self, connection: Connection, prefix: str = "noonday") -> None:
        self._connection = connection
        self._key = f"{prefix}:clock-skew-ms"

    async def note(self, read_store_ms: Callable[[], Awaitable[int]]) -> int:
        """Read the store's clock between two looks at Redis' own, and note how far they are apart. Answers the former."""
        before_ms = await self._connection.time_ms()
        store_ms = await read_store_ms()
        after_ms = await self._connection.time_ms()
        skew_ms = store_ms - (before_ms + after_ms) // 2
        unsure_ms = (after_ms - before_ms) // 2 + 1
        noted = 0 if abs(skew_ms) <= unsure_ms else skew_ms
        await self._connection.run([("SET", self._key, noted)], SignalsUnavailable)
        return store_ms

    async def read_ms(self) -> int:
        time, skew_ms = await self._connection.run([("TIME",), ("GET", self._key)], SignalsUnavailable)
        if skew_ms is None:
            # Redis' own clock alone may be another one: whoever has an offset keeps it.
            raise SignalsUnavailable(
                "nobody has said yet what the store's clock says: is a scheduler or a recorder running?"
            )
        return _ms(time) + int(skew_ms)


def _ms(time: tuple[bytes, bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000
