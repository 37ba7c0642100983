"""What it was measured on, and what a process used of it."""

import os
import platform
import sqlite3
import time
from pathlib import Path
from typing import Any

from noonday.wiring.settings import Settings

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")


def settings_used(settings: Settings) -> dict[str, Any]:
    """What the figures depend on besides the code."""
    return {
        "synchronous": settings.store.synchronous,
        "cache_mb": settings.store.cache_mb,
        "batch": settings.scheduler.batch,
        "lead_ms": settings.scheduler.lead_ms,
        "concurrency": settings.worker.concurrency,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "filesystem": filesystem_of(Path(settings.data).absolute().parent),
    }


def filesystem_of(directory: Path) -> str | None:
    """The type of the file system, such as ext4. None where the system does not tell."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return None
    fields = [line.split(" ") for line in mounts.read_text().splitlines()]
    above = [(len(point), kind) for _, point, kind, *_ in fields if directory.resolve().is_relative_to(point)]
    return max(above)[1] if above else None


def cpu_sec(pid: int | None = None) -> float:
    """What a process, this one by default, has used of all cores so far."""
    if pid is None:
        return time.process_time()
    # The second field is a name in brackets, which may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SEC


def memory_mb(pid: int | None = None) -> tuple[float | None, float | None]:
    """Resident memory of a process, now and at its peak. None where the system does not tell."""
    status = Path(f"/proc/{pid or 'self'}/status")
    if not status.exists():
        return None, None
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    now, peak = (round(int(lines[name].split()[0]) / 1024, 1) for name in ("VmRSS", "VmHWM"))
    return now, peak
