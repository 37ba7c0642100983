"""An embedded Noonday in a simulated process on a simulated disk, and a user who changes everything."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.sqlite.connection import (
    MEMORY,
    FileOptions,
    PendingWork,
    SqliteDatabase,
    Work,
    commit_group,
    connect,
)
from noonday.drivers.sqlite.store import prepare, store_on
from noonday.model.budget import INDEX_ENTRIES, EntryBudget
from noonday.model.caller import Caller
from noonday.model.errors import (
    Conflict,
    DoNotRetry,
    InvalidInput,
    NoondayError,
    NotFound,
    PayloadTooLarge,
    QuotaExceeded,
    StoreUnavailable,
)
from noonday.model.filters import MoveRequest, RunRequest, SkipRequest
from noonday.model.handler import Handler, Mode
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import (
    CatchUp,
    CatchUpPolicy,
    Concurrency,
    JobSpec,
    JobType,
    Overlap,
    Priority,
    Target,
    instant_of,
    ms_of,
    rule_of,
)
from noonday.model.merge_patch import merged
from noonday.model.message import Dispatch, LogEntry, Oversized
from noonday.model.rate import Rate
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.turns import MOST_OF_A_TENANT
from noonday.model.view import ExecutionView, JobView, TenantSettings
from noonday.wiring.drivers import Drivers
from noonday.wiring.engine import Engine
from noonday.wiring.settings import Settings
from noonday.wiring.settings.engine import WorkerSettings
from noonday.worker.context import Context, Snooze
from tests.simulation.checker import check_commit, check_end
from tests.simulation.children import check_children, enqueue_children
from tests.simulation.ends_of_pauses import check_ends_of_pauses
from tests.simulation.history import Answer, Effect, History, Logged, Span
from tests.simulation.kernel import FaultPlan, Process, SimClock, World
from tests.simulation.lateness import Scene, faults_of
from tests.simulation.load import Load
from tests.simulation.logs import check_log, check_offsets
from tests.simulation.observing import check_owners, observe, seen
from tests.simulation.policies import check_policies
from tests.simulation.retention import check_retention
from tests.simulation.rows import SqliteRows
from tests.simulation.sizes import FILL, LARGE, check_sizes
from tests.simulation.threads import use_simulated_threads

T = TypeVar("T")
_REFUSALS = (Conflict, InvalidInput, NotFound, PayloadTooLarge, QuotaExceeded)
"""Errors that mean that nothing was changed."""
USER = Caller(TenantId("default"), "user", frozenset({"operator"}))
OTHER = Caller(TenantId("other"), "user", frozenset({"admin"}))
CALLERS = {caller.tenant: caller for caller in (USER, OTHER)}
QUICK = RetryPolicy(max_attempts=4, backoff=Backoff.FIXED, initial_delay_ms=2_000)
STILL_PAUSED_MS = 60_000
"""A job that is paused for so long after the end of its pause is not waited for any more."""
RECOVERY_MS = {"down": 3_000, "frozen": 1_000, "full": 6_000, "interrupted": 4_000}
"""Time in ms that an embedded engine takes to recover from a fault: to start, to continue, to end its back-off."""

IN_THREADS: list[dict[str, Any]] = [
    {},
    {"do": "sleep", "sec": 2.5},
    {"do": "sleep", "sec": 8},
    {"do": "fail", "times": 1},
]
"""Seconds that handlers in threads run. The longest run outlasts the grace of a cancellation."""
CLOCK_ERROR_MS = 2_000
"""The largest offset of a clock, in ms."""


@dataclass
class Disk:
    """The data that survives a process. Some commits fail, if the seed says so."""

    random: Random
    now_ms: Callable[[], int]
    conn: sqlite3.Connection = field(default_factory=lambda: connect(MEMORY, FileOptions("OFF")))
    full: bool = False
    commits: int = 0
    problems: list[str] = field(default_factory=list)
    check_every: int = 5
    interrupts: list[int] = field(default_factory=list)
    """The number of steps of SQLite's virtual machine after which a coming transaction is interrupted."""
    forced: Counter[str] = field(default_factory=Counter)
    """Number of triggers of each job that were to pass its overlap rule."""
    spans: list[Span] = field(default_factory=list)
    """The time of the last interruption."""

    def __post_init__(self) -> None:
        prepare(self.conn)
        observe(self.conn, self.now_ms)

    def commit(self, requests: Sequence[PendingWork[Any]]) -> None:
        if self.full:
            for request in requests:
                request.error = StoreUnavailable("the simulated disk is full")
            return
        if self.interrupts:
            self._commit_interrupted(requests, self.interrupts.pop())
        else:
            commit_group(self.conn, requests, "disk")
        self.commits += 1
        if self.commits % self.check_every == 0 and not self.problems:
            self.problems += list(check_commit(self.conn, self.forced))

    def _commit_interrupted(self, requests: Sequence[PendingWork[Any]], steps: int) -> None:
        left = [1]
        self.spans.append(Span("interrupted", self.now_ms(), self.now_ms()))
        self.conn.set_progress_handler(lambda: left and left.pop(), steps)
        try:
            commit_group(self.conn, requests, "disk")
        finally:
            self.conn.set_progress_handler(None, 0)


