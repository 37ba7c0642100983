"""Runs that may start as soon as there is a slot."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from noonday.worker.run import Run


class Ready:
    """Of each tenant in the order they came; tenants take turns. So whoever has one run to start does not wait for all that a
    tenant with very many has had handed out ahead. How much each of them has handed out is up to the scheduler."""

    __slots__ = ("_by_tenant", "_count", "_turns")

    def __init__(self) -> None:
        self._by_tenant: dict[str, deque[Run]] = {}
        self._turns: deque[str] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Run]:
        for queue in self._by_tenant.values():
            yield from queue

    def append(self, run: Run) -> None:
        tenant = run.dispatch.tenant
        queue = self._by_tenant.get(tenant)
        if queue is None:
            self._by_tenant[tenant] = deque((run,))
            self._turns.append(tenant)
        else:
            queue.append(run)
        self._count += 1

    def extend(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.append(run)

    def take(self, count: int) -> list[Run]:
        """The next so many, or as many as there are."""
        return [self._take() for _ in range(min(count, self._count))]

    def put_back(self, runs: Sequence[Run]) -> None:
        """They were taken and come first again."""
        for run in reversed(runs):
            tenant = run.dispatch.tenant
            queue = self._by_tenant.get(tenant)
            if queue is None:
                self._by_tenant[tenant] = deque((run,))
                self._turns.appendleft(tenant)
            else:
                queue.appendleft(run)
        self._count += len(runs)

    def clear(self) -> None:
        self._by_tenant.clear()
        self._turns.clear()
        self._count = 0

    def _take(self) -> Run:
        tenant = self._turns.popleft()
        queue = self._by_tenant[tenant]
        run = queue.popleft()
        if queue:
            self._turns.append(tenant)
        else:
            del self._by_tenant[tenant]
        self._count -= 1
        return run
