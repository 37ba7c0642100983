"""The control side of a worker: takes, admits, waits, looks, starts, beats, reports."""

import asyncio
import contextlib
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush

import structlog

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.breaker import MIN_RUNS
from noonday.model.errors import NoondayError, SignalsUnavailable
from noonday.model.execution import SPARES_RUNNING, Outcome
from noonday.model.ids import ExecutionId, WorkerId, new_worker_id
from noonday.model.limits import PROGRESS_BYTES
from noonday.model.message import Beat, Bye, Dispatch, Hello, LogEntry, Token
from noonday.ports.breakers import Breakers
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.completions import Completions
from noonday.ports.signals import ClaimRefused, Signals
from noonday.ports.throttles import Throttles
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import stop, worth_saying
from noonday.runtime.tracing import Tracing
from noonday.worker.abandoned import Abandoned
from noonday.worker.completing import Completing
from noonday.worker.handler import Handler, Mode
from noonday.worker.host import HandlerThread, Host
from noonday.worker.identity import Identity
from noonday.worker.outbox import Item, Outbox, beats_of, cut
from noonday.worker.ready import Ready
from noonday.worker.retry_breaker import RetryBreaker, failure_of_delayed
from noonday.worker.run import HEARTBEAT, INTERRUPTED, TIMED_OUT, Run
from noonday.worker.sharing import Shares, failure_of_put_off
from noonday.worker.throttling import Throttle

log = structlog.get_logger("noonday.worker")
TELL_START_SEC = 1.0
BLOCKS_SEC = 1.0
"""A coroutine that keeps the loop for longer is named."""
TURN_SEC = 0.02
"""How much work may be handed to the handlers' loop beyond its free slots, in time."""
FRESH = 0.7
"""A claim is relied upon for this part of its life."""
DEAF_SEC = 2.0
"""How long the signals may be away before others shall have what we would take."""
FULL_SEC = 0.005
"""How soon a pool that was full is looked at again, whatever the others wait for."""
PARKED_SEC = 1.0
"""How often what is parked is tried again."""
DEFAULT_TIMEOUT_SEC = 3600.0
DEATH_SEC = 0.5
"""How long it may take until a process that was killed is seen dead."""
LAST_WORDS_SEC = 1.0
"""How long a worker that stops tries to report, beyond the drain time and the grace."""
ROUND_SEC = 1.0
"""How long a worker that stops waits for a round of taking or starting to end."""
CLOSING_SEC = 0.01
REFUSED_SEC = 60.0
"""How long the log may refuse the reports of a worker, although it answers, before the worker should be started anew."""
Lane = tuple[str, Mode]
"""A pool, and where its handlers run."""


@dataclass(frozen=True)
class WorkerOptions:
    concurrency: Mapping[str, int]
    """For each pool how many handlers may run at once."""
    threads: int = 32
    processes: int = 2
    beat_sec: float = 10.0
    drain_sec: float = 20.0
    cancel_grace_sec: float = 5.0
    max_abandoned: int = 8
    """How many runs that ignore their end are replaced by others."""
    result_limit: int = 65_536
    progress_limit: int = PROGRESS_BYTES
    shares: Mapping[str, float] = field(default_factory=dict)
    """For each pool the part of the slots that others leave which one tenant may take; others have no such bound."""
    retry_breaker_min_runs_per_minute: int = MIN_RUNS
    """How many runs of a handler a minute it takes before its retries wait, if more than half fail; 0 if they never do."""
    frozen_after_sec: float | None = None
    """If the control loop stood still for longer, others may have judged this worker: it gives up what it holds and goes
    on under a new name. None where whoever judges stands still with it."""


