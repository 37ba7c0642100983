"""The script of a seed: each fault with its target, its time and its duration. A pure function."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from random import Random
from typing import Literal

from tests.support.tcp_cutter import Side

What = Literal["kill", "freeze", "stop", "cut", "refuse", "restart", "flush", "empty"]

KINDS: Mapping[str, int] = {"api": 2, "scheduler": 3, "recorder": 2, "worker": 3}
"""The number of processes of each kind in a cluster."""
PROCESS_FAULTS: Mapping[What, int] = {"kill": 30, "freeze": 20, "stop": 10, "cut": 24, "refuse": 6}
SERVER_FAULTS: Mapping[str, Mapping[What, int]] = {
    "postgres": {"restart": 2, "kill": 1, "freeze": 2},
    "redis": {"flush": 4, "restart": 2, "kill": 1, "freeze": 2, "empty": 1},
    "kafka": {"restart": 1, "kill": 2, "freeze": 2},
    "etcd": {"restart": 1, "kill": 1, "freeze": 1, "empty": 1},
}
REACHES: Mapping[str, Sequence[str]] = {
    "api": ("postgres", "redis", "kafka"),
    "scheduler": ("postgres", "redis", "kafka", "etcd"),
    "recorder": ("postgres", "redis", "kafka", "etcd"),
    "worker": ("redis", "kafka"),
}
"""The servers that each kind of process uses."""
SERVER_SHARE = 0.2
LASTS_SEC: Mapping[What, Sequence[float]] = {
    "kill": (0.0, 0.5, 3.0),
    "freeze": (0.3, 2.0, 5.0, 12.0, 35.0),
    "stop": (0.0,),
    "cut": (0.5, 4.0, 10.0, 25.0),
    "refuse": (0.5, 3.0, 8.0),
}
"""Durations around the critical timeouts: a lease of 3 s, a worker that stalled for 20 s, a claim of 30 s."""
SERVER_LASTS_SEC: Sequence[float] = (0.0, 1.0, 4.0, 9.0)
DEPLOY_EVERY_SEC = 20.0
"""How often a process is stopped and replaced, as by a deploy."""
PAUSE_EVERY_SEC = 30.0
PAUSE_SEC = (2.0, 6.0)
"""How often, and for how long, PostgreSQL stalls: around the duration of a recorder's tick."""


@dataclass(frozen=True)
class Step:
    """One fault: of a seat, such as `worker 2`, or of a server."""

    at_sec: float
    what: What
    whom: str
    lasts_sec: float
    server: str = ""
    """The server from which a seat is cut off."""
    towards: Side | None = None
    """The direction in which no data arrive; both by default."""

    @property
    def kind(self) -> str:
        """The name under which a report counts it."""
        one_way = f", towards the {self.towards} only" if self.towards else ""
        where = f" from {self.server}" if self.server else ""
        return f"{self.whom.split()[0]}: {self.what}{where}{one_way}"


def seats_of(kinds: Mapping[str, int]) -> list[str]:
    return [f"{kind} {number}" for kind, count in kinds.items() for number in range(1, count + 1)]


def write_script(seed: int, seconds: float, every_sec: float, seats: Sequence[str]) -> Iterator[Step]:
    """Return random faults, a deploy every 20 s, and stalls of PostgreSQL, in the order of time."""
    steps = (_at_random(seed, seconds, every_sec, seats), _deploys(seed, seconds, seats), _pauses(seed, seconds))
    return merge(*steps, key=lambda step: step.at_sec)


def _deploys(seed: int, seconds: float, seats: Sequence[str]) -> Iterator[Step]:
    random = Random(f"deploys/{seed}")
    for at_sec in _middles(DEPLOY_EVERY_SEC, seconds):
        yield Step(at_sec, "stop", random.choice(seats), 0.0)


def _pauses(seed: int, seconds: float) -> Iterator[Step]:
    random = Random(f"pauses/{seed}")
    for at_sec in _middles(PAUSE_EVERY_SEC, seconds):
        yield Step(at_sec, "freeze", "postgres", round(random.uniform(*PAUSE_SEC), 2))


def _middles(every_sec: float, seconds: float) -> Iterator[float]:
    """The middle of each interval that begins within a run, so that a short run has one too."""
    at_sec = every_sec / 2
    while at_sec < seconds:
        yield at_sec
        at_sec += every_sec


def _at_random(seed: int, seconds: float, every_sec: float, seats: Sequence[str]) -> Iterator[Step]:
    """Faults one after the other, `every_sec` on average, with the probabilities of the tables."""
    random = Random(f"faults/{seed}")
    at_sec = 0.0
    while (at_sec := at_sec + random.expovariate(1 / every_sec)) < seconds:
        at = round(at_sec, 2)
        yield _server_step(random, at) if random.random() < SERVER_SHARE else _seat_step(random, at, seats)


def _server_step(random: Random, at_sec: float) -> Step:
    server = random.choice(list(SERVER_FAULTS))
    return Step(at_sec, _draw(random, SERVER_FAULTS[server]), server, random.choice(SERVER_LASTS_SEC))


def _seat_step(random: Random, at_sec: float, seats: Sequence[str]) -> Step:
    seat = random.choice(seats)
    what = _draw(random, PROCESS_FAULTS)
    lasts_sec = random.choice(LASTS_SEC[what])
    if what not in ("cut", "refuse"):
        return Step(at_sec, what, seat, lasts_sec)
    server = random.choice(REACHES[seat.split()[0]])
    sides: Sequence[Side | None] = (None, None, "server", "client")
    return Step(at_sec, what, seat, lasts_sec, server, random.choice(sides) if what == "cut" else None)


def _draw(random: Random, weights: Mapping[What, int]) -> What:
    return random.choices(list(weights), list(weights.values()))[0]
