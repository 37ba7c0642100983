"""One run of a cluster: load and faults, then recovery, then the check of every promise."""

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.scenarios.cluster.chaos.attempts import read_dispatches, settled_by, stopped_unheard
from tests.scenarios.cluster.chaos.faults import Faults
from tests.scenarios.cluster.chaos.monitor import StoreMonitor
from tests.scenarios.cluster.chaos.report import Report, RunRecord, read_lateness, read_load, read_states
from tests.scenarios.cluster.chaos.script import KINDS, seats_of, write_script
from tests.scenarios.cluster.chaos.seats import Seat
from tests.scenarios.cluster.chaos.site import Site
from tests.scenarios.cluster.chaos.users import User
from tests.scenarios.cluster.cluster import Cluster, cluster_on
from tests.scenarios.cluster.history import KILLED, problems_in
from tests.scenarios.process import UNFINISHED, until
from tests.scenarios.receiver import Receiver
from tests.scenarios.server_run import effects_of, now_ms

SAY_EVERY_SEC = 5.0
CAPS = {"maxRunning": 60, "pools": {"p": {"maxRunning": 50}}}
"""Low enough to be reached; never exceeded."""


@dataclass(frozen=True)
class Plan:
    """What a run does. Two runs of one plan make the same choices."""

    seed: int
    seconds: float
    kinds: Mapping[str, int] = field(default_factory=lambda: KINDS)
    fault_every_sec: float = 2.0
    users: int = 4
    quiet_sec: float = 480.0
    """How long the run waits for quiet, in seconds: orphan recovery, the last mechanism, takes six minutes."""


async def run_chaos(folder: Path, plan: Plan, say: Callable[[str], None]) -> Report:
    """Play a run. Leaves the logs of all processes and servers, the history, the store and the report in `folder`."""
    site = Site(folder, seats_of(plan.kinds))
    settings = {"worker_drain_sec": 4, "worker_cancel_grace_sec": 3}
    async with (
        site.up(),
        cluster_on(folder, site.directly, **settings) as cluster,
        Receiver(
            cluster.log,
            lambda: [worker.pid for worker in cluster.alive("worker")],
            lambda: _last_dead_worker(cluster),
        ) as receiver,
    ):
        seats = {name: Seat(name, cluster, site.seen_from(name), wires) for name, wires in site.wires.items()}
        await cluster.ready(*(seat.process for seat in seats.values()))
        await cluster.known(*cluster.alive("worker"))
        await cluster.owned_by(plan.kinds["scheduler"])
        status, answer, _ = await cluster.ask("PUT", "/v1/tenants/default", CAPS)
        assert status == 200, answer
        run = _Run(plan, cluster, site, seats, receiver.url, say)
        await run.play()
        copy = await cluster.store.copy()
        record = run.record(copy)
        _keep(folder, record, copy)
        settled = settled_by(record.dispatches)
        problems = problems_in(copy, cluster.answers, record.lines, record.harm, settled=settled)
    report = Report(record, [*record.problems, *problems])
    (folder / "report.txt").write_text(report.text + "\n")
    return report


def _last_dead_worker(cluster: Cluster) -> int:
    workers = {str(process.pid) for process in cluster.processes if process.kind == "worker"}
    dead = (fault.victim for fault in reversed(cluster.faults) if fault.kind == KILLED and fault.victim in workers)
    return int(next(dead, 0))


