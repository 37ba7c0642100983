"""Shares the partitions of the log among the recorders of an installation."""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass

import structlog

from noonday.model.errors import BusUnavailable, LeasesUnavailable, NoondayError, StaleEpoch, Unavailable
from noonday.model.ids import InstanceId
from noonday.model.rendezvous import share_of
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.leases import Leases
from noonday.recorder.recorder import Recorder
from noonday.runtime.supervise import Loop, every, stop

log = structlog.get_logger("noonday.recorders")


class RecorderGroup:
    """One recorder for each partition of the log that falls to this instance.

    The lease says who tries; the place in the store, moved by compare and set, says who may. Whoever is refused lets go of
    the partition and finds its place again if it still falls to it. Whoever cannot reach the log or the store does not keep
    the lease, so that others try.
    """

    def __init__(
        self, instance: InstanceId, leases: Leases, bus: Bus, clock: Clock, recorder_of: Callable[[int], Recorder]
    ) -> None:
        self._instance = instance
        self._leases = leases
        self._bus = bus
        self._clock = clock
        self._recorder_of = recorder_of
        self._joined = False
        self._renewed_at = clock.monotonic()
        self._at_work: dict[int, _AtWork] = {}

    @property
    def partitions(self) -> Collection[int]:
        return self._at_work.keys()

    @property
    def loops(self) -> list[Loop]:
        return [each.loop for each in self._at_work.values()]

    async def run_once(self, now_ms: int) -> int:
        """Keep the lease, and record what falls to us."""
        await self._drop_ended()
        partitions = await self._count_partitions()
        if self._joined and self._stands_still():
            await self._give_up()
            return 0
        if not self._joined:
            await self._recorder_of(0).reach()
            await self._leases.join(self._instance, 1.0)
            self._joined = True
        elif not await self._renew():
            return 0
        self._renewed_at = self._clock.monotonic()
        members = await self._leases.members()
        share = share_of(self._instance, members, partitions) if self._instance in members else set()
        for partition in [partition for partition in self._at_work if partition not in share]:
            await self._let_go(partition)
        for partition in sorted(share - self._at_work.keys()):
            # Somebody else's last batch, or its beginning at the same moment: in the next round we see where it ended.
            with contextlib.suppress(StaleEpoch):
                await self._begin(partition)
        return 0

    async def next_wait(self) -> float:
        longest = min(1.0, self._leases.ttl_sec / 3)
        if not self._joined:
            return longest
        with contextlib.suppress(LeasesUnavailable):
            await self._leases.changed(longest)
        return 0.01

    async def leave(self) -> None:
        for partition in list(self._at_work):
            await self._let_go(partition)
        if self._joined:
            self._joined = False
            await self._leases.leave()

    async def _count_partitions(self) -> int:
        """Before the lease is renewed: it lapses while the log cannot be reached."""
        try:
            return await self._bus.partitions()
        except BusUnavailable:
            await self._let_all_go_in_doubt()
            raise

    def _stands_still(self) -> bool:
        """A tick comes to each partition every few seconds, and has to go to the store. A store that answers, but fails at one
        entry of a partition, would fail for others too: giving up all partitions would help nobody."""
        now, longest = self._clock.monotonic(), 2 * self._leases.ttl_sec
        return any(
            each.loop.age_sec() > longest and now - each.recorder.answered_at > longest
            for each in self._at_work.values()
        )

    async def _give_up(self) -> None:
        log.warning("giving up the lease", why="no round with the store was completed: somebody else shall try")
        self._joined = False
        await self._leases.leave()
        await self._let_all_go()

    async def _renew(self) -> bool:
        try:
            alive = await self._leases.renew()
        except LeasesUnavailable:
            await self._let_all_go_in_doubt()
            raise
        if not alive:
            log.warning("the lease has lapsed")
            await self._let_all_go()
            self._joined = False
        return alive

    async def _let_all_go_in_doubt(self) -> None:
        if self._clock.monotonic() - self._renewed_at > self._leases.ttl_sec:
            await self._let_all_go()

    async def _let_all_go(self) -> None:
        for partition in list(self._at_work):
            await self._let_go(partition)

    async def _begin(self, partition: int) -> None:
        recorder = self._recorder_of(partition)
        await recorder.open()
        loop = Loop(f"recorder-{partition}", recorder, self._clock, every(0), stuck_after_sec=30)
        tasks = [
            asyncio.create_task(loop.run(), name=loop.name),
            asyncio.create_task(self._tick(recorder), name=f"ticks-{partition}"),
        ]
        for task in tasks:
            task.add_done_callback(_take_note)
        self._at_work[partition] = _AtWork(recorder, loop, tasks)

    async def _tick(self, recorder: Recorder) -> None:
        while True:
            try:
                await recorder.tick_forever()
            except Unavailable as error:
                log.warning("cannot tick", partition=recorder.partition, error=error.detail)
                await self._clock.sleep(0.5)

    async def _let_go(self, partition: int) -> None:
        at_work = self._at_work.pop(partition)
        await stop([task for task in at_work.tasks if not task.done()])
        await at_work.recorder.settle_down()

    async def _drop_ended(self) -> None:
        for partition, at_work in list(self._at_work.items()):
            ended = next((task for task in at_work.tasks if task.done()), None)
            if ended is None:
                continue
            error = ended.exception()
            at_work.tasks.remove(ended)
            await self._let_go(partition)
            if not isinstance(error, StaleEpoch):
                raise error or NoondayError(f"the recorder of partition {partition} ended by itself")
            log.warning("our place is not where we left it", partition=partition)


@dataclass(frozen=True)
class _AtWork:
    recorder: Recorder
    loop: Loop
    tasks: list[asyncio.Task[None]]


def _take_note(task: asyncio.Task[None]) -> None:
    """The recorders looks at it in its next round."""
    if not task.cancelled():
        task.exception()
