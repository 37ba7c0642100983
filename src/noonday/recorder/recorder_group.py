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
    """Runs one recorder for each log partition in this instance's share.

    The lease decides who tries; the checkpoint in the store, moved by compare-and-set, decides who may. A refused recorder
    releases the partition, and opens it again if it is still in its share. An instance that cannot reach the log or the store
    does not keep the lease, so that others try.
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
        self._running: dict[int, _RunningRecorder] = {}

    @property
    def partitions(self) -> Collection[int]:
        return self._running.keys()

    @property
    def loops(self) -> list[Loop]:
        return [each.loop for each in self._running.values()]

    async def run_once(self, now_ms: int) -> int:
        """Renew the lease, and run recorders for this instance's share of the partitions."""
        await self._drop_ended()
        partitions = await self._count_partitions()
        if self._joined and self._is_stalled():
            await self._give_up()
            return 0
        if not self._joined:
            await self._recorder_of(0).check_store()
            await self._leases.join(self._instance, 1.0)
            self._joined = True
        elif not await self._renew():
            return 0
        self._renewed_at = self._clock.monotonic()
        members = await self._leases.members()
        share = share_of(self._instance, members, partitions) if self._instance in members else set()
        for partition in [partition for partition in self._running if partition not in share]:
            await self._release(partition)
        for partition in sorted(share - self._running.keys()):
            # Another recorder settles its last batch, or opens the partition at the same moment. The next round reads its
            # checkpoint.
            with contextlib.suppress(StaleEpoch):
                await self._start(partition)
        return 0

    async def next_wait(self) -> float:
        longest_sec = min(1.0, self._leases.ttl_sec / 3)
        if not self._joined:
            return longest_sec
        with contextlib.suppress(LeasesUnavailable):
            await self._leases.changed(longest_sec)
        return 0.01

    async def leave(self) -> None:
        for partition in list(self._running):
            await self._release(partition)
        if self._joined:
            self._joined = False
            await self._leases.leave()

    async def _count_partitions(self) -> int:
        """Return the number of log partitions. Called before the lease is renewed, so that it lapses while the log is
        unavailable."""
        try:
            return await self._bus.partitions()
        except BusUnavailable:
            await self._release_all_if_in_doubt()
            raise

    def _is_stalled(self) -> bool:
        """Return whether a recorder completes no rounds and the store does not answer it.

        Each partition has a tick to settle every few seconds. A store that answers but fails at one entry would fail for other
        instances too, so giving up all partitions would not help.
        """
        now, longest_sec = self._clock.monotonic(), 2 * self._leases.ttl_sec
        return any(
            each.loop.age_sec() > longest_sec and now - each.recorder.answered_at > longest_sec
            for each in self._running.values()
        )

    async def _give_up(self) -> None:
        log.warning("giving up the lease", reason="no completed round with the store")
        self._joined = False
        await self._leases.leave()
        await self._release_all()

    async def _renew(self) -> bool:
        try:
            alive = await self._leases.renew()
        except LeasesUnavailable:
            await self._release_all_if_in_doubt()
            raise
        if not alive:
            log.warning("lease lapsed")
            await self._release_all()
            self._joined = False
        return alive

    async def _release_all_if_in_doubt(self) -> None:
        if self._clock.monotonic() - self._renewed_at > self._leases.ttl_sec:
            await self._release_all()

    async def _release_all(self) -> None:
        for partition in list(self._running):
            await self._release(partition)

    async def _start(self, partition: int) -> None:
        recorder = self._recorder_of(partition)
        await recorder.open()
        loop = Loop(f"recorder-{partition}", recorder, self._clock, every(0), stuck_after_sec=30)
        tasks = [
            asyncio.create_task(loop.run(), name=loop.name),
            asyncio.create_task(self._tick(recorder), name=f"ticks-{partition}"),
        ]
        for task in tasks:
            task.add_done_callback(_retrieve_error)
        self._running[partition] = _RunningRecorder(recorder, loop, tasks)

    async def _tick(self, recorder: Recorder) -> None:
        while True:
            try:
                await recorder.tick_forever()
            except Unavailable as error:
                log.warning("tick failed", partition=recorder.partition, error=error.detail)
                await self._clock.sleep(0.5)

    async def _release(self, partition: int) -> None:
        running = self._running.pop(partition)
        await stop([task for task in running.tasks if not task.done()])
        await running.recorder.finish_batch()

    async def _drop_ended(self) -> None:
        for partition, running in list(self._running.items()):
            ended = next((task for task in running.tasks if task.done()), None)
            if ended is None:
                continue
            error = ended.exception()
            running.tasks.remove(ended)
            await self._release(partition)
            if not isinstance(error, StaleEpoch):
                raise error or NoondayError(f"the recorder of log partition {partition} ended without an error")
            log.warning("checkpoint moved by another recorder; releasing partition", partition=partition)


@dataclass(frozen=True)
class _RunningRecorder:
    """A recorder and its tasks: its loop and its ticks."""

    recorder: Recorder
    loop: Loop
    tasks: list[asyncio.Task[None]]


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Retrieve the error of an ended task, so that asyncio does not log it. The next round of the group handles it."""
    if not task.cancelled():
        task.exception()
