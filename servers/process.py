"""A process that outlives whoever started it, and is found again by its recorded id and birth.

A process id alone is not enough: after a crash or a reboot the same number may be somebody else's process. So the time at
which the process began is recorded beside it, and nothing is ever signalled whose birth differs.
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
    words: Sequence[str]
    user: str | None = None  # only root may name one
    env: Mapping[str, str] = field(default_factory=dict)

    def popen(self, output: int | IO[bytes]) -> subprocess.Popen[bytes]:
        """Start it in `/`, in a session of its own and in plain English, as its user."""
        return subprocess.Popen(
            list(self.words),
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
        """Run it to its end and return what it printed."""
        with self.popen(subprocess.PIPE) as process:
            said = process.communicate()[0].decode(errors="replace")
        if process.returncode:
            raise ServerFailed(f"{' '.join(self.words)} ended with {process.returncode}:\n{said}")
        return said

    def _environment(self) -> dict[str, str]:
        # PG... variables speak of some other PostgreSQL than ours
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return {**inherited, "LC_ALL": "C", **({"HOME": "/tmp"} if self.user else {}), **self.env}


class Daemon:
    """One server process with its log and its record in `folder`."""

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
        written = self.record.with_suffix(".new")
        written.write_text(json.dumps({"pid": child.pid, "born": _born(child.pid)}))
        written.replace(self.record)

    @property
    def pid(self) -> int | None:
        """Of the running process, or None when it does not run (or the number is another process's by now)."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            recorded = json.loads(self.record.read_text())
            born = _born(recorded["pid"])
            if born is not None and born == recorded["born"]:
                return int(recorded["pid"])
        return None

    def end(self, how: signal.Signals, patience: float) -> bool:
        """Ask it to end, wait, and kill it when it does not. Tells whether asking was enough."""
        pid = self.pid
        if pid is None:
            return True
        _signal([pid], how)
        _signal(_family(pid), signal.SIGCONT)  # a frozen process would never see the request
        gone = eventually(lambda: _born(pid) is None, patience)
        if not gone:
            self.kill()
        self.record.unlink(missing_ok=True)
        return gone

    def kill(self) -> None:
        pid = self.pid
        if pid is None:
            return
        family = _family(pid)
        _signal(family, signal.SIGKILL)
        if not eventually(lambda: all(_born(member) is None for member in family), 10):
            raise ServerFailed(f"process {pid} is still there 10 s after SIGKILL")

    def pause(self) -> None:
        _signal(self._family(), signal.SIGSTOP)

    def resume(self) -> None:
        _signal(reversed(self._family()), signal.SIGCONT)

    def tail(self, lines: int = 15) -> str:
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 16384))
            return b"\n".join(log.read().splitlines()[-lines:]).decode(errors="replace")
        return "(there is no log)"

    def _family(self) -> list[int]:
        return [] if self.pid is None else _family(self.pid)


def eventually(true: Callable[[], bool], patience: float) -> bool:
    """Look again and again until it is true, at most `patience` seconds."""
    deadline = time.monotonic() + patience
    pause = 0.01
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.3, 0.2)
    return True


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _family(pid: int) -> list[int]:
    """A process and all its descendants, parents first: PostgreSQL's backends are sessions of their own."""
    parents = {other: seen[1] for other in _all_pids() if (seen := _look(other))}
    family = [pid]
    for member in family:
        family.extend(child for child, parent in parents.items() if parent == member)
    return family


def _born(pid: int) -> str | None:
    """When a process began, or None if there is none; a zombie is none."""
    seen = _look(pid)
    if seen is None and pid in _children and _children[pid].poll() is not None:  # else it stays a zombie while we live
        _children.pop(pid, None)
    return seen[0] if seen else None


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _look(pid: int) -> tuple[str, int] | None:
    """The birth and the parent of a living process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent, *rest = stat.rpartition(")")[2].split()
    if state in "ZX" and not _has_threads(pid):
        return None
    return f"{_boot()}/{rest[17]}", int(parent)


def _has_threads(pid: int) -> bool:
    """A killed JVM is a zombie while its other threads still hold its ports."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
