"""How fast the machine is at present, so that figures of different days can be compared."""

import os
import platform
import time
from pathlib import Path

import msgspec

from bench.machine import filesystem_of

LOOP_TURNS = 5_000_000
SYNC_SEC = 2.0
_BLOCK = b"\0" * 4096


class Speed(msgspec.Struct, frozen=True):
    loop_sec: float
    """What 5,000,000 turns of a plain Python loop take."""
    fsyncs_per_s: float
    """Each after 4 KiB were appended to one file."""
    cores: int | None
    load: float
    """The load average of the last minute, before anything was measured."""
    python: str
    filesystem: str | None


def machine_speed(directory: Path, sync_sec: float = SYNC_SEC, turns: int = LOOP_TURNS) -> Speed:
    load = os.getloadavg()[0]
    return Speed(
        loop_sec=round(_loop_sec(turns), 3),
        fsyncs_per_s=round(_fsyncs_per_s(directory / "fsyncs", sync_sec), 1),
        cores=os.cpu_count(),
        load=round(load, 2),
        python=platform.python_version(),
        filesystem=filesystem_of(directory),
    )


def _loop_sec(turns: int) -> float:
    begun, total = time.perf_counter(), 0
    for number in range(turns):
        total += number & 7
    return time.perf_counter() - begun


def _fsyncs_per_s(path: Path, sec: float) -> float:
    count, begun = 0, time.perf_counter()
    try:
        with path.open("wb", buffering=0) as file:
            while (took := time.perf_counter() - begun) < sec or not count:
                file.write(_BLOCK)
                os.fsync(file.fileno())
                count += 1
    finally:
        path.unlink(missing_ok=True)
    return count / took
