"""What new time-zone data does to schedules that are still to come."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from noonday.model.firing import fire_entry
from noonday.model.ids import ExecutionId, execution_id, partition_of
from noonday.model.job import Job, rule_of
from noonday.model.stored import StoredDecoder
from noonday.ports.jobs import Fire
from noonday.transitions.write_set import WriteSet

LOOK_AHEAD = 50
"""How many of its next times a job may have fired ahead of their instant; staging is well below a second."""
_zoned = StoredDecoder(tuple[Job, Fire])


class NewTimes(NamedTuple):
    """A job that waits for another time than the present data say."""

    job: Job
    fire: Fire
    earlier: tuple[int, ...]
    """Times before the one that it waits for. Some may have fired ahead of their instant."""
    following: int | None
    """The time after those."""

    @property
    def executions(self) -> list[ExecutionId]:
        """Those whose existence decides which time comes next."""
        return [execution_id(self.job.id, time) for time in self.earlier]


def is_superseded(version: str, by: str | None) -> bool:
    """Whether data of one IANA version must not replace data of another, such as 2025b by 2025a: the newer wins."""
    return by is not None and version <= by


def new_times(rows: Iterable[str | msgspec.Raw], now_ms: int) -> Iterator[NewTimes]:
    """Of rows `[job, fire]`, those that wait for another time than they should."""
    for row in rows:
        try:
            job, fire = _zoned.decode(row)
            found = _look_at(job, fire, now_ms)
        except Exception:  # whatever is wrong with one job: its next fire says so, and the others go on
            continue
        if found is not None:
            yield found


def replan(writes: WriteSet, new: NewTimes, fired: set[str]) -> None:
    job, fire = new.job, new.fire
    unfired = (time for time in new.earlier if execution_id(job.id, time) not in fired)
    following = next(unfired, new.following)
    if following is not None and following != fire.nominal_ms:
        entry = fire_entry(job, following, partition_of(job.id))
        writes.put(entry, entry.due_ms, fire.runs_left, job.spec.ordering_key)


def _look_at(job: Job, fire: Fire, now_ms: int) -> NewTimes | None:
    if fire.due_ms is None or job.spec.one_shot or fire.nominal_ms <= now_ms:
        return None
    rule = rule_of(job.spec, job.anchor_ms)
    earlier: list[int] = []
    time = rule.next_after(now_ms)
    while time is not None and time < fire.nominal_ms and len(earlier) < LOOK_AHEAD:
        earlier.append(time)
        time = rule.next_after(time)
    if not earlier and time == fire.nominal_ms:
        return None
    return NewTimes(job, fire, tuple(earlier), time)
