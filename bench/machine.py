"""What it was measured on, and what processes used of it."""

import os
import platform
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from noonday.wiring.settings import Settings

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")
_LISTENS = "0A"


def settings_used(settings: Settings) -> dict[str, Any]:
    """What the figures depend on, on every mode."""
    return {
        "batch": settings.scheduler.batch,
        "lead_ms": settings.scheduler.lead_ms,
        "concurrency": settings.worker.concurrency,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def filesystem_of(directory: Path) -> str | None:
    """The type of the file system, such as ext4. None where the system does not tell."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return None
    fields = [line.split(" ") for line in mounts.read_text().splitlines()]
    above = [(len(point), kind) for _, point, kind, *_ in fields if directory.resolve().is_relative_to(point)]
    return max(above)[1] if above else None


def own_cpu_sec() -> float:
    """What this process has used of all cores so far."""
    return time.process_time()


def cpu_sec(processes: Mapping[str, Collection[int]]) -> dict[str, float]:
    """What these processes, each with those it has started, have used of all cores so far; by the names they are given."""
    stats = dict(_stats())
    return {
        name: sum(stats[pid].used_sec for pid in _with_descendants(roots, stats)) for name, roots in processes.items()
    }


def memory_mb(pid: int | None = None) -> tuple[float | None, float | None]:
    """Resident memory, now and at its peak, of this process, or of another one with those it has started. None where the system
    does not tell."""
    pids = ["self"] if pid is None else [str(each) for each in _with_descendants([pid], dict(_stats()))]
    each = [found for found in map(_memory_mb, pids) if found is not None]
    if not each:
        return None, None
    return round(sum(now for now, _ in each), 1), round(sum(peak for _, peak in each), 1)


def _memory_mb(pid: str) -> tuple[float, float] | None:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if "VmRSS" not in lines:
        return None  # it has ended, and nobody has noticed yet
    now, peak = (int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak


def has_ended(pid: int) -> bool:
    """Whether a process has ended, even if its parent has not collected it yet."""
    stat = _stat(pid)
    return stat is None or stat.state == "Z"


def with_children(pids: Collection[int]) -> set[int]:
    """These processes and all that they have started, as far as it lives."""
    return _with_descendants(pids, dict(_stats()))


def listeners(port: int) -> list[int]:
    """The processes that listen on a port of this machine, as far as we may see them."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    return [pid for pid in _pids() if sockets and sockets & set(_open_files(pid))]


class _Stat:
    """/proc/PID/stat."""

    def __init__(self, text: str) -> None:
        # The second field is a name in brackets, which may hold anything.
        fields = text.rpartition(")")[2].split()
        self.state = fields[0]
        self.parent = int(fields[1])
        # With those of its children that have ended: so nothing is lost when one does.
        self.used_sec = sum(map(int, fields[11:15])) / _TICKS_PER_SEC


def _stats() -> Iterator[tuple[int, _Stat]]:
    for pid in _pids():
        if stat := _stat(pid):
            yield pid, stat


def _stat(pid: int) -> _Stat | None:
    try:
        return _Stat(Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return None


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _with_descendants(roots: Collection[int], stats: dict[int, _Stat]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    found: set[int] = set()
    left = [pid for pid in roots if pid in stats]
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, ())
    return found


def _listening_inodes(port: int) -> Iterator[str]:
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, *rest = line.split()
            if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                yield rest[5]


def _open_files(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield os.readlink(entry)
