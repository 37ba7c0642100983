"""A cluster of simulated processes over simulated servers.

Every role runs several times, and each process dies and is started again.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from random import Random
from typing import Any, cast

from noonday.drivers.sqlite.store import SqliteStore, store_on
from noonday.model.errors import SignalsUnavailable, StoreUnavailable, Unavailable
from noonday.model.ids import InstanceId, WorkerId
from noonday.runtime.clock import ClockKeeper
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import Loop, Tasks, every
from noonday.runtime.tracing import Tracing
from noonday.scheduler.ownership import Ownership
from noonday.wiring.cluster.clock import CLOCK_SEC
from noonday.wiring.cluster.worker_node import FROZEN_SEC
from noonday.wiring.drivers import Drivers
from noonday.wiring.engine import Engine
from noonday.wiring.intake import IntakePart
from noonday.wiring.roles.composition import compose
from noonday.wiring.roles.recorder import RecorderGroupRole, ignore
from noonday.wiring.roles.role import ProcessContext
from noonday.wiring.roles.role_group import RoleGroup
from noonday.wiring.roles.scheduler import SchedulerRole
from noonday.wiring.roles.worker import WorkerRole
from noonday.worker.context import Context, Snooze
from tests.simulation.checker import check_cluster
from tests.simulation.embedded import CLOCK_ERROR_MS, Simulation
from tests.simulation.history import Effect, OldCopy, Span
from tests.simulation.kernel import FaultPlan, KeptClock, Process, SimClock
from tests.simulation.lateness import Scene, spans_of
from tests.simulation.load import Load
from tests.simulation.rows import StoredExecution
from tests.simulation.servers import (
    REDIS,
    STORE,
    Broker,
    Network,
    Redis,
    Registrar,
    ServerDatabase,
    SimBreakers,
    SimBus,
    SimIndex,
    SimLeases,
    SimSignals,
)
from tests.simulation.threads import use_simulated_threads

ROLES = {"api": 1, "scheduler": 2, "recorder": 2, "worker": 2}
RECOVERY_MS = {
    "down api": 0,
    "down scheduler": 8_000,
    "down recorder": 8_000,
    "down worker": 10_000,
    "frozen api": 0,
    "frozen scheduler": 8_000,
    "frozen recorder": 8_000,
    "frozen worker": 10_000,
    "cut": 12_000,
    "flush": 5_000,
    "hint": 4_000,
    "interrupted": 4_000,
    "refused": 8_000,
}
"""Time in ms that a cluster takes to recover from a fault, as seen by executions that the fault did not touch."""
FREED_MS = 2_500
"""A scheduler learns of a slot that another process freed when it tries again, at most two seconds later."""
_MOMENTS = (
    ("scheduler", "fire"),
    ("scheduler", "publish"),
    ("scheduler", "seal"),
    ("recorder", "settle"),
    ("recorder", "ack"),
    ("worker", "claim"),
    ("worker", "report"),
    ("worker", "ack"),
    ("api", "edit"),
)
"""Calls in the middle of which a process may die or freeze."""
LOST_MS = 400_000
"""Time in ms until a dispatch that the broker lost is dispatched again: six minutes of log ticks, and a round."""
IN_FLIGHT_MS = 45_000
"""Time in ms until a dispatch comes back from a worker: until its claim lapses, or until the worker is judged."""


def _meets(span: Span, process: str) -> bool:
    kind, *rest = span.why.split()
    if kind == "cut":
        return rest[0] == process.split("#")[0]
    return kind in ("down", "frozen") and rest[0] == process


class ClusterSimulation(Simulation):
    """The user of the embedded simulation, in front of a cluster."""

    def __init__(
        self, seed: int, *, faults: FaultPlan | None = None, concurrency: int = 8, load: Load | None = None
    ) -> None:
        super().__init__(seed, faults=faults, concurrency=concurrency, load=load)
        self.disk.check_every = 20
        self.network = Network(self.world, Random(f"network/{seed}"))
        self.broker = Broker(self.world, Random(f"broker/{seed}"))
        self.broker.largest_bytes = self.largest_message = self.load.largest_message
        self.redis = Redis(self.world, lost_hints=self.history.spans)
        self.registrar = Registrar(self.world)
        self.processes: dict[str, Process] = {}
        self.roles: Mapping[str, int] = ROLES
        self.kept_down: set[str] = set()
        """Names of processes that stay stopped for now."""
        self.may_lose = True
        """Whether the broker may lose messages. Orphan recovery finds them after six minutes, which makes a run long."""
        self.restart_sec: float | None = None
        """Time in ms until a dead process is started again; None: the seed decides."""
        self.faces: dict[str, tuple[Process, Engine]] = {}
        """All API processes. Users talk to the one that started last."""
        self._stops: dict[str, Callable[[], Awaitable[None]]] = {}
        self._serial = 0
        self._clocks: dict[str, KeptClock] = {}

    # -- processes -----------------------------------------------------------------------------------------------------

    async def boot(self) -> None:
        for role, count in self.roles.items():
            for number in range(count):
                await self.start(f"{role}-{number}")

    async def start(self, name: str) -> None:
        """Start a process that does not run, and wait until it is up."""
        role = name.split("-")[0]
        process = self.processes[name] = self.world.process(name)
        up = self.world.loop.create_future()
        process.spawn(self._live_as(role, process, up))
        while not up.done() and process.alive:
            await asyncio.sleep(0.01)

    async def _live_as(self, role: str, process: Process, up: asyncio.Future[None]) -> None:
        clock = self._clock_of(process)
        self._serial += 1
        around = ProcessContext(InstanceId(f"i-{self._serial:03}"), self.settings, Metrics(), Tracing(None))
        drivers = self._drivers(process, clock, around.dispatcher_wake.set)
        start: Callable[[Process, SimClock, Drivers, ProcessContext], Awaitable[None]] = getattr(self, f"_be_{role}")
        while True:
            try:
                await self._keep_clock(role, process, clock)
                await start(process, clock, drivers, around)
            except Unavailable:
                await clock.sleep(1)  # like a real process, it ends and is started again
            else:
                break
        self.history.boots.append((str(process), self.world.now_ms()))
        up.set_result(None)

    def _clock_of(self, process: Process) -> SimClock:
        if not (self.load.skew or self.load.clock_steps):
            return SimClock(self.world, process)
        most_ms = CLOCK_ERROR_MS if self.load.skew else 0
        clock = self._clocks[process.name] = KeptClock(self.world, process, self.load.random.randint(-most_ms, most_ms))
        return clock

    async def _keep_clock(self, role: str, process: Process, clock: SimClock) -> None:
        """Measure the clock of a process before it starts, and regularly from then on.

        The reference is the store's clock, which a worker reads from Redis.
        """
        if not isinstance(clock, KeptClock):
            return
        server, failing = (REDIS, SignalsUnavailable) if role == "worker" else (STORE, StoreUnavailable)

        async def read_ms() -> int:
            return await self.network.call(process, clock, server, self.world.now_ms, failing, "clock")

        keeper = ClockKeeper(clock, read_ms, lambda _: self._note_clock(process, clock))  # type: ignore[arg-type]
        await keeper.run_once(0)
        Tasks().spawn(Loop("clock", keeper, clock, every(CLOCK_SEC)).run(), "clock")  # type: ignore[arg-type]

    async def set_clocks(self) -> None:
        """Step the clock of a process now and then, in runs whose load says so."""
        random = self.load.random
        while self.load.clock_steps:
            await asyncio.sleep(random.random() * 6)
            process = self.processes[random.choice(sorted(self.processes))]
            clock = self._clocks[process.name]
            clock.step(self._step_from(clock.ahead_ms))
            self._note_clock(process, clock)

    def _drivers(self, process: Process, clock: SimClock, on_placed: Callable[[], None]) -> Drivers:
        lead_ms = self.settings.scheduler.lead_ms
        store: SqliteStore = store_on(ServerDatabase(self.disk, self.network, process, clock), lead_ms)
        return Drivers(
            clock=clock,  # type: ignore[arg-type]
            **store.ports,
            index=SimIndex(self.redis, self.network, process, clock, lead_ms, on_placed),
            bus=SimBus(self.broker, self.network, process, clock, self.history),
            signals=SimSignals(self.redis, self.network, process, clock, self.history),
            breakers=SimBreakers(self.redis, self.network, process, clock),
            leases=SimLeases(self.registrar, "scheduler", self.network, process, clock),
            keyring=self.keyring,
        )

    async def _be_api(self, process: Process, clock: SimClock, drivers: Drivers, around: ProcessContext) -> None:
        self.process = process
        self.clock = clock
        self.engine = cast(Engine, IntakePart(drivers, around, new_id=self._new_id))
        self.faces[process.name] = (process, self.engine)

    async def _be_scheduler(self, process: Process, clock: SimClock, drivers: Drivers, around: ProcessContext) -> None:
        scheduler = SchedulerRole(drivers, around, shares_partitions=True)
        self._note_refusals(scheduler.ownership)
        intake = IntakePart(drivers, around, new_id=self._new_id)
        roles = RoleGroup(around, compose(drivers, around, intake, scheduler=scheduler))
        roles.run()
        self._stops[process.name] = roles.hand_over

    def _note_refusals(self, ownership: Ownership) -> None:
        """Note refused fires.

        An owner may learn only from its first fire that another instance had its partition meanwhile. Then it drops all its
        partitions and joins again: within two lease TTLs and the grace, some instance owns the partition and fires.
        """
        lose = ownership.lose

        def noted(partitions: tuple[int, ...]) -> None:
            now_ms = self.world.now_ms()
            self.history.spans.append(Span("refused", now_ms, now_ms))
            lose(partitions)

        ownership.lose = noted  # type: ignore[method-assign]

    async def _be_recorder(self, process: Process, clock: SimClock, drivers: Drivers, around: ProcessContext) -> None:
        leases = SimLeases(self.registrar, "recorder", self.network, process, clock)
        intake = IntakePart(drivers, around, new_id=self._new_id)
        recorder = RecorderGroupRole(drivers, around, leases, ignore, intake.services.child_job_admission.admit)
        RoleGroup(around, compose(drivers, around, intake, recorder=recorder)).run()

    async def _be_worker(self, process: Process, clock: SimClock, drivers: Drivers, around: ProcessContext) -> None:
        role = WorkerRole(
            self._handlers(process),
            {"p": self.concurrency},
            drivers.of_worker,
            around,
            handlers_loop=asyncio.get_running_loop(),
            frozen_after_sec=FROZEN_SEC,
            new_id=self._new_worker_id,
        )
        use_simulated_threads(role.worker)
        await role.worker.open()
        RoleGroup(around, [role]).run()
        self._stops[process.name] = role.worker.close

    def _new_worker_id(self) -> WorkerId:
        self._serial += 1
        return WorkerId(f"w-{self._serial:03}")

    async def restart_forever(self) -> None:
        await asyncio.gather(*(self._keep(name) for name in list(self.processes)))

    async def _keep(self, name: str) -> None:
        while True:
            process = self.processes[name]
            await process.wait_dead()
            self.history.deaths.append((str(process), self.world.now_ms()))
            if process is self.process:
                self.engine = None
            rest = self.random.choice([0.01, 0.5, 3, 20])
            await asyncio.sleep(rest if self.restart_sec is None else self.restart_sec)
            while name in self.kept_down:
                await asyncio.sleep(0.1)
            await self.start(name)

    def kill(self, *names: str) -> None:
        """Kill processes by name. They stay away until `let_up` is called."""
        for name in names:
            self.kept_down.add(name)
            self.processes[name].kill()

    async def let_up(self, *names: str) -> None:
        """Start processes again by name."""
        for name in names:
            before = self.processes[name]
            self.kept_down.discard(name)
            while self.processes[name] is before:
                await asyncio.sleep(0.05)

    async def stop(self, name: str) -> None:
        """Stop a process. It hands over or drains, ends, and stays away."""
        process = self.processes[name]
        stopped = process.spawn(self._stops[name]())
        while not stopped.done():
            await asyncio.sleep(0.01)
        self.kill(name)

    async def _behave(self, ctx: Context, payload: dict[str, Any]) -> Any:
        if payload.get("do") == "snooze, then sleep":
            if ctx._dispatch.number == 1:
                raise Snooze(1.5)
            payload = {**payload, "do": "sleep"}
        if payload.get("do") == "ignore cancellation":
            until = self.world.loop.time() + payload["sec"]
            while self.world.loop.time() < until:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(1)
            return None
        return await super()._behave(ctx, payload)

    # -- faults at a moment of the run ---------------------------------------------------------------------------------

    def at(
        self,
        verb: str,
        role: str,
        act: Callable[[Process], None],
        *,
        done: bool = False,
        given: Callable[[], object] = lambda: True,
    ) -> list[Process]:
        """Call `act` when a process of a role makes a call for the first time.

        `done`: act when the server has done the work and has not answered yet. `given`: an additional condition. Returns a
        list that contains the process from then on.
        """
        caught: list[Process] = []

        def watch(process: Process, its_verb: str, is_done: bool) -> bool:
            if caught or (its_verb, is_done) != (verb, done) or process.name.split("-")[0] != role or not given():
                return False
            caught.append(process)
            self.world.note(f"{process} is caught in {verb}, done: {done}")
            act(process)
            return True

        self.network.observers.append(watch)
        return caught

    def flush(self) -> None:
        self.redis.flush()
        self.history.flushes.append(self.world.now_ms())

    def restore(self, copy: Redis) -> None:
        """Replace Redis by an older copy of itself."""
        self.redis.restore(copy)
        self.history.old_copies.append(OldCopy(copy.copied_ms, self.world.now_ms()))

    def disturbances(self) -> list[Coroutine[Any, Any, None]]:
        return [*super().disturbances(), self.restore_redis()]

    async def restore_redis(self) -> None:
        """Restore Redis from a copy that is some seconds old now and then, in runs whose load says so."""
        while self.load.old_redis:
            await asyncio.sleep(self.load.random.random() * 12)
            copy = self.redis.copy()
            await asyncio.sleep(0.5 + self.load.random.random() * 10)
            self.restore(copy)

    async def away(self, server: str, seconds: float) -> None:
        """Make a server unreachable for all processes for some seconds."""
        await self._cut_for("*", server, seconds)

    def cut(self, name: str, server: str) -> None:
        """Cut a process off from a server, until the end of the run or until the cut is mended."""
        self.network.cuts.add((name, server))
        self.history.cuts.append((name, server, self.world.now_ms(), sys.maxsize))

    def mend(self) -> None:
        self.network.cuts.clear()
        now_ms = self.world.now_ms()
        self.history.cuts = [(*cut[:3], min(cut[3], now_ms)) for cut in self.history.cuts]

    def _check_synced(self, effect: Effect) -> None:
        """Do nothing: handlers that wait for a sync are a promise of the embedded mode."""

    # -- a whole run ---------------------------------------------------------------------------------------------------

    def run(self, director: Callable[[], Awaitable[None]]) -> list[str]:
        self.direct(director)
        found = check_cluster(self.disk.conn, self.history, self.world)
        return [*self.disk.problems, *found, *self.check_times()]

    def recovery_ms(self, why: str) -> int:
        kind, *rest = why.split()
        return RECOVERY_MS[kind if kind in RECOVERY_MS else f"{kind} {rest[0].split('-')[0]}"]

    def scene(self) -> Scene:
        spans = spans_of(self.history, self.world)

        def in_flight(execution: StoredExecution, dispatch: int) -> list[Span]:
            """Faults of processes that had taken a dispatch of the execution."""
            holders = self.history.taken.get((execution.id, dispatch), ())
            met = [span for span in spans if any(_meets(span, holder) for holder in holders)]
            lost = [
                Span("lost", at_ms, at_ms + LOST_MS) for at_ms in self.broker.lost.get((execution.id, dispatch), ())
            ]
            return [*(Span(span.why, span.from_ms, span.until_ms + IN_FLIGHT_MS) for span in met), *lost]

        return replace(super().scene(), in_flight=in_flight, freed_ms=FREED_MS)

    def direct(self, director: Callable[[], Awaitable[None]]) -> None:
        async def and_heal() -> None:
            await director()
            self.mend()
            self.kept_down.clear()
            self.network.away.clear()
            self.network.stalled.clear()
            for process in self.processes.values():
                process.wake()

        super().direct(and_heal)

    async def quiet(self, limit_sec: float = 900) -> None:
        await super().quiet(limit_sec)

    async def fault(self) -> None:
        """Cause a random fault of the network, of a server, or of a process in the middle of a call."""
        random = self.random
        kind = random.choice(["flush", "away", "cut", "cut", "caught", "caught", *(["lose"] if self.may_lose else [])])
        if kind == "flush":
            self.flush()
        elif kind == "lose":
            self.broker.loses = random.randint(1, 3)
        elif kind == "caught":
            role, verb = random.choice(_MOMENTS)
            for_ms = random.choice([None, None, 8_000, 30_000])
            act: Callable[[Process], None] = lambda process: process.freeze(for_ms) if for_ms else process.kill()  # noqa: E731
            self.at(verb, role, act, done=random.random() < 0.5)
        else:
            server = random.choice(["store", "redis", "kafka", "etcd"])
            lasts = random.choice([0.3, 2, 7, 25, 45])
            who = "*" if kind == "away" else random.choice(sorted(self.processes))
            await self._cut_for(who, server, lasts)

    async def _cut_for(self, who: str, server: str, seconds: float) -> None:
        now_ms = self.world.now_ms()
        self.history.cuts.append((who, server, now_ms, now_ms + round(seconds * 1000)))
        self.world.note(f"{who} is cut off from {server} for {seconds} s")
        cuts, cut = (self.network.away, server) if who == "*" else (self.network.cuts, (who, server))
        cuts.add(cut)
        await asyncio.sleep(seconds)
        cuts.discard(cut)
