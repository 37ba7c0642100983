"""The works, defined once for everyone."""

from collections.abc import Sequence

import msgspec

from bench import BenchFailed

ROUND_SEC = 30.0
"""How long a repetition should take."""
LEAST_JOBS = 100
CRON_PERIOD_SEC = 60


class Work(msgspec.Struct, frozen=True):
    """What is measured. `figure` is what it is about: the ratio to Noonday is that of this figure."""

    name: str
    figure: str
    kind: str
    jobs: int
    """At most."""
    more_is_better: bool = False
    way: str = "bulk"
    rate: float = 0
    """Jobs that fall due in a second; 0: all at one instant."""
    at_rest: int = 0

    @property
    def step_us(self) -> int:
        return round(1_000_000 / self.rate) if self.rate else 0

    def lasts_ms(self, jobs: int) -> int:
        """How long after the first job the last one falls due."""
        return max(0, jobs - 1) * self.step_us // 1000


STREAM_SEC = 20
WAIT_MS = 150
"""How long a handler works that may be killed: three run at once, which every peer has room for."""


def _stream(rate: float) -> Work:
    return Work(f"stream-{rate:g}", "p99_ms", "stream", round(rate * STREAM_SEC), rate=rate)


WORKS = {
    work.name: work
    for work in (
        Work("schedule-single", "per_s", "schedule", 20_000, more_is_better=True, way="single"),
        Work("schedule-callers", "per_s", "schedule", 50_000, more_is_better=True, way="callers"),
        Work("schedule-bulk", "per_s", "schedule", 200_000, more_is_better=True),
        Work("burst", "per_s", "burst", 100_000, more_is_better=True),
        Work("minute", "p95_ms", "stream", 1_000_000, rate=1_000_000 / 60),
        _stream(200),
        _stream(2_000),
        Work("stream-max", "rate", "stream-max", 2_000_000, more_is_better=True, rate=2_000),
        Work("at-rest", "per_s", "burst", 100_000, more_is_better=True, at_rest=1_000_000),
        Work("at-rest-10m", "per_s", "burst", 100_000, more_is_better=True, at_rest=10_000_000),
        Work("crons", "p99_ms", "crons", 10_000),
        Work("crons-100k", "p99_ms", "crons", 100_000),
        Work("kill-worker", "flows_sec", "kill", 400, rate=20),
        Work("kill-scheduler", "flows_sec", "kill", 400, rate=20),
        Work("idle", "cpu_percent", "idle", 0),
    )
}


def chosen_works(names: Sequence[str]) -> list[Work]:
    """Works by name, or by the beginning of several names (`schedule`, `stream`, `kill`); all if none is named."""
    for name in names:
        if not _named(name):
            raise BenchFailed(f"there is no work {name!r}: choose from {', '.join(WORKS)}")
    wanted = {each.name for name in names or WORKS for each in _named(name)}
    return [work for name, work in WORKS.items() if name in wanted]


def _named(name: str) -> list[Work]:
    return [WORKS[name]] if name in WORKS else [work for work in WORKS.values() if work.name.startswith(f"{name}-")]


def jobs_for_a_round(create_per_s: float, done_per_s: float, most: int, round_sec: float = ROUND_SEC) -> int:
    """How many jobs make a repetition take about so long, by the rates of the warm-up: two leading digits, and never
    more than the work has."""
    sec_per_job = 1 / max(create_per_s, 1e-9) + (1 / done_per_s if done_per_s else 0)
    jobs = int(round_sec / sec_per_job)
    if jobs >= LEAST_JOBS:
        unit = 10 ** (len(str(jobs)) - 2)
        jobs = jobs // unit * unit
    return min(max(jobs, LEAST_JOBS), most)
