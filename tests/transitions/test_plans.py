"""Decoding of the jobs of recurring entries."""

import msgspec

from noonday.model.batch import RecurringJob
from noonday.model.job import Job, JobType
from noonday.transitions.plans import read_plans
from tests.support.factories import every, job


def row_of(of: Job, runs_left: int | None = None, **spec: object) -> dict[str, object]:
    """Return a row as a store reads it. `spec` has fields of its definition that replace those of the job."""
    row = msgspec.to_builtins(of)
    return {"job": {**row, "spec": {**row["spec"], **spec}}, "runs_left": runs_left}


def plans_of(*rows: dict[str, object]) -> list[RecurringJob]:
    return list(read_plans(msgspec.json.encode(rows).decode()).values())


def test_jobs_are_found_by_id_and_revision() -> None:
    one = job(every(), revision=4)
    assert read_plans(msgspec.json.encode([row_of(one, 3)]).decode()) == {(one.id, 4): RecurringJob(one, 3)}


def test_unreadable_job_has_a_flaw_and_does_not_stop_the_others() -> None:
    good, bad = job(every()), job(every())
    plans = plans_of(row_of(bad, overlap="NEWER"), row_of(good))
    assert [(plan.job.id, plan.flaw is None) for plan in plans] == [(bad.id, False), (good.id, True)]
    assert "NEWER" in (plans[0].flaw or "")


def test_unreadable_job_keeps_its_schedule() -> None:
    """So it continues after the occurrence that cannot be planned."""
    (plan,) = plans_of(row_of(job(every(90)), overlap="NEWER"))
    assert (plan.job.spec.type, plan.job.spec.every_sec) == (JobType.INTERVAL, 90)


def test_job_whose_schedule_is_unreadable_too_has_no_next_time() -> None:
    (plan,) = plans_of(row_of(job(every()), everySec="often"))
    assert plan.job.spec.type is JobType.ONE_TIME
