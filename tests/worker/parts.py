"""The parts of a worker, composed as in `Worker`, on a bus and signals that may be away. Handlers run on the test's loop."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.breakers import MemoryBreakers
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.memory.throttles import MemoryThrottles
from noonday.model.claim import ClaimRefused, DispatchRef
from noonday.model.errors import BusUnavailable, SignalsUnavailable
from noonday.model.handler import Handler, Mode
from noonday.model.ids import ExecutionId, WorkerId
from noonday.model.message import Dispatch, LogEntry, Oversized, Token
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from noonday.worker.abandoned import Abandoned
from noonday.worker.acks import Acks
from noonday.worker.active import ActiveRuns
from noonday.worker.announcing import StartAnnouncer
from noonday.worker.backlog import Backlog
from noonday.worker.capacity import Capacity
from noonday.worker.claims import Claims
from noonday.worker.connectivity import Connectivity
from noonday.worker.context import Context
from noonday.worker.ended import EndedRuns
from noonday.worker.heartbeats import Heartbeats
from noonday.worker.hosts import Hosts
from noonday.worker.identity import Identity
from noonday.worker.membership import Membership
from noonday.worker.options import WorkerOptions
from noonday.worker.outbox import Outbox
from noonday.worker.parked import ParkedDispatches
from noonday.worker.pre_start_check import PreStartCheck
from noonday.worker.reporting import Reporter
from noonday.worker.retry_breaker import RetryBreaker
from noonday.worker.rounds import Rounds
from noonday.worker.run import Run, timeout_of
from noonday.worker.sharing import SlotShares
from noonday.worker.starting import Starter
from noonday.worker.taking import Taker
from noonday.worker.throttling import EndpointThrottle
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS
from tests.support.factories import dispatch as any_dispatch

POOL = "p"
LAPSE_SEC = 10.0


class PartBus(MemoryBus):
    """A bus that may be unavailable, and that notes processed dispatches."""

    is_away = False

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.done: list[Dispatch] = []

    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        if self.is_away:
            raise BusUnavailable("away")
        return await super().report(partition, entries)

    async def report_durably(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        """Count as applied at once."""
        return await self.report(partition, entries)

    async def mark_processed(self, worker: WorkerId, dispatches: Sequence[Dispatch]) -> None:
        self.done += dispatches

    async def entries(self) -> list[LogEntry]:
        return list((await self.read(0, 0, 1_000, 0)).entries)


class PartSignals(MemorySignals):
    """Signals that may be unavailable, whose claims lapse, and that note acks."""

    is_away = False

    def __init__(self) -> None:
        super().__init__()
        self.acked: list[DispatchRef] = []
        self.refused: dict[ExecutionId, ClaimRefused] = {}
        """Answers to claims, by execution."""

    @property
    def lapse_sec(self) -> float:
        return LAPSE_SEC

    async def claim(self, worker: WorkerId, dispatches: Sequence[Dispatch], now_ms: int) -> list[Token | ClaimRefused]:
        self._check()
        answers = await super().claim(worker, dispatches, now_ms)
        return [self.refused.get(each.execution_id, found) for each, found in zip(dispatches, answers, strict=True)]

    async def ack(self, dispatches: Sequence[DispatchRef]) -> None:
        self._check()
        self.acked += dispatches

    async def pre_start_check(self, pool: str, dispatches: Sequence[Dispatch]) -> Mapping[ExecutionId, str] | None:
        self._check()
        return await super().pre_start_check(pool, dispatches)

    async def revoked(self, pool: str, executions: Sequence[DispatchRef]) -> Mapping[ExecutionId, str]:
        self._check()
        return await super().revoked(pool, executions)

    async def has_generation(self, pool: str) -> bool:
        self._check()
        return await super().has_generation(pool)

    def _check(self) -> None:
        if self.is_away:
            raise SignalsUnavailable("away")


async def quick(ctx: Context) -> None:
    """Return at once."""


async def until_cancelled(ctx: Context) -> None:
    await asyncio.get_running_loop().create_future()


class Parts:
    """All parts of one worker with two slots in pool POOL. `options` are those of the worker."""

    def __init__(self, signals: PartSignals | None = None, **options: Any) -> None:
        self.clock = ManualClock(NOW_MS - 1_000)
        self.clock.advance(1)
        clock, keyring, self.metrics = self.clock, Keyring.generate(), Metrics()
        self.options = WorkerOptions(**{"concurrency": {POOL: 2}, **options})
        pools = list(self.options.concurrency)
        self.handlers = {
            (pool, call.__name__): Handler(call.__name__, pool, call, Mode.ASYNC)
            for call in (quick, until_cancelled)
            for pool in pools
        }
        self.bus, self.signals = PartBus(clock), signals or PartSignals()
        self.outbox, self.rounds, self.parked = Outbox(self.bus, clock), Rounds(clock), ParkedDispatches(clock)
        self.retry_breaker = RetryBreaker(MemoryBreakers(), clock)
        self.throttle = EndpointThrottle(MemoryThrottles(), clock, timeout_of)
        self.shares = SlotShares(self.options.concurrency, self.options.shares, clock)
        self.ended = EndedRuns(clock)
        self.hosts = Hosts(
            handlers=self.handlers,
            options=self.options,
            clock=clock,
            keyring=keyring,
            tracing=Tracing(None),
            handlers_loop=asyncio.get_running_loop(),
            on_ended=self.ended.add_from_host,
        )
        self.capacity = Capacity(self.options, self.hosts.mixed_pools, clock)
        self.active = ActiveRuns(
            self.hosts,
            self.capacity,
            self.ended,
            self.parked,
            clock,
            self.metrics,
            Abandoned(self.options.max_abandoned),
        )
        self._made = 0
        self.membership = Membership(self.bus, clock, self.options.concurrency, self.handlers, self._new_identity)
        self.connectivity = Connectivity(self.signals, self.outbox, self.membership, clock, self.options)
        bus, connectivity, membership, parked = self.bus, self.connectivity, self.membership, self.parked
        self.claims = Claims(bus, self.signals, connectivity, membership, self.active, parked, clock)
        self.acks = Acks(bus, self.signals, connectivity, membership, parked, self.throttle)
        self.backlog = Backlog(pools, self.capacity, self.claims, self.ended, self.membership, self.rounds)
        self.taker = Taker(
            lambda dispatch: self.handlers.get((dispatch.pool, dispatch.handler)),
            pools,
            self.bus,
            self.membership,
            self.connectivity,
            self.claims,
            self.parked,
            self.capacity,
            self.backlog,
            self.rounds,
            clock,
        )
        self.check = PreStartCheck(
            self.signals,
            self.connectivity,
            self.claims,
            self.capacity,
            self.ended,
            self.retry_breaker,
            self.throttle,
            clock,
            self.metrics,
        )
        self.announcer = StartAnnouncer(self.bus, self.hosts, self.claims, self.ended, self.acks, clock)
        self.starter = Starter(
            self.backlog,
            self.check,
            self.announcer,
            self.active,
            self.capacity,
            self.shares,
            self.claims,
            self.connectivity,
            self.ended,
            self.rounds,
            clock,
        )
        self.reporter = Reporter(
            self.bus,
            self.outbox,
            self.ended,
            self.active,
            self.acks,
            self.capacity,
            self.shares,
            self.retry_breaker,
            self.throttle,
            self.rounds,
            clock,
            keyring,
            self.metrics,
        )
        self.heartbeats = Heartbeats(
            self.membership, self.active.abandoned, self.outbox, self.reporter, clock, keyring, self.options.beat_sec
        )

    def _new_identity(self) -> Identity:
        self._made += 1
        return Identity(WorkerId(f"worker-{self._made}"))

    async def open(self) -> None:
        """Join the pools, and let dispatches start."""
        for pool in self.options.concurrency:
            await self.signals.begin_generation(pool)
        await self.membership.join()
        self.connectivity.note_round()

    def run(self, handler: str = "quick", *, pool: str = POOL, **fields: Any) -> Run:
        """A run as the worker makes it of a dispatch, due and not claimed."""
        now_ms = self.clock.now_ms()
        made = any_dispatch(
            **{"pool": pool, "handler": handler, "due_ms": now_ms, "fired_ms": now_ms, "payload": None, **fields}
        )
        return Run(made, None, self.handlers.get((pool, handler)), self.membership.identity)

    async def claimed(self, handler: str = "quick", **fields: Any) -> Run:
        """A run that is claimed."""
        (run,) = await self.claims.claim([self.run(handler, **fields)])
        return run

    async def started(self, handler: str = "until_cancelled", **fields: Any) -> Run:
        """A run whose handler is entered."""
        run = await self.claimed(handler, **fields)
        self.backlog.admit([run], self.clock.now_ms())
        await self.starter.start_once()
        while not run.begun_at:
            await asyncio.sleep(0)
        return run