class _Run:
    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        site: Site,
        seats: Mapping[str, Seat],
        receiver: str,
        say: Callable[[str], None],
    ) -> None:
        """`receiver`: the URL that tasks call."""
        self.plan = plan
        self.cluster = cluster
        self.seats = seats
        self.say = say
        self.faults = Faults(cluster, site, seats)
        self.monitor = StoreMonitor(site.postgres.url, cluster.store.schema)
        self.users = [User(cluster, number, plan.seed, receiver) for number in range(plan.users)]
        self.began_ms = now_ms()
        self.quiet_sec = plan.quiet_sec
        self.problems: list[str] = []

    async def play(self) -> None:
        keepers = [seat.keep() for seat in self.seats.values()]
        async with _beside(*keepers, self.monitor.run(), self._say_on()):
            await self._load()
            await self._be_quiet()
        await self.monitor.check()
        await self.monitor.close()
        await self._end_all()

    def record(self, copy: sqlite3.Connection) -> RunRecord:
        """Return all data of the run, with the rows that are left in the store."""
        self._name_workers()
        lines = self.cluster.lines()
        surprises = [surprise for user in self.users for surprise in user.surprises]
        deploys = [deploy for seat in self.seats.values() for deploy in seat.deploys]
        return RunRecord(
            seed=self.plan.seed,
            seconds=self.plan.seconds,
            kinds=self.plan.kinds,
            began_ms=self.began_ms,
            faults=self.faults.done,
            left_out=self.faults.left_out,
            harm=[*self.cluster.faults, *stopped_unheard(deploys, self.cluster.faults)],
            names={str(process.pid): process.name for process in self.cluster.processes},
            ended=[ended for seat in self.seats.values() for ended in seat.ended],
            answers=self.cluster.answers,
            statuses=sum((user.statuses for user in self.users[1:]), self.users[0].statuses),
            lines=lines,
            checks=self.monitor.checks,
            quiet_sec=self.quiet_sec,
            problems=[*surprises, *self.monitor.problems.values(), *self.problems],
            lateness_ms=read_lateness(copy, effects_of(lines), self.cluster.answers),
            states=read_states(copy),
            load=read_load(copy),
            deploys=deploys,
            dispatches=read_dispatches(copy),
        )

    def _name_workers(self) -> None:
        """Replace the parent's pid in faults and deploys that met a worker before its own process was known."""
        own = {str(process.parent_pid): str(process.pid) for process in self.cluster.processes}
        for fault in self.cluster.faults:
            fault.victim = own.get(fault.victim, fault.victim)
        for deploy in (deploy for seat in self.seats.values() for deploy in seat.deploys):
            deploy.process = own.get(deploy.process, deploy.process)

    async def _load(self) -> None:
        """Let users send requests until the last fault is healed."""
        plan = self.plan
        script = write_script(plan.seed, plan.seconds, plan.fault_every_sec, list(self.seats))
        breaking = asyncio.create_task(self.faults.carry_out(script))
        end = time.monotonic() + plan.seconds
        await asyncio.gather(breaking, *(user.ask_on(lambda: self._is_over(end, breaking)) for user in self.users))

    @staticmethod
    def _is_over(end: float, breaking: asyncio.Task[None]) -> bool:
        return breaking.done() and time.monotonic() >= end

    async def _be_quiet(self) -> None:
        """Wait until no execution is open or will be due. If that never happens, the checker reports what is open."""
        self.say(f"{self._clock()}  all is healed; waiting for quiet")
        began = time.monotonic()
        with contextlib.suppress(AssertionError):
            await until(self._is_quiet, self.plan.quiet_sec)
        self.quiet_sec = time.monotonic() - began

    async def _is_quiet(self) -> bool:
        """Resume paused jobs, so that none stays paused for ever, and return whether nothing is open."""
        await asyncio.sleep(0.5)
        for (job,) in await self.cluster.store.query("SELECT id::text FROM jobs WHERE state = 1"):
            await self.users[0].resume(job)
        return not await self.cluster.store.query(UNFINISHED)

    async def _end_all(self) -> None:
        """Stop each process after recovery. It must end with exit code 0."""
        processes = [seat.process for seat in self.seats.values()]
        for process in processes:
            process.stop()
        for process in processes:
            with contextlib.suppress(AssertionError):
                await process.exit_code()
            if process.ended_with != 0:
                self.problems.append(f"{process.name} was stopped, and its exit code is {process.ended_with}")

    async def _say_on(self) -> None:
        while True:
            created = sum(answer.action == "create" for answer in self.cluster.answers)
            self.say(
                f"{self._clock()}  {self.faults.begun} faults, {created} jobs created, {self.monitor.done} executions done"
            )
            await asyncio.sleep(SAY_EVERY_SEC)

    def _clock(self) -> str:
        minutes, seconds = divmod((now_ms() - self.began_ms) // 1000, 60)
        return f"{minutes:2}:{seconds:02}"


@asynccontextmanager
async def _beside(*endless: Any) -> AsyncIterator[None]:
    """Run coroutines until the block is left. If one of them fails, so does the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in endless]
        yield
        for task in tasks:
            task.cancel()


def _keep(folder: Path, record: RunRecord, copy: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(folder / "store.db")) as kept:
        copy.backup(kept)
    _write_lines(folder / "answers.jsonl", [asdict(answer) for answer in record.answers])
    _write_lines(folder / "faults.jsonl", [asdict(done) for done in record.faults])
    _write_lines(folder / "harm.jsonl", [asdict(fault) for fault in record.harm])
    _write_lines(folder / "deploys.jsonl", [asdict(deploy) for deploy in record.deploys])


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
