"""What a run found out, as one document: rows of medians, spreads and ratios, and every repetition."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bench.peers.catalog import NOONDAY, Peer
from bench.peers.plan import can
from bench.peers.repetition import Measured
from bench.peers.speed import Speed
from bench.peers.spread import Spread, ratios, spread
from bench.peers.works import WORKS, Work


class Repeated(msgspec.Struct, frozen=True):
    """A repetition: which round it belongs to, and which peer was measured beside it."""

    round: int
    beside: str
    measured: Measured


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One peer, or Noonday, on one work."""

    peer: str
    jobs: int
    figures: dict[str, Spread]
    lost: int
    """In all repetitions, like the next two."""
    duplicated: int
    early: int
    noonday: dict[str, Spread]
    """The figure of either mode of Noonday divided by that of this peer, among neighbours."""
    noonday_cpu: dict[str, Spread]
    """Likewise, of CPU time a job."""
    marks: list[str]
    failed: list[str]


class Table(msgspec.Struct, frozen=True):
    work: str
    figure: str
    more_is_better: bool
    rows: list[Row]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    machine: Speed
    """Before the first repetition."""
    machine_after: Speed
    took_sec: float
    rounds: int
    """Complete ones."""
    peers: list[Peer]
    missing: dict[str, str]
    """Peers that cannot be installed or started here, each with the reason."""
    tables: list[Table]
    repetitions: list[Repeated]


def tables_of(works: Sequence[Work], peers: Mapping[str, Peer], repeated: Sequence[Repeated]) -> list[Table]:
    return [
        Table(work.name, work.figure, work.more_is_better, _rows(work, peers, of_work))
        for work in works
        if (of_work := [each for each in repeated if each.measured.work == work.name])
    ]


def _rows(work: Work, peers: Mapping[str, Peer], repeated: Sequence[Repeated]) -> list[Row]:
    by_peer: dict[str, list[Repeated]] = defaultdict(list)
    for each in repeated:
        by_peer[each.measured.peer].append(each)
    order = [name for name in peers if name in by_peer]
    return [_row(work, peers[name], by_peer[name], by_peer) for name in order]


def _row(work: Work, peer: Peer, own: Sequence[Repeated], by_peer: Mapping[str, Sequence[Repeated]]) -> Row:
    measured = [each.measured for each in own]
    good = [each for each in measured if each.failed is None]
    names = sorted({name for each in good for name in each.figures})
    beside = {} if peer.is_noonday else {name: by_peer[name] for name in NOONDAY if name in by_peer}
    spreads = {name: spread([each.figures.get(name) for each in good]) for name in names}
    return Row(
        peer=peer.name,
        jobs=max((each.jobs for each in good), default=0),
        figures={name: found for name, found in spreads.items() if found},
        lost=sum(each.lost for each in good),
        duplicated=sum(each.duplicated for each in good),
        early=sum(each.early for each in good),
        noonday=_compared(work.figure, own, beside),
        noonday_cpu=_compared("cpu_us", own, beside),
        marks=peer.marks(),
        failed=list(dict.fromkeys(each.failed for each in measured if each.failed)),
    )


def _compared(figure: str, own: Sequence[Repeated], beside: Mapping[str, Sequence[Repeated]]) -> dict[str, Spread]:
    compared = {}
    for name, theirs in beside.items():
        neighbours = {(each.round, each.beside): each.measured.figures.get(figure) for each in theirs}
        pairs = [(neighbours.get((each.round, each.beside)), each.measured.figures.get(figure)) for each in own]
        if found := ratios([one for one, _ in pairs], [other for _, other in pairs]):
            compared[name] = found
    return compared


def unsupported(peers: Sequence[Peer], tables: Sequence[Table]) -> dict[str, dict[str, str]]:
    """By work and peer, why it was not measured."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for table in tables:
        for peer in peers:
            if table.work in peer.unsupported:
                found[table.work][peer.name] = peer.unsupported[table.work]
            elif not can(peer, WORKS[table.work]):
                found[table.work][peer.name] = "its library has no such way to create jobs"
    return dict(found)


def plain(document: Document) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(document)
    return found
