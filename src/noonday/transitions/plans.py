"""Decoding of the jobs of recurring entries. A job that cannot be decoded does not stop the others."""

from datetime import datetime
from typing import Any

import msgspec

from noonday.model.batch import RecurringJob
from noonday.model.ids import JobId
from noonday.model.job import Dst, Job, JobSpec, JobState, JobType, Target
from noonday.model.stored import StoredDecoder


class _RawJob(msgspec.Struct, frozen=True):
    """A recurring job whose row is not decoded yet."""

    job: msgspec.Raw
    runs_left: int | None


_all = msgspec.json.Decoder(list[RecurringJob])
_each = msgspec.json.Decoder(list[_RawJob])
_job = StoredDecoder(Job)


def read_plans(text: str) -> dict[tuple[JobId, int], RecurringJob]:
    """Decode an array of objects with `job` and `runs_left` into recurring jobs by (job, revision)."""
    try:
        found = _all.decode(text)
    except msgspec.ValidationError:
        found = [_read_one(each.job, each.runs_left) for each in _each.decode(text)]
    return {(recurring.job.id, recurring.job.revision): recurring for recurring in found}


class _Timing(msgspec.Struct, frozen=True, rename="camel"):
    """The schedule fields of a job."""

    type: JobType
    schedule: str | None = None
    timezone: str | None = None
    dst: Dst = Dst()
    every_sec: float | None = None
    phase_sec: float = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    spread_sec: float | None = None


_timing = StoredDecoder(_Timing)


def _read_one(raw: msgspec.Raw, runs_left: int | None) -> RecurringJob:
    try:
        return RecurringJob(_job.decode(raw), runs_left)
    except msgspec.ValidationError as error:
        return _unreadable(msgspec.json.decode(raw), runs_left, str(error))


def _unreadable(row: dict[str, Any], runs_left: int | None, flaw: str) -> RecurringJob:
    """Build a job from the schedule alone, if that can be decoded, so that the job continues after this occurrence."""
    unknown = Target("", "")
    try:
        timing = _timing.decode(msgspec.json.encode(row["spec"]))
    except msgspec.ValidationError:
        # Treat it as a one-shot, which has no next time.
        known = JobSpec(type=JobType.ONE_TIME, target=unknown)
    else:
        known = JobSpec(target=unknown, **msgspec.structs.asdict(timing))
    job = Job(
        id=JobId(row["id"]),
        tenant=row["tenant"],
        revision=row["revision"],
        state=JobState.ACTIVE,
        spec=known,
        anchor_ms=row["anchor_ms"],
        payload=None,
        created_ms=0,
        updated_ms=0,
    )
    return RecurringJob(job, runs_left, flaw)
