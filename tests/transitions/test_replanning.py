"""Properties of replanning: where schedules move when the rules of a time zone change."""

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noonday.model.firing import Fire
from noonday.model.ids import JobId, execution_id
from noonday.model.job import Job, JobType, rule_of
from noonday.transitions.inputs import Inputs
from noonday.transitions.replanning import is_superseded, new_times, replan
from noonday.transitions.write_set import WriteSet
from tests.support.factories import HOUR, MINUTE, NOW_MS, every, job, spec

ID = JobId("01900000-0000-7000-8000-000000000001")
crons = st.sampled_from(["0 * * * *", "30 2 * * *", "*/20 8-17 * * *"]).map(
    lambda schedule: spec(type=JobType.CRON, schedule=schedule, timezone="America/New_York")
)
jobs = (crons | st.just(every(600))).map(lambda said: job(said, id=ID))


def row_of(of: Job, fire: Fire) -> str:
    """Return a job with its fire row, as a store reads it."""
    return msgspec.json.encode({"job": of, "fire": fire}).decode()


def moved(of: Job, fire: Fire, fired: set[str]) -> Fire | None:
    """Return the fire row that replanning writes. None if it stays. `fired`: executions that exist."""
    writes = WriteSet(Inputs(), NOW_MS)
    for new in new_times([row_of(of, fire)], NOW_MS):
        replan(writes, new, fired & set(new.executions))
    row = writes.timeline.get(of.id)
    return None if row is None else Fire(row.nominal_ms, row.due_ms, row.runs_left)


@pytest.mark.slow
@settings(max_examples=100)
@given(of=jobs, wrong_by_ms=st.integers(-30, 30).map(lambda minutes: minutes * MINUTE), ahead=st.integers(0, 3))
def test_fire_row_moves_to_the_first_time_that_has_not_fired(of: Job, wrong_by_ms: int, ahead: int) -> None:
    """The times before it may have been fired early. None of them fires again, and none is left out."""
    times = list(rule_of(of.spec, of.anchor_ms).take(NOW_MS, ahead + 1))
    fire = Fire(times[ahead] + wrong_by_ms, times[ahead] + wrong_by_ms, 7)
    assume(fire.nominal_ms > NOW_MS)
    fired = [time for time in times[:ahead] if time < fire.nominal_ms]
    after = moved(of, fire, {execution_id(ID, time) for time in fired}) or fire
    first_unfired = next(time for time in rule_of(of.spec, of.anchor_ms).take(NOW_MS, 10) if time not in fired)
    assert (after.nominal_ms, after.due_ms, after.runs_left) == (first_unfired, first_unfired, 7)


@pytest.mark.slow
@settings(max_examples=50)
@given(of=jobs, wrong_by_ms=st.integers(1, 30).map(lambda minutes: minutes * MINUTE))
def test_schedule_that_is_replanned_again_does_not_move(of: Job, wrong_by_ms: int) -> None:
    (time,) = rule_of(of.spec, of.anchor_ms).take(NOW_MS, 1)
    once = moved(of, Fire(time + wrong_by_ms, time + wrong_by_ms), set())
    assert once is not None
    assert moved(of, once, set()) is None


@pytest.mark.parametrize(
    ("of", "fire"),
    [
        (job(), Fire(NOW_MS + HOUR, NOW_MS + HOUR)),
        (job(every()), Fire(NOW_MS + HOUR, None)),
        (job(every()), Fire(NOW_MS, NOW_MS)),
    ],
    ids=["a one-shot", "a row without a due time", "a row that is due"],
)
def test_row_that_no_zone_can_change_stays(of: Job, fire: Fire) -> None:
    assert list(new_times([row_of(of, fire)], NOW_MS)) == []


def test_unreadable_job_does_not_stop_the_others() -> None:
    good = job(every())
    rows = ["{}", row_of(good, Fire(NOW_MS + HOUR, NOW_MS + HOUR))]
    assert [new.job.id for new in new_times(rows, NOW_MS)] == [good.id]


@pytest.mark.parametrize(
    ("version", "by", "superseded"),
    [("2026a", None, False), ("2026a", "2025b", False), ("2025b", "2025b", True), ("2025a", "2025b", True)],
)
def test_older_or_equal_data_replaces_nothing(version: str, by: str | None, superseded: bool) -> None:
    assert is_superseded(version, by) is superseded
