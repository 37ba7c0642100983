"""In which order repetitions are made: everything that is compared is measured side by side."""

from collections.abc import Iterator, Sequence

import msgspec

from bench.peers.catalog import Peer
from bench.peers.works import Work


class Neighbours(msgspec.Struct, frozen=True):
    """A peer and Noonday, measured one after the other on one work. Ratios are those of neighbours."""

    round: int
    work: Work
    peer: Peer
    noonday: tuple[Peer, ...]

    def members(self) -> tuple[Peer, ...]:
        """In turn: in every other round Noonday comes first, so that nobody always profits from a warm machine."""
        return (self.peer, *self.noonday) if self.round % 2 == 0 else (*self.noonday, self.peer)


def plan(peers: Sequence[Peer], noonday: Sequence[Peer], works: Sequence[Work], rounds: int) -> Iterator[Neighbours]:
    """Every work is repeated with every peer before the first is repeated again. Works that a peer does not support are left
    out."""
    for number in range(rounds):
        for work in works:
            for peer in peers:
                if work.name not in peer.unsupported and can(peer, work):
                    yield Neighbours(number, work, peer, tuple(noonday))


def can(peer: Peer, work: Work) -> bool:
    """Whether the peer can create jobs in the way that the work measures."""
    return work.kind != "schedule" or work.way in peer.ways
