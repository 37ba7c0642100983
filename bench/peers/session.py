"""One repetition's store and processes: the program that calls, and those that work."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import BenchFailed
from bench.engine import environment
from bench.figures import total
from bench.machine import cpu_sec, has_ended, memory_mb
from bench.peers.calls import Call, read_calls
from bench.peers.catalog import Peer
from bench.peers.install import command_of
from bench.peers.program import ANSWER_WITHIN_SEC, Program, field, kill_trees
from bench.peers.stores import Store, open_store

SLOWEST_CREATE_PER_S = 50
ON_CLUSTER = ("NOONDAY_POSTGRES_", "NOONDAY_REDIS_", "NOONDAY_KAFKA_", "NOONDAY_ETCD_", "NOONDAY_CLUSTER_")


@dataclass(frozen=True)
class Counted:
    recorded: int
    """Done, as the store says."""
    left: int
    """Stored, and not done."""
    last_ms: int | None
    """When the last handler ended, if the store tells."""


class Session:
    """Gives orders to the programs of one peer."""

    def __init__(self, peer: Peer, place: Path, directory: Path, store: Store) -> None:
        """`place` is where the program is installed, `directory` where notes and complaints go."""
        self.peer = peer
        self._place = place
        self._directory = directory
        self._environ = {**environment(*ON_CLUSTER), **store.environment, "BENCH_STORE": store.place}
        self._servers = store.servers
        self._programs: list[Program] = []
        self._workers: list[Program] = []
        self._pids: list[dict[str, list[int]]] = []
        self._notes: list[Path] = []
        self._crons = 0
        self._caller: Program | None = None if peer.one_process else self._start()
        self._work: dict[str, Any] = {}

    def prepare(self) -> None:
        self._caller = self._caller or self._start()
        self._caller.ask("prepare")

    def crons(self, jobs: int) -> None:
        """Workers that are started from now on have so many crons."""
        self._crons = jobs

    def work(self, *, each: bool = False, copies: int = 1, within_sec: float = 180) -> None:
        """Run workers: several copies are separate programs, unless one program starts them all."""
        alone = self.peer.one_process or self.peer.fleet
        self._work = {"each": each, "copies": copies, "within_sec": within_sec}
        for _ in range(1 if alone else copies):
            self._start_worker()

    def restart_ended(self) -> None:
        """Start again what has ended, as a supervisor would, if nothing else can take over."""
        for at, program in enumerate(self._workers):
            if self.peer.one_process and has_ended(program.pid):
                program.kill()
                self._workers.pop(at)
                self._pids.pop(at)
                self._caller = None
                self._start_worker()

    def pid_of(self, role: str) -> int:
        """A process of that role. Where a worker is a scheduler as well, the first leads: so the last is the worker."""
        pids = [pid for each in self._pids for pid in each[role]]
        return pids[0] if role == "scheduler" else pids[-1]

    def kill(self, role: str) -> None:
        kill_trees([self.pid_of(role)])

    def create(
        self,
        way: str,
        numbers: range,
        due_ms: int,
        *,
        step_us: int = 0,
        wait_ms: int = 0,
        within_sec: float | None = None,
    ) -> float:
        """Create a job for each number. Returns how many seconds that took."""
        answer = self.caller.ask(
            "create",
            within_sec or ANSWER_WITHIN_SEC + len(numbers) / SLOWEST_CREATE_PER_S,
            way=way,
            jobs=len(numbers),
            first=numbers.start,
            dueMs=due_ms,
            stepUs=step_us,
            waitMs=wait_ms,
        )
        if (created := field(answer, "created", int)) != len(numbers):
            raise BenchFailed(f"{self.peer.title} created {created} of {len(numbers)} jobs")
        return float(field(answer, "sec", float, int))

    def started(self) -> int | None:
        """How many handlers were called; None if some program cannot tell."""
        each = [field(worker.ask("started"), "started", int, type(None)) for worker in self._workers]
        return None if None in each else sum(each)

    def is_open(self, until_ms: int) -> bool:
        return bool(field(self.caller.ask("look", untilMs=until_ms), "open", bool))

    def count(self, numbers: range, since_ms: int, until_ms: int) -> "Counted":
        order = {"first": numbers.start, "end": numbers.stop, "sinceMs": since_ms, "untilMs": until_ms}
        answer = self.caller.ask("count", 300, **order)
        recorded, left = field(answer, "recorded", int, type(None)), field(answer, "left", int)
        last_ms = field(answer, "lastMs", int, type(None))
        return Counted(len(numbers) - left if recorded is None else recorded, left, last_ms)

    def used_sec(self, *, calling: bool = False) -> dict[str, float]:
        """CPU time so far, by who used it: all workers, and each server. A program that only calls counts if `calling`."""
        programs = {*self._workers, *([self.caller] if calling else [])}
        return cpu_sec({"programs": [program.pid for program in programs], **self._servers})

    def memory_mb(self) -> float | None:
        return total({str(worker.pid): memory_mb(worker.pid)[0] for worker in self._workers})

    def calls(self) -> list[Call]:
        """What the handlers have noted so far."""
        return read_calls(self._notes)

    def finish(self) -> list[Call]:
        """End the workers in good order. Returns what their handlers have noted."""
        for worker in self._workers:
            if not has_ended(worker.pid):
                worker.ask("end")
        return self.calls()

    def close(self) -> None:
        for program in self._programs:
            with suppress(BenchFailed):
                program.stop()

    @property
    def caller(self) -> Program:
        assert self._caller
        return self._caller

    def _start_worker(self) -> None:
        program = self._caller if self.peer.one_process and self._caller else self._start()
        if self.peer.one_process:
            self._caller = program
        if self._crons:
            program.ask("crons", 300, jobs=self._crons)
        notes = self._directory / f"notes-{len(self._notes)}"
        within, order = self._work["within_sec"], {key: self._work[key] for key in ("each", "copies")}
        answer = program.ask("work", within, notes=str(notes), **order)
        self._notes.append(notes)
        self._workers.append(program)
        self._pids.append(field(answer, "pids", dict))

    def _start(self) -> Program:
        errors = self._directory / f"stderr-{len(self._programs)}"
        program = Program(self.peer.title, command_of(self.peer), self._place, self._environ, errors)
        self._programs.append(program)
        return program


@contextmanager
def open_session(peer: Peer, place: Path, directory: Path, environ: Mapping[str, str]) -> Iterator[Session]:
    """On an empty store. `directory` must be empty, and is not needed afterwards."""
    with ExitStack() as opened:
        store = opened.enter_context(open_store(peer, directory, environ))
        session = Session(peer, place, directory, store)
        opened.callback(session.close)
        session.prepare()
        yield session


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def sleep_until(instant_ms: float) -> None:
    time.sleep(max(0.0, instant_ms / 1000 - time.time()))
