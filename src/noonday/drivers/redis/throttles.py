"""Throttles in Redis, shared by all workers."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from noonday.drivers.redis.connection import Command, Connection, Script
from noonday.model.endpoint import EndpointLimits
from noonday.model.errors import SignalsUnavailable
from noonday.model.throttle import CallEnd, CallRequest
from noonday.ports.throttles import Throttles

_THROTTLE = Script("throttle")
_CHUNK = 500
"""Most requests of one script call, so that other clients of Redis do not wait long."""
H = TypeVar("H", bound=Hashable)


class RedisThrottles(Throttles):
    """Throttles in Redis: one script call for each endpoint, all in one round trip."""

    def __init__(self, connection: Connection, prefix: str = "noonday") -> None:
        self._connection = connection
        self._prefix = prefix

    async def ask(self, knocks: Sequence[CallRequest], now_ms: int) -> list[int]:
        parts = _grouped((each.whom, each.limits) for each in knocks)
        commands = [self._ask_command([knocks[at] for at in part], now_ms) for part in parts]
        answers = await self._connection.run(commands, SignalsUnavailable)
        waits = [0] * len(knocks)
        for part, some in zip(parts, answers, strict=True):
            for at, wait in zip(part, some, strict=True):
                waits[at] = wait
        return waits

    async def leave(self, left: Sequence[CallEnd]) -> None:
        parts = _grouped(each.whom for each in left)
        commands = [self._leave_command([left[at] for at in part]) for part in parts]
        await self._connection.run(commands, SignalsUnavailable)

    def _ask_command(self, knocks: Sequence[CallRequest], now_ms: int) -> Command:
        arguments = (value for each in knocks for value in (each.execution, each.lease_ms))
        return _THROTTLE(self._key(knocks[0].whom), "ask", now_ms, *_limit_arguments(knocks[0].limits), *arguments)

    def _leave_command(self, left: Sequence[CallEnd]) -> Command:
        arguments = (value for each in left for value in (each.execution, each.ran_ms))
        return _THROTTLE(self._key(left[0].whom), "leave", *arguments)

    def _key(self, whom: str) -> str:
        return f"{self._prefix}:{{l:{whom}}}"


def _limit_arguments(limits: EndpointLimits) -> tuple[int, str, int]:
    return limits.max_concurrency or 0, repr(limits.interval_ms), limits.burst


def _grouped(names: Iterable[H]) -> list[list[int]]:
    """Return the indexes of equal names, in order, in chunks that one script call takes."""
    by_name: dict[H, list[int]] = {}
    for at, name in enumerate(names):
        by_name.setdefault(name, []).append(at)
    return [part[at : at + _CHUNK] for part in by_name.values() for at in range(0, len(part), _CHUNK)]
