"""What a random run has besides jobs, edits and faults, by its seed."""

from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True)
class Load:
    """Without arguments: nothing besides. `random` is a stream of its own, so that one part of a load leaves the others as they
    are."""

    random: Random = field(default_factory=lambda: Random(0))
    unique_keys: bool = False
    """Some jobs have a unique key and are created again by it, which updates them."""


def load_of(seed: int) -> Load:
    """The load of a random run. Each part has its share of the seeds, and meets every other part in some of them."""
    return Load(
        Random(f"load/{seed}"),
        unique_keys=seed % 11 < 4,
    )
