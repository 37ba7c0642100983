"""Runs that are due and wait for a slot."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from noonday.model.firing import LANES
from noonday.worker.run import Run

_Queue = tuple[deque[Run], ...]
"""The runs of a tenant by priority, each lane in order of due time."""


class ReadyRuns:
    """A queue of runs that tenants share by weight. Within a tenant, runs are ordered by priority and then by due time.

    So a tenant with one run does not wait for all runs of a tenant that had many dispatched before.
    """

    __slots__ = ("_by_tenant", "_count", "_serial", "_turns", "_virtual_time")

    def __init__(self) -> None:
        self._by_tenant: dict[str, _Queue] = {}
        self._turns: list[tuple[float, int, str]] = []
        """A heap of (virtual time of the next turn, serial number, tenant). A tenant of weight 2 has two turns in the time in
        which a tenant of weight 1 has one."""
        self._virtual_time = 0.0
        self._serial = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Run]:
        for queue in self._by_tenant.values():
            for lane in queue:
                yield from lane

    def append(self, run: Run) -> None:
        dispatch = run.dispatch
        queue = self._by_tenant.get(dispatch.tenant)
        if queue is None:
            queue = self._queue_of(dispatch.tenant)
            self._next_turn(run, self._virtual_time)
        lane = queue[dispatch.lane]
        lane.append(run)
        if len(lane) > 1 and lane[-2].dispatch.due_ms > dispatch.due_ms:
            _sort_in(lane)
        self._count += 1

    def _queue_of(self, tenant: str) -> _Queue:
        queue = self._by_tenant[tenant] = tuple(deque() for _ in LANES)
        return queue

    def extend(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.append(run)

    def take(self, count: int) -> list[Run]:
        """Remove and return the next runs, at most `count`."""
        return [self._take() for _ in range(min(count, self._count))]

    def put_back(self, runs: Sequence[Run]) -> None:
        """Put back runs that were taken. They come first among those of the same priority and due time."""
        for run in reversed(runs):
            tenant = run.dispatch.tenant
            queue = self._by_tenant.get(tenant)
            if queue is None:
                queue = self._queue_of(tenant)
                heappush(self._turns, (self._virtual_time, -1, tenant))
            lane = queue[run.dispatch.lane]
            earlier = 0
            while earlier < len(lane) and lane[earlier].dispatch.due_ms < run.dispatch.due_ms:
                earlier += 1
            lane.insert(earlier, run)
        self._count += len(runs)

    def clear(self) -> None:
        self._by_tenant.clear()
        self._turns.clear()
        self._count = 0

    def _take(self) -> Run:
        self._virtual_time, _, tenant = heappop(self._turns)
        queue = self._by_tenant[tenant]
        run = next(lane for lane in queue if lane).popleft()
        following = next((lane[0] for lane in queue if lane), None)
        if following is not None:
            self._next_turn(following, self._virtual_time)
        else:
            del self._by_tenant[tenant]
        self._count -= 1
        return run

    def _next_turn(self, run: Run, after: float) -> None:
        self._serial += 1
        heappush(self._turns, (after + 1 / max(run.dispatch.weight, 1), self._serial, run.dispatch.tenant))


def _sort_in(lane: deque[Run]) -> None:
    """Move the last run of a lane to its position by due time. Runs come nearly in order, so that position is near."""
    run = lane.pop()
    position = len(lane)
    while position and lane[position - 1].dispatch.due_ms > run.dispatch.due_ms:
        position -= 1
    lane.insert(position, run)
