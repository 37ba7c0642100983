"""Where measurements are made: a directory for data files that are removed afterwards, and processes for the parts."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from noonday.bench import BenchFailed
from noonday.bench.callers import Called, Calls
from noonday.bench.child import Line, Order
from noonday.bench.creation import Bulk
from noonday.bench.engine import environment
from noonday.bench.figures import Created, Figures
from noonday.bench.measure import Tell, head_start_sec, longest_sec
from noonday.bench.works import AtRest, Work

START_AND_STOP_SEC = 60
SLOWEST_STORE_PER_S = 1_000
SLOWEST_CALLS_PER_S = 20


class Workshop:
    """Each part is done by a fresh process, in a limited time. All of it raises BenchFailed."""

    def __init__(self, directory: Path, tell: Tell) -> None:
        self.directory = directory
        self.heading = ""
        """What the next parts belong to, for whoever watches."""
        self._tell = tell
        self._files = 0

    def tell(self, stage: str, done: int, of: int) -> None:
        self._tell(f"{self.heading}: {stage}" if self.heading else stage, done, of)

    def new_file(self) -> str:
        self._files += 1
        return str(self.directory / f"{self._files}.db")

    def measure(self, work: Work, *, data: str | None = None, head_start: float | None = None) -> Figures:
        ahead = head_start_sec(work.jobs) if head_start is None else head_start
        order = Order(work, data or self.new_file(), ahead)
        figures = self._do(order, longest_sec(work, ahead)).figures
        assert figures
        return figures

    def store(self, rest: AtRest, data: str) -> Created:
        created = self._do(Order(rest, data), rest.jobs / SLOWEST_STORE_PER_S).created
        assert created
        return created

    def create(self, bulk: Bulk) -> Created:
        created = self._do(Order(bulk, self.new_file()), bulk.jobs / SLOWEST_STORE_PER_S).created
        assert created
        return created

    def call(self, calls: Calls) -> Called:
        called = self._do(Order(calls, ""), calls.calls / SLOWEST_CALLS_PER_S).called
        assert called
        return called

    def _do(self, order: Order, limit_sec: float) -> Line:
        with subprocess.Popen(
            [sys.executable, "-m", "noonday.bench.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.directory,
            env=environment(),
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


@contextmanager
def open_workshop(parent: Path | None, tell: Tell) -> Iterator[Workshop]:
    """In a new directory below `parent`, or where the system has its temporary files."""
    with TemporaryDirectory(prefix="noonday-bench-", dir=parent) as name:
        yield Workshop(Path(name), tell)


def _how_it_ended(code: int) -> str:
    if code == -9:
        return "a measurement was ended, because it took too long or somebody killed it"
    return f"a measurement ended by itself with exit code {code}: see above"
