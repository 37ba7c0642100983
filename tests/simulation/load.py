"""The load of a random run besides jobs, edits and faults, chosen by its seed."""

from dataclasses import dataclass, field
from random import Random

from noonday.wiring.settings.engine import RetentionSettings
from tests.simulation.retention import SHORT


@dataclass(frozen=True)
class Load:
    """Without arguments: no load. `random` is a stream of its own, so that one part of a load does not change the others."""

    random: Random = field(default_factory=lambda: Random(0))
    unique_keys: bool = False
    """Some jobs have a unique key and are created again by it, which updates them."""
    retention: RetentionSettings | None = None
    """How long ended executions are kept, if not for days."""
    skew: bool = False
    """The clocks of processes are off by up to two seconds."""
    clock_steps: bool = False
    """Clocks are set, by up to two seconds."""
    old_redis: bool = False
    """Redis is restored from copies that are some seconds old."""
    largest_message: int | None = None
    """The broker refuses larger messages, and some payloads, results and progress are larger."""
    threads: bool = False
    """Some handlers run in threads: they cannot be cancelled, and some of them run for longer than the grace."""
    other_keeps_days: int | None = None
    """The retention of the other tenant, if it has its own."""
    changes: bool = False
    """Some requests patch jobs, and trigger them with their own payload or past their overlap rule."""
    times: Random | None = None
    """If given, some occurrences are moved, and some pauses have an end. It has a stream of its own."""
    children: bool = False
    """Some handlers enqueue jobs."""


def load_of(seed: int) -> Load:
    """Return the load of a random run. Each part has its share of the seeds, and meets every other part in some of them."""
    return Load(
        Random(f"load/{seed}"),
        unique_keys=seed % 11 < 4,
        retention=SHORT if seed % 13 < 3 else None,
        skew=seed % 17 < 4,
        clock_steps=seed % 17 in (2, 3, 4),
        old_redis=seed % 19 < 5,
        largest_message=3_000 if seed % 23 < 6 else None,
        threads=seed % 29 < 7,
        other_keeps_days=1 if seed % 26 < 3 else None,
        changes=seed % 31 < 9,
        times=Random(f"times/{seed}") if seed % 37 >= 26 else None,
        children=seed % 37 < 14,
    )
