"""The peers: what each of them is, and what its `peer.toml` says about it."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from bench import BenchFailed

PEERS = Path(__file__).parent
NOONDAY = ("noonday-embedded", "noonday-cluster")

Language = Literal["go", "node", "python", "java", "noonday"]
Store = Literal["postgres", "redis", "directory", "cluster"]


class Peer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scheduler that is measured."""

    name: str
    title: str
    version: str
    """Pinned: what is installed."""
    language: Language
    store: Store
    settings: str
    """How it is tuned, after the advice of its documentation."""
    command: tuple[str, ...] = ()
    """Arguments of the program."""
    history: bool = True
    """Whether what was done stays in the store."""
    durable: bool = True
    """Whether the store is on a disk."""
    ways: tuple[str, ...] = ("single", "callers", "bulk")
    """In which jobs can be created."""
    unsupported: dict[str, str] = {}
    """Works that it cannot do, each with the reason."""
    one_process: bool = False
    """Whether the process that creates the jobs also runs them, or starts those that do."""
    fleet: bool = False
    """Whether the program starts several processes of each role if it is told to."""

    @property
    def is_noonday(self) -> bool:
        return self.name in NOONDAY

    @property
    def directory(self) -> Path:
        return PEERS / self.name

    def marks(self) -> list[str]:
        """What a reader of its figures has to know."""
        marks = [] if self.history else ["keeps no history"]
        return marks if self.durable else [*marks, "not durable"]


def load_peers(directory: Path = PEERS) -> dict[str, Peer]:
    """Every peer by its name, Noonday included. Raises BenchFailed if a `peer.toml` is wrong."""
    return {path.parent.name: _load(path) for path in sorted(directory.glob("*/peer.toml"))}


def chosen(names: Sequence[str], peers: dict[str, Peer]) -> list[Peer]:
    """The named peers without Noonday, which is always there; all of them if none is named. Raises BenchFailed."""
    known = [name for name in peers if name not in NOONDAY]
    for name in names:
        if name not in known:
            raise BenchFailed(f"there is no peer {name!r}: choose from {', '.join(known)}")
    return [peers[name] for name in dict.fromkeys(names or known)]


def _load(path: Path) -> Peer:
    try:
        return msgspec.convert({"name": path.parent.name, **tomllib.loads(path.read_text())}, Peer)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BenchFailed(f"{path}: {error}") from error
