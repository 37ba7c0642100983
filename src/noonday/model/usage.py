"""Usage of tenants, by the UTC day on which runs ended."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from noonday.model.execution import Outcome
from noonday.model.message import Report

DAY_MS = 86_400_000
KEPT_DAYS = 400
_SUCCEEDED = int(Outcome.SUCCEEDED)
_FAILED = frozenset({int(Outcome.FAILED), int(Outcome.TIMED_OUT)})


class UsageTotals(NamedTuple):
    """Total usage of some runs. Some runs neither succeeded nor failed: they were cancelled, snoozed or interrupted."""

    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    run_ms: int = 0
    payload_bytes: int = 0
    """Total size of the payloads as the workers received them, counted for each run."""

    def plus(self, other: "UsageTotals") -> "UsageTotals":
        return UsageTotals(*(mine + more for mine, more in zip(self, other, strict=True)))


Usage = Mapping[tuple[str, int], UsageTotals]
"""Usage by (tenant, day). Days are counted from 1970-01-01."""
NOTHING: Usage = {}


def usage_of(reports: Iterable[Report]) -> Usage:
    """Return the usage of the runs that ended. Starts do not count, nor do dispatches whose handler was not entered."""
    sums: dict[tuple[str, int], list[int]] = {}
    for report in reports:
        outcome, started_ms, ended_ms, tenant = report.outcome, report.started_ms, report.ended_ms, report.tenant
        # The outcome of a start is 0. This check runs for every report, so it is short.
        if not (outcome and started_ms and tenant):
            continue
        key = (tenant, ended_ms // DAY_MS)
        if (sum_ := sums.get(key)) is None:
            sum_ = sums[key] = [0, 0, 0, 0, 0]
        sum_[0] += 1
        if outcome == _SUCCEEDED:
            sum_[1] += 1
        elif outcome in _FAILED:
            sum_[2] += 1
        if ended_ms > started_ms:
            sum_[3] += ended_ms - started_ms
        sum_[4] += report.payload_bytes
    return {key: UsageTotals(*sum_) for key, sum_ in sums.items()}


def together(*parts: Usage) -> Usage:
    """Return the sum of several usages."""
    present = [part for part in parts if part]
    if len(present) == 1:
        return present[0]
    sums: dict[tuple[str, int], UsageTotals] = {}
    for part in present:
        for key, used in part.items():
            sums[key] = sums[key].plus(used) if key in sums else used
    return sums


def usage_rows(usage: Usage) -> list[dict[str, str | int]]:
    """Return the rows of a usage, always in the same order, because several recorders may add to the same rows."""
    return [{"tenant": tenant, "day": day, **used._asdict()} for (tenant, day), used in sorted(usage.items())]
