"""Where measurements are made: places that are cleared away afterwards, and processes for the parts."""

import secrets
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import msgspec

from bench import BenchFailed
from bench.callers import Called, Calls
from bench.child import DataFile, Ground, Line, Order
from bench.creation import APPLICATION_WAYS, Bulk, Way
from bench.engine import EMBEDDED, embedded_circumstances, environment, settings_for
from bench.figures import Created, Figures
from bench.fleet import FleetSize
from bench.measure import Tell, longest_sec
from bench.receiver import receiving
from bench.served import Process, Up, stopped_afterwards, token_for
from bench.stored_rows import open_stored_rows
from bench.works import AtRest, Webhooks, Work
from noonday.model.job import Target

START_AND_STOP_SEC = 60
DEMO = Target("demo", "demo.echo")
"""What `noonday up` can run without being given anything."""
SLOWEST_STORE_PER_S = 1_000
SLOWEST_CALLS_PER_S = 20
ON_CLUSTER = ("NOONDAY_POSTGRES_", "NOONDAY_REDIS_", "NOONDAY_KAFKA_", "NOONDAY_ETCD_", "NOONDAY_CLUSTER_")
"""What counts of the environment there, besides the settings of the engine."""


class Workshop(ABC):
    """Each part is done by a fresh process, in a limited time. All of it raises BenchFailed."""

    mode: str
    ways: tuple[Way, ...]
    """In which jobs can be created by a program that embeds the job service."""
    slowest_create_per_s: int

    def __init__(self, directory: Path, tell: Tell) -> None:
        self.directory = directory
        self.heading = ""
        """Print a heading for the parts that follow."""
        self._tell = tell

    @abstractmethod
    def new_place(self) -> str:
        """The name of a store with nothing in it."""

    @abstractmethod
    def drop(self, place: str) -> None:
        """Nothing more is measured there: whatever it is still busy with must not disturb what comes next."""

    @abstractmethod
    def up(self, place: str) -> AbstractContextManager[Up]:
        """The engine with its API, as users run it, without anybody who measures."""

    @abstractmethod
    def count_jobs(self, place: str) -> int: ...

    @abstractmethod
    def size_mb(self, place: str) -> float:
        """What a store takes on its disk."""

    @abstractmethod
    def circumstances(self) -> dict[str, Any]:
        """What the figures depend on besides the code."""

    @abstractmethod
    def _ground(self, place: str, *, calls: bool = False) -> AbstractContextManager[Ground]:
        """What a process needs to measure there: to call webhooks, if it `calls`."""

    @abstractmethod
    def _environment(self, place: str | None) -> Mapping[str, str]: ...

    def tell(self, stage: str, done: int, of: int) -> None:
        self._tell(f"{self.heading}: {stage}" if self.heading else stage, done, of)

    def head_start_sec(self, jobs: int) -> float:
        """How long after the first job is created the first one falls due, so that all of them are stored by then."""
        return 2 + jobs / self.slowest_create_per_s

    def measure(self, work: Work, *, place: str | None = None, head_start: float | None = None) -> Figures:
        """In that place, or in a new one that is dropped afterwards."""
        if place is None:
            with self.passing_place() as passing:
                return self.measure(work, place=passing, head_start=head_start)
        if isinstance(work, Webhooks) and not work.url:
            with receiving(work.seconds) as url:
                work = msgspec.structs.replace(work, url=url)
                return self.measure(work, place=place, head_start=head_start)
        ahead = self.head_start_sec(work.jobs) if head_start is None else head_start
        figures = self._do_at(place, work, longest_sec(work, ahead), ahead).figures
        assert figures
        return figures

    def store(self, rest: AtRest, place: str) -> Created:
        return self._create_at(place, rest)

    def create(self, bulk: Bulk) -> Created:
        with self.passing_place() as place:
            return self._create_at(place, bulk)

    def call(self, calls: Calls) -> Called:
        called = self._do(Order(calls), calls.calls / SLOWEST_CALLS_PER_S, self._environment(None)).called
        assert called
        return called

    @contextmanager
    def passing_place(self) -> Iterator[str]:
        """Errors are left to the final clean-up."""
        place = self.new_place()
        yield place
        self.drop(place)

    def _create_at(self, place: str, part: AtRest | Bulk) -> Created:
        created = self._do_at(place, part, part.jobs / SLOWEST_STORE_PER_S).created
        assert created
        return created

    def _do_at(self, place: str, part: Work | AtRest | Bulk, limit_sec: float, head_start: float = 0) -> Line:
        self.tell("starting", 0, 0)
        with self._ground(place, calls=isinstance(part, Webhooks)) as ground:
            return self._do(Order(part, ground, head_start), limit_sec, self._environment(place))

    def _do(self, order: Order, limit_sec: float, environ: Mapping[str, str]) -> Line:
        with subprocess.Popen(
            [sys.executable, "-m", "bench.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.directory,
            env=environ,
            start_new_session=True,
        ) as process:
            alarm = threading.Timer(limit_sec + START_AND_STOP_SEC, process.kill)
            alarm.start()
            try:
                return self._listen(process, order)
            finally:
                alarm.cancel()
                process.kill()

    def _listen(self, process: "subprocess.Popen[bytes]", order: Order) -> Line:
        assert process.stdin
        assert process.stdout
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(msgspec.json.encode(order))
        for text in process.stdout:
            line = msgspec.json.decode(text, type=Line)
            if line.failed is not None:
                raise BenchFailed(line.failed)
            if line.progress is None:
                return line
            self.tell(line.progress.stage, line.progress.done, line.progress.of)
        raise BenchFailed(_how_it_ended(process.wait()))


class EmbeddedWorkshop(Workshop):
    """A place is a data file."""

    mode = EMBEDDED
    ways = ("create_ids", *APPLICATION_WAYS)
    slowest_create_per_s = 8_000

    def __init__(self, directory: Path, tell: Tell, environ: Mapping[str, str]) -> None:
        super().__init__(directory, tell)
        self._environ = environ
        self._files = 0

    def new_place(self) -> str:
        self._files += 1
        return str(self.directory / f"{self._files}.db")

    def drop(self, place: str) -> None:
        for file in self.directory.glob(f"{Path(place).name}*"):
            file.unlink()

    @contextmanager
    def up(self, place: str) -> Iterator[Up]:
        secret = secrets.token_urlsafe(32)
        environ = {**self._environ, "NOONDAY_AUTH_SECRET": secret}
        process = Process(("up", "--data", place), Path(mkdtemp(prefix="up-", dir=self.directory)), environ)
        with stopped_afterwards([process]):
            startup_sec = process.await_ready()
            yield Up({"engine": [process.pid]}, {}, startup_sec, process.url, token_for(secret), DEMO)

    def count_jobs(self, place: str) -> int:
        with open_stored_rows(place) as stored_rows:
            return stored_rows.count_jobs()

    def size_mb(self, place: str) -> float:
        return round(Path(place).stat().st_size / 2**20, 1)

    def circumstances(self) -> dict[str, Any]:
        return embedded_circumstances(settings_for(str(self.directory / "any.db"), self._environ))

    def _ground(self, place: str, *, calls: bool = False) -> AbstractContextManager[Ground]:
        return nullcontext(DataFile(place))

    def _environment(self, place: str | None) -> Mapping[str, str]:
        return self._environ


@contextmanager
def open_workshop(
    parent: Path | None, tell: Tell, size: FleetSize | None = None, concurrency: int | None = None
) -> Iterator[Workshop]:
    """In a new directory below `parent`, or where the system has its temporary files; on a cluster, if it has a size."""
    environ = environment(*(ON_CLUSTER if size else ()))
    if concurrency:
        environ["NOONDAY_WORKER_CONCURRENCY"] = environ["NOONDAY_WEBHOOKS_CONCURRENCY"] = str(concurrency)
    environ["NOONDAY_WEBHOOKS_ALLOW_NETWORKS"] = "127.0.0.0/8"
    # One tenant and one receiver are all there is: they may have every slot.
    environ["NOONDAY_WEBHOOKS_SHARE_PERCENT"] = "100"
    with TemporaryDirectory(prefix="noonday-bench-", dir=parent) as name:
        if not size:
            yield EmbeddedWorkshop(Path(name), tell, environ)
            return
        # The clients of the servers are an extra: one machine alone needs none of them.
        from bench.cluster_workshop import ClusterWorkshop

        with ClusterWorkshop(Path(name), tell, environ, size) as workshop:
            yield workshop


def _how_it_ended(code: int) -> str:
    if code == -9:
        return "a measurement was ended, because it took too long or somebody killed it"
    return f"a measurement ended by itself with exit code {code}: see above"
