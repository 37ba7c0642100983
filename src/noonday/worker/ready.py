"""Runs that may start as soon as there is a slot."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from noonday.worker.run import Run

_Queue = list[tuple[int, int, int, Run]]
"""A heap of (lane, due time, serial number, run)."""


class Ready:
    """The runs of each tenant by priority and then due time; tenants take turns, as many as their weights say. So a tenant with
    one run to start does not wait for all that a tenant with very many has had handed out ahead."""

    __slots__ = ("_by_tenant", "_count", "_serial", "_turns", "_virtual")

    def __init__(self) -> None:
        self._by_tenant: dict[str, _Queue] = {}
        self._turns: list[tuple[float, int, str]] = []
        """When the next turn of each tenant is, in a time of their own: one of weight 2 has two turns where others have one."""
        self._virtual = 0.0
        self._serial = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Run]:
        for queue in self._by_tenant.values():
            for entry in queue:
                yield entry[-1]

    def append(self, run: Run) -> None:
        dispatch = run.dispatch
        self._serial += 1
        entry = (dispatch.lane, dispatch.due_ms, self._serial, run)
        queue = self._by_tenant.get(dispatch.tenant)
        if queue is None:
            self._by_tenant[dispatch.tenant] = [entry]
            self._next_turn(run, self._virtual)
        else:
            heappush(queue, entry)
        self._count += 1

    def extend(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.append(run)

    def take(self, count: int) -> list[Run]:
        """The next so many, or as many as there are."""
        return [self._take() for _ in range(min(count, self._count))]

    def put_back(self, runs: Sequence[Run]) -> None:
        """They were taken and come before others of their priority and due time again."""
        for at, run in enumerate(runs):
            dispatch = run.dispatch
            entry = (dispatch.lane, dispatch.due_ms, at - len(runs) - self._serial, run)
            queue = self._by_tenant.get(dispatch.tenant)
            if queue is None:
                self._by_tenant[dispatch.tenant] = [entry]
                heappush(self._turns, (self._virtual, -1, dispatch.tenant))
            else:
                heappush(queue, entry)
        self._serial += len(runs)
        self._count += len(runs)

    def clear(self) -> None:
        self._by_tenant.clear()
        self._turns.clear()
        self._count = 0

    def _take(self) -> Run:
        self._virtual, _, tenant = heappop(self._turns)
        queue = self._by_tenant[tenant]
        run = heappop(queue)[-1]
        if queue:
            self._next_turn(queue[0][-1], self._virtual)
        else:
            del self._by_tenant[tenant]
        self._count -= 1
        return run

    def _next_turn(self, run: Run, after: float) -> None:
        self._serial += 1
        heappush(self._turns, (after + 1 / max(run.dispatch.weight, 1), self._serial, run.dispatch.tenant))
