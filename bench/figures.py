"""What a measurement says, and how it follows from what was seen."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

PERCENTILES = (50, 95, 99)


class Lateness(msgspec.Struct, frozen=True):
    """In milliseconds. None where nothing was to start."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class OfTenant(msgspec.Struct, frozen=True):
    """What one of several tenants got."""

    jobs: int
    lateness_ms: Lateness
    share: float | None
    """Of what was started while all of them had something waiting."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One work, measured once."""

    work: str
    mode: str
    jobs: int
    expected: int
    """Executions that were asked for."""
    fired: int
    """Those of them that are recorded as SUCCEEDED."""
    recorded_per_s: float
    """All that were recorded, by the time from the first instant until the last of them was recorded."""
    drain_sec: float
    """How long recording went on after the last of them was due."""
    lateness_ms: Lateness
    """From the due time to the start of the handler."""
    lost: int
    duplicated: int
    early: int
    earliest_ms: float | None
    """The least lateness there was; less than 0 if one was early."""
    cpu_us_per_job: float
    """Of all that take part, by execution, from before the first hand-out until the last was recorded."""
    cpu_us_per_job_by: dict[str, float]
    """The same, by who used it: one engine, or the roles and the servers of a cluster."""
    create_cpu_us_per_job_by: dict[str, float]
    """By job, while the jobs were created."""
    rss_mb: float | None
    """Of all processes of ours that take part."""
    rss_peak_mb: float | None
    """The whole life of the processes, creating the jobs included."""
    rss_mb_by: dict[str, float | None]
    rss_peak_mb_by: dict[str, float | None]
    created_per_s: float
    at_once: int | None
    """How many handlers were waiting at the same time, if they were to wait."""
    settings: dict[str, Any]
    tenants: dict[str, OfTenant] | None = None


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs stored in one way."""

    way: str
    jobs: int
    """What was acknowledged."""
    created_per_s: float
    lost: int
    """Acknowledged, and not in the store."""
    duplicated: int
    """In the store, and not acknowledged."""
    cpu_us_per_job: float
    """Of all that take part, but for callers over HTTP."""
    cpu_us_per_job_by: dict[str, float]
    rss_mb: float | None
    callers: int | None = None
    """For calls over HTTP."""
    call_ms: Lateness | None = None
    callers_cpu: float | None = None
    """What share of a core the callers used themselves."""


class Tally(msgspec.Struct, frozen=True):
    fired: int
    lost: int
    duplicated: int
    early: int
    earliest_ms: float | None
    lateness_ms: Lateness


def tally(due_ms: Mapping[str, int], starts: Sequence[tuple[str, int]], recorded: Collection[str]) -> Tally:
    """Compare the executions that were asked for (with their due times), the handler's notes (execution, time in ns),
    and those the store has as SUCCEEDED."""
    seen = {execution for execution, _ in starts}
    asked = due_ms.keys()
    done = asked & recorded
    late_ns = [at_ns - due_ms[execution] * 1_000_000 for execution, at_ns in starts if execution in due_ms]
    unasked = (seen | set(recorded)) - asked
    return Tally(
        fired=len(done),
        lost=len(due_ms) - len(done & seen),
        duplicated=len(starts) - len(seen) + len(unasked),
        early=sum(late < 0 for late in late_ns),
        earliest_ms=round(min(late_ns) / 1e6, 3) if late_ns else None,
        lateness_ms=lateness([late / 1e6 for late in late_ns]),
    )


def by_tenant(tenants: Mapping[str, str], due_ms: int, starts: Sequence[tuple[str, int]]) -> dict[str, OfTenant]:
    """What each tenant got; `tenants` has those of the executions, which are all due at one instant."""
    left = Counter(tenants.values())
    late: dict[str, list[float]] = {tenant: [] for tenant in left}
    taken: Counter[str] = Counter()
    for execution, at_ns in sorted(starts, key=lambda start: start[1]):
        tenant = tenants[execution]
        late[tenant].append(at_ns / 1e6 - due_ms)
        if all(left.values()):
            taken[tenant] += 1
        left[tenant] -= 1
    return {
        tenant: OfTenant(
            len(values), lateness(values), round(taken[tenant] / taken.total(), 4) if taken.total() else None
        )
        for tenant, values in late.items()
    }


def lateness(values_ms: Sequence[float]) -> Lateness:
    if not values_ms:
        return Lateness()
    ranked = sorted(values_ms)
    p50, p95, p99 = (round(_percentile(ranked, percent), 3) for percent in PERCENTILES)
    return Lateness(p50, p95, p99, round(ranked[-1], 3))


def _percentile(ranked: Sequence[float], percent: int) -> float:
    """The smallest value that so many of a hundred do not exceed."""
    return ranked[max(0, -(-len(ranked) * percent // 100) - 1)]


def used_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Of those that were there at both moments."""
    return {name: after[name] - before[name] for name in after if name in before}


def us_per_job(used_sec: Mapping[str, float], jobs: int) -> dict[str, float]:
    return {name: round(used / max(1, jobs) * 1e6, 1) for name, used in used_sec.items()}


def total(by: Mapping[str, float | None]) -> float | None:
    """None if one of them is not known."""
    known = [value for value in by.values() if value is not None]
    return round(sum(known), 1) if known and len(known) == len(by) else None


def middle(rounds: Sequence[Figures]) -> Figures:
    """The median round, by the rate of a burst and by the lateness of others; of an even number the worse of the two."""
    return sorted(rounds, key=_badness)[len(rounds) // 2]


def _badness(figures: Figures) -> float:
    return -figures.recorded_per_s if figures.work == "burst" else figures.lateness_ms.p99 or 0


def change_percent(before: float | None, after: float | None) -> float | None:
    if not before or after is None:
        return None
    return round((after - before) / before * 100, 1)
