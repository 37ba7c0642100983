"""Throttles in Redis, where every worker sees them."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from noonday.drivers.redis.connection import Command, Connection, Script
from noonday.model.endpoint import EndpointLimits
from noonday.model.errors import SignalsUnavailable
from noonday.ports.throttles import Knock, Left, Throttles

_THROTTLE = Script("throttle")
_AT_ONCE = 500
"""Nobody else waits for longer than this many take."""
H = TypeVar("H", bound=Hashable)


class RedisThrottles(Throttles):
    """One script call for each endpoint, all in one round trip."""

    def __init__(self, connection: Connection, prefix: str = "noonday") -> None:
        self._connection = connection
        self._prefix = prefix

    async def ask(self, knocks: Sequence[Knock], now_ms: int) -> list[int]:
        parts = _together((each.whom, each.limits) for each in knocks)
        commands = [self._asking([knocks[at] for at in part], now_ms) for part in parts]
        answers = await self._connection.run(commands, SignalsUnavailable)
        waits = [0] * len(knocks)
        for part, some in zip(parts, answers, strict=True):
            for at, wait in zip(part, some, strict=True):
                waits[at] = wait
        return waits

    async def leave(self, left: Sequence[Left]) -> None:
        parts = _together(each.whom for each in left)
        commands = [self._leaving([left[at] for at in part]) for part in parts]
        await self._connection.run(commands, SignalsUnavailable)

    def _asking(self, knocks: Sequence[Knock], now_ms: int) -> Command:
        said = (value for each in knocks for value in (each.execution, each.lease_ms))
        return _THROTTLE(self._of(knocks[0].whom), "ask", now_ms, *_said(knocks[0].limits), *said)

    def _leaving(self, left: Sequence[Left]) -> Command:
        said = (value for each in left for value in (each.execution, each.ran_ms))
        return _THROTTLE(self._of(left[0].whom), "leave", *said)

    def _of(self, whom: str) -> str:
        return f"{self._prefix}:{{l:{whom}}}"


def _said(limits: EndpointLimits) -> tuple[int, str, int]:
    return limits.max_concurrency or 0, repr(limits.interval_ms), limits.burst


def _together(names: Iterable[H]) -> list[list[int]]:
    """Places of equal names, in their order, so many at once as one script takes."""
    by_name: dict[H, list[int]] = {}
    for at, name in enumerate(names):
        by_name.setdefault(name, []).append(at)
    return [part[at : at + _AT_ONCE] for part in by_name.values() for at in range(0, len(part), _AT_ONCE)]