class Worker:
    """One identity on the log, from `open` to `close`."""

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
        """Must be made on the control loop. `handlers_loop` is where coroutines run; better in another thread."""
        self._handlers = dict(handlers)
        self._bus = bus
        self._signals = signals
        self._retry_breaker = RetryBreaker(breakers, clock, options.retry_breaker_min_runs_per_minute)
        self._throttle = Throttle(throttles, clock, self._timeout_of)
        self._shares = Shares(options.concurrency, options.shares, clock)
        self._clock = clock
        self._keyring = keyring
        self._metrics = metrics
        self._tracing = tracing
        self._options = replace(options, concurrency=_runnable(options, self._handlers))
        self._loop = asyncio.get_running_loop()
        self._carrier = self._make_carrier(handlers_loop)
        self._host = self._make_host(handlers_loop)
        self._plain_host = self._make_host(self._carrier.loop) if self._carrier else self._host
        self._shared_pools = self._find_shared_pools()
        self._new_id = new_id
        self._completions = completions
        self._identity = self._make_identity()
        self._former: list[Identity] = []
        """Identities that were given up, until their last run is reported."""
        self._leaving: list[WorkerId] = []
        """Those among them that have not left the bus yet."""
        self._waiting: list[tuple[int, int, Run]] = []
        self._ready = {(pool, mode): Ready() for pool in options.concurrency for mode in Mode}
        self._order = list(self._ready)
        """Lanes, the one that was served longest ago first."""
        self._under_way = dict.fromkeys(Mode, 0)
        """Handed to the hosts and not yet reported, by mode."""
        self._held = dict.fromkeys(options.concurrency, 0)
        """Taken and not yet reported, by pool."""
        self._active: dict[ExecutionId, Run] = {}
        self._abandoned = Abandoned(options.max_abandoned)
        self._ended: deque[Run] = deque()
        self._ended_wake = asyncio.Event()
        self._reporting, self._telling = asyncio.Lock(), asyncio.Lock()
        self._wake = asyncio.Event()
        self._taking = True
        self._rounds = 0
        """Rounds of claiming and starting that are under way."""
        self._checking: set[Run] = set()
        """Runs in their pre-start check."""
        self._announcing: dict[Run, None] = {}
        """Runs that start when the log has their start."""
        self._announce_wake = asyncio.Event()
        self._parked: list[Dispatch] = []
        """Taken, not claimed: another delivery of them was, or the claims could not be reached."""
        self._parked_at = 0.0
        self._outbox = Outbox(bus, clock)
        self._refused_since: float | None = None
        """Since when the log answers questions, and takes no reports."""
        self._unacked: list[Dispatch] = []
        """Reported; whoever gets them again does not know it yet."""
        self._deaf_since: float | None = None
        """Since when the signals cannot be reached."""
        self._serial = 0
        self._pace = {pool: _Pace() for pool in options.concurrency}
        self._joined_at = 0.0
        self._last_beat = 0.0
        self._last_round = 0.0

    @property
    def id(self) -> WorkerId:
        """The present one: a worker that stalled goes on under another."""
        return self._identity.id

    async def open(self) -> None:
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
        """Make the present identity known. From then on it takes, reports and beats. Raises BusUnavailable."""
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
        """Finish what runs, within the drain time; interrupt the rest, which costs it no attempt; say good-bye.

        Returns within the drain time, the grace and LAST_WORDS_SEC, whatever is away and whatever goes on running. A run that
        ignores its interruption is abandoned. If the bus does not take the last reports, the recorder finds this worker lost,
        and its runs with it.
        """
        drain_sec = self._options.drain_sec if drain_sec is None else drain_sec
        drained_at = self._clock.monotonic() + drain_sec
        deadline = drained_at + self._options.cancel_grace_sec + LAST_WORDS_SEC
        leaving = asyncio.create_task(self._leave())
        await self.stop_taking()
        self._hand_back_unstarted()
        over = asyncio.Event()
        reporting = asyncio.create_task(self._report_until(over))
        await self._see_all_end(drained_at - self._clock.monotonic())
        for run in list(self._active.values()):
            self._ask_to_end(run, INTERRUPTED)
        await self._see_all_end(self._options.cancel_grace_sec)
        # Processes have been killed by now: seeing them dead takes a moment.
        await self._see_all_end(DEATH_SEC, Mode.PROCESS)
        for run in self._not_ended():
            self._abandon(run)
        over.set()
        said = await self._within(deadline, self._say_good_bye())
        await self._within(min(deadline, self._clock.monotonic() + LAST_WORDS_SEC), self._tell())
        await self._within(deadline, _ended(leaving))
        await stop([reporting, leaving])
        if not said:
            log.warning(
                "stopped without acknowledged reports",
                worker=self.id,
                runs=len(self._active) + len(self._ended),
                note="the recorder marks this worker as lost, which uses up an attempt of each run it had started",
            )
        self.abandon()

    async def retire(self) -> None:
        """Take nothing more, hand back what has not begun, and leave the pools to others. What runs goes on."""
        await self.stop_taking()
        self._hand_back_unstarted()
        await self._leave()

    @property
    def has_runs(self) -> bool:
        """Whether something runs that was not abandoned."""
        return bool(self._not_ended())

    async def _report_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._report_ended()
            await self._clock.sleep(CLOSING_SEC)

    async def _see_all_end(self, seconds: float, mode: Mode | None = None) -> None:
        """Wait until all runs (of a mode) have ended, whether that could be reported or not; for so long at most."""
        deadline = self._clock.monotonic() + seconds
        while self._not_ended(mode) and self._clock.monotonic() < deadline:
            await self._clock.sleep(CLOSING_SEC)

    def _not_ended(self, mode: Mode | None = None) -> list[Run]:
        return [run for run in self._active.values() if not run.ended_ms and mode in (None, run.mode)]

    async def stop_taking(self) -> None:
        """Take and start nothing more. A round that is under way ends first: a claim whose answer nobody reads would keep its
        dispatch from others until it lapses."""
        self._taking = False
        self._wake.set()
        deadline = self._clock.monotonic() + ROUND_SEC
        while self._rounds and self._clock.monotonic() < deadline:
            await self._clock.sleep(CLOSING_SEC)

    async def _leave(self) -> None:
        """Leave the pools: others get at once what is delivered from now on, and what was taken and not claimed."""
        for name in (*self._leaving, self.id):
            await self._bus.leave(name)

    async def _say_good_bye(self) -> None:
        """Report everything. No report waits for the signals here: they may be away."""
        await self._send_everything()
        for identity in (*self._former, self._identity):
            self._say_of(identity, Bye(identity.id, self._clock.now_ms()))
        self._former.clear()
        await self._send_everything()

    async def _send_everything(self) -> None:
        """Send reports until nothing is left."""
        while await self._send_ended():
            if self._outbox:
                await self._clock.sleep(self._outbox.wait_sec)

    async def _within(self, deadline: float, doing: Coroutine[None, None, None]) -> bool:
        """Do something until it is done or the time is over. Returns whether it was done."""
        task = asyncio.create_task(doing)
        waiting = asyncio.create_task(self._clock.sleep(max(0.0, deadline - self._clock.monotonic())))
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        done = task.done()
        await stop([task, waiting])
        return done

    async def finish_all(self) -> int:
        """Wait until everything that was started has ended, and report it. Answers how many."""
        count = 0
        while self._active or self._ended:
            count += len(self._ended)
            await self._report_ended()
            if self._active:
                await self._ended_wake.wait()
                self._ended_wake.clear()
        return count

    def abandon(self) -> None:
        """Let go of threads and processes without another word."""
        self._host.close()
        if self._carrier:
            self._plain_host.close()
            self._carrier.close()

    def troubles(self) -> list[str]:
        """Why this worker does not do its work at present."""
        reasons = []
        if self._outbox.unavailable_since is not None:
            silent_sec = self._clock.monotonic() - self._outbox.unavailable_since
            reasons.append(f"nothing could be reported for {silent_sec:.0f} s")
        if not self._identity.has_joined:
            reasons.append("the worker has not joined its pools")
        if self._deaf_since is not None:
            reasons.append(f"flags could not be read for {self._clock.monotonic() - self._deaf_since:.0f} s")
        if self._abandoned.is_full:
            reasons.append(
                f"{len(self._abandoned)} abandoned runs have not ended, {self._abandoned.limit} at most are replaced "
                "(worker.max_abandoned): make their handlers heed ctx.cancelled, and restart"
            )
        return reasons

    def live(self) -> bool:
        """Whether reports can reach the log. False: the log answers, and has taken nothing of this worker for REFUSED_SEC.

        A log that is away for everybody is no reason to restart: running handlers and unsent reports would be lost.
        """
        since = self._refused_since
        return since is None or self._clock.monotonic() - since < REFUSED_SEC

    @property
    def is_worn_out(self) -> bool:
        """Whether so many abandoned runs go on here that another process should do the work."""
        return self._abandoned.is_full

    @property
    def pools(self) -> Mapping[str, int]:
        return self._options.concurrency

    def loops(self) -> dict[str, Coroutine[None, None, None]]:
        """The loops of a worker by name, each to be run as a task."""
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
                if worth_saying(failures):
                    log.warning("cannot take", error=error.detail, failures=failures)
                await self._clock.sleep(0.5)

    async def _start_forever(self) -> None:
        while self._taking:
            wait = await self.start_once()
            if wait > 0:
                await self._clock.wait_for(self._wake, wait)
            self._wake.clear()

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
                if worth_saying(failures):
                    log.warning("announcement failed", error=error.detail, failures=failures)
                await self._clock.sleep(0.5)
                self._announce_wake.set()

    async def _report_forever(self) -> None:
        while True:
            if self._outbox.unavailable_since is None:
                await self._ended_wake.wait()
            else:
                await self._clock.sleep(self._outbox.wait_sec)
                await self._note_refusal()
            self._ended_wake.clear()
            await self._report_ended()

    async def _note_refusal(self) -> None:
        """Find out whether a log that takes no reports answers at all."""
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
        """Take what there is room for, and claim it. An identity that is new joins first."""
        if not self._identity.has_joined:
            await self._join()
        if self._taking and self._parked and self._clock.monotonic() - self._parked_at >= PARKED_SEC:
            with self._round():
                await self._receive(self._take_parked())
        room = {pool: self._room(pool) for pool in self._options.concurrency}
        room = {pool: count for pool, count in room.items() if count > 0}
        if len(room) < len(self._options.concurrency):
            wait_sec = min(wait_sec, FULL_SEC)
        if not room:
            if wait_sec > 0:
                await self._clock.sleep(wait_sec)
            return 0
        identity = self._identity
        dispatches = await self._bus.take(identity.id, room, wait_sec)
        if not dispatches or not self._taking or identity is not self._identity:
            return 0  # what was taken under an identity that was given up meanwhile is delivered again
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
        """Claim what starts soon, and admit everything. The rest is claimed when there is a slot: until then another worker
        that has one may run it."""
        soon, later = self._by_nearness([self._run_of(dispatch) for dispatch in dispatches])
        try:
            claimed = await self._claim(soon)
        except SignalsUnavailable:
            # Taken and not done: nobody else gets them before us, unless we cannot claim for longer.
            self._park(dispatches)
            raise
        now_ms = self._clock.now_ms()
        for run in claimed:
            self._admit(run, now_ms)
        for run in later:
            self._admit(run, now_ms)
        self._wake.set()
        return len(dispatches)

    def _run_of(self, dispatch: Dispatch) -> Run:
        return Run(dispatch, None, self._handlers.get((dispatch.pool, dispatch.handler)), self._identity)

    def _by_nearness(self, runs: list[Run]) -> tuple[list[Run], list[Run]]:
        """Runs that start within about a second, as far as slots and pace can tell, and all others."""
        now = self._clock.monotonic()
        places = {
            pool: slots + self._pace[pool].per_second(now) - self._held[pool]
            for pool, slots in self._options.concurrency.items()
        }
        soon: list[Run] = []
        later: list[Run] = []
        for run in runs:
            pool = run.dispatch.pool
            (soon if places[pool] > 0 else later).append(run)
            places[pool] -= 1
        return soon, later

    async def _claim(self, runs: Sequence[Run]) -> list[Run]:
        """Claim runs, or renew their claims. Drop what is acked, park what another delivery was claimed for a moment ago, and
        return the rest. Raises SignalsUnavailable."""
        if not runs:
            return []
        asked_at = self._clock.monotonic()
        try:
            answers = await self._ask_for_claims(runs)
        except SignalsUnavailable:
            self._lost_signals()
            raise
        self._deaf_since = None
        claimed, acked = [], []
        for run, answer in zip(runs, answers, strict=True):
            twin = self._twin_of(run.dispatch)
            if answer is ClaimRefused.ACKED or (twin is not None and twin.is_known):
                acked.append(run.dispatch)
            elif answer is ClaimRefused.CLAIMED or twin is not None:
                self._park([run.dispatch])
            else:
                run.token, run.claimed_at = answer, asked_at
                claimed.append(run)
        if acked:
            await self._bus.done_with(self.id, acked)
        return claimed

    async def _ask_for_claims(self, runs: Sequence[Run]) -> Iterable[Token | ClaimRefused]:
        new = [run.dispatch for run in runs if run.token is None]
        if len(new) == len(runs):
            return await self._signals.claim(self.id, new, self._clock.now_ms())
        known = [(run.dispatch, run.token) for run in runs if run.token is not None]
        claimed = iter(await self._signals.claim(self.id, new, self._clock.now_ms()) if new else ())
        renewed = iter(await self._signals.renew(known) if known else ())
        return [next(claimed if run.token is None else renewed) for run in runs]

    def _without_fresh_claims(self, runs: Sequence[Run]) -> list[Run]:
        """Runs that are not claimed, or whose claim may have lapsed: another worker may have taken over."""
        oldest = self._clock.monotonic() - FRESH * self._signals.lapse_sec
        return [run for run in runs if not run.claimed_at >= oldest]

    def _twin_of(self, dispatch: Dispatch) -> Run | None:
        """What another delivery of the same dispatch began here and still runs, perhaps for longer than claims last."""
        run = self._active.get(dispatch.execution_id)
        return run if run is not None and run.dispatch.number == dispatch.number else None

    def _park(self, dispatches: Sequence[Dispatch]) -> None:
        if not self._parked:
            self._parked_at = self._clock.monotonic()
        self._parked.extend(dispatches)

    def _take_parked(self) -> list[Dispatch]:
        parked, self._parked = self._parked, []
        return parked

    def _room(self, pool: str) -> int:
        """Enough to keep the handlers busy for a moment, and what is early for its instant."""
        silent_since = self._outbox.unavailable_since
        if silent_since is not None and self._clock.monotonic() - silent_since > self._options.beat_sec:
            return 0  # a worker that cannot beat takes nothing new
        if self._deaf_since is not None and self._clock.monotonic() - self._deaf_since > DEAF_SEC:
            return 0  # what we cannot claim is better left to others
        capacity = self._options.concurrency[pool]
        return max(2 * capacity, self._pace[pool].per_second(self._clock.monotonic()) // 2) - self._held[pool]

    def _admit(self, run: Run, now_ms: int) -> None:
        self._held[run.dispatch.pool] += 1
        if not self._taking or run.identity is not self._identity:
            self._hand_back(run)
            return
        if run.dispatch.due_ms <= now_ms:
            self._ready[run.dispatch.pool, run.mode].append(run)
            return
        self._serial += 1
        heappush(self._waiting, (run.dispatch.due_ms, self._serial, run))

    async def start_once(self) -> float:
        """Start what is due and has room. Answers how long until there may be more to start."""
        with self._round():
            return await self._start_once()

    async def _start_once(self) -> float:
        now_ms = self._clock.now_ms()
        while self._waiting and self._waiting[0][0] <= now_ms:
            run = heappop(self._waiting)[2]
            self._ready[run.dispatch.pool, run.mode].append(run)
        blocked: set[Lane] = set()
        while lane := self._next_lane(blocked):
            if not await self._start_some(lane, self._turn(lane)):
                blocked.add(lane)
        if blocked:
            return 0.05
        if self._waiting:
            # Not longer than a moment: the wall clock may be set while we wait.
            return min(0.5, max(0.0005, (self._waiting[0][0] - self._clock.now_ms()) / 1000))
        return 0.5

    def _next_lane(self, blocked: Collection[Lane]) -> Lane | None:
        """The lane to serve next. It goes to the end of the order: pools that share threads or processes take turns."""
        for at, lane in enumerate(self._order):
            if self._ready[lane] and lane not in blocked and self._turn(lane) > 0:
                del self._order[at]
                self._order.append(lane)
                return lane
        return None

    def _turn(self, lane: Lane) -> int:
        """How many of a lane may be started now: free slots of its pool, and what the handlers' loop gets through in a
        moment; of handlers that need a thread or a process, no more than this lane's share of those that are free."""
        pool, mode = lane
        pace = self._pace[pool]
        if mode is Mode.ASYNC:
            # A pool with two hosts is counted here alone: each of them would let in as many.
            ahead = 0 if pool in self._shared_pools else int(pace.per_second(self._clock.monotonic()) * TURN_SEC)
            return self._options.concurrency[pool] + ahead - pace.under_way
        slots = self._options.concurrency[pool] - pace.under_way
        limit = _limit_of(mode, self._options)
        if limit is None:
            return slots
        lanes = sum(1 for other, ready in self._ready.items() if ready and other[1] is mode)
        return min(slots, math.ceil((limit - self._under_way[mode]) / max(1, lanes)))

    async def _start_some(self, lane: Lane, count: int) -> bool:
        """The pre-start check, then the start, of all that start now. False: nothing may start at present."""
        pool, ready = lane[0], self._ready[lane]
        found = self._shares.sort(pool, ready.take(self._shares.at_once(pool, count)))
        ready.put_back(found.waiting)
        runs = [*found.starting, *found.put_off] if found.put_off else found.starting
        self._checking = set(runs)
        flags = await self._check(pool, runs, found.put_off)
        # Runs that were dropped or returned meanwhile are not in it any more.
        runs = [run for run in runs if run in self._checking]
        self._checking = set()
        if flags is None or self._may_be_given_up(self._clock.monotonic()):
            ready.put_back(runs)
            return False
        if not self._taking:
            for run in runs:
                self._hand_back(run)
            return False
        if stale := self._without_fresh_claims(runs):
            # The check took long: a claim that may have lapsed meanwhile is renewed before the next one.
            ready.put_back(stale)
            runs = [run for run in runs if run not in stale]
        now_ms = self._clock.now_ms()
        starting, twins = self._apart_from_twins([run for run in runs if self._passes(run, flags, now_ms)])
        self._pace[pool].under_way += len(starting)
        self._under_way[lane[1]] += len(starting)
        for run in starting:
            run.timeout_sec = self._timeout_of(run)
        self._shares.started(starting)
        self._hand_to_hosts(self._without_announced(starting))
        ready.extend(twins)
        return not twins and not found.waiting

    def _without_announced(self, runs: list[Run]) -> list[Run]:
        """Runs that start at once. The others start when the log has their start: see `Run.may_have_run`."""
        announced = [run for run in runs if run.may_have_run]
        if not announced:
            return runs
        self._announcing.update(dict.fromkeys(announced))
        self._announce_wake.set()
        return [run for run in runs if not run.may_have_run]

    @property
    def is_announcing(self) -> bool:
        """Whether runs wait for their start to be reported."""
        return bool(self._announcing)

    async def announce_once(self) -> int:
        """Report the starts of runs that may have run before, and start them once that outlives this process. Returns how many
        there were. Raises BusUnavailable."""
        by_partition: dict[int, list[Item]] = {}
        now_ms = self._clock.now_ms()
        for run in self._announcing:
            run.announced_ms = run.announced_ms or now_ms
            item = self._item(run, run.start_report())
            by_partition.setdefault(item.partition, []).append(item)
        for partition, items in by_partition.items():
            await self._bus.report_durably(partition, [item.entry for item in items])
            self._start_announced([item.run for item in items if item.run is not None])
        await self._note_told()
        return sum(map(len, by_partition.values()))

    def _start_announced(self, runs: Sequence[Run]) -> None:
        for run in runs:
            run.told_start = run.is_known = True
            self._unacked.append(run.dispatch)
        # Some may have been handed back meanwhile.
        starting = [run for run in runs if run in self._announcing]
        for run in starting:
            del self._announcing[run]
        stale = self._without_fresh_claims(starting)
        for run in stale:
            self._turn_away(run, INTERRUPTED)
        self._hand_to_hosts([run for run in starting if run not in stale] if stale else starting)

    async def _check(
        self, pool: str, runs: list[Run], put_off: Mapping[Run, float]
    ) -> Mapping[ExecutionId, str] | None:
        """Claim runs, hold those that a breaker or a limit holds, and look for reasons not to start the others. None: nothing
        may start at present."""
        try:
            runs = await self._with_claims(runs)
            runs = self._without_put_off(runs, put_off)
            runs = await self._without_held(runs)
            runs = await self._without_throttled(runs)
            checked_ms = self._clock.now_ms()
            for run in runs:
                run.checked_ms = checked_ms
            return await self._signals.pre_start_check(pool, [run.dispatch for run in runs]) if runs else {}
        except SignalsUnavailable:
            self._lost_signals()
            return None

    async def _with_claims(self, runs: list[Run]) -> list[Run]:
        """Claim what is not claimed, and renew claims that may have lapsed while their runs waited for a slot."""
        wanting = self._without_fresh_claims(runs)
        if not wanting:
            return runs
        claimed = set(await self._claim(wanting))
        gone = {run for run in wanting if run not in claimed and run in self._checking}
        for run in gone:
            self._held[run.dispatch.pool] -= 1
        self._checking -= gone
        return [run for run in runs if run in self._checking]

    async def _without_held(self, runs: list[Run]) -> list[Run]:
        """Whoever waits for a breaker waits on the timeline."""
        delayed = await self._retry_breaker.delay(runs)
        for run, wait_sec in delayed.items():
            run.put_off(wait_sec, failure_of_delayed(run.dispatch, wait_sec))
            self._finish_in_check(run)
        return [run for run in runs if run not in delayed] if delayed else runs

    def _without_put_off(self, runs: list[Run], waits_sec: Mapping[Run, float]) -> list[Run]:
        """Runs whose tenant's share is held by slow calls wait on the timeline."""
        for run in runs:
            if run in waits_sec:
                run.put_off(waits_sec[run], failure_of_put_off(waits_sec[run]))
                self._finish_in_check(run)
        return [run for run in runs if run not in waits_sec] if waits_sec else runs

    async def _without_throttled(self, runs: list[Run]) -> list[Run]:
        delayed = await self._throttle.delay(runs)
        for run in delayed:
            self._finish_in_check(run)
        return [run for run in runs if run not in delayed] if delayed else runs

    def _finish_in_check(self, run: Run) -> None:
        """End a run that is put off, unless it was returned meanwhile."""
        if run in self._checking:
            self._checking.discard(run)
            self._finish(run, run.outcome)

    def _apart_from_twins(self, runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
        """Those that may start, and those whose execution still runs here under an earlier dispatch: they have their turn
        when that one has ended."""
        starting, twins = [], []
        for run in runs:
            other = self._active.setdefault(run.dispatch.execution_id, run)
            if other is run:
                starting.append(run)
            elif other.dispatch.number == run.dispatch.number:
                self._held[run.dispatch.pool] -= 1
                self._park([run.dispatch])
            elif other.dispatch.number > run.dispatch.number:
                self._turn_away(run, INTERRUPTED)
            else:
                twins.append(run)
                self._ask_to_end(other, INTERRUPTED)
        return starting, twins

    def _hand_to_hosts(self, runs: Sequence[Run]) -> None:
        if self._plain_host is self._host:
            self._host.start(runs)
            return
        for host in (self._host, self._plain_host):
            if mine := [run for run in runs if self._host_of(run) is host]:
                host.start(mine)

    def _host_of(self, run: Run) -> Host:
        return self._host if run.handler is None or run.handler.mode is Mode.ASYNC else self._plain_host

    def _passes(self, run: Run, flags: Mapping[ExecutionId, str], now_ms: int) -> bool:
        dispatch = run.dispatch
        if run.is_too_old(now_ms):
            self._metrics.refused.labels("dispatch").inc()
            self._turn_away(run, INTERRUPTED)
            return False
        reason = flags.get(dispatch.execution_id) if flags else None
        if reason is not None:
            self._turn_away(run, reason)
            return False
        deadline = dispatch.start_deadline_sec
        if deadline is not None and dispatch.attempt == 1 and now_ms > dispatch.due_ms + deadline * 1000:
            self._finish(run, Outcome.EXPIRED)
            return False
        if run.handler is None:
            self._finish(run, Outcome.HANDED_BACK)
            return False
        return True

    def _timeout_of(self, run: Run) -> float:
        """What the job says beats the handler's, which beats the pool's."""
        of_handler, slack_sec = (run.handler.timeout_sec, run.handler.slack_sec) if run.handler else (None, 0.0)
        said = run.dispatch.timeout_sec or of_handler or run.dispatch.pool_timeout_sec or DEFAULT_TIMEOUT_SEC
        return said + slack_sec

    def _turn_away(self, run: Run, reason: str) -> None:
        run.turn_away(reason)
        self._finish(run, run.outcome)

    def _finish(self, run: Run, outcome: Outcome) -> None:
        """An end without a start."""
        run.outcome = outcome
        run.ended_ms = self._clock.now_ms()
        self._ended.append(run)
        self._ended_wake.set()

    def _on_ended(self, run: Run) -> None:
        """Called on the handlers' loop."""
        self._ended.append(run)
        if len(self._ended) == 1 or not self._ended_wake.is_set():
            self._loop.call_soon_threadsafe(self._ended_wake.set)

    async def _report_ended(self) -> None:
        """Report what there is, and say so to the signals. If the bus is unavailable, it is tried once: the rest waits in the
        outbox."""
        while await self._send_ended():
            await self._tell()
            if self._outbox.unavailable_since is not None:
                break
            self._refused_since = None
        self._wake.set()

    async def _send_ended(self) -> bool:
        """Send what there is to the log, once. Returns whether there was anything."""
        async with self._reporting:
            if not (self._ended or self._outbox):
                return False
            runs = [self._ended.popleft() for _ in range(min(len(self._ended), 5_000))]
            if self._abandoned:
                runs = [run for run in runs if not self._came_back(run)]
            self._let_go(runs)
            self._outbox.add(
                [Item(run.identity.partition, run.report(run.identity.id, self._keyring), run) for run in runs]
            )
            for run in (item.run for item in await self._outbox.send()):
                if run is not None:
                    run.is_known = True
                    self._unacked.append(run.dispatch)
        return True

    async def _tell(self) -> None:
        """Give back places at endpoints, and let whoever gets a dispatch again know what the log has of it."""
        async with self._telling:
            await self._throttle.tell()
            await self._note_told()

    def _item(self, run: Run, entry: LogEntry) -> Item:
        """An entry about a run, for the partition of the identity under which it was taken."""
        return Item(run.identity.partition, entry, run)

    async def _note_told(self) -> None:
        """What the log has acknowledged need not be delivered again; first whoever gets it nevertheless must know."""
        dispatches, self._unacked = self._unacked, []
        if dispatches:
            try:
                await self._signals.ack([(dispatch.execution_id, dispatch.number) for dispatch in dispatches])
            except SignalsUnavailable:
                self._unacked = dispatches + self._unacked
                self._lost_signals()
            else:
                self._drop_twins(dispatches)
                await self._bus.done_with(self.id, dispatches)

    def _drop_twins(self, told: Sequence[Dispatch]) -> None:
        """Second deliveries that are parked here need no claim to be known as such."""
        if self._parked:
            names = {(dispatch.execution_id, dispatch.number) for dispatch in told}
            self._parked = [twin for twin in self._parked if (twin.execution_id, twin.number) not in names]

    def _let_go(self, runs: Sequence[Run]) -> None:
        now = self._clock.monotonic()
        for run in runs:
            pool = run.dispatch.pool
            self._held[pool] -= 1
            self._retry_breaker.note(run)
            self._throttle.note(run)
            if self._active.get(run.dispatch.execution_id) is run:
                del self._active[run.dispatch.execution_id]
                self._pace[pool].ended(now)
                self._under_way[run.mode] -= 1
                self._shares.ended(run)
            if run.started_ms:
                late_ms = run.started_ms - run.dispatch.due_ms
                self._metrics.lateness.observe(late_ms / 1000)
                self._metrics.duration.labels(pool).observe((run.ended_ms - run.started_ms) / 1000)
            self._metrics.attempts.labels(run.outcome.name).inc()

    async def watch_once(self) -> None:
        """Deadlines, revocations to end, long runs to announce, beats."""
        now = self._clock.monotonic()
        if self._may_be_given_up(now):
            self._resign()
        self._last_round = self._clock.monotonic()
        runs = [run for run in self._active.values() if run.begun_at]
        self._enforce_deadlines(runs, now)
        self._name_what_blocks(now)
        await self._heed_wishes(list(self._active.values()))
        await self._retry_breaker.tell()
        await self._throttle.tell()
        self._metrics.breakers_open.set(self._retry_breaker.open)
        await self._listen_again()
        self._tell_starts(runs, now)
        self._beat(runs, now)
        self._part_with_former()
        if self._unacked and not self._telling.locked():
            async with self._telling:
                await self._note_told()
        self._last_round = self._clock.monotonic()

    def _may_be_given_up(self, now: float) -> bool:
        """Whether the control loop stalled, or reached neither Kafka nor Redis, for so long that this identity may be judged
        lost. One that has not joined yet has nothing to lose."""
        longest = self._options.frozen_after_sec
        if longest is None or not self._identity.has_joined:
            return False
        mute_since, deaf_since = self._outbox.unavailable_since, self._deaf_since
        cut_off = mute_since is not None and deaf_since is not None
        alone = cut_off and now - max(mute_since or 0.0, deaf_since or 0.0, self._joined_at) > longest
        return alone or now - self._last_round > longest

    async def _listen_again(self) -> None:
        """Whoever takes nothing because nothing can be claimed has to find out when that is over."""
        if self._deaf_since is not None:
            with contextlib.suppress(SignalsUnavailable):
                await self._signals.has_generation(next(iter(self._options.concurrency)))
                self._deaf_since = None

    def _lost_signals(self) -> None:
        if self._deaf_since is None:
            self._deaf_since = self._clock.monotonic()

    def _enforce_deadlines(self, runs: Iterable[Run], now: float) -> None:
        for run in runs:
            context = run.context
            if context is not None and context._said_new:
                run.beat_at = now
            if run.ended_ms:
                continue
            silence = run.dispatch.heartbeat_timeout_sec
            if run.asked is not None:
                if now - run.asked_at >= self._patience_with(run):
                    self._abandon(run)
            elif now - run.begun_at >= run.timeout_sec:
                self._ask_to_end(run, TIMED_OUT)
            elif silence is not None and now - run.beat_at >= silence:
                self._ask_to_end(run, HEARTBEAT)

    def _patience_with(self, run: Run) -> float:
        """How long after it was asked to end a run is abandoned. A process is killed before, and should be seen dead."""
        return self._options.cancel_grace_sec + (DEATH_SEC if run.mode is Mode.PROCESS else 0.0)

    def _ask_to_end(self, run: Run, reason: str) -> None:
        if run.asked is None and not run.ended_ms:
            run.asked_at = self._clock.monotonic()
            run.asked = reason
            self._host_of(run).stop(run, reason)

    def _abandon(self, run: Run) -> None:
        """Report the end of a run that ignores it. Its own end is dropped, should it come."""
        log.warning(
            "run abandoned",
            execution=run.dispatch.execution_id,
            handler=run.dispatch.handler,
            why=run.asked,
            mode=run.mode.value,
        )
        stand_in = run.stand_in(self._clock.now_ms())
        self._active[run.dispatch.execution_id] = stand_in
        if self._abandoned.add(run):
            self._host_of(run).abandon(run)
        else:
            # What its stand-in gives back when it is reported is still taken.
            self._pace[run.dispatch.pool].under_way += 1
            self._under_way[run.mode] += 1
        self._metrics.abandoned.inc()
        self._ended.append(stand_in)
        self._ended_wake.set()

    def _came_back(self, run: Run) -> bool:
        """Whether this is the end of an abandoned run, which was reported long ago."""
        if run not in self._abandoned:
            return False
        log.info("abandoned run ended", execution=run.dispatch.execution_id, handler=run.dispatch.handler)
        if self._abandoned.remove(run):
            self._pace[run.dispatch.pool].under_way -= 1
            self._under_way[run.mode] -= 1
        return True

    def _name_what_blocks(self, now: float) -> None:
        """A coroutine that does not let go of the handlers' loop harms its neighbours there: say who it is."""
        stepping = self._host.stepping
        if stepping is not None and now - stepping[1] >= BLOCKS_SEC and not stepping[0].stuck:
            run = stepping[0]
            run.stuck = True
            log.warning("handler blocks its loop", handler=run.dispatch.handler, execution=run.dispatch.execution_id)

    async def _heed_wishes(self, runs: Sequence[Run]) -> None:
        by_pool: dict[str, list[tuple[ExecutionId, int]]] = {}
        for run in runs:
            by_pool.setdefault(run.dispatch.pool, []).append((run.dispatch.execution_id, run.dispatch.number))
        for pool, names in by_pool.items():
            try:
                wanted = await self._signals.revoked(pool, names)
            except SignalsUnavailable:
                self._lost_signals()
                return
            self._deaf_since = None
            for execution, reason in wanted.items():
                run = self._active.get(execution)  # type: ignore[assignment]
                if run is not None and reason not in SPARES_RUNNING and not run.is_completed:
                    self._ask_to_end(run, reason)

    def _tell_starts(self, runs: Iterable[Run], now: float) -> None:
        """A run of more than a second reports its start: from then on the store knows who runs it."""
        telling = [run for run in runs if not run.told_start and now - run.begun_at >= TELL_START_SEC]
        for run in telling:
            run.told_start = True
            self._say(self._item(run, run.start_report()))

    def _say(self, *items: Item) -> None:
        self._outbox.add(items)
        self._ended_wake.set()

    def _say_of(self, identity: Identity, *entries: LogEntry) -> None:
        """An identity that has not joined is not known to anybody, and says nothing."""
        if identity.has_joined:
            self._say(*(Item(identity.partition, entry) for entry in entries))

    def _beat(self, runs: Sequence[Run], now: float) -> None:
        mine = [run for run in runs if run.identity is self._identity]
        news = [run for run in mine if run.told_start and run.context is not None and run.context._said_new]
        if now - self._last_beat < self._options.beat_sec and not (news and now - self._last_beat >= 1.0):
            return
        if self._outbox.has_beat:
            return  # the last one has not left yet: the bus is away
        self._last_beat = now
        now_ms = self._clock.now_ms()
        for former in self._former:
            # Until its runs have ended: a worker that is judged lost costs each of them an attempt.
            self._say_of(former, Beat(former.id, now_ms))
        if self._identity.has_joined:
            said = [progress for run in news if (progress := self._progress_of(run))]
            stuck = (*(run.dispatch.execution_id for run in mine if run.stuck), *self._abandoned)
            self._say_of(self._identity, *beats_of(self.id, now_ms, said, stuck))

    def _progress_of(self, run: Run) -> tuple[ExecutionId, int, bytes] | None:
        """What a run has said since the last beat, sealed."""
        assert run.context is not None
        run.context._said_new = False
        if run.context._said is None:
            return None
        context = context_of(run.dispatch.tenant, run.dispatch.job_id)
        return run.dispatch.execution_id, run.dispatch.number, self._keyring.seal(run.context._said, context)

    def _resign(self) -> None:
        """Go on under a new identity: this one may have been judged lost.

        Its runs are asked to end, and reported under it when they have; one that does not end within the grace is abandoned.
        Nothing here waits: deadlines, revocations and beats go on, and the loop that takes joins under the new identity.
        """
        log.warning("control loop stalled or cut off; continuing under a new identity", worker=self.id)
        former = self._identity
        self._hand_back_unstarted()
        self._parked.clear()
        self._former.append(former)
        self._leaving.append(former.id)
        self._identity = self._make_identity()
        for run in list(self._active.values()):
            self._ask_to_end(run, INTERRUPTED)
        self._last_beat = -math.inf  # if it is not judged yet, it should not be while its runs end

    def _part_with_former(self) -> None:
        """Say good-bye for identities whose last run is reported."""
        if not self._former:
            return
        with_runs = {run.identity for run in (*self._active.values(), *self._ended)}
        for former in [each for each in self._former if each not in with_runs]:
            self._say_of(former, Bye(former.id, self._clock.now_ms()))
            self._former.remove(former)

    def _hand_back_unstarted(self) -> None:
        unstarted = [*self._checking, *(run for _, _, run in self._waiting)]
        self._checking = set()
        self._waiting.clear()
        for ready in self._ready.values():
            unstarted += ready
            ready.clear()
        for run in unstarted:
            self._hand_back(run)
        # Their starts may be on the log already: they are ours to return, whatever became of their claims.
        announcing, self._announcing = self._announcing, {}
        for run in announcing:
            self._turn_away(run, INTERRUPTED)

    def _hand_back(self, run: Run) -> None:
        """Return a run that has not begun. One that is not ours (any more) is left to the worker it is delivered to next."""
        if self._without_fresh_claims([run]):
            self._held[run.dispatch.pool] -= 1
        else:
            self._turn_away(run, INTERRUPTED)

    def _hello(self, identity: Identity) -> Hello:
        return Hello(
            worker_id=identity.id,
            at_ms=self._clock.now_ms(),
            host=socket.gethostname(),
            pid=os.getpid(),
            concurrency=dict(self._options.concurrency),
            handlers=tuple(handler.info() for handler in self._handlers.values()),
        )

    def _make_carrier(self, handlers_loop: asyncio.AbstractEventLoop) -> HandlerThread | None:
        """A loop for runs in threads and processes, lest they wait for a coroutine that blocks the handlers' loop."""
        plain = any(handler.mode is not Mode.ASYNC for handler in self._handlers.values())
        if handlers_loop is self._loop or not plain:
            return None
        return HandlerThread(asyncio.new_event_loop, "noonday-carrier")

    def _find_shared_pools(self) -> frozenset[str]:
        """Pools with handlers on both hosts."""
        if not self._carrier:
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


async def _ended(task: "asyncio.Task[None]") -> None:
    await asyncio.wait({task})


def _limit_of(mode: Mode, options: WorkerOptions) -> int | None:
    """How many runs of a mode there can be at once in the whole worker. None: any number, or the host says why there is none."""
    return {Mode.ASYNC: None, Mode.THREAD: options.threads, Mode.PROCESS: options.processes or None}[mode]


def _runnable(options: WorkerOptions, handlers: Mapping[tuple[str, str], Handler]) -> dict[str, int]:
    """For each pool how many of its handlers can run at once: its concurrency, or fewer if all of them need threads or
    processes and there are fewer of those."""
    runnable = {}
    for pool, concurrency in options.concurrency.items():
        limits = [_limit_of(mode, options) for mode in {each.mode for (of, _), each in handlers.items() if of == pool}]
        bounded = [limit for limit in limits if limit is not None]
        runnable[pool] = min(concurrency, sum(bounded)) if bounded and len(bounded) == len(limits) else concurrency
    return runnable


class _Pace:
    """How fast runs of a pool end, and how many are under way."""

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
