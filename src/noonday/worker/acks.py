"""Acks: dispatches whose start or end is on the log, and that must not be delivered again."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from noonday.model.errors import SignalsUnavailable
from noonday.model.message import Dispatch
from noonday.ports.bus import Bus
from noonday.ports.signals import Signals
from noonday.worker.connectivity import Connectivity
from noonday.worker.membership import Membership
from noonday.worker.parked import ParkedDispatches
from noonday.worker.run import Run
from noonday.worker.throttling import EndpointThrottle


@dataclass(eq=False)
class Acks:
    """Acks dispatches in the signals once the log has their start or end, and then on the bus."""

    _bus: Bus
    _signals: Signals
    _connectivity: Connectivity
    _membership: Membership
    _parked: ParkedDispatches
    _throttle: EndpointThrottle
    _unacked: list[Dispatch] = field(default_factory=list)
    """Dispatches whose start or end is on the log, but that are not acked in the signals yet."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add(self, runs: Iterable[Run]) -> None:
        """Add runs whose start or end the log has acknowledged."""
        for run in runs:
            run.is_acked = True
            self._unacked.append(run.dispatch)

    async def send(self) -> None:
        """Ack in the signals the dispatches that the log has, then mark them as processed on the bus.

        The order matters: a duplicate that is delivered nevertheless must find the ack.
        """
        dispatches, self._unacked = self._unacked, []
        if dispatches:
            try:
                await self._signals.ack([(dispatch.execution_id, dispatch.number) for dispatch in dispatches])
            except SignalsUnavailable:
                self._unacked = dispatches + self._unacked
                self._connectivity.note_signals_unavailable()
            else:
                self._parked.drop_duplicates(dispatches)
                await self._bus.mark_processed(self._membership.id, dispatches)

    async def send_after_release(self) -> None:
        """Free the slots of ended calls at endpoints, and ack the dispatches that the log has."""
        async with self._lock:
            await self._throttle.release()
            await self.send()

    async def send_again(self) -> None:
        """Ack the dispatches that could not be acked, unless that is under way."""
        if self._unacked and not self._lock.locked():
            async with self._lock:
                await self.send()
