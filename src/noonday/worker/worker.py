"""A worker: takes, claims, checks and starts dispatches, runs their handlers, and reports.

`Worker` composes one object per concern. The package docstring describes the steps; each has its own module.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial

from noonday.crypto.keyring import Keyring
from noonday.model.handler import Handler
from noonday.model.ids import WorkerId, new_worker_id
from noonday.ports.breakers import Breakers
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.completions import Completions
from noonday.ports.signals import Signals
from noonday.ports.throttles import Throttles
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from noonday.worker.abandoned import Abandoned
from noonday.worker.acks import Acks
from noonday.worker.active import ActiveRuns
from noonday.worker.announcing import StartAnnouncer
from noonday.worker.backlog import Backlog
from noonday.worker.capacity import Capacity
from noonday.worker.claims import Claims
from noonday.worker.closing import OrderlyStop
from noonday.worker.connectivity import Connectivity
from noonday.worker.control import ControlLoop
from noonday.worker.deadlines import Deadlines
from noonday.worker.ended import EndedRuns
from noonday.worker.enqueueing import Enqueueing
from noonday.worker.heartbeats import Heartbeats
from noonday.worker.hosts import Hosts
from noonday.worker.identity import new_identity
from noonday.worker.membership import Membership
from noonday.worker.options import WorkerOptions, runnable_concurrency
from noonday.worker.outbox import Outbox
from noonday.worker.parked import ParkedDispatches
from noonday.worker.pre_start_check import PreStartCheck
from noonday.worker.remote_handlers import RemoteHandlers
from noonday.worker.reporting import Reporter
from noonday.worker.retry_breaker import RetryBreaker
from noonday.worker.revocations import Revocations
from noonday.worker.rounds import CLOSING_POLL_SEC, Rounds
from noonday.worker.run import timeout_of
from noonday.worker.sharing import SlotShares
from noonday.worker.starting import Starter
from noonday.worker.taking import Taker
from noonday.worker.throttling import EndpointThrottle


class Worker:
    """Runs the handlers of some pools, from `open` to `close`. After a stall it continues under a new identity."""

    def __init__(
        self,
        *,
        handlers: Mapping[tuple[str, str], Handler],
        bus: Bus,
        signals: Signals,
        breakers: Breakers,
        throttles: Throttles,
        clock: Clock,
        keyring: Keyring,
        metrics: Metrics,
        tracing: Tracing,
        options: WorkerOptions,
        handlers_loop: asyncio.AbstractEventLoop,
        completions: Completions | None = None,
        remote: RemoteHandlers | None = None,
        enqueueing: Enqueueing | None = None,
        new_id: Callable[[], WorkerId] = new_worker_id,
    ) -> None:
        """Must be called on the control loop. Coroutine handlers run on `handlers_loop`, preferably in another thread.

        `remote`: handlers of remote workers, in place of `handlers`; the control loop is then `handlers_loop`, too.
        """
        handlers = dict(handlers) if remote is None else remote.infos
        remote_runs = remote.runs if remote is not None else None
        shares = SlotShares(options.concurrency, options.shares, clock)
        options = replace(options, concurrency=runnable_concurrency(options, handlers))
        pools = list(options.concurrency)
        retry_breaker = RetryBreaker(breakers, clock, options.retry_breaker_min_runs_per_minute)
        throttle = EndpointThrottle(throttles, clock, timeout_of)
        outbox, rounds, parked = Outbox(bus, clock), Rounds(clock), ParkedDispatches(clock)

        # Runs
        ended = EndedRuns(clock)
        hosts = Hosts(
            handlers=handlers,
            options=options,
            clock=clock,
            keyring=keyring,
            tracing=tracing,
            handlers_loop=handlers_loop,
            on_ended=ended.add_from_host,
            remote=remote_runs,
            enqueueing=enqueueing,
        )
        capacity = Capacity(options, hosts.mixed_pools, clock, remote_runs.demand if remote_runs else None)
        active = ActiveRuns(hosts, capacity, ended, parked, clock, metrics, Abandoned(options.max_abandoned))

        # Identity and servers
        membership = Membership(
            bus,
            clock,
            options.concurrency,
            handlers,
            partial(new_identity, new_id, completions, keyring, clock, options.result_limit),
        )
        connectivity = Connectivity(signals, outbox, membership, clock, options)
        claims = Claims(bus, signals, connectivity, membership, active, parked, clock)
        acks = Acks(bus, signals, connectivity, membership, parked, throttle)

        # Take, claim and wait
        backlog = Backlog(pools, capacity, claims, ended, membership, rounds)
        find = remote.find if remote is not None else lambda dispatch: handlers.get((dispatch.pool, dispatch.handler))
        self._taker = Taker(
            find, pools, bus, membership, connectivity, claims, parked, capacity, backlog, rounds, clock
        )

        # Check and run
        check = PreStartCheck(signals, connectivity, claims, capacity, ended, retry_breaker, throttle, clock, metrics)
        self._announcer = StartAnnouncer(bus, hosts, claims, ended, acks, clock)
        self._starter = Starter(
            backlog, check, self._announcer, active, capacity, shares, claims, connectivity, ended, rounds, clock
        )

        # Report
        self._reporter = Reporter(
            bus, outbox, ended, active, acks, capacity, shares, retry_breaker, throttle, rounds, clock, keyring, metrics
        )
        heartbeats = Heartbeats(membership, active.abandoned, outbox, self._reporter, clock, keyring, options.beat_sec)

        # Control and stop
        self._control = ControlLoop(
            active,
            ended,
            hosts,
            self._starter,
            parked,
            membership,
            connectivity,
            Deadlines(active, options.cancel_grace_sec, remote_runs.lease_sec if remote_runs else 0.0),
            Revocations(signals, connectivity, active),
            heartbeats,
            self._reporter,
            acks,
            retry_breaker,
            throttle,
            clock,
            metrics,
        )
        self._stop = OrderlyStop(
            rounds,
            self._starter,
            active,
            ended,
            self._reporter,
            acks,
            heartbeats,
            membership,
            clock,
            options.cancel_grace_sec,
        )
        self._is_remote = remote is not None
        self._options = options
        self._hosts = hosts
        self._clock = clock
        self._active = active
        self._capacity = capacity
        self._backlog = backlog
        self._membership = membership
        self._connectivity = connectivity
        self._rounds = rounds
        self._metrics = metrics

    @property
    def id(self) -> WorkerId:
        """The id of the current identity. A worker that stalled continues under another one."""
        return self._membership.id

    @property
    def pools(self) -> Mapping[str, int]:
        """The number of handlers that can run at once, by pool."""
        return self._options.concurrency

    @property
    def has_runs(self) -> bool:
        """True if a run that is not abandoned has not ended."""
        return bool(self._active.not_ended())

    @property
    def is_announcing(self) -> bool:
        """True if runs wait until the log has their start."""
        return self._announcer.is_announcing

    @property
    def needs_successor(self) -> bool:
        """True if so many abandoned runs continue here that another process should take over."""
        return self._active.abandoned.is_full

    async def open(self) -> None:
        """Join the pools and register the metrics. Raises BusUnavailable."""
        await self._membership.join()
        self._connectivity.note_round()
        for pool, slots in self._options.concurrency.items():
            self._metrics.watch_slots(pool, slots, partial(self._active.busy, pool))
        if not self._is_remote:  # its abandoned runs keep no slot, and another worker of the process shows its own
            self._metrics.abandoned_now.set_function(lambda: len(self._active.abandoned))

    async def greet(self) -> None:
        """Announce the handlers again, because a remote worker has named more. Raises BusUnavailable."""
        await self._membership.greet()

    def loops(self) -> dict[str, Coroutine[None, None, None]]:
        """Return the loops of the worker by name. The caller runs each as a task."""
        return {
            "take": self._taker.run_forever(),
            "start": self._starter.run_forever(),
            "announce": self._announcer.run_forever(),
            "report": self._reporter.run_forever(),
            "watch": self._control.run_forever(),
        }

    async def take_once(self, wait_sec: float) -> int:
        """Take as many dispatches as there is room for, and claim them. Returns their number. A new identity joins first."""
        return await self._taker.take_once(wait_sec)

    async def start_once(self) -> float:
        """Start the runs that are due and have a slot. Returns the seconds until more may be due."""
        return await self._starter.start_once()

    async def announce_once(self) -> int:
        """Report the starts of runs that may have run before, then start them. Returns their number. Raises BusUnavailable."""
        return await self._announcer.announce_once()

    async def watch_once(self) -> None:
        """Run one round of the control loop: deadlines, revocations, shared breakers, start reports, heartbeats and acks."""
        await self._control.watch_once()

    async def report_once(self) -> None:
        """Send all reports, and ack their dispatches in the signals."""
        await self._reporter.report_once()

    async def finish_all(self) -> int:
        """Wait until all started runs have ended, and report them. Returns how many runs were reported."""
        return await self._reporter.finish_all()

    async def stop_taking(self) -> None:
        """Take and start nothing more, once the rounds under way have ended."""
        await self._rounds.stop()

    async def close(self, drain_sec: float | None = None) -> None:
        """Let runs finish within the drain time, interrupt the others, and report.

        An interruption uses up no attempt. A run that ignores its interruption is abandoned. The method returns within the drain
        time, the cancel grace and FINAL_REPORT_SEC, even if servers are unavailable or handlers do not end. If the bus does not
        accept the last reports, a recorder marks this worker and its runs as lost.
        """
        drain_sec = self._options.drain_sec if drain_sec is None else drain_sec
        until = self._clock.monotonic() + drain_sec + self._options.cancel_grace_sec
        await self._stop.close(drain_sec)
        while self._hosts.pending_hooks and self._clock.monotonic() < until:
            await self._clock.sleep(CLOSING_POLL_SEC)
        self.abandon()

    async def retire(self) -> None:
        """Take nothing more, return what has not started, and leave the pools. Started runs continue."""
        await self._stop.retire()

    def abandon(self) -> None:
        """Close threads and processes without reporting."""
        self._hosts.close()

    def live(self) -> bool:
        """Return whether reports can reach the log. False if the log answers and has refused all reports for MAX_REFUSED_SEC.

        A log that does not answer at all is no reason to restart: running handlers and unsent reports would be lost.
        """
        return self._reporter.can_report()

    def reasons_not_ready(self) -> list[str]:
        """Return the reasons why this worker is not ready."""
        reasons = self._connectivity.reasons_not_ready()
        abandoned = self._active.abandoned
        if abandoned.is_full:
            reasons.append(
                f"{len(abandoned)} abandoned runs have not ended, {abandoned.limit} at most are replaced "
                "(worker.max_abandoned): make their handlers check ctx.cancelled, and restart the worker"
            )
        return reasons
