"""The work `rest`: whether jobs that lie in the store make those that are due slower.

Two stores, one with jobs at rest and one without. Every measurement is made on both in turn, so that a machine that is
busy for a while is busy for both, and both keep the same history of earlier rounds.
"""

import time
from dataclasses import dataclass

import msgspec

from bench.figures import Created, Figures, Lateness, middle
from bench.works import AtRest, Burst, Stream, Work
from bench.workshop import Workshop

SETTLE_SEC = 6
"""How long an engine is left alone before its memory is read: every loop has come round by then."""


@dataclass(frozen=True)
class RestSize:
    at_rest: AtRest
    burst: Burst
    streams: tuple[Stream, ...]
    rounds: int
    head_start_sec: float | None = None


class Idle(msgspec.Struct, frozen=True):
    """The engine on a store, with nothing to do."""

    startup_sec: float
    rss_mb: float | None


class Side(msgspec.Struct, frozen=True):
    """All that was measured on one of the two stores."""

    bursts: list[Figures]
    streams: list[Figures]
    idle: Idle
    file_mb: float
    """What the store takes on its disk."""

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
    places = (workshop.new_place(), workshop.new_place())
    stored = workshop.store(size.at_rest, places[1])
    works: list[Work] = [*[size.burst] * size.rounds, *size.streams]
    measured = []
    for turn, work in enumerate(works, 1):
        workshop.heading = f"{turn} of {len(works)}"
        measured.append([workshop.measure(work, place=place, head_start=size.head_start_sec) for place in places])
    workshop.heading = ""
    idles = [
        [_idle(place, workshop, settle=last) for place in places]
        for last in (turn == size.rounds - 1 for turn in range(size.rounds))
    ]
    before, after = (
        _side(workshop.size_mb(place), size.rounds, [pair[which] for pair in measured], [pair[which] for pair in idles])
        for which, place in enumerate(places)
    )
    return Compared(stored, before, after)


def _side(size_mb: float, bursts: int, figures: list[Figures], idles: list[Idle]) -> Side:
    return Side(bursts=figures[:bursts], streams=figures[bursts:], idle=_middle_of(idles), file_mb=size_mb)


def _idle(place: str, workshop: Workshop, *, settle: bool) -> Idle:
    workshop.tell("starting a server", 0, 0)
    with workshop.up(place) as up:
        if not settle:
            return Idle(round(up.startup_sec, 2), None)
        time.sleep(SETTLE_SEC)
        return Idle(round(up.startup_sec, 2), up.rss_mb)


def _middle_of(idles: list[Idle]) -> Idle:
    """The median start; the memory was read at the last one."""
    startups = sorted(idle.startup_sec for idle in idles)
    return Idle(startups[len(startups) // 2], idles[-1].rss_mb)
