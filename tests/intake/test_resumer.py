"""Pauses with an end: who sets and replaces it, and how the job is resumed as of that instant, however late."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from noonday.intake import edits
from noonday.intake.job_service import JobService
from noonday.intake.occurrence_queries import OccurrenceQueries
from noonday.intake.resumer import PER_TENANT, Resumer, resume_on_time
from noonday.model.caller import Caller
from noonday.model.change import Change
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.execution import Outcome
from noonday.model.firing import Fire
from noonday.model.ids import TenantId
from noonday.model.job import CatchUp, CatchUpPolicy, Job, JobState
from noonday.model.snapshot import Snapshot
from noonday.runtime.offload import ThreadOffload
from noonday.runtime.tracing import Tracing
from tests.intake.parts import ANN, Parts, parts_in_memory
from tests.support.factories import DAY, HOUR, MINUTE, NOW_MS, SECOND, audit, every, instant, job, job_id, report, spec

UNTIL_MS = NOW_MS + HOUR


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def jobs(parts: Parts) -> JobService:
    return JobService(
        jobs=parts.store.jobs,
        editor=parts.editor,
        sender=parts.sender,
        drafter=parts.drafter,
        quotas=parts.quotas,
        query_store=parts.store.query_store,
        receipts=parts.receipts,
        presenter=parts.presenter,
        clock=parts.clock,
        tracing=Tracing(None),
        new_id=job_id,
    )


@pytest.fixture
def resumer(parts: Parts, jobs: JobService) -> Resumer:
    return Resumer(parts.store.jobs, parts.editor, jobs, parts.clock)


def reach(parts: Parts, at_ms: int) -> int:
    parts.clock.step((at_ms - parts.clock.now_ms()) / 1000)
    parts.crank.now_ms = max(parts.crank.now_ms, at_ms)
    return at_ms


async def stored(parts: Parts, of: Job) -> Job:
    row = await parts.store.query_store.find_job(of.tenant, of.id)
    assert row is not None
    return row.job


async def shown(parts: Parts, of: Job, to_ms: int) -> list[tuple[int, str, int, str]]:
    """The occurrences of a job: minute, outcome, count and reason."""
    queries = OccurrenceQueries(
        query_store=parts.store.query_store, blockers=parts.blockers, offload=ThreadOffload(), clock=parts.clock
    )
    page = await queries.list_occurrences(ANN, of.id, from_ms=NOW_MS, to_ms=to_ms)
    minute = instant(NOW_MS + MINUTE) - instant(NOW_MS)
    start = instant(NOW_MS)
    return [(int((o.scheduled_at - start) / minute), o.outcome, o.count, o.reason) for o in page.occurrences]


async def test_job_is_resumed_at_the_end_of_its_pause_and_not_before(
    parts: Parts, jobs: JobService, resumer: Resumer
) -> None:
    one = await parts.add(every(600))
    await parts.crank.fire()
    view = await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    assert (view.state, view.paused_until) == ("PAUSED", instant(UNTIL_MS))
    assert await resumer.run_once(reach(parts, UNTIL_MS - 1)) == 0
    assert (await stored(parts, one)).state is JobState.PAUSED
    assert await resumer.run_once(reach(parts, UNTIL_MS)) == 1
    now = await stored(parts, one)
    assert (now.state, now.paused_until_ms, now.updated_ms) == (JobState.ACTIVE, None, UNTIL_MS)
    assert await resumer.run_once(UNTIL_MS + HOUR) == 0
    assert await shown(parts, one, UNTIL_MS + 10 * MINUTE) == [
        (0, "FIRED", 1, "execution PENDING"),
        (10, "PAUSED", 6, "the job was paused"),
        (70, "PLANNED", 1, "planned"),
    ]


async def test_late_resumer_leaves_what_is_due_since_the_end_to_the_catch_up(
    parts: Parts, jobs: JobService, resumer: Resumer
) -> None:
    """The pause ends at its instant, also if no process runs then."""
    one = await parts.add(every(600, catch_up=CatchUp(CatchUpPolicy.ALL)))
    await parts.crank.fire()
    await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    await resumer.run_once(reach(parts, UNTIL_MS + 25 * MINUTE))
    fired = (await parts.crank.fire(at_ms=UNTIL_MS + 25 * MINUTE)).dispatches
    assert [each.nominal_ms - UNTIL_MS for each in fired] == [10 * MINUTE, 20 * MINUTE]
    outcomes = [each[:3] for each in await shown(parts, one, UNTIL_MS + 25 * MINUTE)]
    assert outcomes == [(0, "FIRED", 1), (10, "PAUSED", 6), (70, "FIRED", 1), (80, "FIRED", 1)]


async def test_occurrences_of_the_pause_are_made_up_for_if_the_job_says_so(
    parts: Parts, jobs: JobService, resumer: Resumer
) -> None:
    one = await parts.add(every(600, catch_up=CatchUp(CatchUpPolicy.ALL, while_paused=True)))
    await parts.crank.fire()
    await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    await resumer.run_once(reach(parts, UNTIL_MS))
    assert len((await parts.crank.fire(at_ms=UNTIL_MS)).dispatches) == 6


async def test_retry_waits_for_the_end_of_the_pause(parts: Parts, jobs: JobService, resumer: Resumer) -> None:
    one = await parts.add(spec())
    dispatch = await parts.fire(one)
    await parts.crank.settle(report(dispatch, Outcome.SNOOZED, snooze_ms=SECOND))
    await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    reach(parts, UNTIL_MS)
    assert await parts.crank.due() == []
    await resumer.run_once(UNTIL_MS)
    assert [entry.due_ms for entry in await parts.crank.due()] == [UNTIL_MS]


async def test_resume_takes_the_end_of_the_pause_back(parts: Parts, jobs: JobService, resumer: Resumer) -> None:
    one = await parts.add(every(600))
    await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    assert (await jobs.resume(ANN, one.id)).paused_until is None
    await jobs.pause(ANN, one.id)
    assert await resumer.run_once(reach(parts, UNTIL_MS + HOUR)) == 0
    assert (await stored(parts, one)).state is JobState.PAUSED


async def test_another_pause_replaces_the_end(parts: Parts, jobs: JobService, resumer: Resumer) -> None:
    one = await parts.add(every(600))
    await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    assert (await jobs.pause(ANN, one.id, until_ms=UNTIL_MS + HOUR)).paused_until == instant(UNTIL_MS + HOUR)
    assert await resumer.run_once(reach(parts, UNTIL_MS)) == 0
    assert (await jobs.pause(ANN, one.id)).paused_until is None
    assert await resumer.run_once(reach(parts, UNTIL_MS + 2 * HOUR)) == 0
    assert (await jobs.pause(ANN, one.id, until_ms=UNTIL_MS + 3 * HOUR)).paused_until == instant(UNTIL_MS + 3 * HOUR)


def test_end_that_was_replaced_meanwhile_resumes_nothing() -> None:
    one = job(every(600), state=JobState.PAUSED, paused_until_ms=UNTIL_MS + 1)
    before = Snapshot(one, Fire(NOW_MS, None))
    assert resume_on_time(before, until_ms=UNTIL_MS, audit=audit()) == Change()


def test_end_of_a_pause_that_a_former_release_has_ended_is_cleared() -> None:
    one = job(every(600), paused_until_ms=UNTIL_MS)
    before = Snapshot(one, Fire(NOW_MS, NOW_MS))
    change = resume_on_time(before, until_ms=UNTIL_MS, audit=audit())
    assert change == Change(job=msgspec.structs.replace(one, paused_until_ms=None))


def test_resume_takes_effect_after_a_change_that_came_between() -> None:
    one = job(every(600), state=JobState.PAUSED, paused_until_ms=UNTIL_MS, updated_ms=UNTIL_MS + MINUTE)
    change = resume_on_time(Snapshot(one, Fire(UNTIL_MS + HOUR, None)), until_ms=UNTIL_MS, audit=audit())
    assert change.job is not None
    assert change.job.updated_ms == UNTIL_MS + MINUTE + 1


async def test_edit_keeps_the_end_and_a_deletion_drops_it(parts: Parts, jobs: JobService, resumer: Resumer) -> None:
    kept, gone = await parts.add(every(600)), await parts.add(every(600))
    for one in (kept, gone):
        await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    await parts.crank.change(kept, lambda before: edits.replace(before, every(60), None, NOW_MS + 1, audit()))
    assert (await jobs.delete(ANN, gone.id)).paused_until is None
    assert await resumer.run_once(reach(parts, UNTIL_MS)) == 1
    assert (await stored(parts, kept)).state is JobState.ACTIVE
    assert (await stored(parts, gone)).state is JobState.CANCELLED


async def test_halt_takes_the_end_back_and_a_halted_job_gets_none(
    parts: Parts, jobs: JobService, resumer: Resumer
) -> None:
    one = await parts.add(every(600))
    await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    halted = await jobs.halt(ANN, one.id, "the receiver answered 410")
    assert (halted.halted, halted.paused_until) == ("the receiver answered 410", None)
    assert await resumer.run_once(reach(parts, UNTIL_MS)) == 0
    with pytest.raises(Conflict, match=f"the receiver answered 410.*POST /v1/jobs/{one.id}/resume"):
        await jobs.pause(ANN, one.id, until_ms=UNTIL_MS + HOUR)


@pytest.mark.parametrize(
    ("ahead_ms", "why"), [(0, "in the future"), (-HOUR, "in the future"), (3661 * DAY, "10 years ahead")]
)
async def test_end_must_be_ahead_within_ten_years(parts: Parts, jobs: JobService, ahead_ms: int, why: str) -> None:
    one = await parts.add(every(600))
    with pytest.raises(InvalidInput, match=rf"{why}; the server's time is 2030-01-01T00:00:00\.000Z") as refused:
        await jobs.pause(ANN, one.id, until_ms=NOW_MS + ahead_ms)
    assert refused.value.flaws[0].pointer == "/until"


async def test_audit_log_shows_who_paused_until_when_and_the_resume(
    parts: Parts, jobs: JobService, resumer: Resumer
) -> None:
    one = await parts.add(every(600))
    await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    await resumer.run_once(reach(parts, UNTIL_MS + SECOND))
    entries = await parts.store.settings_store.list_audit(ANN.tenant, target=one.id, subject=None, after=None, limit=10)
    assert [(entry.subject, entry.action, entry.detail) for _, entry in entries] == [
        ("noonday", "job.resume", {"pausedUntil": "2030-01-01T01:00:00.000Z"}),
        ("ann", "job.pause", {"until": "2030-01-01T01:00:00.000Z"}),
    ]


async def test_occurrences_say_until_when_the_job_is_paused(parts: Parts, jobs: JobService) -> None:
    one = await parts.add(every(1800))
    await parts.crank.fire()
    await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    until = "the job is paused until 2030-01-01T01:00:00.000Z"
    assert (await shown(parts, one, UNTIL_MS + HOUR))[1:4] == [
        (30, "PAUSED", 1, until),
        (60, "PAUSED", 1, until),
        (90, "PLANNED", 1, f"planned; {until}"),
    ]


async def test_round_resumes_some_jobs_of_each_tenant(parts: Parts, jobs: JobService, resumer: Resumer) -> None:
    """A tenant whose thousand jobs end their pause at once does not delay that of another tenant."""
    many = [await parts.add(every(600)) for _ in range(PER_TENANT + 5)]
    other = await parts.add(every(600), tenant=TenantId("globex"))
    for one in many:
        await jobs.pause(ANN, one.id, until_ms=UNTIL_MS)
    await jobs.pause(Caller(other.tenant, "bob", frozenset({"write"})), other.id, until_ms=UNTIL_MS + 1)
    reach(parts, UNTIL_MS + 1)
    assert [await resumer.run_once(UNTIL_MS + 1) for _ in range(3)] == [PER_TENANT + 1, 5, 0]
    assert (await stored(parts, other)).state is JobState.ACTIVE


async def test_job_that_cannot_be_resumed_stays_paused_and_says_why(
    parts: Parts, jobs: JobService, resumer: Resumer
) -> None:
    one = job(every(600), state=JobState.PAUSED, paused_until_ms=UNTIL_MS)
    broken = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, every_sec=0.0001))
    await parts.crank.add(one)
    await parts.crank.change(one, Change(job=broken, fire=Fire(NOW_MS, None)))
    assert await resumer.run_once(reach(parts, UNTIL_MS)) == 1
    now = await stored(parts, one)
    assert (now.state, now.paused_until_ms) == (JobState.PAUSED, None)
    assert now.halted is not None
    assert now.halted.startswith("it could not be resumed: ")


async def test_resumer_waits_until_the_next_end(parts: Parts, jobs: JobService, resumer: Resumer) -> None:
    one = await parts.add(every(600))
    await resumer.run_once(NOW_MS)
    assert await resumer.wait() == 1.0
    await jobs.pause(ANN, one.id, until_ms=NOW_MS + 300)
    await resumer.run_once(NOW_MS)
    assert await resumer.wait() == pytest.approx(0.3)
    reach(parts, NOW_MS + 400)
    assert await resumer.wait() == 0.0
