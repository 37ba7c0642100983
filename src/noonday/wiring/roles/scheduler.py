"""The role of a scheduler: own partitions, and fire the due entries in them."""

import contextlib
from collections.abc import Callable, Collection
from typing import Any

from noonday.model.errors import Unavailable
from noonday.model.recording import SettleResult
from noonday.runtime.supervise import Loop, Service, Tasks, every
from noonday.scheduler.allowances import Allowances
from noonday.scheduler.dispatcher import Dispatcher
from noonday.scheduler.hydrator import Hydrator
from noonday.scheduler.in_flight import InFlight
from noonday.scheduler.ownership import Ownership
from noonday.scheduler.publishing import Publisher
from noonday.scheduler.replanner import Replanner
from noonday.scheduler.sweeper import Sweeper
from noonday.wiring.drivers import Drivers
from noonday.wiring.roles.role import ProcessContext, ProcessRole


class SchedulerRole(ProcessRole):
    """Ownership, hydrator, dispatcher, sweeper and replanner."""

    def __init__(
        self,
        drivers: Drivers,
        context: ProcessContext,
        *,
        shares_partitions: bool,
        load: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`shares_partitions`: whether other schedulers wait for the partitions of this one. `load` returns how busy this process
        is, from 0 to 1."""
        self._shares_partitions = shares_partitions
        self._wake = context.dispatcher_wake
        self.ownership = Ownership(
            context.instance,
            drivers.leases,
            drivers.firing,
            drivers.index,
            drivers.bus,
            drivers.clock,
            load=load,
            on_gained=self.walk_again,
        )
        in_flight = InFlight()
        allowances = Allowances(drivers.settings_store, drivers.tokens, drivers.index, drivers.clock, in_flight)
        publisher = Publisher(drivers.bus, drivers.endpoints, context.tracing, drivers.clock)
        self.dispatcher = _dispatcher(drivers, context, self.ownership, allowances, in_flight, publisher)
        self._hydrator = Hydrator(
            drivers.firing,
            drivers.index,
            lambda: self.ownership.partitions,
            context.settings.scheduler.hydrate_ahead_sec * 1000,
            self.dispatcher.tracks,
        )
        sweeper = Sweeper(
            firing=drivers.firing,
            executions=drivers.executions,
            index=drivers.index,
            publisher=publisher,
            ownership=self.ownership,
            is_tracked=self.dispatcher.tracks,
            grace_ms=context.settings.scheduler.grace_ms,
        )
        super().__init__("scheduler", *self._make_loops(drivers, context, allowances, sweeper))

    def wake(self) -> None:
        """Wake the dispatcher, because a new entry may be due."""
        self._wake.set()

    def walk_again(self, partitions: Collection[int]) -> None:
        """Fill the hot index again with the entries of partitions that another instance may have owned."""
        self._hydrator.walk_again(partitions)
        self.loops["hydrator"].wake.set()

    def on_settled(self, settled: SettleResult) -> None:
        """Wake the dispatcher when a recorder of the same process freed slots or returned entries to the timeline."""
        if settled.freed:
            self.dispatcher.release_blocked(settled.freed)
        if settled.freed or settled.entries:
            self.wake()

    def state(self) -> dict[str, Any]:
        """Return the values of the running scheduler that the store does not have."""
        return {"tickAgeMs": round(self.loops["dispatcher"].age_sec() * 1000)}

    def reasons_not_ready(self) -> list[str]:
        # A scheduler that shares its partitions may have none for a while.
        has_lost_all = not self._shares_partitions and not self.ownership.partitions
        reasons = ["owns no partition: another process has taken over"] if has_lost_all else []
        return reasons + self.dispatcher.reasons_not_ready()

    async def hand_over(self, tasks: Tasks) -> None:
        """Stop firing, publish and seal what was fired, and release the lease if others wait for it."""
        await tasks.end("dispatcher", "hydrator", "sweeper")
        await self.dispatcher.drain()
        if self._shares_partitions:
            await tasks.end("ownership")
            with contextlib.suppress(Unavailable):
                await self.ownership.leave()  # otherwise the lease expires

    async def leave(self) -> None:
        """Release a lease that no other process waits for. It kept other processes off the store until now."""
        if not self._shares_partitions:
            await self.ownership.leave()

    def _make_loops(
        self, drivers: Drivers, context: ProcessContext, allowances: Allowances, sweeper: Sweeper
    ) -> list[Loop]:
        clock, sweep_sec = drivers.clock, context.settings.scheduler.sweep_every_ms / 1000
        hydrating, sweeping = _StoreService(self._hydrator, self), _StoreService(sweeper, self)
        return [
            Loop("dispatcher", self.dispatcher, clock, self.dispatcher.next_wait, self._wake, stuck_after_sec=5),
            Loop("hydrator", hydrating, clock, every(1.0), stuck_after_sec=30),
            Loop("sweeper", sweeping, clock, every(sweep_sec), stuck_after_sec=30),
            Loop("replanner", Replanner(drivers.firing, clock), clock, every(5.0), stuck_after_sec=120),
            Loop("tenants", allowances, clock, every(1.0), stuck_after_sec=30),
            Loop("bus", _BusCheck(self.ownership), clock, every(1.0), stuck_after_sec=60),
            Loop("ownership", self.ownership, clock, self.ownership.next_wait, stuck_after_sec=10),
        ]


def _dispatcher(
    drivers: Drivers,
    context: ProcessContext,
    ownership: Ownership,
    allowances: Allowances,
    in_flight: InFlight,
    publisher: Publisher,
) -> Dispatcher:
    return Dispatcher(
        ownership=ownership,
        allowances=allowances,
        in_flight=in_flight,
        firing=drivers.firing,
        index=drivers.index,
        bus=drivers.bus,
        signals=drivers.signals,
        clock=drivers.clock,
        publisher=publisher,
        metrics=context.metrics,
        batch=context.settings.scheduler.batch,
        hint_ahead_ms=context.hint_ahead_ms,
        budget=drivers.budget,
    )


class _StoreService:
    """A hydrator or sweeper. Each round proves that the store is available, and wakes the dispatcher if it found entries."""

    def __init__(self, service: Service, scheduler: SchedulerRole) -> None:
        self._service = service
        self._scheduler = scheduler

    async def run_once(self, now_ms: int) -> int:
        found = await self._service.run_once(now_ms)
        self._scheduler.ownership.note_store_round()
        if found:
            self._scheduler.wake()
        return found


class _BusCheck:
    """Checks that the bus is available. A process that cannot publish must not keep its partitions."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    async def run_once(self, now_ms: int) -> int:
        await self._ownership.check_bus()
        return 0
