"""Replanning: new next times of schedules after a change of the time-zone data."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from noonday.model.firing import Fire, fire_entry
from noonday.model.ids import ExecutionId, execution_id, partition_of
from noonday.model.job import Job
from noonday.model.left_out import schedule_of
from noonday.model.stored import StoredDecoder
from noonday.transitions.write_set import WriteSet

LOOK_AHEAD = 50
"""Maximum number of next times that may have been dispatched early. Early dispatch is well below a second ahead."""


class _ZonedFire(msgspec.Struct, frozen=True):
    """A recurring job with its fire row."""

    job: Job
    fire: Fire


_zoned = StoredDecoder(_ZonedFire)


class NewTimes(NamedTuple):
    """A job whose fire row has another time than the present time-zone data give."""

    job: Job
    fire: Fire
    earlier: tuple[int, ...]
    """Times before the one in the fire row. Some of them may have fired early."""
    following: int | None
    """The first time after those."""

    @property
    def executions(self) -> list[ExecutionId]:
        """Executions of the earlier times. A time whose execution exists has fired."""
        return [execution_id(self.job.id, time) for time in self.earlier]


def is_superseded(version: str, by: str | None) -> bool:
    """Return whether IANA version `version` must not replace `by`, because it is the same or an older one (2025a after 2025b)."""
    return by is not None and version <= by


def new_times(rows: Iterable[str | msgspec.Raw], now_ms: int) -> Iterator[NewTimes]:
    """Yield the rows, objects with `job` and `fire`, whose fire row has the wrong time."""
    for row in rows:
        try:
            zoned = _zoned.decode(row)
            changed = _compare(zoned.job, zoned.fire, now_ms)
        except Exception:  # a defective job must not stop the others; its next fire reports the error
            continue
        if changed is not None:
            yield changed


def replan(writes: WriteSet, new: NewTimes, fired: set[str]) -> None:
    """Move a job's fire row to its first time that has not fired. `fired`: the executions of `new` that exist."""
    job, fire = new.job, new.fire
    unfired = (time for time in new.earlier if execution_id(job.id, time) not in fired)
    following = next(unfired, new.following)
    if following is not None and following != fire.nominal_ms:
        entry = fire_entry(job, following, partition_of(job.id))
        writes.put(entry, entry.due_ms, fire.runs_left, job.spec.ordering_key)


def _compare(job: Job, fire: Fire, now_ms: int) -> NewTimes | None:
    if fire.due_ms is None or job.spec.one_shot or fire.nominal_ms <= now_ms:
        return None
    rule = schedule_of(job)
    earlier: list[int] = []
    time = rule.next_after(now_ms)
    while time is not None and time < fire.nominal_ms and len(earlier) < LOOK_AHEAD:
        earlier.append(time)
        time = rule.next_after(time)
    if not earlier and time == fire.nominal_ms:
        return None
    return NewTimes(job, fire, tuple(earlier), time)
