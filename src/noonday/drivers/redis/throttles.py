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

    async def ask(self, requests: Sequence[CallRequest], now_ms: int) -> list[int]:
        parts = _grouped((each.throttle, each.limits) for each in requests)
        commands = [self._ask_command([requests[at] for at in part], now_ms) for part in parts]
        answers = await self._connection.run(commands, SignalsUnavailable)
        waits = [0] * len(requests)
        for part, some in zip(parts, answers, strict=True):
            for at, wait in zip(part, some, strict=True):
                waits[at] = wait
        return waits

    async def end(self, ends: Sequence[CallEnd]) -> None:
        parts = _grouped(each.throttle for each in ends)
        commands = [self._end_command([ends[at] for at in part]) for part in parts]
        await self._connection.run(commands, SignalsUnavailable)

    def _ask_command(self, requests: Sequence[CallRequest], now_ms: int) -> Command:
        arguments = (value for each in requests for value in (each.execution, each.lease_ms))
        return _THROTTLE(
            self._key(requests[0].throttle), "ask", now_ms, *_limit_arguments(requests[0].limits), *arguments
        )

    def _end_command(self, ends: Sequence[CallEnd]) -> Command:
        arguments = (value for each in ends for value in (each.execution, each.ran_ms))
        return _THROTTLE(self._key(ends[0].throttle), "end", *arguments)

    def _key(self, throttle: str) -> str:
        return f"{self._prefix}:{{l:{throttle}}}"


def _limit_arguments(limits: EndpointLimits) -> tuple[int, str, int]:
    return limits.max_concurrency or 0, repr(limits.interval_ms), limits.burst


def _grouped(names: Iterable[H]) -> list[list[int]]:
    """Return the indexes of equal names, in order, in chunks that one script call takes."""
    by_name: dict[H, list[int]] = {}
    for at, name in enumerate(names):
        by_name.setdefault(name, []).append(at)
    return [part[at : at + _CHUNK] for part in by_name.values() for at in range(0, len(part), _CHUNK)]
