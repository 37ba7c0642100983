"""Runs of handlers in other processes, which take them over HTTP: the host of `Mode.REMOTE`.

A run is offered until a take that names its handler gets it. The take gives it a lease. The handler is entered when the remote
worker says so, and its lease lapses if no heartbeat follows. What happened to a run is its outcome, so the rest of the worker
treats it like any other run: claim, timeout, cancellation, report.

- No take got the run, or it was not started within its lease: it returns to the timeline, at no attempt.
- It was started and its lease lapsed: the remote worker is lost, as a worker is that stops sending heartbeats. This uses up the
  attempt.
- This process ends: its leases end with it, and an answer under one of them is refused.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from noonday.model.errors import Conflict, LeaseLost
from noonday.model.execution import Failure
from noonday.model.job import JobSpec
from noonday.model.message import Dispatch
from noonday.ports.clock import Clock
from noonday.worker.context import Cancelled, Snooze
from noonday.worker.process import RemoteError
from noonday.worker.run import INTERRUPTED, LeaseLapsed

if TYPE_CHECKING:
    from noonday.worker.run import Run

UNTAKEN_SEC = 2.0
"""Seconds that a run is offered before it returns to the timeline: its remote workers are busy or gone."""
UNTAKEN_WAIT_SEC = 5.0
"""Seconds that a run which nobody took waits on the timeline."""
MAX_TAKES = 1_000
"""Maximum number of requests of one process that wait for runs."""
MAX_LEASES_OF_WORKER = 100
"""Maximum number of runs that one remote worker has at a time."""
MAX_TAKEN_BYTES = 4_000_000
"""A response to a take has at least one run, and no further ones once their payloads have this many bytes."""
MAX_ENDED = 10_000
"""Number of ended leases that are remembered, so that a repeated answer is recognized."""

Offers = dict[tuple[str, str, str], deque["Lease"]]
"""Runs that wait for a take, by tenant, pool and handler."""


@dataclass(frozen=True)
class RemoteWorker:
    """A process that takes runs: its tenant, and the name that it gives itself."""

    tenant: str
    name: str


@dataclass(eq=False)
class Lease:
    """A run that is offered, or that a remote worker has until its lease lapses."""

    run: "Run"
    payload: bytes
    id: str
    ended: "asyncio.Future[bytes | None]"
    lapses_at: float
    worker: RemoteWorker | None = None
    """None while the run is offered."""
    is_started: bool = False
    cancel_reason: str | None = None

    @property
    def dispatch(self) -> Dispatch:
        return self.run.dispatch

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.dispatch.tenant, self.dispatch.pool, self.dispatch.handler)

    def end(self, error: Exception) -> None:
        """End the run with an error, unless it has ended."""
        if not self.ended.done():
            self.ended.set_exception(error)


@dataclass(eq=False)
class _Take:
    """A request for runs that waits."""

    worker: RemoteWorker
    pool: str
    handlers: frozenset[str]
    limit: int
    leases: list[Lease] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, lease: Lease) -> bool:
        tenant, pool, handler = lease.key
        matches = tenant == self.worker.tenant and pool == self.pool and handler in self.handlers
        return matches and len(self.leases) < self.limit and self._has_space()

    def _has_space(self) -> bool:
        return sum(len(lease.payload) for lease in self.leases) < MAX_TAKEN_BYTES


class RemoteRuns:
    """Offers runs to remote workers, leases them, and hears how they end. For one event loop."""

    def __init__(self, clock: Clock, instance: str, lease_sec: float) -> None:
        """`instance` names this process in the ids of leases."""
        self._clock = clock
        self._instance = instance
        self.lease_sec = lease_sec
        self._offers: Offers = {}
        self._takes: list[_Take] = []
        self._leases: dict[str, Lease] = {}
        self._ended: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """(tenant, answer) of leases that were answered, by id."""
        self._is_draining = False

    # -- for the host --------------------------------------------------------------------------------------------------

    async def run(self, run: "Run", payload: bytes) -> bytes | None:
        """Offer a run and wait for its end. Returns its encoded result.

        If the awaiting task is cancelled, a run that has not started ends at once. The remote worker of a started run learns the
        reason from its next heartbeat. Raises RemoteError, Snooze, Cancelled or LeaseLapsed.
        """
        assert run.token is not None
        id_ = f"{self._instance}.{run.dispatch.execution_id}.{int(run.token)}"
        ended = asyncio.get_running_loop().create_future()
        lease = Lease(run, payload, id_, ended, self._clock.monotonic() + UNTAKEN_SEC)
        self._offer(lease)
        try:
            return await self._end_of(lease)
        finally:
            self._forget(lease)

    def abandon(self, run: "Run") -> None:
        """End a run that was asked to end and did not: its remote worker has lost its lease."""
        for lease in [each for each in self._leases.values() if each.run is run]:
            lease.end(Cancelled(run.stop_reason or INTERRUPTED))

    def demand(self, pool: str) -> int:
        """Return how many runs of a pool are of use here: those out or offered, and those that takes wait for."""
        out = sum(1 for lease in self._leases.values() if lease.dispatch.pool == pool)
        offered = sum(len(offers) for (_, its_pool, _), offers in self._offers.items() if its_pool == pool)
        wanted = sum(take.limit - len(take.leases) for take in self._takes if take.pool == pool)
        return out + offered + wanted

    # -- for remote workers --------------------------------------------------------------------------------------------

    async def take(
        self,
        worker: RemoteWorker,
        pool: str,
        handlers: frozenset[str],
        limit: int,
        wait_sec: float,
        gone: asyncio.Event,
    ) -> list[Lease]:
        """Return up to `limit` runs of these handlers. Waits up to `wait_sec` for the first.

        `gone` is set when the remote worker has closed the connection: what it got is offered to others. Raises Conflict.
        """
        out = sum(1 for lease in self._leases.values() if lease.worker == worker)
        if out >= MAX_LEASES_OF_WORKER:
            raise Conflict(
                f"worker {worker.name!r} has {out} executions, {MAX_LEASES_OF_WORKER} at most: complete some before it takes more"
            )
        if len(self._takes) >= MAX_TAKES:
            raise Conflict(
                f"{MAX_TAKES} requests wait for executions in this process: use more processes, or fewer workers"
            )
        take = _Take(worker, pool, handlers, min(limit, MAX_LEASES_OF_WORKER - out))
        self._fill(take)
        if not take.leases and wait_sec > 0 and not self._is_draining:
            await self._wait(take, wait_sec, gone)
        if gone.is_set():
            for lease in take.leases:
                self._withdraw(lease)
            return []
        return take.leases

    def start(self, tenant: str, lease_id: str) -> None:
        """Note that the handler of a run is entered. Raises LeaseLost, and Conflict if the run was asked to end meanwhile."""
        lease = self._find(tenant, lease_id)
        if not lease.is_started:
            lease.is_started = True
            lease.run.enter(self._clock.now_ms(), self._clock.monotonic())
        self._extend(lease)

    def heartbeat(self, tenant: str, lease_id: str, progress: Any) -> str | None:
        """Extend a lease and keep the progress. Returns why the handler must end, or None. Raises LeaseLost."""
        lease = self._find(tenant, lease_id)
        if not lease.is_started:
            raise Conflict("the execution was not started: call start before the handler is entered")
        assert lease.run.context is not None
        lease.run.context.heartbeat(progress)
        self._extend(lease)
        if lease.cancel_reason is not None:
            lease.run.context._observed = True
        return lease.cancel_reason

    def complete(self, tenant: str, lease_id: str, result: bytes | None, enqueue: Sequence[JobSpec] = ()) -> None:
        """End a run with a result, and with jobs to create. The same answer may be repeated.

        Raises LeaseLost, and the errors of `Children.set_all`.
        """
        if enqueue and self._ended.get(lease_id) != (tenant, "complete"):
            _set_children(self._find(tenant, lease_id), enqueue)
        if lease := self._find_answered(tenant, lease_id, "complete"):
            lease.ended.set_result(result)

    def fail(self, tenant: str, lease_id: str, failure: Failure, retry_after_sec: float, *, is_cancelled: bool) -> None:
        """End a run with a failure, or as cancelled if it was asked to end. Raises LeaseLost, and InvalidInput."""
        error = RemoteError(failure, retry_after_sec)
        if lease := self._find_answered(tenant, lease_id, "fail"):
            lease.end(Cancelled(lease.cancel_reason or "") if is_cancelled and lease.cancel_reason else error)

    def snooze(self, tenant: str, lease_id: str, seconds: float) -> None:
        """Run again in some seconds. This uses up no attempt. Raises LeaseLost, and InvalidInput."""
        error = Snooze(seconds)
        if lease := self._find_answered(tenant, lease_id, "snooze"):
            lease.end(error)

    # -- for the role --------------------------------------------------------------------------------------------------

    def expire(self) -> int:
        """End what nobody took, and what lapsed. Returns their number."""
        now, count = self._clock.monotonic(), 0
        for lease in [*self._leases.values(), *(each for offers in self._offers.values() for each in offers)]:
            if lease.lapses_at > now or lease.ended.done():
                continue
            count += 1
            if lease.worker is None:
                lease.end(Snooze(UNTAKEN_WAIT_SEC))
            elif lease.is_started:
                lease.end(
                    LeaseLapsed(f"remote worker {lease.worker.name!r} sent no heartbeat for {self.lease_sec:g} s")
                )
            else:
                self._interrupt(lease)
        return count

    def drain(self) -> None:
        """Answer all takes, and return the runs that have not started."""
        self._is_draining = True
        for take in self._takes:
            take.arrived.set()
        for lease in [*self._leases.values(), *(each for offers in self._offers.values() for each in offers)]:
            if not lease.is_started:
                self._interrupt(lease)

    def is_used(self, pool: str) -> bool:
        """Return whether a take of the pool waits, or a run of it is out."""
        out = any(lease.dispatch.pool == pool for lease in self._leases.values())
        return out or any(take.pool == pool for take in self._takes)

    @property
    def started(self) -> int:
        """Number of runs whose handlers are entered."""
        return sum(lease.is_started for lease in self._leases.values())

    # -- details -------------------------------------------------------------------------------------------------------

    async def _end_of(self, lease: Lease) -> bytes | None:
        while True:
            try:
                return await asyncio.shield(lease.ended)
            except asyncio.CancelledError:
                reason = lease.run.stop_reason
                if reason is None or not lease.is_started or lease.cancel_reason is not None:
                    raise
                lease.cancel_reason = reason  # the next heartbeat tells the remote worker

    def _offer(self, lease: Lease) -> None:
        if self._is_draining:
            self._interrupt(lease)
            return
        for take in self._takes:
            if take.wants(lease):
                self._grant(lease, take)
                take.arrived.set()
                return
        self._offers.setdefault(lease.key, deque()).append(lease)

    def _fill(self, take: _Take) -> None:
        for handler in take.handlers:
            offers = self._offers.get((take.worker.tenant, take.pool, handler))
            while offers and take.wants(offers[0]):
                self._grant(offers.popleft(), take)

    def _grant(self, lease: Lease, take: _Take) -> None:
        lease.worker = take.worker
        lease.lapses_at = self._clock.monotonic() + self.lease_sec
        self._leases[lease.id] = lease
        take.leases.append(lease)

    def _withdraw(self, lease: Lease) -> None:
        """Offer a run again whose remote worker went away before it got it."""
        if self._leases.pop(lease.id, None) is not None and not lease.ended.done():
            lease.worker = None
            lease.lapses_at = self._clock.monotonic() + UNTAKEN_SEC
            self._offer(lease)

    async def _wait(self, take: _Take, wait_sec: float, gone: asyncio.Event) -> None:
        self._takes.append(take)
        leaving = asyncio.ensure_future(gone.wait())
        leaving.add_done_callback(lambda _: take.arrived.set())
        try:
            await self._clock.wait_for(take.arrived, wait_sec)
        finally:
            leaving.cancel()
            self._takes.remove(take)

    def _interrupt(self, lease: Lease) -> None:
        """Return a run that has not started to the timeline, at no attempt."""
        lease.run.stop_reason = lease.run.stop_reason or INTERRUPTED
        lease.end(Cancelled(lease.run.stop_reason))

    def _extend(self, lease: Lease) -> None:
        lease.lapses_at = self._clock.monotonic() + self.lease_sec

    def _find(self, tenant: str, lease_id: str) -> Lease:
        lease = self._leases.get(lease_id)
        if lease is None or lease.dispatch.tenant != tenant or lease.ended.done():
            raise LeaseLost(_why_lost(lease_id, self._instance))
        return lease

    def _find_answered(self, tenant: str, lease_id: str, answer: str) -> Lease | None:
        """Return the lease that this answer ends, or None if the same answer ended it before."""
        if self._ended.get(lease_id) == (tenant, answer):
            return None
        lease = self._find(tenant, lease_id)
        if not lease.is_started:
            raise Conflict("the execution was not started: call start before the handler is entered")
        self._ended[lease_id] = (tenant, answer)
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
        return lease

    def _forget(self, lease: Lease) -> None:
        self._leases.pop(lease.id, None)
        offers = self._offers.get(lease.key)
        if offers is not None:
            if lease in offers:
                offers.remove(lease)
            if not offers:
                del self._offers[lease.key]
        lease.ended.cancel()


def _set_children(lease: Lease, enqueue: Sequence[JobSpec]) -> None:
    assert lease.run.context is not None
    lease.run.context._open_children().set_all(enqueue)


def _why_lost(lease_id: str, instance: str) -> str:
    if lease_id.partition(".")[0] != instance:
        return (
            "this process did not give this lease: the process that did has ended, or the load balancer does not send all "
            "requests of a worker to one process. Stop the handler: the execution is dispatched again"
        )
    return "the lease has lapsed or has ended: stop the handler, and discard its result"


def result_of(value: Any) -> bytes | None:
    """Return a result as JSON; None if there is none."""
    return None if value is None else msgspec.json.encode(value)
