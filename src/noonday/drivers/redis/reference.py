"""The one clock that an installation goes by, for those who have no access to the store."""

from noonday.drivers.redis.connection import Connection
from noonday.model.errors import SignalsUnavailable


class RedisReference:
    """Redis' own clock, and how far it is from the store's, as whoever knows both has noted."""

    def __init__(self, connection: Connection, prefix: str = "noonday") -> None:
        self._connection = connection
        self._key = f"{prefix}:clock-skew-ms"

    async def note(self, store_ms: int) -> None:
        """`store_ms` is what the store's clock says at this moment."""
        (time,) = await self._connection.run([("TIME",)], SignalsUnavailable)
        skew_ms = store_ms - _ms(time)
        await self._connection.run([("SET", self._key, skew_ms)], SignalsUnavailable)

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
