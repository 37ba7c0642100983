"""Membership of a worker in its pools: the identity under which it takes and reports, and former ones."""

import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from noonday.model.handler import Handler
from noonday.model.ids import WorkerId
from noonday.model.message import Hello
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.worker.identity import Identity
from noonday.worker.outbox import cut


@dataclass(eq=False)
class Membership:
    """Joins the pools of a worker under its current identity, and leaves them."""

    _bus: Bus
    _clock: Clock
    _concurrency: Mapping[str, int]
    """The number of handlers that can run at once, by pool."""
    _handlers: Mapping[tuple[str, str], Handler]
    _new_identity: Callable[[], Identity]
    identity: Identity = field(init=False)
    """The current identity."""
    former: list[Identity] = field(default_factory=list)
    """Identities that were replaced, until the last run of each is reported."""
    _leaving: list[WorkerId] = field(default_factory=list)
    """Former identities that have not left the bus yet."""
    joined_at: float = 0.0
    """Time when the current identity joined, by the monotonic clock."""
    _last_sign: float = 0.0
    """Time when the last Hello or heartbeat was sent, by the monotonic clock."""

    def __post_init__(self) -> None:
        self.identity = self._new_identity()

    @property
    def id(self) -> WorkerId:
        """The id of the current identity."""
        return self.identity.id

    async def join(self) -> None:
        """Register the current identity on the bus and the log. From then on it takes, reports and sends heartbeats.

        Raises BusUnavailable.
        """
        identity = self.identity
        while self._leaving:
            await self._bus.leave(self._leaving[0])
            del self._leaving[0]
        partition = await self._bus.join(identity.id, self._concurrency)
        for oversized in await self._bus.report(partition, [self._hello(identity)]):
            await self._bus.report(partition, [cut(oversized)])
        if identity is self.identity:
            identity.partition = partition
            self.joined_at = self._last_sign = self._clock.monotonic()

    async def leave(self) -> None:
        """Leave the pools, so that other workers get new dispatches and those that were taken and not claimed at once."""
        for name in (*self._leaving, self.id):
            await self._bus.leave(name)

    def change_identity(self) -> None:
        """Replace the current identity by a new one, which has not joined yet."""
        self.former.append(self.identity)
        self._leaving.append(self.identity.id)
        self.identity = self._new_identity()
        self._last_sign = -math.inf  # beat at once, so that the former identity is not judged lost while its runs end

    async def greet(self) -> None:
        """Announce the handlers again: there are more now. An identity that has not joined announces them when it joins."""
        if self.identity.has_joined:
            await self._bus.report(self.identity.partition, [self._hello(self.identity)])

    def silence_sec(self, now: float) -> float:
        """Return the seconds since the last Hello or heartbeat."""
        return now - self._last_sign

    def note_heartbeat(self, now: float) -> None:
        self._last_sign = now

    def _hello(self, identity: Identity) -> Hello:
        return Hello(
            worker_id=identity.id,
            at_ms=self._clock.now_ms(),
            host=socket.gethostname(),
            pid=os.getpid(),
            concurrency=dict(self._concurrency),
            handlers=tuple(handler.info() for handler in self._handlers.values()),
        )
