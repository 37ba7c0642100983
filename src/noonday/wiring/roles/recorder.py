"""The role of a recorder: settle reports, and keep the revocations that workers must see."""

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from noonday.model.errors import Unavailable
from noonday.model.message import Report
from noonday.model.recording import SettleResult
from noonday.ports.leases import Leases
from noonday.recorder.recorder import Recorder
from noonday.recorder.recorder_group import RecorderGroup
from noonday.recorder.revocation_keeper import RevocationKeeper
from noonday.runtime.supervise import Loop, StopDeadline, Tasks, every, reasons_not_ready
from noonday.wiring.drivers import Drivers
from noonday.wiring.roles.role import ProcessContext, ProcessRole

OnSettled = Callable[[SettleResult], None]
Admit = Callable[[Sequence[Report]], Awaitable[Sequence[Report]]]


def ignore(settled: SettleResult) -> None:
    """Do nothing after a settlement: no scheduler shares the process."""


class RecorderRole(ProcessRole):
    """The only recorder of an installation, for the only partition of the log."""

    def __init__(
        self,
        drivers: Drivers,
        context: ProcessContext,
        pools: Callable[[], Sequence[str]],
        on_settled: OnSettled,
        admit: Admit,
    ) -> None:
        """`pools` returns the pools of the worker in the same process."""
        self.recorder = _recorder(drivers, context, on_settled, admit, 0)
        self._clock = drivers.clock

        async def names() -> Sequence[str]:
            return pools()

        super().__init__(
            "recorder",
            Loop("recorder", self.recorder, drivers.clock, every(0), stuck_after_sec=10),
            _revocations(drivers, names, stuck_after_sec=10),
        )

    async def catch_up(self) -> None:
        """Settle what is in the log, and restore the revocations, before any run starts."""
        await self.recorder.drain()
        await self.loops["revocations"].service.run_once(self._clock.now_ms())

    def coroutines(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"ticks": self.recorder.tick_forever()}

    async def finish(self, tasks: Tasks, deadline: StopDeadline) -> None:
        """Settle the last reports of the worker in the same process, which reports no more."""
        await tasks.end("report", "watch", "recorder")
        while await self.recorder.drain():
            pass


class RecorderGroupRole(ProcessRole):
    """One of several recorders that share the partitions of the log."""

    def __init__(
        self, drivers: Drivers, context: ProcessContext, leases: Leases, on_settled: OnSettled, admit: Admit
    ) -> None:
        new_recorder = partial(_recorder, drivers, context, on_settled, admit)
        self.group = RecorderGroup(context.instance, leases, drivers.bus, drivers.clock, new_recorder)
        super().__init__(
            "recorders",
            Loop("recorders", self.group, drivers.clock, self.group.next_wait, stuck_after_sec=30),
            _revocations(drivers, drivers.settings_store.pool_names, stuck_after_sec=30),
        )

    def reasons_not_ready(self) -> list[str]:
        return reasons_not_ready(self.group.loops)

    async def leave(self) -> None:
        with contextlib.suppress(Unavailable):
            await self.group.leave()


def _recorder(
    drivers: Drivers, context: ProcessContext, on_settled: OnSettled, admit: Admit, partition: int
) -> Recorder:
    def note(settled: SettleResult) -> None:
        if settled.with_children:
            context.child_jobs_wake.set()
        on_settled(settled)

    return Recorder(
        instance=context.instance,
        partition=partition,
        executions=drivers.executions,
        endpoints=drivers.endpoints,
        bus=drivers.bus,
        index=drivers.index,
        signals=drivers.signals,
        clock=drivers.clock,
        metrics=context.metrics,
        tracing=context.tracing,
        hint_ahead_ms=context.hint_ahead_ms,
        on_settled=note,
        admit=admit,
    )


def _revocations(drivers: Drivers, pools: Callable[[], Awaitable[Sequence[str]]], *, stuck_after_sec: float) -> Loop:
    keeper = RevocationKeeper(drivers.executions, drivers.signals, pools, drivers.clock)
    return Loop("revocations", keeper, drivers.clock, every(0.5), stuck_after_sec=stuck_after_sec)