class SimDatabase(SqliteDatabase):
    """Group commit as in the real driver, with an await wherever a process could die."""

    def __init__(self, disk: Disk, clock: SimClock, random: Random) -> None:
        self.path = "disk"
        self._disk = disk
        self._clock = clock
        self._random = random
        self._queue: list[PendingWork[Any]] = []
        self._wake = asyncio.Event()
        self._writer = asyncio.create_task(self._write_forever())

    async def write(self, work: Work[T]) -> T:
        request: PendingWork[T] = PendingWork(work, asyncio.get_running_loop().create_future())
        self._queue.append(request)
        self._wake.set()
        return await request.future

    async def read(self, work: Work[T]) -> T:
        await self._clock.sleep(self._random.random() * 0.001)
        return work(self._disk.conn)

    async def close(self) -> None:
        self._writer.cancel()

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._clock.sleep(self._random.random() * 0.004)
            group, self._queue = self._queue, []
            if group:
                self._disk.commit(group)
            await self._clock.sleep(self._random.random() * 0.004)
            for request in group:
                request.resolve()


class NotingSignals(MemorySignals):
    """Signals that note when a pre-start check was answered."""

    def __init__(self, history: History, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._history = history
        self._now_ms = now_ms

    async def pre_start_check(self, pool: str, dispatches: Sequence[Dispatch]) -> Mapping[ExecutionId, str] | None:
        found = await super().pre_start_check(pool, dispatches)
        if found is not None:
            for dispatch in dispatches:
                if dispatch.execution_id not in found:
                    self._history.checks[dispatch.execution_id, dispatch.number] = self._now_ms()
        return found


class LoggedBus(MemoryBus):
    """A bus that notes what is written to the log. Each start of a process begins another log."""

    def __init__(self, clock: SimClock, history: History, now_ms: Callable[[], int], generation: int) -> None:
        super().__init__(clock)  # type: ignore[arg-type]
        self._history = history
        self._now_ms = now_ms
        self._generation = generation

    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        oversized = await super().report(partition, entries)
        now_ms = self._now_ms()
        self._history.log += [Logged(self._generation, now_ms, entry) for entry in entries]
        return oversized


class Simulation:
    """One seed: a world, a disk, a process that dies and is started again, a user, and a history."""

    def __init__(
        self, seed: int, *, faults: FaultPlan | None = None, concurrency: int = 8, load: Load | None = None
    ) -> None:
        """`load`: what the run has besides jobs, edits and faults."""
        self.world = World(seed)
        self.random = Random(f"user/{seed}")
        self.load = load or Load()
        self.largest_message: int | None = None
        """The largest message in bytes. An embedded engine has no messages."""
        self.disk = Disk(Random(f"disk/{seed}"), self.world.now_ms)
        self.keyring = Keyring.generate()
        self.history = History()
        self.disk.spans = self.history.spans
        self.faults = faults
        self.concurrency = concurrency
        self.knows_limits = True
        """Whether the history has every limit and stall that delays a dispatch. If not, lateness is not checked."""
        self.most_of_a_tenant = 4 if seed % 7 == 5 else MOST_OF_A_TENANT
        """Some runs have a hot index with little room."""
        self.index_entries = 12 if seed % 7 == 3 else INDEX_ENTRIES
        # Many handlers fail for ever in a random run. The retry breaker prolongs such a run, so only some have it.
        worker = WorkerSettings() if seed % 10 in (1, 3) else WorkerSettings(retry_breaker_min_runs_per_minute=0)
        self.settings = msgspec.structs.replace(Settings(), data=MEMORY, worker=worker)
        if self.load.retention is not None:
            self.settings = msgspec.structs.replace(self.settings, retention=self.load.retention)
        self.process: Process | None = None
        self.engine: Engine | None = None
        self.clock: SimClock | None = None
        self._ids = 0
        self._boots = 0
        self._specs: dict[str, JobSpec] = {}
        """The present definition of each job, unless a request about it had no answer."""
        self._clock_errors: dict[str, int] = {}
        """The present clock error of each process that has one."""
        self._machine_ahead_ms = 0
        """By how many ms the clock of the machine is ahead of the reference clock."""
        self._keyed: dict[tuple[str, str], set[str]] = {}
        self._moved: dict[str, list[tuple[int, int]]] = {}
        """The moves of each job, as its last answer showed them."""
        """(tenant, unique key) -> jobs that had the key."""

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *exception: object) -> None:
        self.world.close()
        self.disk.conn.close()

    # -- the process ---------------------------------------------------------------------------------------------------

    async def boot(self) -> None:
        """Start a process on the disk, and wait until it is up or dead again."""
        self._boots += 1
        self.process = process = self.world.process("noonday")
        self.engine = None
        up = self.world.loop.create_future()
        process.spawn(self._live(process, up))
        while not up.done() and process.alive:
            await asyncio.sleep(0.01)

    async def _live(self, process: Process, up: asyncio.Future[None]) -> None:
        clock = self._clock_of(process)
        random = Random(f"latency/{self.world.seed}/{self._boots}")
        store = store_on(SimDatabase(self.disk, clock, random), self.settings.scheduler.lead_ms)
        budget = EntryBudget(self.index_entries)
        drivers = Drivers(
            clock=clock,  # type: ignore[arg-type]
            **store.ports,
            index=MemoryHotIndex(self.settings.scheduler.lead_ms, self.most_of_a_tenant, budget),
            budget=budget,
            bus=LoggedBus(clock, self.history, self.world.now_ms, self._boots),
            signals=NotingSignals(self.history, self.world.now_ms),
            leases=LocalLeases(None, clock),
            keyring=self.keyring,
        )
        engine = Engine(
            drivers, self.settings, self._handlers(process), concurrency={"p": self.concurrency}, new_id=self._new_id
        )
        use_simulated_threads(engine.worker)
        try:
            await engine.start()
        except StoreUnavailable:
            process.kill()  # the disk was full at start: this process gives up, like the real one
            await asyncio.sleep(0)
        self.clock, self.engine = clock, engine
        self.history.boots.append((str(process), self.world.now_ms()))
        up.set_result(None)

    def _clock_of(self, process: Process) -> SimClock:
        """Return the clock of the machine: an embedded engine uses it uncorrected."""
        clock = SimClock(self.world, process)
        clock.offset_ms = self._machine_ahead_ms
        self._note_clock(process, clock)
        return clock

    def _note_clock(self, process: Process, clock: SimClock) -> None:
        """Note that a clock was stepped or corrected."""
        now_ms = self.world.now_ms()
        error_ms = clock.now_ms() - now_ms
        if error_ms != self._clock_errors.get(str(process), 0):
            self._clock_errors[str(process)] = error_ms
            self.history.clock_errors.append((str(process), now_ms, error_ms))

    def _step_from(self, ahead_ms: int) -> int:
        """Choose the step of a clock that is ahead by `ahead_ms`."""
        step_ms = self.load.random.randint(-CLOCK_ERROR_MS, CLOCK_ERROR_MS)
        return max(-CLOCK_ERROR_MS, min(CLOCK_ERROR_MS, ahead_ms + step_ms)) - ahead_ms

    def disturbances(self) -> list[Coroutine[Any, Any, None]]:
        """Start the disturbances that the load asks for, beside the director."""
        return [self.set_clocks()]

    async def set_clocks(self) -> None:
        """Step the clock of the machine now and then, in runs whose load says so."""
        while self.load.clock_steps:
            await asyncio.sleep(self.load.random.random() * 12)
            step_ms = self._step_from(self._machine_ahead_ms)
            self._machine_ahead_ms += step_ms
            if self.engine is not None and self.process is not None and self.clock is not None:
                self.clock.step(step_ms)
                self._note_clock(self.process, self.clock)

    def _new_id(self) -> JobId:
        self._ids += 1
        time = f"{self.world.now_ms():012x}"
        return JobId(f"{time[:8]}-{time[8:]}-7{self._ids % 4096:03x}-8000-{self._ids:012x}")

    async def restart_forever(self) -> None:
        """Start another process some time after each death."""
        while True:
            process = self.process
            assert process is not None
            await process.wait_dead()
            self.history.deaths.append((str(process), self.world.now_ms()))
            self.history.log_ends[self._boots] = self.world.now_ms() - 1
            self.engine = None
            await asyncio.sleep(self.random.choice([0.01, 0.5, 3, 20]))
            await self.boot()

    def _handlers(self, process: Process) -> dict[tuple[str, str], Handler]:
        """Coroutine handlers, and thread handlers in runs whose load says so."""
        modes = {"act": Mode.ASYNC, "block": Mode.THREAD} if self.load.threads else {"act": Mode.ASYNC}
        return {("p", name): self._handler(process, name, mode) for name, mode in modes.items()}

    def _handler(self, process: Process, name: str, mode: Mode) -> Handler:
        async def act(ctx: Context, payload: Any) -> Any:
            effect = Effect(
                ctx.execution_id,
                ctx._dispatch.number,
                ctx.token,
                str(process),
                self.world.now_ms(),
                ctx._dispatch.due_ms,
                payload,
                in_thread=mode is Mode.THREAD,
            )
            self._check_synced(effect)
            self.history.effects.append(effect)
            if payload.get("do") == "die":
                process.kill()
                await asyncio.sleep(0)
            try:
                return await self._behave(ctx, payload)
            finally:
                effect.end_ms = self.world.now_ms()

        return Handler(name, "p", act, mode, msgspec.json.decode, msgspec.json.encode)

    def _check_synced(self, effect: Effect) -> None:
        """I18: a handler is entered only under a dispatch that is on disk."""
        query = "SELECT dispatch, fired_ms FROM executions WHERE id = ?"
        row = self.disk.conn.execute(query, (effect.execution,)).fetchone()
        if row is None or row[0] != effect.dispatch or row[1] is None:
            self.history.problems.append(f"I18: {effect} started while the disk says {row}")

    async def _behave(self, ctx: Context, payload: dict[str, Any]) -> Any:
        enqueue_children(ctx, payload.get("children", 0), self.history, named=self.load.retention is None)
        kind = payload.get("do", "nothing")
        if kind == "sleep":
            await asyncio.sleep(payload["sec"])
        elif kind == "progress":
            for step in range(ctx.progress.get("step", 0), 4):
                ctx.heartbeat({"step": step})
                await asyncio.sleep(1)
        elif kind == "fail" and ctx.attempt <= payload["times"]:
            await asyncio.sleep(0.05)
            raise ValueError("told to\x00fail \ud800")
        elif kind == "large result":
            return {"text": FILL}
        elif kind == "large progress":
            ctx.heartbeat({"step": 0, "text": FILL})
            await asyncio.sleep(1.5)
        elif kind == "never again":
            raise DoNotRetry("told to")
        elif kind == "snooze" and ctx._dispatch.number <= payload["times"]:
            raise Snooze(1.5)
        return {"ran": ctx.attempt}

    # -- the user ------------------------------------------------------------------------------------------------------

    async def ask(
        self,
        action: str,
        target: str,
        request: Callable[[Engine], Awaitable[T]],
        value: Any = None,
        spec: JobSpec | None = None,
        key: tuple[str, str] | None = None,
    ) -> T | None:
        """Send a request to the process, if it is up.

        A request without an answer may have taken effect or not. A refused request has not.
        """
        engine, process = self.engine, self.process
        if engine is None or process is None or not process.alive:
            return None
        outcome: list[Any] = []
        asked_ms = self.world.now_ms()

        async def call() -> None:
            try:
                outcome.append(await request(engine))
            except NoondayError as error:
                outcome.append(error)

        process.spawn(call())
        while not outcome and process.alive:
            await asyncio.sleep(0.001)
        if outcome and isinstance(outcome[0], _REFUSALS):
            return None
        at_ms = self.world.now_ms()
        if outcome and not isinstance(outcome[0], Exception):
            shown = outcome[0]
            if isinstance(shown, JobView) and action == "create":
                # A request with a taken unique key updated the job that has the key.
                is_update = key is not None and (shown.version > 1 or shown.job_id in self._keyed.get(key, ()))
                action, target = "replace" if is_update else "create", shown.job_id
            self.history.answers.append(Answer(action, target, at_ms, value, asked_ms, spec, shown, key))
            return shown  # type: ignore[no-any-return]
        self.history.answers.append(Answer(f"{action}?", target, at_ms, value, asked_ms, spec, key=key))
        return None

    async def create(self, spec: JobSpec, caller: Caller = USER) -> JobView | None:
        if spec.unique_key is not None:
            return await self._create_by_key(spec, caller, (caller.tenant, spec.unique_key))
        job = await self.ask("create", "", lambda engine: engine.services.jobs.create(caller, spec), spec=spec)
        if job is not None:
            self._specs[job.job_id] = spec
        return job

    async def _create_by_key(self, spec: JobSpec, caller: Caller, key: tuple[str, str]) -> JobView | None:
        """Create a job, or update the one that has the key. Without an answer, the outcome is unknown."""
        jobs = self._keyed.setdefault(key, set())
        known = {job: self._specs.pop(job) for job in sorted(jobs) if job in self._specs}
        count, value = len(self.history.answers), spec.payload["v"]
        job = await self.ask("create", "", lambda e: e.services.jobs.create(caller, spec), value, spec, key)
        if job is not None:
            jobs.add(job.job_id)
            self._specs |= {**known, job.job_id: spec}
        elif len(self.history.answers) == count:
            self._specs |= known  # the request was refused, or never sent
        return job

    async def create_any(self) -> JobView | None:
        """Create a job of any kind, for any tenant.

        In some runs, some jobs have a unique key, and later requests use the same key.
        """
        caller = self.random.choice([USER, USER, OTHER])
        spec = self.any_spec()
        if self.load.threads and self.load.random.random() < 0.3:
            payload = {"v": 1, **self.load.random.choice(IN_THREADS)}
            target, timeout_sec = Target("p", "block"), self.load.random.choice([None, 0.5])
            spec = msgspec.structs.replace(spec, target=target, payload=payload, timeout_sec=timeout_sec)
        if self.largest_message is not None and self.load.random.random() < 0.4:
            spec = msgspec.structs.replace(spec, payload={"v": 1, **self.load.random.choice(LARGE)})
        if self.load.children and self.load.random.random() < 0.4:
            spec = msgspec.structs.replace(spec, payload={**spec.payload, "children": self.load.random.randint(1, 3)})
        if self.load.unique_keys and self.load.random.random() < 0.5:
            spec = self._with_key(spec, caller)
        return await self.create(spec, caller)

    def _with_key(self, spec: JobSpec, caller: Caller) -> JobSpec:
        """Give a definition one of two unique keys. Sometimes return exactly the definition of the job that has the key."""
        key = self.load.random.choice(["first", "second"])
        definitions = [
            self._specs[job] for job in sorted(self._keyed.get((caller.tenant, key), ())) if job in self._specs
        ]
        if definitions and self.load.random.random() < 0.3:
            return definitions[-1]
        return msgspec.structs.replace(spec, unique_key=key, payload={**spec.payload, "v": self.world.now_ms()})

    async def replace(self, job: str, spec: JobSpec, caller: Caller = USER) -> JobView | None:
        return await self._replace(job, spec, lambda engine: engine.services.jobs.replace(caller, job, spec))

    async def _replace(
        self, job: str, spec: JobSpec, request: Callable[[Engine], Awaitable[JobView]]
    ) -> JobView | None:
        value = spec.payload["v"]
        known = self._specs.pop(job, None)
        count = len(self.history.answers)
        shown = await self.ask("replace", job, request, value, spec)
        if shown is not None:
            self._specs[job] = spec
        elif known is not None and len(self.history.answers) == count:
            self._specs[job] = known  # the request was refused, or never sent
        return shown

    def spec(self, **fields: Any) -> JobSpec:
        return JobSpec(**{"target": Target("p", "act"), "payload": {"v": 1}, "retry_policy": QUICK, **fields})

    def any_spec(self) -> JobSpec:
        """Return a random definition."""
        random = self.random
        payload = {"v": 1, **random.choice(_BEHAVIOURS)}
        common: dict[str, Any] = {
            "payload": payload,
            "priority": random.choice(list(Priority)),
            "overlap": random.choice([Overlap.ALLOW, Overlap.ALLOW, *Overlap]),
        }
        if random.random() < 0.15:
            common["concurrency"] = Concurrency("key", 2)
        elif random.random() < 0.25:
            common["concurrency"] = Concurrency("line", 1, ordered=True)
        if random.random() < 0.1:
            common["timeout_sec"] = 0.5
        if random.random() < 0.1:
            common["spread_sec"] = 3
        if random.random() < 0.15:
            common["start_deadline_sec"] = random.choice([1, 5])
        kind = random.random()
        if kind < 0.5:
            delay = random.choice([0, 0.05, 0.5, 2, 5, 20])
            return self.spec(type=JobType.DELAYED, delay_sec=delay, **common)
        common["catch_up"] = CatchUp(random.choice(list(CatchUpPolicy)), 3600)
        if random.random() < 0.3:
            common["max_runs"] = random.randint(1, 5)
        common["end_at"] = self.instant() + timedelta(seconds=random.choice([5, 10, 25]))
        if kind < 0.75:
            schedule = random.choice(["* * * * * *", "*/5 * * * * *", "*/7 * * * * *"])
            return self.spec(type=JobType.CRON, schedule=schedule, **common)
        return self.spec(type=JobType.INTERVAL, every_sec=random.choice([1, 2.5, 6]), **common)

    async def full_disk(self, seconds: float) -> None:
        """Let nothing be stored for some seconds."""
        now_ms = self.world.now_ms()
        self.history.spans.append(Span("full", now_ms, now_ms + round(seconds * 1000)))
        self.disk.full = True
        await asyncio.sleep(seconds)
        self.disk.full = False

    async def rate(self, per_sec: float) -> None:
        """Limit the rate at which executions of the other tenant are dispatched."""
        settings = TenantSettings(rate_per_sec=per_sec, burst=2, retention_days=self.load.other_keeps_days)
        value = (OTHER.tenant, Rate(per_sec, 2))
        await self.ask("rate", "", lambda engine: engine.services.tenants.put(USER, OTHER.tenant, settings), value)

    async def keep(self) -> None:
        """Give the other tenant its own retention, in runs whose load says so."""
        if self.load.other_keeps_days is not None:
            settings = TenantSettings(retention_days=self.load.other_keeps_days)
            tenant = OTHER.tenant
            await self.ask("keep", "", lambda engine: engine.services.tenants.put(USER, tenant, settings), tenant)

    def interrupt(self, statements: int) -> None:
        """Let a statement of a coming transaction fail in the middle, as if by an error of the store."""
        self.disk.interrupts.append(statements)

    def instant(self) -> datetime:
        return datetime.fromtimestamp(self.world.now_ms() / 1000, UTC)

    async def meddle(self, jobs: list[JobView]) -> None:
        """Send a random request about an existing job."""
        random = self.random
        job = random.choice(jobs)
        caller = CALLERS[TenantId(job.tenant)]
        if self.load.times and self.load.times.random() < 0.7:
            await self._retime(job.job_id, self.load.times, caller)
            return
        if self.load.changes and self.load.random.random() < 0.4:
            await self._change(job.job_id, caller)
            return
        action = random.choice(
            ["replace", "pause", "resume", "delete", "trigger", "cancel", "cancel", "backfill", "retry", "intrude"]
        )
        if action == "replace":
            payload = {**(job.payload or {}), "v": self.world.now_ms()}
            spec = msgspec.convert(msgspec.to_builtins(self.any_spec()), JobSpec) if random.random() < 0.5 else None
            wanted = msgspec.structs.replace(
                spec or _as_spec(job, self.instant()), payload=payload, unique_key=job.unique_key
            )
            await self.replace(job.job_id, wanted, caller)
        elif action == "cancel":
            await self._cancel_something(job, caller)
        elif action == "backfill":
            await self._backfill(job, caller)
        elif action == "retry":
            await self._retry_something(caller)
        elif action == "intrude":
            await self._intrude(job)
        else:
            await self.ask(action, job.job_id, lambda e: getattr(e.services.jobs, action)(caller, job.job_id))

    async def _retime(self, job: str, random: Random, caller: Caller) -> None:
        """Pause a job until a time, or move one of its next occurrences, perhaps one that was moved before."""
        now_ms = self.world.now_ms()
        if random.random() < 0.4:
            await self.pause_until(job, now_ms + random.choice([300, 1_500, 4_000, 9_000]), caller)
            return
        known = self._specs.get(job)
        if known is None or known.one_shot:
            return
        moved = [pair for pair in self._moved.get(job, ()) if pair[1] > now_ms]
        if moved and random.random() < 0.6:
            former, new = random.choice(moved)
            to_ms = former if random.random() < 0.3 else now_ms + random.randint(1, 120) * 100 + 37
            await self.move(job, new, to_ms, caller)
        elif times := rule_of(known, 0).take(now_ms, 4):
            await self.move(job, random.choice(times), now_ms + random.randint(1, 120) * 100 + 37, caller)

    async def pause_until(self, job: str, until_ms: int, caller: Caller = USER) -> JobView | None:
        return await self.ask("pause", job, lambda e: e.services.jobs.pause(caller, job, until_ms=until_ms), until_ms)

    async def move(self, job: str, at_ms: int, to_ms: int, caller: Caller = USER) -> JobView | None:
        """Move an occurrence. The answer has all moves of occurrences to come."""
        request = MoveRequest(at=instant_of(at_ms), to=instant_of(to_ms), reason="of the simulation")
        shown = await self.ask("move", job, lambda e: e.services.moves.move(caller, job, request), (at_ms, to_ms))
        if shown is not None:
            self._moved[job] = [(ms_of(each.at), ms_of(each.to)) for each in shown.moves]
        return shown

    async def _change(self, job: str, caller: Caller) -> None:
        """Patch a job, or trigger it in another way than usual."""
        random = self.load.random
        kind = random.random()
        if kind < 0.3:
            await self.patch(job, caller)
            return
        if kind < 0.6:
            await self.skip(job, random.randint(1, 3), caller)
            return
        if kind < 0.7:
            await self.undo_skip(job, caller=caller)
            return
        payload = {"v": self.world.now_ms(), "own": True, **random.choice(_BEHAVIOURS)}
        request = RunRequest(payload=random.choice([UNSET, payload]), force=random.random() < 0.5)
        await self.trigger(job, request, caller)

    async def patch(self, job: str, caller: Caller = USER, **fields: Any) -> JobView | None:
        """Patch the payload and some other fields of a recurring job whose definition is known."""
        known = self._specs.get(job)
        if known is None or known.one_shot:
            return None
        patch = {"payload": {"v": self.world.now_ms()}, **(fields or self.load.random.choice(_PATCHES))}
        wanted = merged(msgspec.json.decode(msgspec.json.encode(known)), patch)
        spec = msgspec.json.decode(msgspec.json.encode(wanted), type=JobSpec)
        return await self._replace(job, spec, lambda e: e.services.changer.patch(caller, job, patch))

    async def skip(self, job: str, count: int, caller: Caller = USER) -> JobView | None:
        """Skip the next occurrences of a job. The answer has all that are skipped from then on."""
        request = SkipRequest(next=count, reason="of the simulation")
        shown = await self.ask("skip", job, lambda e: e.services.skips.skip(caller, job, request))
        if shown is not None and not shown.skips:
            self.history.problems.append(
                f"skip: {count} occurrences of job {job} were skipped, and the answer shows none"
            )
        return shown

    async def undo_skip(self, job: str, at_ms: int | None = None, caller: Caller = USER) -> JobView | None:
        return await self.ask("unskip", job, lambda e: e.services.skips.undo(caller, job, at_ms), at_ms)

    async def trigger(self, job: str, request: RunRequest, caller: Caller = USER) -> ExecutionView | None:
        if request.force:
            self.disk.forced[job] += 1
        shown = await self.ask(
            "trigger", job, lambda e: e.services.jobs.trigger(caller, job, request=request), value=request
        )
        if shown is not None and request.force and shown.next_attempt_at is None:
            self.history.problems.append(f"force: {shown.execution_id} waits for another execution of job {job}")
        return shown

    async def _backfill(self, job: JobView, caller: Caller) -> None:
        spec = self._specs.get(job.job_id)
        if spec is None or spec.one_shot:
            return
        to_ms = self.world.now_ms() - self.random.randint(0, 3_000)
        from_ms = to_ms - self.random.choice([900, 3_000, 8_000])
        name = f"backfill {to_ms}"
        await self.ask(
            "backfill",
            job.job_id,
            lambda e: e.services.backfills.backfill(
                caller, job.job_id, from_ms=from_ms, to_ms=to_ms, backfill_id=name, preview=False
            ),
            (from_ms, to_ms),
            spec,
        )

    async def _retry_something(self, caller: Caller) -> None:
        query = "SELECT execution_id FROM dead WHERE tenant = ? AND retried_as IS NULL LIMIT 1"
        row = self.disk.conn.execute(query, (caller.tenant,)).fetchone()
        if row is not None:
            await self.ask("retry", row[0], lambda e: e.services.dead_letters.retry(caller, row[0]))

    async def _intrude(self, job: JobView) -> None:
        """Send a request of another tenant about a job. It must be answered as if the job did not exist."""
        stranger = next(caller for tenant, caller in CALLERS.items() if tenant != job.tenant)
        verb = self.random.choice(["pause", "delete", "trigger"])
        if (
            await self.ask("intrude", job.job_id, lambda e: getattr(e.services.jobs, verb)(stranger, job.job_id))
            is not None
        ):
            self.history.problems.append(f"tenancy: a stranger's {verb} of {job.job_id} was answered")

    async def cap(self, most: int, tenant: TenantId = USER.tenant) -> None:
        """Limit how many executions of a tenant are dispatched at the same time."""
        days = self.load.other_keeps_days if tenant == OTHER.tenant else None
        settings = TenantSettings(max_running=most, retention_days=days)
        await self.ask("cap", "", lambda engine: engine.services.tenants.put(USER, tenant, settings), (tenant, most))

    async def resume_all(self, jobs: Sequence[JobView]) -> None:
        """Resume paused jobs without an end of their pause, until each is known to be active."""
        for job in jobs:
            query = "SELECT 1 FROM jobs WHERE id = ? AND state = 1 AND paused_until_ms IS NULL"
            while self.disk.conn.execute(query, (job.job_id,)).fetchone():
                caller = CALLERS[TenantId(job.tenant)]
                await self.ask("resume", job.job_id, lambda e, j=job, c=caller: e.services.jobs.resume(c, j.job_id))  # type: ignore[misc]
                await asyncio.sleep(0.1)

    async def _cancel_something(self, job: JobView, caller: Caller) -> None:
        query = "SELECT id FROM executions WHERE job_id = ? AND state < 2 LIMIT 1"
        row = self.disk.conn.execute(query, (job.job_id,)).fetchone()
        if row is not None:
            execution: str = row[0]
            await self.ask("cancel", execution, lambda e: e.services.executions.cancel(caller, execution))

    # -- a whole run ---------------------------------------------------------------------------------------------------

    def run(self, director: Callable[[], Awaitable[None]]) -> list[str]:
        """Run a director, wait for quiet, and return the broken promises."""
        self.direct(director)
        calm = not (self.history.deaths or self.history.spans or self.world.fault_log)
        return [
            *self.disk.problems,
            *check_end(self.disk.conn, self.history, self.world.now_ms(), calm=calm),
            *self.check_times(),
        ]

    def check_times(self) -> Iterator[str]:
        """Check what only a history of every commit and of the log can show."""
        rows = SqliteRows(self.disk.conn)
        yield from check_log(rows, self.history)
        yield from check_offsets(self.history, seen(self.disk.conn))
        yield from check_owners(self.disk.conn)
        yield from check_policies(rows, self.history, QUICK)
        faults = faults_of(self.history, self.world, self.recovery_ms)
        yield from check_ends_of_pauses(rows, self.history, faults, self.world.now_ms())
        yield from check_children(rows, self.history)
        if self.largest_message is not None:
            yield from check_sizes(rows, self.history)
        if self.load.retention is not None:
            quiet_since_ms = max((fault.until_ms for fault in faults), default=0)
            now_ms, kept = self.world.now_ms(), self.load.retention
            yield from check_retention(self.disk.conn, self.history, kept, now_ms, quiet_since_ms)
        if self.knows_limits:
            yield from self.scene().problems()

    def recovery_ms(self, why: str) -> int:
        """Time in ms for which the consequences of a fault may last after its end."""
        return RECOVERY_MS[why.split()[0]]

    def scene(self) -> Scene:
        """Return the data that the check of lateness needs."""
        return Scene(
            rows=SqliteRows(self.disk.conn),
            history=self.history,
            seen=seen(self.disk.conn),
            faults=faults_of(self.history, self.world, self.recovery_ms),
            in_flight=lambda execution, dispatch: (),
            slots=self.concurrency,
            policy=QUICK,
            now_ms=self.world.now_ms(),
            skew_ms=self.history.skew_ms,
            retries_may_wait=self.settings.worker.retry_breaker_min_runs_per_minute > 0,
        )

    def direct(self, director: Callable[[], Awaitable[None]]) -> None:
        async def direct() -> None:
            await self.boot()
            keeper = asyncio.create_task(self.restart_forever())
            disturbances = [asyncio.create_task(each) for each in self.disturbances()]
            self.world.faults = self.faults
            await director()
            for disturbance in disturbances:
                disturbance.cancel()
            self.world.faults = None
            self.disk.full = False
            await self.quiet()
            keeper.cancel()

        self.world.run(direct())

    async def quiet(self, limit_sec: float = 2_000) -> None:
        """Wait until no execution is open and none is due, or until a broken promise was seen."""
        waited = 0.0
        while waited < limit_sec:
            await asyncio.sleep(2)
            waited += 2
            if self.disk.problems or (self.engine is not None and self._is_quiet()):
                return

    def _is_quiet(self) -> bool:
        """Whether everything except paused jobs has ended."""
        open_ = self.disk.conn.execute(
            """SELECT count(*) FROM executions x LEFT JOIN timeline t ON t.key = x.id
               WHERE x.state < 2 AND NOT (t.key IS NOT NULL AND t.due_ms IS NULL)"""
        ).fetchone()[0]
        waiting = self.disk.conn.execute("SELECT count(*) FROM timeline WHERE due_ms IS NOT NULL").fetchone()[0]
        uncreated = self.disk.conn.execute("SELECT count(*) FROM child_jobs").fetchone()[0]
        if uncreated:
            return False
        overdue_ms = self.world.now_ms() - STILL_PAUSED_MS
        query = "SELECT count(*) FROM jobs WHERE state = 1 AND paused_until_ms > ?"
        return not open_ and not waiting and not self.disk.conn.execute(query, (overdue_ms,)).fetchone()[0]


_BEHAVIOURS: list[dict[str, Any]] = [
    {},
    {},
    {"do": "sleep", "sec": 0.3},
    {"do": "sleep", "sec": 2.5},
    {"do": "progress"},
    {"do": "fail", "times": 1},
    {"do": "fail", "times": 99},
    {"do": "never again"},
    {"do": "snooze", "times": 2},
]


_PATCHES: list[dict[str, Any]] = [
    {},
    {"timeoutSec": 0.5},
    {"overlap": None, "concurrency": None},
    {"overlap": "SKIP"},
    {"catchUp": {"policy": "ALL"}},
    {"type": "INTERVAL", "everySec": 2.5, "schedule": None, "timezone": None},
    {"type": "CRON", "schedule": "*/3 * * * * *", "everySec": None, "phaseSec": None},
]


def _as_spec(job: JobView, now: datetime) -> JobSpec:
    fields = {name: getattr(job, name) for name in JobSpec.__struct_fields__}
    if job.type is JobType.DELAYED:
        fields["delay_sec"] = 2.0
    return JobSpec(**fields)
