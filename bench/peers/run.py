"""A run: repetitions in turn, until the rounds are over or the time is."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import BenchFailed
from bench.peers.catalog import Peer
from bench.peers.install import install
from bench.peers.plan import Neighbours, plan
from bench.peers.repetition import Limits, Measured, Sizes, measure
from bench.peers.results import Document, Repeated, tables_of
from bench.peers.speed import machine_speed
from bench.peers.works import Work

ONCE_FAILED_ENOUGH = 2
"""A peer that has failed a work so often is not tried again."""

Tell = Callable[[str], None]


class Run:
    """Measures peers and Noonday on works. What fails is reported, and the rest goes on."""

    def __init__(
        self,
        peers: Sequence[Peer],
        noonday: Sequence[Peer],
        directory: Path,
        environ: Mapping[str, str],
        limits: Limits,
        tell: Tell,
    ) -> None:
        self._peers = peers
        self._noonday = noonday
        self._directory = directory
        self._environ = environ
        self._limits = limits
        self._tell = tell
        self._sizes = Sizes()
        self._places: dict[str, Path] = {}
        self._missing: dict[str, str] = {}
        self._repeated: list[Repeated] = []

    def measure(self, works: Sequence[Work], rounds: int, budget_sec: float) -> Document:
        """The first neighbours are measured whatever the time; after that, none begins when the time is over."""
        self._install()
        before, begun = machine_speed(self._directory), time.monotonic()
        here = [peer for peer in self._peers if peer.name in self._places]
        complete, last_sec = 0, 0.0
        for neighbours in plan(here, self._noonday, works, rounds):
            started = time.monotonic()
            if self._repeated and started - begun + last_sec > budget_sec:
                self._tell(f"the time is over after {(started - begun) / 60:.1f} minutes")
                break
            complete = neighbours.round
            self._measure(neighbours)
            last_sec = time.monotonic() - started
        else:
            complete = rounds
        everyone = {peer.name: peer for peer in (*self._noonday, *self._peers)}
        return Document(
            machine=before,
            machine_after=machine_speed(self._directory),
            took_sec=round(time.monotonic() - begun, 1),
            rounds=complete,
            peers=list(everyone.values()),
            missing=self._missing,
            tables=tables_of(works, everyone, self._repeated),
            repetitions=self._repeated,
        )

    def _install(self) -> None:
        for peer in (*self._noonday, *self._peers):
            self._tell(f"installing {peer.title} {peer.version}")
            try:
                self._places[peer.name] = install(peer)
            except BenchFailed as error:
                self._missing[peer.name] = error.detail
                self._tell(f"{peer.title} is not measured: {error.detail}")

    def _measure(self, neighbours: Neighbours) -> None:
        for peer in neighbours.members():
            if self._failures(peer, neighbours.work) < ONCE_FAILED_ENOUGH:
                measured = self._repetition(peer, neighbours.work)
                self._tell(_line(neighbours, peer, measured))
                self._repeated.append(Repeated(neighbours.round, neighbours.peer.name, measured))

    def _repetition(self, peer: Peer, work: Work) -> Measured:
        try:
            return measure(
                peer, work, self._places[peer.name], self._directory, self._environ, self._limits, self._sizes
            )
        except BenchFailed as error:
            return Measured(peer.name, work.name, failed=error.detail)

    def _failures(self, peer: Peer, work: Work) -> int:
        return sum(
            each.measured.failed is not None
            for each in self._repeated
            if (each.measured.peer, each.measured.work) == (peer.name, work.name)
        )


def _line(neighbours: Neighbours, peer: Peer, measured: Measured) -> str:
    what = f"round {neighbours.round + 1}, {neighbours.work.name}, {peer.title}"
    if measured.failed is not None:
        return f"{what}: failed: {measured.failed}"
    figures = ", ".join(f"{name} {value:,.4g}" for name, value in measured.figures.items() if value is not None)
    wrong = f"; lost {measured.lost}, duplicated {measured.duplicated}, early {measured.early}"
    return f"{what}: {measured.jobs:,} jobs, {figures}{wrong}"
