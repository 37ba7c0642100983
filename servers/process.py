"""Background processes that outlive the command that started them, found again by process id and start time.

A process id alone is not enough: after a crash or a reboot another process may have the same id. So the start time is recorded
too, and a process with another start time is never signalled.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from servers.errors import ServerFailed

LOG_LIMIT = 16 * 1024 * 1024

_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Command:
    arguments: Sequence[str]
    user: str | None = None  # only root may set it
    env: Mapping[str, str] = field(default_factory=dict)

    def popen(self, output: int | IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the command as its user, in `/`, in a new session, with English messages."""
        return subprocess.Popen(
            list(self.arguments),
            cwd="/",
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=self.user,
            group=self.user,
            extra_groups=[] if self.user else None,
        )

    def run(self) -> str:
        """Run the command to its end and return its output. Raises ServerFailed if it fails."""
        with self.popen(subprocess.PIPE) as process:
            output = process.communicate()[0].decode(errors="replace")
        if process.returncode:
            raise ServerFailed(f"{' '.join(self.arguments)} exited with {process.returncode}:\n{output}")
        return output

    def _environment(self) -> dict[str, str]:
        # PG* variables are for another PostgreSQL than ours
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return {**inherited, "LC_ALL": "C", **({"HOME": "/tmp"} if self.user else {}), **self.env}


class Daemon:
    """A background process. `folder` contains its log and its record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.record = folder / "process.json"

    def spawn(self, command: Command) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            child = command.popen(log)
        _children[child.pid] = child
        new = self.record.with_suffix(".new")
        new.write_text(json.dumps({"pid": child.pid, "born": _start_time(child.pid)}))
        new.replace(self.record)

    @property
    def pid(self) -> int | None:
        """Process id, or None if the process does not run or another process has its id."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            recorded = json.loads(self.record.read_text())
            start_time = _start_time(recorded["pid"])
            if start_time is not None and start_time == recorded["born"]:
                return int(recorded["pid"])
        return None

    def end(self, number: signal.Signals, patience: float) -> bool:
        """Signal the process, wait, and kill it if it does not end in time. Returns whether it ended without being killed."""
        pid = self.pid
        if pid is None:
            return True
        _signal([pid], number)
        _signal(_process_tree(pid), signal.SIGCONT)  # a stopped process would not handle the signal
        ended = eventually(lambda: _start_time(pid) is None, patience)
        if not ended:
            self.kill()
        self.record.unlink(missing_ok=True)
        return ended

    def kill(self) -> None:
        pid = self.pid
        if pid is None:
            return
        tree = _process_tree(pid)
        _signal(tree, signal.SIGKILL)
        if not eventually(lambda: all(_start_time(member) is None for member in tree), 10):
            raise ServerFailed(f"process {pid} still exists 10 s after SIGKILL")

    def pause(self) -> None:
        _signal(self._process_tree(), signal.SIGSTOP)

    def resume(self) -> None:
        _signal(reversed(self._process_tree()), signal.SIGCONT)

    def tail(self, lines: int = 15) -> str:
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 16384))
            return b"\n".join(log.read().splitlines()[-lines:]).decode(errors="replace")
        return "(no log)"

    def _process_tree(self) -> list[int]:
        return [] if self.pid is None else _process_tree(self.pid)


def eventually(condition: Callable[[], bool], patience: float) -> bool:
    """Wait until the condition is true, for at most `patience` seconds. Returns whether it became true."""
    deadline = time.monotonic() + patience
    pause = 0.01
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.3, 0.2)
    return True


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _process_tree(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first. A signal to the session would miss PostgreSQL's backends."""
    parents = {other: found[1] for other in _all_pids() if (found := _find_process(other))}
    tree = [pid]
    for member in tree:
        tree.extend(child for child, parent in parents.items() if parent == member)
    return tree


def _start_time(pid: int) -> str | None:
    """Return the start time of a process, or None if it does not exist or is a zombie."""
    found = _find_process(pid)
    if found is None and pid in _children and _children[pid].poll() is not None:  # `poll` reaps a zombie of ours
        _children.pop(pid, None)
    return found[0] if found else None


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _find_process(pid: int) -> tuple[str, int] | None:
    """Find the start time and the parent of a live process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent, *rest = stat.rpartition(")")[2].split()
    if state in "ZX" and not _has_threads(pid):
        return None
    return f"{_boot()}/{rest[17]}", int(parent)


def _has_threads(pid: int) -> bool:
    """Return whether a zombie has live threads. Those of a killed JVM keep its ports for a while."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
