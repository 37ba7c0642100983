"""The work `rest`: whether jobs that lie in the store make those that are due slower.

Two data files, one with jobs at rest and one without. Every measurement is made on both in turn, so that a machine that
is busy for a while is busy for both, and both keep the same history of earlier rounds.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from noonday.bench.figures import Created, Figures, Lateness, middle
from noonday.bench.machine import memory_mb
from noonday.bench.served import serving
from noonday.bench.works import AtRest, Burst, Stream, Work
from noonday.bench.workshop import Workshop

SETTLE_SEC = 6
"""How long a server is left alone before its memory is read: every loop has come round by then."""


@dataclass(frozen=True)
class RestSize:
    at_rest: AtRest
    burst: Burst
    streams: tuple[Stream, ...]
    rounds: int
    head_start_sec: float | None = None


class Idle(msgspec.Struct, frozen=True):
    """`noonday up` on a data file, with nothing to do."""

    startup_sec: float
    rss_mb: float | None


class Side(msgspec.Struct, frozen=True):
    """All that was measured on one of the two files."""

    bursts: list[Figures]
    streams: list[Figures]
    idle: Idle
    file_mb: float

    @property
    def burst(self) -> Figures:
        return middle(self.bursts)

    @property
    def lateness_of_streams(self) -> list[Lateness]:
        return [figures.lateness_ms for figures in self.streams]


@dataclass(frozen=True)
class Compared:
    stored: Created
    before: Side
    after: Side

    @property
    def measured(self) -> list[Figures]:
        return [*self.before.bursts, *self.before.streams, *self.after.bursts, *self.after.streams]


def measure_rest(size: RestSize, workshop: Workshop) -> Compared:
    files = (workshop.new_file(), workshop.new_file())
    stored = workshop.store(size.at_rest, files[1])
    works: list[Work] = [*[size.burst] * size.rounds, *size.streams]
    measured = []
    for turn, work in enumerate(works, 1):
        workshop.heading = f"{turn} of {len(works)}"
        measured.append([workshop.measure(work, data=data, head_start=size.head_start_sec) for data in files])
    workshop.heading = ""
    idles = [
        [_idle(data, workshop, settle=last) for data in files]
        for last in (turn == size.rounds - 1 for turn in range(size.rounds))
    ]
    before, after = (
        _side(data, size.rounds, [pair[which] for pair in measured], [pair[which] for pair in idles])
        for which, data in enumerate(files)
    )
    return Compared(stored, before, after)


def _side(data: str, bursts: int, figures: list[Figures], idles: list[Idle]) -> Side:
    return Side(
        bursts=figures[:bursts],
        streams=figures[bursts:],
        idle=_middle_of(idles),
        file_mb=round(Path(data).stat().st_size / 2**20, 1),
    )


def _idle(data: str, workshop: Workshop, *, settle: bool) -> Idle:
    workshop.tell("starting a server", 0, 0)
    with serving(data) as server:
        if not settle:
            return Idle(round(server.startup_sec, 2), None)
        time.sleep(SETTLE_SEC)
        return Idle(round(server.startup_sec, 2), memory_mb(server.pid)[0])


def _middle_of(idles: list[Idle]) -> Idle:
    """The median start; the memory was read at the last one."""
    startups = sorted(idle.startup_sec for idle in idles)
    return Idle(startups[len(startups) // 2], idles[-1].rss_mb)
