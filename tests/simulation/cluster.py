"""A cluster in simulated processes over simulated servers: every role several times, each dying and coming back."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import cast

from noonday.drivers.sqlite.store import Store, store_on
from noonday.model.errors import Unavailable
from noonday.model.ids import InstanceId, WorkerId
from noonday.recorder.crew import Crew
from noonday.recorder.flag_keeper import FlagKeeper
from noonday.recorder.recorder import Recorder
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import Loop, Tasks, every
from noonday.runtime.tracing import Tracing
from noonday.wiring.engine import Engine
from noonday.wiring.parts import Drivers, IntakePart, SchedulerPart, Surroundings, recorder_of, worker_of
from tests.simulation.checker import check_cluster
from tests.simulation.embedded import Simulation
from tests.simulation.history import Effect
from tests.simulation.kernel import FaultPlan, Process, SimClock
from tests.simulation.servers import (
    Broker,
    Network,
    Redis,
    Registrar,
    ServerDatabase,
    SimBus,
    SimIndex,
    SimLeases,
    SimSignals,
)

ROLES = {"api": 1, "scheduler": 2, "recorder": 2, "worker": 2}


class ClusterSimulation(Simulation):
    """The user of the embedded one, in front of a cluster."""

    def __init__(self, seed: int, *, faults: FaultPlan | None = None, concurrency: int = 8) -> None:
        super().__init__(seed, faults=faults, concurrency=concurrency)
        self.disk.check_every = 20
        self.network = Network(self.world, Random(f"network/{seed}"))
        self.broker = Broker(self.world, Random(f"broker/{seed}"))
        self.redis = Redis(self.world)
        self.registrar = Registrar(self.world)
        self.processes: dict[str, Process] = {}
        self._serial = 0

    # -- processes -----------------------------------------------------------------------------------------------------

    async def boot(self) -> None:
        for role, count in ROLES.items():
            for number in range(count):
                await self._boot_one(role, f"{role}-{number}")

    async def _boot_one(self, role: str, name: str) -> None:
        process = self.processes[name] = self.world.process(name)
        up = self.world.loop.create_future()
        process.spawn(self._live_as(role, process, up))
        while not up.done() and process.alive:
            await asyncio.sleep(0.01)

    async def _live_as(self, role: str, process: Process, up: asyncio.Future[None]) -> None:
        clock = SimClock(self.world, process)
        self._serial += 1
        around = Surroundings(InstanceId(f"i-{self._serial:03}"), self.settings, Metrics(), Tracing(None))
        drivers = self._drivers(process, clock)
        start: Callable[[Process, SimClock, Drivers, Surroundings], Awaitable[None]] = getattr(self, f"_be_{role}")
        while True:
            try:
                await start(process, clock, drivers, around)
            except Unavailable:
                await clock.sleep(1)  # as a real process: it ends, and is started again
            else:
                break
        up.set_result(None)

    def _drivers(self, process: Process, clock: SimClock) -> Drivers:
        lead_ms = self.settings.scheduler.lead_ms
        store: Store = store_on(ServerDatabase(self.disk, self.network, process, clock), lead_ms)
        return Drivers(
            clock=clock,  # type: ignore[arg-type]
            jobs=store.jobs,
            firing=store.firing,
            executions=store.executions,
            archive=store.archive,
            index=SimIndex(self.redis, self.network, process, clock, lead_ms),
            bus=SimBus(self.broker, self.network, process, clock, self.history),
            signals=SimSignals(self.redis, self.network, process, clock, self.history),
            leases=SimLeases(self.registrar, "scheduler", self.network, process, clock),
            keyring=self.keyring,
        )

    async def _be_api(self, process: Process, clock: SimClock, drivers: Drivers, around: Surroundings) -> None:
        self.process = process
        self.clock = clock
        self.engine = cast(Engine, IntakePart(drivers, around, new_id=self._new_id))

    async def _be_scheduler(self, process: Process, clock: SimClock, drivers: Drivers, around: Surroundings) -> None:
        part, tasks = SchedulerPart(drivers, around), Tasks()
        cast(SimIndex, drivers.index).on_placed = part.wake
        for loop in part.loops.values():
            tasks.spawn(loop.run(), loop.name)

    async def _be_recorder(self, process: Process, clock: SimClock, drivers: Drivers, around: Surroundings) -> None:
        def recorder(partition: int) -> Recorder:
            return recorder_of(partition, drivers, around)

        leases = SimLeases(self.registrar, "recorder", self.network, process, clock)
        crew = Crew(around.instance, leases, drivers.bus, drivers.clock, recorder)
        flags = FlagKeeper(drivers.executions, drivers.signals, drivers.archive.pool_names, drivers.clock)
        tasks = Tasks()
        tasks.spawn(Loop("crew", crew, drivers.clock, crew.next_wait).run(), "crew")
        tasks.spawn(Loop("flags", flags, drivers.clock, every(0.5)).run(), "flags")

    async def _be_worker(self, process: Process, clock: SimClock, drivers: Drivers, around: Surroundings) -> None:
        worker = worker_of(
            self._handlers(process),
            around,
            bus=drivers.bus,
            signals=drivers.signals,
            clock=drivers.clock,
            keyring=drivers.keyring,
            concurrency={"p": self.concurrency},
            handlers_loop=asyncio.get_running_loop(),
            frozen_after_sec=20.0,
            new_id=self._new_worker_id,
        )
        await worker.open()
        tasks = Tasks()
        for name, coroutine in worker.loops().items():
            tasks.spawn(coroutine, name)

    def _new_worker_id(self) -> WorkerId:
        self._serial += 1
        return WorkerId(f"w-{self._serial:03}")

    async def restart_forever(self) -> None:
        await asyncio.gather(*(self._keep(name) for name in list(self.processes)))

    async def _keep(self, name: str) -> None:
        role = name.split("-")[0]
        while True:
            process = self.processes[name]
            await process.wait_dead()
            self.history.deaths.append((str(process), self.world.now_ms()))
            if role == "api":
                self.engine = None
            await asyncio.sleep(self.random.choice([0.01, 0.5, 3, 20]))
            await self._boot_one(role, name)

    def _check_synced(self, effect: Effect) -> None:
        """That is a promise of the embedded rung."""

    # -- a whole life --------------------------------------------------------------------------------------------------

    def run(self, director: Callable[[], Awaitable[None]]) -> list[str]:
        self.direct(director)
        return self.disk.problems + check_cluster(self.disk.conn, self.history, self.world)

    def direct(self, director: Callable[[], Awaitable[None]]) -> None:
        async def and_heal() -> None:
            await director()
            self.network.cuts.clear()
            self.network.away.clear()
            for process in self.processes.values():
                process.wake()

        super().direct(and_heal)

    async def fault(self) -> None:
        """Something happens to the network or to a server, for a while."""
        random = self.random
        kind = random.choice(["flush", "away", "cut", "cut"])
        if kind == "flush":
            self.redis.flush()
            self.history.flushes.append(self.world.now_ms())
            return
        server = random.choice(["store", "redis", "kafka", "etcd"])
        lasts = random.choice([0.3, 2, 7, 25])
        if kind == "away":
            self.network.away.add(server)
            self.history.cuts.append(("*", server, self.world.now_ms(), self.world.now_ms() + round(lasts * 1000)))
            self.world.note(f"{server} is away for {lasts} s")
            await asyncio.sleep(lasts)
            self.network.away.discard(server)
        else:
            cut = (random.choice(sorted(self.processes)), server)
            self.network.cuts.add(cut)
            self.history.cuts.append((*cut, self.world.now_ms(), self.world.now_ms() + round(lasts * 1000)))
            self.world.note(f"{cut} is cut for {lasts} s")
            await asyncio.sleep(lasts)
            self.network.cuts.discard(cut)
