"""The control side of a worker: takes, claims, checks and starts dispatches, sends heartbeats and reports."""

import asyncio
import contextlib
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush

import structlog

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.claim import ClaimRefused
from noonday.model.errors import NoondayError, SignalsUnavailable
from noonday.model.execution import SPARES_RUNNING, Outcome
from noonday.model.ids import ExecutionId, WorkerId, new_worker_id
from noonday.model.message import Beat, Bye, Dispatch, Hello, LogEntry, Token
from noonday.ports.breakers import Breakers
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.completions import Completions
from noonday.ports.signals import Signals
from noonday.ports.throttles import Throttles
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import should_log, stop
from noonday.runtime.tracing import Tracing
from noonday.worker.abandoned import Abandoned
from noonday.worker.completing import Completing
from noonday.worker.handler import Handler, Mode
from noonday.worker.host import HandlerThread, Host
from noonday.worker.identity import Identity
from noonday.worker.options import WorkerOptions, limit_of, runnable_concurrency
from noonday.worker.outbox import Item, Outbox, beats_of, cut
from noonday.worker.ready import Ready
from noonday.worker.retry_breaker import RetryBreaker, failure_of_delayed
from noonday.worker.run import HEARTBEAT, INTERRUPTED, TIMED_OUT, Run, timeout_of
from noonday.worker.sharing import SlotShares, failure_of_deferred
from noonday.worker.throttling import EndpointThrottle

