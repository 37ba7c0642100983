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
    empty, full = workshop.new_file(), workshop.new_file()
    stored = workshop.store(size.at_rest, full)
    works: list[Work] = [*[size.burst] * size.rounds, *size.streams]
    measured = [
        [workshop.measure(work, data=data, head_start=size.head_start_sec) for data in (empty, full)] for work in works
    ]
    startups = [[_idle(data, workshop, settle=False) for data in (empty, full)] for _ in range(size.rounds - 1)]
    startups.append([_idle(data, workshop, settle=True) for data in (empty, full)])
    sides = []
    for which, data in enumerate((empty, full)):
        figures = [pair[which] for pair in measured]
        sides.append(
            Side(
                bursts=figures[: size.rounds],
                streams=figures[size.rounds :],
                idle=_middle_of([pair[which] for pair in startups]),
                file_mb=round(Path(data).stat().st_size / 2**20, 1),
            )
        )
    return Compared(stored, *sides)


def _idle(data: str, workshop: Workshop, *, settle: bool) -> Idle:
    workshop.tell("starting a server", 0, 0)
    with serving(data) as server:
        if not settle:
            return Idle(server.startup_sec, None)
        time.sleep(SETTLE_SEC)
        return Idle(server.startup_sec, memory_mb(server.pid)[0])


def _middle_of(idles: list[Idle]) -> Idle:
    """The median start; the memory was read at the last one."""
    startup = sorted(idle.startup_sec for idle in idles)[(len(idles) - 1) // 2]
    return Idle(round(startup, 2), idles[-1].rss_mb)
