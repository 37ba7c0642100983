"""A peer's program as a process: orders go in, answers come out, and every wait has a limit."""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bench import BenchFailed
from bench.machine import has_ended, with_children

ANSWER_WITHIN_SEC = 60.0
STOP_WITHIN_SEC = 60.0
LONGEST_ANSWER = 64 * 1024
_COMPLAINTS = 800
_KILLED_WITHIN_SEC = 10

Answer = dict[str, Any]


class Program:
    """One process that speaks the contract. It is the leader of a session of its own."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str], errors: Path
    ) -> None:
        self.name = name
        self._errors = errors
        self._answers: queue.Queue[bytes] = queue.Queue()
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True, name=f"answers of {name}")
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, within_sec: float = ANSWER_WITHIN_SEC, **order: Any) -> Answer:
        """Give an order and return its answer. Raises BenchFailed if the program ends, hangs, or answers anything else."""
        assert self._process.stdin
        try:
            self._process.stdin.write(msgspec.json.encode({"do": do, **order}) + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise BenchFailed(self._how_it_ended(do)) from None
        return self._answer(do, within_sec)

    def stop(self, within_sec: float = STOP_WITHIN_SEC) -> None:
        """Let it come to its end, for its orders are over; kill it if that takes too long."""
        self._close_orders()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_sec)
        self.kill()

    def kill(self) -> None:
        """`kill -9` of the process and of all that it has started."""
        kill_trees([self.pid])
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._close_orders()
        self._reader.join(_KILLED_WITHIN_SEC)

    def _close_orders(self) -> None:
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as answers:
            while line := answers.readline(LONGEST_ANSWER):
                self._answers.put(line)
        self._answers.put(b"")

    def _answer(self, do: str, within_sec: float) -> Answer:
        try:
            line = self._answers.get(timeout=within_sec)
        except queue.Empty:
            raise BenchFailed(
                f"{self.name} did not answer `{do}` within {within_sec:g} s{self._complaints()}"
            ) from None
        if not line:
            raise BenchFailed(self._how_it_ended(do))
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.DecodeError:
            raise BenchFailed(f"{self.name} answered `{do}` with {line[:200]!r}, which is not a line of JSON") from None
        if "failed" in answer:
            raise BenchFailed(f"{self.name} failed `{do}`: {answer['failed']}")
        if answer.get("done") != do:
            raise BenchFailed(f"{self.name} answered `{do}` with {line[:200]!r}: `done` must be {do!r}")
        return answer

    def _how_it_ended(self, do: str) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        return f"{self.name} ended with code {self._process.poll()} before it answered `{do}`{self._complaints()}"

    def _complaints(self) -> str:
        said = self._errors.read_text(errors="replace").strip()[-_COMPLAINTS:]
        return f": {said}" if said else ""


def kill_trees(pids: Sequence[int]) -> None:
    """`kill -9` of processes and all that they have started. Returns when they have ended."""
    trees = with_children(pids)
    for pid in trees:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILLED_WITHIN_SEC
    while not all(map(has_ended, trees)) and time.monotonic() < deadline:
        time.sleep(0.01)


def field(answer: Answer, name: str, *types: type) -> Any:
    """A field of an answer. Raises BenchFailed if it is missing or of another type."""
    if name not in answer or not isinstance(answer[name], types):
        kinds = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
        raise BenchFailed(f"the answer {answer!r} lacks `{name}` ({kinds})")
    return answer[name]