log = structlog.get_logger("noonday.worker")
REPORT_START_AFTER_SEC = 1.0
"""A run that lasts longer reports its start, a shorter one only its end."""
BLOCKING_STEP_SEC = 1.0
"""A coroutine that keeps its loop for longer is logged as blocking."""
LOOKAHEAD_SEC = 0.02
"""Seconds of work that the handlers' loop may be given beyond its free slots."""
CLAIM_TRUSTED_FRACTION = 0.7
"""The worker trusts a claim for this fraction of its lifetime."""
MAX_SIGNALS_OUTAGE_SEC = 2.0
"""The worker takes nothing more once the signals are unavailable for longer: other workers can claim the dispatches."""
FULL_POOL_RETRY_SEC = 0.005
"""Seconds until a full pool is checked for room again, however long the other pools wait for dispatches."""
PARKED_RETRY_SEC = 1.0
"""Seconds between two tries to claim parked dispatches."""
KILL_CONFIRM_SEC = 0.5
"""Seconds to wait for the death of a process that was killed."""
FINAL_REPORT_SEC = 1.0
"""Seconds that a stopping worker tries to report, beyond the drain time and the cancel grace."""
ROUND_WAIT_SEC = 1.0
"""Seconds that a stopping worker waits for a round of taking or starting to end."""
CLOSING_POLL_SEC = 0.01
MAX_REFUSED_SEC = 60.0
"""Seconds that the log may refuse reports, although it answers, before the worker should be restarted."""
Lane = tuple[str, Mode]
"""A pool and the mode of some of its handlers."""


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
        new_id: Callable[[], WorkerId] = new_worker_id,
    ) -> None:
        """Must be called on the control loop. Coroutine handlers run on `handlers_loop`, preferably in another thread."""
        self._handlers = dict(handlers)
        self._bus = bus
        self._signals = signals
        self._retry_breaker = RetryBreaker(breakers, clock, options.retry_breaker_min_runs_per_minute)
        self._throttle = EndpointThrottle(throttles, clock, timeout_of)
        self._shares = SlotShares(options.concurrency, options.shares, clock)
        self._clock = clock
        self._keyring = keyring
        self._metrics = metrics
        self._tracing = tracing
        self._options = replace(options, concurrency=runnable_concurrency(options, self._handlers))
        self._loop = asyncio.get_running_loop()
        self._plain_loop_thread = self._make_plain_loop_thread(handlers_loop)
        self._host = self._make_host(handlers_loop)
        self._plain_host = self._make_host(self._plain_loop_thread.loop) if self._plain_loop_thread else self._host
        self._mixed_pools = self._find_mixed_pools()
        self._new_id = new_id
        self._completions = completions
        self._identity = self._make_identity()
        self._former_identities: list[Identity] = []
        """Identities that were replaced, until the last run of each is reported."""
        self._leaving: list[WorkerId] = []
        """Former identities that have not left the bus yet."""
        self._waiting: list[tuple[int, int, Run]] = []
        """Runs that wait for their instant: a heap of (due time, serial number, run)."""
        self._ready = {(pool, mode): Ready() for pool in options.concurrency for mode in Mode}
        self._lane_order = list(self._ready)
        """Lanes, least recently served first."""
        self._under_way = dict.fromkeys(Mode, 0)
        """Number of started runs that are not reported yet, by mode."""
        self._unreported = dict.fromkeys(options.concurrency, 0)
        """Number of admitted runs that are not reported yet, by pool."""
        self._active: dict[ExecutionId, Run] = {}
        """Started runs that are not reported yet. A stand-in takes the place of an abandoned run."""
        self._abandoned = Abandoned(options.max_abandoned)
        self._ended: deque[Run] = deque()
        """Runs that have ended and whose reports are not in the outbox yet."""
        self._report_wake = asyncio.Event()
        self._report_lock, self._ack_lock = asyncio.Lock(), asyncio.Lock()
        self._start_wake = asyncio.Event()
        self._taking = True
        self._rounds = 0
        """Number of rounds of claiming or starting that are under way."""
        self._checking: set[Run] = set()
        """Runs in their pre-start check."""
        self._announcing: dict[Run, None] = {}
        """Runs that may start once the log has acknowledged their start."""
        self._announce_wake = asyncio.Event()
        self._parked: list[Dispatch] = []
        """Dispatches that are taken and not claimed: another delivery has the claim, or the signals were unavailable."""
        self._parked_since = 0.0
        self._outbox = Outbox(bus, clock)
        self._refused_since: float | None = None
        """When the log began to answer requests and to refuse reports; None if it accepts them or does not answer."""
        self._unacked: list[Dispatch] = []
        """Dispatches whose start or end is on the log, but that are not acked in the signals yet."""
        self._signals_unavailable_since: float | None = None
        """When the signals became unavailable, by the monotonic clock; None if they are available."""
        self._serial = 0
        self._pace = {pool: _Pace() for pool in options.concurrency}
        self._joined_at = 0.0
        self._last_beat = 0.0
        self._last_round = 0.0

    @property
    def id(self) -> WorkerId:
        """The id of the current identity. A worker that stalled continues under another one."""
        return self._identity.id

    async def open(self) -> None:
        """Join the pools and register the metrics. Raises BusUnavailable."""
        await self._join()
        self._last_round = self._clock.monotonic()
        for pool, slots in self._options.concurrency.items():
            self._metrics.watch_slots(pool, slots, partial(self._busy, pool))
        self._metrics.abandoned_now.set_function(lambda: len(self._abandoned))

    def _make_identity(self) -> Identity:
        name = self._new_id()
        if not self._completions:
            return Identity(name)
        limit = self._options.result_limit
        return Identity(name, Completing(self._completions, name, self._keyring, self._clock, limit))

    async def _join(self) -> None:
        """Register the current identity on the bus and the log. From then on it takes, reports and sends heartbeats.

        Raises BusUnavailable.
        """
        identity = self._identity
        while self._leaving:
            await self._bus.leave(self._leaving[0])
            del self._leaving[0]
        partition = await self._bus.join(identity.id, self._options.concurrency)
        for oversized in await self._bus.report(partition, [self._hello(identity)]):
            await self._bus.report(partition, [cut(oversized)])
        if identity is self._identity:
            identity.partition = partition
            self._joined_at = self._last_beat = self._clock.monotonic()

    def _busy(self, pool: str) -> int:
        return sum(
            run.dispatch.pool == pool and not run.ended_ms and bool(run.begun_at) for run in self._active.values()
        )

    async def close(self, drain_sec: float | None = None) -> None:
        """Let runs finish within the drain time, interrupt the others, and report.

        An interruption uses up no attempt. A run that ignores its interruption is abandoned. The method returns within the drain
        time, the cancel grace and FINAL_REPORT_SEC, even if servers are unavailable or handlers do not end. If the bus does not
        accept the last reports, a recorder marks this worker and its runs as lost.
        """
        drain_sec = self._options.drain_sec if drain_sec is None else drain_sec
        drained_at = self._clock.monotonic() + drain_sec
        deadline = drained_at + self._options.cancel_grace_sec + FINAL_REPORT_SEC
        leaving = asyncio.create_task(self._leave())
        await self.stop_taking()
        self._return_unstarted_runs()
        over = asyncio.Event()
        reporting = asyncio.create_task(self._report_until(over))
        await self._wait_for_runs(drained_at - self._clock.monotonic())
        for run in list(self._active.values()):
            self._request_stop(run, INTERRUPTED)
        await self._wait_for_runs(self._options.cancel_grace_sec)
        # The processes were killed by now; confirming their death takes a moment.
        await self._wait_for_runs(KILL_CONFIRM_SEC, Mode.PROCESS)
        for run in self._not_ended():
            self._abandon(run)
        over.set()
        reported = await self._within(deadline, self._send_byes())
        await self._within(min(deadline, self._clock.monotonic() + FINAL_REPORT_SEC), self._release_and_ack())
        await self._within(deadline, _wait_for(leaving))
        await stop([reporting, leaving])
        if not reported:
            log.warning(
                "stopped without acknowledged reports",
                worker=self.id,
                runs=len(self._active) + len(self._ended),
                note="the recorder marks this worker as lost, which uses up an attempt of each run it had started",
            )
        self.abandon()

    async def retire(self) -> None:
        """Take nothing more, return what has not started, and leave the pools. Started runs continue."""
        await self.stop_taking()
        self._return_unstarted_runs()
        await self._leave()

    @property
    def has_runs(self) -> bool:
        """Whether a run that is not abandoned has not ended."""
        return bool(self._not_ended())

    async def _report_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._report_ended()
            await self._clock.sleep(CLOSING_POLL_SEC)

    async def _wait_for_runs(self, seconds: float, mode: Mode | None = None) -> None:
        """Wait at most `seconds` for all runs (of a mode) to end. Their reports may still be unsent."""
        deadline = self._clock.monotonic() + seconds
        while self._not_ended(mode) and self._clock.monotonic() < deadline:
            await self._clock.sleep(CLOSING_POLL_SEC)

    def _not_ended(self, mode: Mode | None = None) -> list[Run]:
        return [run for run in self._active.values() if not run.ended_ms and mode in (None, run.mode)]

    async def stop_taking(self) -> None:
        """Take and start nothing more, once the rounds under way have ended.

        A claim whose answer nobody reads would keep its dispatch from other workers until it lapses.
        """
        self._taking = False
        self._start_wake.set()
        deadline = self._clock.monotonic() + ROUND_WAIT_SEC
        while self._rounds and self._clock.monotonic() < deadline:
            await self._clock.sleep(CLOSING_POLL_SEC)

    async def _leave(self) -> None:
        """Leave the pools, so that other workers get new dispatches and those that were taken and not claimed at once."""
        for name in (*self._leaving, self.id):
            await self._bus.leave(name)

    async def _send_byes(self) -> None:
        """Send all reports, then a Bye for each identity. No report waits for the signals: they may be unavailable."""
        await self._send_all_reports()
        for identity in (*self._former_identities, self._identity):
            self._enqueue_for(identity, Bye(identity.id, self._clock.now_ms()))
        self._former_identities.clear()
        await self._send_all_reports()

    async def _send_all_reports(self) -> None:
        """Send reports until none is left."""
        while await self._send_ended():
            if self._outbox:
                await self._clock.sleep(self._outbox.wait_sec)

    async def _within(self, deadline: float, work: Coroutine[None, None, None]) -> bool:
        """Run a coroutine until a deadline. Returns whether it completed."""
        task = asyncio.create_task(work)
        waiting = asyncio.create_task(self._clock.sleep(max(0.0, deadline - self._clock.monotonic())))
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        done = task.done()
        await stop([task, waiting])
        return done

    async def finish_all(self) -> int:
        """Wait until all started runs have ended, and report them. Returns how many runs were reported."""
        count = 0
        while self._active or self._ended:
            count += len(self._ended)
            await self._report_ended()
            if self._active:
                await self._report_wake.wait()
                self._report_wake.clear()
        return count

    def abandon(self) -> None:
        """Close threads and processes without reporting."""
        self._host.close()
        if self._plain_loop_thread:
            self._plain_host.close()
            self._plain_loop_thread.close()

    def troubles(self) -> list[str]:
        """Return the reasons why this worker is not ready."""
        reasons = []
        if self._outbox.unavailable_since is not None:
            outage_sec = self._clock.monotonic() - self._outbox.unavailable_since
            reasons.append(f"the log has accepted no report for {outage_sec:.0f} s")
        if not self._identity.has_joined:
            reasons.append("the worker has not joined its pools")
        if self._signals_unavailable_since is not None:
            outage_sec = self._clock.monotonic() - self._signals_unavailable_since
            reasons.append(f"claims and revocations have been unavailable for {outage_sec:.0f} s")
        if self._abandoned.is_full:
            reasons.append(
                f"{len(self._abandoned)} abandoned runs have not ended, {self._abandoned.limit} at most are replaced "
                "(worker.max_abandoned): make their handlers check ctx.cancelled, and restart the worker"
            )
        return reasons

    def live(self) -> bool:
        """Whether reports can reach the log. False if the log answers and has refused all reports for MAX_REFUSED_SEC.

        A log that does not answer at all is no reason to restart: running handlers and unsent reports would be lost.
        """
        since = self._refused_since
        return since is None or self._clock.monotonic() - since < MAX_REFUSED_SEC

    @property
    def is_worn_out(self) -> bool:
        """Whether so many abandoned runs continue here that another process should take over."""
        return self._abandoned.is_full

    @property
    def pools(self) -> Mapping[str, int]:
        """The number of handlers that can run at once, by pool."""
        return self._options.concurrency

    def loops(self) -> dict[str, Coroutine[None, None, None]]:
        """Return the loops of the worker by name. The caller runs each as a task."""
        return {
            "take": self._take_forever(),
            "start": self._start_forever(),
            "announce": self._announce_forever(),
            "report": self._report_forever(),
            "watch": self._watch_forever(),
        }

    async def _take_forever(self) -> None:
        failures = 0
        while self._taking:
            try:
                await self.take_once(wait_sec=0.5)
                failures = 0
            except NoondayError as error:
                failures += 1
                if should_log(failures):
                    log.warning("take failed", error=error.detail, failures=failures)
                await self._clock.sleep(0.5)

    async def _start_forever(self) -> None:
        while self._taking:
            wait = await self.start_once()
            if wait > 0:
                await self._clock.wait_for(self._start_wake, wait)
            self._start_wake.clear()

    async def _announce_forever(self) -> None:
        failures = 0
        while True:
            await self._announce_wake.wait()
            self._announce_wake.clear()
            try:
                await self.announce_once()
                failures = 0
            except NoondayError as error:
                failures += 1
                if should_log(failures):
                    log.warning("start report failed", error=error.detail, failures=failures)
                await self._clock.sleep(0.5)
                self._announce_wake.set()

    async def _report_forever(self) -> None:
        while True:
            if self._outbox.unavailable_since is None:
                await self._report_wake.wait()
            else:
                await self._clock.sleep(self._outbox.wait_sec)
                await self._note_refusal()
            self._report_wake.clear()
            await self._report_ended()

    async def _note_refusal(self) -> None:
        """Note whether a log that accepts no reports answers other requests."""
        try:
            await self._bus.partitions()
        except NoondayError:
            self._refused_since = None
        else:
            self._refused_since = self._refused_since or self._clock.monotonic()

    async def _watch_forever(self) -> None:
        while True:
            await self._clock.sleep(0.25)
            await self.watch_once()

    async def take_once(self, wait_sec: float) -> int:
        """Take as many dispatches as there is room for, and claim them. Returns their number. A new identity joins first."""
        if not self._identity.has_joined:
            await self._join()
        if self._taking and self._parked and self._clock.monotonic() - self._parked_since >= PARKED_RETRY_SEC:
            with self._round():
                await self._receive(self._take_parked())
        room = {pool: self._room(pool) for pool in self._options.concurrency}
        room = {pool: count for pool, count in room.items() if count > 0}
        if len(room) < len(self._options.concurrency):
            wait_sec = min(wait_sec, FULL_POOL_RETRY_SEC)
        if not room:
            if wait_sec > 0:
                await self._clock.sleep(wait_sec)
            return 0
        identity = self._identity
        dispatches = await self._bus.take(identity.id, room, wait_sec)
        if not dispatches or not self._taking or identity is not self._identity:
            return 0  # the bus delivers again what was taken under a former identity
        with self._round():
            return await self._receive(dispatches)

    @contextlib.contextmanager
    def _round(self) -> Iterator[None]:
        self._rounds += 1
        try:
            yield
        finally:
            self._rounds -= 1

    async def _receive(self, dispatches: Sequence[Dispatch]) -> int:
        """Claim the dispatches that start soon, and admit all. Returns their number.

        The others are claimed when there is a slot: until then another worker that has a slot may run them.
        """
        soon, later = self._split_by_expected_start([self._run_of(dispatch) for dispatch in dispatches])
        try:
            claimed = await self._claim(soon)
        except SignalsUnavailable:
            # They are taken and not done with, so no other worker gets them while this one keeps trying.
            self._park(dispatches)
            raise
        now_ms = self._clock.now_ms()
        for run in claimed:
            self._admit(run, now_ms)
        for run in later:
            self._admit(run, now_ms)
        self._start_wake.set()
        return len(dispatches)

    def _run_of(self, dispatch: Dispatch) -> Run:
        return Run(dispatch, None, self._handlers.get((dispatch.pool, dispatch.handler)), self._identity)

    def _split_by_expected_start(self, runs: list[Run]) -> tuple[list[Run], list[Run]]:
        """Split runs into those expected to start within about a second, judging by slots and pace, and the others."""
        now = self._clock.monotonic()
        free_slots = {
            pool: slots + self._pace[pool].per_second(now) - self._unreported[pool]
            for pool, slots in self._options.concurrency.items()
        }
        soon: list[Run] = []
        later: list[Run] = []
        for run in runs:
            pool = run.dispatch.pool
            (soon if free_slots[pool] > 0 else later).append(run)
            free_slots[pool] -= 1
        return soon, later

    async def _claim(self, runs: Sequence[Run]) -> list[Run]:
        """Claim runs, or renew their claims. Returns the runs that have a claim.

        A dispatch that is acked is dropped. A dispatch that another delivery has claimed is parked. Raises SignalsUnavailable.
        """
        if not runs:
            return []
        asked_at = self._clock.monotonic()
        try:
            answers = await self._ask_for_claims(runs)
        except SignalsUnavailable:
            self._note_signals_unavailable()
            raise
        self._signals_unavailable_since = None
        claimed, acked = [], []
        for run, answer in zip(runs, answers, strict=True):
            active = self._active_duplicate_of(run.dispatch)
            if answer is ClaimRefused.ACKED or (active is not None and active.is_acked):
                acked.append(run.dispatch)
            elif answer is ClaimRefused.CLAIMED or active is not None:
                self._park([run.dispatch])
            else:
                run.token, run.claimed_at = answer, asked_at
                claimed.append(run)
        if acked:
            await self._bus.done_with(self.id, acked)
        return claimed

    async def _ask_for_claims(self, runs: Sequence[Run]) -> Iterable[Token | ClaimRefused]:
        """Claim runs that have no token, and renew the claims of the others. Returns an answer for each, in order."""
        new = [run.dispatch for run in runs if run.token is None]
        if len(new) == len(runs):
            return await self._signals.claim(self.id, new, self._clock.now_ms())
        known = [(run.dispatch, run.token) for run in runs if run.token is not None]
        claimed = iter(await self._signals.claim(self.id, new, self._clock.now_ms()) if new else ())
        renewed = iter(await self._signals.renew(known) if known else ())
        return [next(claimed if run.token is None else renewed) for run in runs]

    def _with_stale_claims(self, runs: Sequence[Run]) -> list[Run]:
        """Return runs without a claim, or whose claim may have lapsed so that another worker may have taken over."""
        oldest = self._clock.monotonic() - CLAIM_TRUSTED_FRACTION * self._signals.lapse_sec
        return [run for run in runs if not run.claimed_at >= oldest]

    def _active_duplicate_of(self, dispatch: Dispatch) -> Run | None:
        """Return the active run of another delivery of the same dispatch. It may run for longer than a claim lasts."""
        run = self._active.get(dispatch.execution_id)
        return run if run is not None and run.dispatch.number == dispatch.number else None

    def _park(self, dispatches: Sequence[Dispatch]) -> None:
        if not self._parked:
            self._parked_since = self._clock.monotonic()
        self._parked.extend(dispatches)

    def _take_parked(self) -> list[Dispatch]:
        parked, self._parked = self._parked, []
        return parked

    def _room(self, pool: str) -> int:
        """Return how many dispatches of a pool to take: enough to keep its handlers busy for a moment, and early ones."""
        now = self._clock.monotonic()
        bus_since, signals_since = self._outbox.unavailable_since, self._signals_unavailable_since
        if bus_since is not None and now - bus_since > self._options.beat_sec:
            return 0  # a worker that cannot send heartbeats takes nothing new
        if signals_since is not None and now - signals_since > MAX_SIGNALS_OUTAGE_SEC:
            return 0  # other workers may be able to claim what this one cannot
        capacity = self._options.concurrency[pool]
        return max(2 * capacity, self._pace[pool].per_second(now) // 2) - self._unreported[pool]

    def _admit(self, run: Run, now_ms: int) -> None:
        self._unreported[run.dispatch.pool] += 1
        if not self._taking or run.identity is not self._identity:
            self._return_run(run)
            return
        if run.dispatch.due_ms <= now_ms:
            self._ready[run.dispatch.pool, run.mode].append(run)
            return
        self._serial += 1
        heappush(self._waiting, (run.dispatch.due_ms, self._serial, run))

    async def start_once(self) -> float:
        """Start the runs that are due and have a slot. Returns the seconds until more may be due."""
        with self._round():
            return await self._start_once()

    async def _start_once(self) -> float:
        now_ms = self._clock.now_ms()
        while self._waiting and self._waiting[0][0] <= now_ms:
            run = heappop(self._waiting)[2]
            self._ready[run.dispatch.pool, run.mode].append(run)
        blocked: set[Lane] = set()
        while lane := self._next_lane(blocked):
            if not await self._start_some(lane, self._startable_count(lane)):
                blocked.add(lane)
        if blocked:
            return 0.05
        if self._waiting:
            # At most half a second: the wall clock may be set meanwhile.
            return min(0.5, max(0.0005, (self._waiting[0][0] - self._clock.now_ms()) / 1000))
        return 0.5

    def _next_lane(self, blocked: Collection[Lane]) -> Lane | None:
        """Return the lane to serve next, and move it to the end: pools that share threads or processes take turns."""
        for at, lane in enumerate(self._lane_order):
            if self._ready[lane] and lane not in blocked and self._startable_count(lane) > 0:
                del self._lane_order[at]
                self._lane_order.append(lane)
                return lane
        return None

    def _startable_count(self, lane: Lane) -> int:
        """Return how many runs of a lane may start now.

        Coroutines may take the free slots of the pool, and as many more as the handlers' loop completes in LOOKAHEAD_SEC. Plain
        functions may take free slots, but no more than this lane's part of the free threads or processes.
        """
        pool, mode = lane
        pace = self._pace[pool]
        if mode is Mode.ASYNC:
            # A pool with two hosts gets no lookahead: each host would admit the pool's concurrency.
            ahead = 0 if pool in self._mixed_pools else int(pace.per_second(self._clock.monotonic()) * LOOKAHEAD_SEC)
            return self._options.concurrency[pool] + ahead - pace.under_way
        slots = self._options.concurrency[pool] - pace.under_way
        limit = limit_of(mode, self._options)
        if limit is None:
            return slots
        lanes = sum(1 for other, ready in self._ready.items() if ready and other[1] is mode)
        return min(slots, math.ceil((limit - self._under_way[mode]) / max(1, lanes)))

    async def _start_some(self, lane: Lane, count: int) -> bool:
        """Check and start up to `count` runs of a lane. Returns whether more runs of the lane may start in this round."""
        pool, ready = lane[0], self._ready[lane]
        found = self._shares.sort(pool, ready.take(self._shares.batch_limit(pool, count)))
        ready.put_back(found.waiting)
        runs = [*found.starting, *found.deferred] if found.deferred else found.starting
        self._checking = set(runs)
        reasons = await self._check(pool, runs, found.deferred)
        # Runs that were dropped or returned during the check are no longer in `_checking`.
        runs = [run for run in runs if run in self._checking]
        self._checking = set()
        if reasons is None or self._may_be_judged_lost(self._clock.monotonic()):
            ready.put_back(runs)
            return False
        if not self._taking:
            for run in runs:
                self._return_run(run)
            return False
        if stale := self._with_stale_claims(runs):
            # The check took long. Claims that may have lapsed meanwhile are renewed before the next check.
            ready.put_back(stale)
            runs = [run for run in runs if run not in stale]
        now_ms = self._clock.now_ms()
        starting, superseding = self._split_superseding([run for run in runs if self._passes(run, reasons, now_ms)])
        self._pace[pool].under_way += len(starting)
        self._under_way[lane[1]] += len(starting)
        for run in starting:
            run.timeout_sec = timeout_of(run)
        self._shares.started(starting)
        self._hand_to_hosts(self._without_announced(starting))
        ready.extend(superseding)
        return not superseding and not found.waiting

    def _without_announced(self, runs: list[Run]) -> list[Run]:
        """Return the runs that start at once. The others start once their start is on the log: see `Run.may_have_run`."""
        announced = [run for run in runs if run.may_have_run]
        if not announced:
            return runs
        self._announcing.update(dict.fromkeys(announced))
        self._announce_wake.set()
        return [run for run in runs if not run.may_have_run]

    @property
    def is_announcing(self) -> bool:
        """Whether runs wait until the log has their start."""
        return bool(self._announcing)

    async def announce_once(self) -> int:
        """Report the starts of runs that may have run before, then start them. Returns their number.

        A run starts only once its report outlives this process. Raises BusUnavailable.
        """
        by_partition: dict[int, list[Item]] = {}
        now_ms = self._clock.now_ms()
        for run in self._announcing:
            run.announced_ms = run.announced_ms or now_ms
            item = self._item(run, run.start_report())
            by_partition.setdefault(item.partition, []).append(item)
        for partition, items in by_partition.items():
            await self._bus.report_durably(partition, [item.entry for item in items])
            self._start_announced([item.run for item in items if item.run is not None])
        await self._ack_reported()
        return sum(map(len, by_partition.values()))

    def _start_announced(self, runs: Sequence[Run]) -> None:
        for run in runs:
            run.start_reported = run.is_acked = True
            self._unacked.append(run.dispatch)
        # Some runs may have been returned meanwhile.
        starting = [run for run in runs if run in self._announcing]
        for run in starting:
            del self._announcing[run]
        stale = self._with_stale_claims(starting)
        for run in stale:
            self._reject(run, INTERRUPTED)
        self._hand_to_hosts([run for run in starting if run not in stale] if stale else starting)

    async def _check(
        self, pool: str, runs: list[Run], deferred: Mapping[Run, float]
    ) -> Mapping[ExecutionId, str] | None:
        """Claim runs, defer those that a share, a breaker or a limit delays, and do the pre-start check of the others.

        Returns why executions must not start, by execution. None: nothing may start now.
        """
        try:
            runs = await self._with_fresh_claims(runs)
            runs = self._without_deferred(runs, deferred)
            runs = await self._without_open_breakers(runs)
            runs = await self._without_throttled(runs)
            checked_ms = self._clock.now_ms()
            for run in runs:
                run.checked_ms = checked_ms
            return await self._signals.pre_start_check(pool, [run.dispatch for run in runs]) if runs else {}
        except SignalsUnavailable:
            self._note_signals_unavailable()
            return None

    async def _with_fresh_claims(self, runs: list[Run]) -> list[Run]:
        """Claim unclaimed runs, and renew claims that may have lapsed while their runs waited for a slot."""
        stale = self._with_stale_claims(runs)
        if not stale:
            return runs
        claimed = set(await self._claim(stale))
        gone = {run for run in stale if run not in claimed and run in self._checking}
        for run in gone:
            self._unreported[run.dispatch.pool] -= 1
        self._checking -= gone
        return [run for run in runs if run in self._checking]

    async def _without_open_breakers(self, runs: list[Run]) -> list[Run]:
        """Defer runs whose breaker is open: they wait on the timeline. Returns the others."""
        delayed = await self._retry_breaker.delay(runs)
        for run, wait_sec in delayed.items():
            run.defer(wait_sec, failure_of_delayed(run.dispatch, wait_sec))
            self._end_deferred(run)
        return [run for run in runs if run not in delayed] if delayed else runs

    def _without_deferred(self, runs: list[Run], waits_sec: Mapping[Run, float]) -> list[Run]:
        """Defer runs whose tenant's share is taken by slow calls: they wait on the timeline. Returns the others."""
        for run in runs:
            if run in waits_sec:
                run.defer(waits_sec[run], failure_of_deferred(waits_sec[run]))
                self._end_deferred(run)
        return [run for run in runs if run not in waits_sec] if waits_sec else runs

    async def _without_throttled(self, runs: list[Run]) -> list[Run]:
        """Defer runs that the limits of their endpoint delay: they wait on the timeline. Returns the others."""
        delayed = await self._throttle.delay(runs)
        for run in delayed:
            self._end_deferred(run)
        return [run for run in runs if run not in delayed] if delayed else runs

    def _end_deferred(self, run: Run) -> None:
        """End a run that was deferred in its check, unless it was returned meanwhile."""
        if run in self._checking:
            self._checking.discard(run)
            self._end_unstarted(run, run.outcome)

    def _split_superseding(self, runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
        """Split runs into those that may start and those whose execution still runs here under an earlier dispatch.

        The latter start when the earlier run has ended, which is asked to stop.
        """
        starting, superseding = [], []
        for run in runs:
            other = self._active.setdefault(run.dispatch.execution_id, run)
            if other is run:
                starting.append(run)
            elif other.dispatch.number == run.dispatch.number:
                self._unreported[run.dispatch.pool] -= 1
                self._park([run.dispatch])
            elif other.dispatch.number > run.dispatch.number:
                self._reject(run, INTERRUPTED)
            else:
                superseding.append(run)
                self._request_stop(other, INTERRUPTED)
        return starting, superseding

    def _hand_to_hosts(self, runs: Sequence[Run]) -> None:
        if self._plain_host is self._host:
            self._host.start(runs)
            return
        for host in (self._host, self._plain_host):
            if mine := [run for run in runs if self._host_of(run) is host]:
                host.start(mine)

    def _host_of(self, run: Run) -> Host:
        return self._host if run.handler is None or run.handler.mode is Mode.ASYNC else self._plain_host

    def _passes(self, run: Run, reasons: Mapping[ExecutionId, str], now_ms: int) -> bool:
        dispatch = run.dispatch
        if run.is_too_old(now_ms):
            self._metrics.refused.labels("dispatch").inc()
            self._reject(run, INTERRUPTED)
            return False
        reason = reasons.get(dispatch.execution_id) if reasons else None
        if reason is not None:
            self._reject(run, reason)
            return False
        deadline = dispatch.start_deadline_sec
        if deadline is not None and dispatch.attempt == 1 and now_ms > dispatch.due_ms + deadline * 1000:
            self._end_unstarted(run, Outcome.EXPIRED)
            return False
        if run.handler is None:
            self._end_unstarted(run, Outcome.HANDED_BACK)
            return False
        return True

    def _reject(self, run: Run, reason: str) -> None:
        run.reject(reason)
        self._end_unstarted(run, run.outcome)

    def _end_unstarted(self, run: Run, outcome: Outcome) -> None:
        """End a run that was not started."""
        run.outcome = outcome
        run.ended_ms = self._clock.now_ms()
        self._ended.append(run)
        self._report_wake.set()

    def _on_ended(self, run: Run) -> None:
        """Queue the report of an ended run. Called on the loop of a host."""
        self._ended.append(run)
        if len(self._ended) == 1 or not self._report_wake.is_set():
            self._loop.call_soon_threadsafe(self._report_wake.set)

    async def _report_ended(self) -> None:
        """Send all reports, and ack their dispatches in the signals.

        If the bus is unavailable, one try is made: the rest waits in the outbox.
        """
        while await self._send_ended():
            await self._release_and_ack()
            if self._outbox.unavailable_since is not None:
                break
            self._refused_since = None
        self._start_wake.set()

    async def _send_ended(self) -> bool:
        """Send the pending reports to the log, once. Returns whether there were any."""
        async with self._report_lock:
            if not (self._ended or self._outbox):
                return False
            runs = [self._ended.popleft() for _ in range(min(len(self._ended), 5_000))]
            if self._abandoned:
                runs = [run for run in runs if not self._ended_after_abandonment(run)]
            self._release_ended(runs)
            self._outbox.add(
                [Item(run.identity.partition, run.report(run.identity.id, self._keyring), run) for run in runs]
            )
            for run in (item.run for item in await self._outbox.send()):
                if run is not None:
                    run.is_acked = True
                    self._unacked.append(run.dispatch)
        return True

    async def _release_and_ack(self) -> None:
        """Free the slots of ended calls at endpoints, and ack the dispatches that the log has."""
        async with self._ack_lock:
            await self._throttle.release()
            await self._ack_reported()

    def _item(self, run: Run, entry: LogEntry) -> Item:
        """Return an outbox item about a run, for the log partition of the run's identity."""
        return Item(run.identity.partition, entry, run)

    async def _ack_reported(self) -> None:
        """Ack in the signals the dispatches that the log has, then tell the bus not to deliver them again.

        The order matters: a duplicate that is delivered nevertheless must find the ack.
        """
        dispatches, self._unacked = self._unacked, []
        if dispatches:
            try:
                await self._signals.ack([(dispatch.execution_id, dispatch.number) for dispatch in dispatches])
            except SignalsUnavailable:
                self._unacked = dispatches + self._unacked
                self._note_signals_unavailable()
            else:
                self._drop_parked_duplicates(dispatches)
                await self._bus.done_with(self.id, dispatches)

    def _drop_parked_duplicates(self, acked: Sequence[Dispatch]) -> None:
        """Drop parked dispatches that are acked: they need no claim to be recognised as duplicates."""
        if self._parked:
            names = {(dispatch.execution_id, dispatch.number) for dispatch in acked}
            self._parked = [each for each in self._parked if (each.execution_id, each.number) not in names]

    def _release_ended(self, runs: Sequence[Run]) -> None:
        """Free the slots of ended runs, and count the runs in breakers, throttles and metrics."""
        now, metrics = self._clock.monotonic(), self._metrics.runs
        for run in runs:
            pool = run.dispatch.pool
            self._unreported[pool] -= 1
            self._retry_breaker.note(run)
            self._throttle.note(run)
            if self._active.get(run.dispatch.execution_id) is run:
                del self._active[run.dispatch.execution_id]
                self._pace[pool].ended(now)
                self._under_way[run.mode] -= 1
                self._shares.ended(run)
            if run.started_ms:
                late_ms, ran_ms = run.started_ms - run.dispatch.due_ms, run.ended_ms - run.started_ms
                metrics.count_start(pool, late_ms / 1000, ran_ms / 1000)
            metrics.count_end(run.outcome.name)

    async def watch_once(self) -> None:
        """Run one round of the control loop: deadlines, revocations, shared breakers, start reports, heartbeats and acks."""
        now = self._clock.monotonic()
        if self._may_be_judged_lost(now):
            self._change_identity()
        self._last_round = self._clock.monotonic()
        runs = [run for run in self._active.values() if run.begun_at]
        self._enforce_deadlines(runs, now)
        self._warn_of_blocking(now)
        await self._heed_revocations(list(self._active.values()))
        await self._retry_breaker.sync()
        await self._throttle.release()
        self._metrics.breakers_open.set(self._retry_breaker.open)
        await self._probe_signals()
        self._report_long_starts(runs, now)
        self._beat(runs, now)
        self._send_former_byes()
        if self._unacked and not self._ack_lock.locked():
            async with self._ack_lock:
                await self._ack_reported()
        self._last_round = self._clock.monotonic()

    def _may_be_judged_lost(self, now: float) -> bool:
        """Whether this identity may have been judged lost.

        That is so if the control loop stalled, or reached neither bus nor signals, for `frozen_after_sec`. An identity that has
        not joined yet cannot be judged.
        """
        longest = self._options.frozen_after_sec
        if longest is None or not self._identity.has_joined:
            return False
        bus_since, signals_since = self._outbox.unavailable_since, self._signals_unavailable_since
        cut_off = bus_since is not None and signals_since is not None
        isolated = cut_off and now - max(bus_since or 0.0, signals_since or 0.0, self._joined_at) > longest
        return isolated or now - self._last_round > longest

    async def _probe_signals(self) -> None:
        """Find out whether the signals are available again: a worker that takes nothing makes no other call to them."""
        if self._signals_unavailable_since is not None:
            with contextlib.suppress(SignalsUnavailable):
                await self._signals.has_generation(next(iter(self._options.concurrency)))
                self._signals_unavailable_since = None

    def _note_signals_unavailable(self) -> None:
        if self._signals_unavailable_since is None:
            self._signals_unavailable_since = self._clock.monotonic()

    def _enforce_deadlines(self, runs: Iterable[Run], now: float) -> None:
        for run in runs:
            context = run.context
            if context is not None and context._has_new_heartbeat:
                run.beat_at = now
            if run.ended_ms:
                continue
            silence = run.dispatch.heartbeat_timeout_sec
            if run.stop_requested is not None:
                if now - run.stop_requested_at >= self._abandon_after_sec(run):
                    self._abandon(run)
            elif now - run.begun_at >= run.timeout_sec:
                self._request_stop(run, TIMED_OUT)
            elif silence is not None and now - run.beat_at >= silence:
                self._request_stop(run, HEARTBEAT)

    def _abandon_after_sec(self, run: Run) -> float:
        """Seconds from the stop request until a run is abandoned. A process is killed before; its death takes time to confirm."""
        return self._options.cancel_grace_sec + (KILL_CONFIRM_SEC if run.mode is Mode.PROCESS else 0.0)

    def _request_stop(self, run: Run, reason: str) -> None:
        if run.stop_requested is None and not run.ended_ms:
            run.stop_requested_at = self._clock.monotonic()
            run.stop_requested = reason
            self._host_of(run).stop(run, reason)

    def _abandon(self, run: Run) -> None:
        """Report the end of a run that ignores its stop request. Should the run end after all, its own outcome is dropped."""
        log.warning(
            "run abandoned",
            execution=run.dispatch.execution_id,
            handler=run.dispatch.handler,
            why=run.stop_requested,
            mode=run.mode.value,
        )
        stand_in = run.stand_in(self._clock.now_ms())
        self._active[run.dispatch.execution_id] = stand_in
        if self._abandoned.add(run):
            self._host_of(run).abandon(run)
        else:
            # The run keeps its slot. The report of its stand-in frees one slot, so count this one twice until then.
            self._pace[run.dispatch.pool].under_way += 1
            self._under_way[run.mode] += 1
        self._metrics.abandoned.inc()
        self._ended.append(stand_in)
        self._report_wake.set()

    def _ended_after_abandonment(self, run: Run) -> bool:
        """Whether this run was abandoned, so that its end is reported already. If so, free the slot that it kept."""
        if run not in self._abandoned:
            return False
        log.info("abandoned run ended", execution=run.dispatch.execution_id, handler=run.dispatch.handler)
        if self._abandoned.remove(run):
            self._pace[run.dispatch.pool].under_way -= 1
            self._under_way[run.mode] -= 1
        return True

    def _warn_of_blocking(self, now: float) -> None:
        """Log a coroutine that blocks the handlers' loop: it delays the other handlers there."""
        stepping = self._host.stepping
        if stepping is not None and now - stepping[1] >= BLOCKING_STEP_SEC and not stepping[0].stuck:
            run = stepping[0]
            run.stuck = True
            log.warning("handler blocks its loop", handler=run.dispatch.handler, execution=run.dispatch.execution_id)

    async def _heed_revocations(self, runs: Sequence[Run]) -> None:
        """Ask runs whose dispatch is revoked to stop."""
        by_pool: dict[str, list[tuple[ExecutionId, int]]] = {}
        for run in runs:
            by_pool.setdefault(run.dispatch.pool, []).append((run.dispatch.execution_id, run.dispatch.number))
        for pool, names in by_pool.items():
            try:
                revoked = await self._signals.revoked(pool, names)
            except SignalsUnavailable:
                self._note_signals_unavailable()
                return
            self._signals_unavailable_since = None
            for execution, reason in revoked.items():
                run = self._active.get(execution)  # type: ignore[assignment]
                if run is not None and reason not in SPARES_RUNNING and not run.is_completed:
                    self._request_stop(run, reason)

    def _report_long_starts(self, runs: Iterable[Run], now: float) -> None:
        """Report the start of runs that last over REPORT_START_AFTER_SEC: from then on the store knows which worker runs them."""
        unreported = [run for run in runs if not run.start_reported and now - run.begun_at >= REPORT_START_AFTER_SEC]
        for run in unreported:
            run.start_reported = True
            self._enqueue(self._item(run, run.start_report()))

    def _enqueue(self, *items: Item) -> None:
        """Add items to the outbox, and wake the loop that reports."""
        self._outbox.add(items)
        self._report_wake.set()

    def _enqueue_for(self, identity: Identity, *entries: LogEntry) -> None:
        """Add entries of an identity to the outbox. An identity that has not joined is unknown on the log and sends nothing."""
        if identity.has_joined:
            self._enqueue(*(Item(identity.partition, entry) for entry in entries))

    def _beat(self, runs: Sequence[Run], now: float) -> None:
        """Send heartbeats if they are due: every `beat_sec`, or every second while runs report progress."""
        mine = [run for run in runs if run.identity is self._identity]
        updated = [run for run in mine if run.start_reported and run.context and run.context._has_new_heartbeat]
        if now - self._last_beat < self._options.beat_sec and not (updated and now - self._last_beat >= 1.0):
            return
        if self._outbox.has_beat:
            return  # the previous heartbeat is still unsent: the bus is unavailable
        self._last_beat = now
        now_ms = self._clock.now_ms()
        for former in self._former_identities:
            # A former identity sends heartbeats until its runs have ended: if it were judged lost, each would use up an attempt.
            self._enqueue_for(former, Beat(former.id, now_ms))
        if self._identity.has_joined:
            progress = [found for run in updated if (found := self._progress_of(run))]
            stuck = (*(run.dispatch.execution_id for run in mine if run.stuck), *self._abandoned)
            self._enqueue_for(self._identity, *beats_of(self.id, now_ms, progress, stuck))

    def _progress_of(self, run: Run) -> tuple[ExecutionId, int, bytes] | None:
        """Return the latest progress of a run, sealed, or None. Its heartbeat counts as sent from now on."""
        assert run.context is not None
        run.context._has_new_heartbeat = False
        if run.context._reported_progress is None:
            return None
        context = context_of(run.dispatch.tenant, run.dispatch.job_id)
        sealed = self._keyring.seal(run.context._reported_progress, context)
        return run.dispatch.execution_id, run.dispatch.number, sealed

    def _change_identity(self) -> None:
        """Continue under a new identity: the current one may have been judged lost.

        Runs of the former identity are asked to stop, and are reported under it. A run that does not end within the cancel grace
        is abandoned. Nothing here waits: deadlines, revocations and heartbeats continue, and the take loop joins under the new
        identity.
        """
        log.warning("control loop stalled or cut off; continuing under a new identity", worker=self.id)
        former = self._identity
        self._return_unstarted_runs()
        self._parked.clear()
        self._former_identities.append(former)
        self._leaving.append(former.id)
        self._identity = self._make_identity()
        for run in list(self._active.values()):
            self._request_stop(run, INTERRUPTED)
        self._last_beat = -math.inf  # beat at once, so that the former identity is not judged lost while its runs end

    def _send_former_byes(self) -> None:
        """Send a Bye for each former identity whose last run is reported."""
        if not self._former_identities:
            return
        with_runs = {run.identity for run in (*self._active.values(), *self._ended)}
        for former in [each for each in self._former_identities if each not in with_runs]:
            self._enqueue_for(former, Bye(former.id, self._clock.now_ms()))
            self._former_identities.remove(former)

    def _return_unstarted_runs(self) -> None:
        """Return all runs that have not started, so that other workers get them."""
        unstarted = [*self._checking, *(run for _, _, run in self._waiting)]
        self._checking = set()
        self._waiting.clear()
        for ready in self._ready.values():
            unstarted += ready
            ready.clear()
        for run in unstarted:
            self._return_run(run)
        # Their starts may be on the log already, so this worker must return them even if their claims have lapsed.
        announcing, self._announcing = self._announcing, {}
        for run in announcing:
            self._reject(run, INTERRUPTED)

    def _return_run(self, run: Run) -> None:
        """Report a run as interrupted before its start. Without a fresh claim, leave it to the worker that gets it next."""
        if self._with_stale_claims([run]):
            self._unreported[run.dispatch.pool] -= 1
        else:
            self._reject(run, INTERRUPTED)

    def _hello(self, identity: Identity) -> Hello:
        return Hello(
            worker_id=identity.id,
            at_ms=self._clock.now_ms(),
            host=socket.gethostname(),
            pid=os.getpid(),
            concurrency=dict(self._options.concurrency),
            handlers=tuple(handler.info() for handler in self._handlers.values()),
        )

    def _make_plain_loop_thread(self, handlers_loop: asyncio.AbstractEventLoop) -> HandlerThread | None:
        """Start a loop for runs in threads and processes: a coroutine that blocks the handlers' loop must not delay them."""
        plain = any(handler.mode is not Mode.ASYNC for handler in self._handlers.values())
        if handlers_loop is self._loop or not plain:
            return None
        return HandlerThread(asyncio.new_event_loop, "noonday-carrier")

    def _find_mixed_pools(self) -> frozenset[str]:
        """Return the pools with handlers on both hosts."""
        if not self._plain_loop_thread:
            return frozenset()
        coroutines = {pool for (pool, _), handler in self._handlers.items() if handler.mode is Mode.ASYNC}
        plain = {pool for (pool, _), handler in self._handlers.items() if handler.mode is not Mode.ASYNC}
        return frozenset(coroutines & plain)

    def _make_host(self, loop: asyncio.AbstractEventLoop) -> Host:
        modes = {handler.mode for handler in self._handlers.values()}
        return Host(
            loop=loop,
            clock=self._clock,
            keyring=self._keyring,
            tracing=self._tracing,
            concurrency=dict(self._options.concurrency),
            threads=self._options.threads if Mode.THREAD in modes else 0,
            processes=self._options.processes if Mode.PROCESS in modes else 0,
            cancel_grace_sec=self._options.cancel_grace_sec,
            result_limit=self._options.result_limit,
            progress_limit=self._options.progress_limit,
            on_ended=self._on_ended,
        )


async def _wait_for(task: "asyncio.Task[None]") -> None:
    await asyncio.wait({task})


class _Pace:
    """Rate at which the runs of a pool end, and the number under way."""

    __slots__ = ("_count", "_rate", "_since", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        self._since = 0.0
        self._count = 0
        self._rate = 0

    def ended(self, now: float) -> None:
        self.under_way -= 1
        self._count += 1
        self._roll(now)

    def per_second(self, now: float) -> int:
        self._roll(now)
        return self._rate

    def _roll(self, now: float) -> None:
        elapsed = now - self._since
        if elapsed >= 0.1:
            self._rate = int(self._count / elapsed)
            self._count, self._since = 0, now
