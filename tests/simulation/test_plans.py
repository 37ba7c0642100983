"""The oracle of completeness on invented histories: what it demands, what it allows, and what it cannot know."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from noonday.model.execution import Cause, State
from noonday.model.job import CatchUp, CatchUpPolicy, JobSpec, JobState, JobType, Overlap, Target
from tests.simulation.history import Answer, History
from tests.simulation.plans import check_plans
from tests.simulation.rows import StoredDecision, StoredExecution, StoredJob, StoredTransition

NOON = 1_893_499_200_000
"""2030-01-01T12:00:00Z, a whole minute."""
JOB = "job"


def cron(schedule: str = "* * * * * *", **fields: Any) -> JobSpec:
    return JobSpec(type=JobType.CRON, schedule=schedule, target=Target("p", "act"), **fields)


def asked(action: str, at_sec: float, spec: JobSpec | None = None, **more: Any) -> Answer:
    """A request that takes 20 ms."""
    at_ms = NOON + round(at_sec * 1000)
    return Answer(action, JOB, at_ms + 20, None, at_ms, spec, **more)


@dataclass
class MadeUp:
    """Rows of one invented job."""

    state: JobState = JobState.ACTIVE
    executions: dict[str, StoredExecution] = field(default_factory=dict)
    decisions: dict[str, list[StoredDecision]] = field(default_factory=lambda: defaultdict(list))

    @property
    def jobs(self) -> dict[str, StoredJob]:
        return {JOB: StoredJob(JOB, "default", self.state, 1, cron(), NOON, NOON)}

    @property
    def executions_of(self) -> dict[str, list[StoredExecution]]:
        return {JOB: list(self.executions.values())}

    def fired(self, *seconds: float, late_ms: int = 5, cause: Cause = Cause.SCHEDULE) -> "MadeUp":
        for sec in seconds:
            time = NOON + round(sec * 1000)
            name = f"{cause.name}/{sec}"
            made = (time, time, State.SUCCEEDED, 1, 1, 1, cause, time + late_ms, time + late_ms + 10, None, None)
            self.executions[name] = StoredExecution(
                name, JOB, "default", *made, (StoredTransition(State.PENDING, time),)
            )
        return self

    def decided(self, first: float, last: float, count: int, outcome: str, at_sec: float) -> "MadeUp":
        row = StoredDecision(
            JOB, *(NOON + round(s * 1000) for s in (first, last)), count, outcome, NOON + round(at_sec * 1000)
        )
        self.decisions[JOB].append(row)
        return self


def problems(rows: MadeUp, *answers: Answer, until_sec: float = 4.5, calm: bool = True) -> list[str]:
    return list(check_plans(rows, History(list(answers)), NOON + round(until_sec * 1000), calm=calm))


def test_each_time_of_a_plan_has_an_execution() -> None:
    made = asked("create", 0.5, cron())
    assert problems(MadeUp().fired(1, 2, 3, 4), made) == []
    (missing,) = problems(MadeUp().fired(1, 2, 4), made)
    assert missing.startswith(f"completeness: {NOON + 3000} of job job has neither")


def test_an_edit_ends_one_plan_and_begins_another() -> None:
    answers = asked("create", 0.5, cron()), asked("replace", 2.5, cron("*/4 * * * * *"))
    assert problems(MadeUp().fired(1, 2, 4), *answers) == []
    assert any("is in no plan" in each for each in problems(MadeUp().fired(1, 2, 3, 4), *answers))
    assert any("neither" in each for each in problems(MadeUp().fired(1, 2), *answers))


def test_a_request_without_an_answer_may_have_happened() -> None:
    answers = asked("create", 0.5, cron()), asked("replace?", 2.5, cron("*/4 * * * * *"))
    assert problems(MadeUp().fired(1, 2, 3, 4), *answers) == []
    assert problems(MadeUp().fired(1, 2, 4), *answers) == []
    assert any("neither" in each for each in problems(MadeUp().fired(1, 2, 3), *answers))


def test_times_that_pass_while_a_job_is_paused_are_decided() -> None:
    answers = asked("create", 0.5, cron()), asked("pause", 1.5), asked("resume", 3.5)
    assert problems(MadeUp().fired(1, 4).decided(2, 3, 2, "PAUSED", 3.51), *answers) == []
    assert len(problems(MadeUp().fired(1, 4), *answers)) == 2
    assert any("while its job was paused" in each for each in problems(MadeUp().fired(1, 2, 3, 4), *answers))
    assert any(
        "it was not paused" in p for p in problems(MadeUp().fired(1, 4).decided(2, 3, 2, "PAUSED", 4.2), *answers)
    )


def test_a_deleted_job_demands_nothing_more() -> None:
    answers = asked("create", 0.5, cron()), asked("delete", 2.5)
    assert problems(MadeUp(JobState.CANCELLED).fired(1, 2), *answers) == []
    assert any("is in no plan" in each for each in problems(MadeUp(JobState.CANCELLED).fired(1, 2, 3), *answers))


def test_catch_up_policy_decides_which_times_may_be_missed() -> None:
    def after_a_stop(policy: CatchUpPolicy, fired: list[float], last_missed: float) -> list[str]:
        rows = MadeUp().fired(*fired, late_ms=20_000 - round(fired[0] * 1000) if fired else 0)
        rows.decided(1, last_missed, round(last_missed), "MISSED", 20)
        made = asked("create", 0.5, cron(catch_up=CatchUp(policy, 3600)))
        return problems(rows, made, until_sec=last_missed + len(fired) + 0.5, calm=False)

    assert after_a_stop(CatchUpPolicy.LATEST, [20], 19) == []
    assert any("is the latest" in each for each in after_a_stop(CatchUpPolicy.LATEST, [], 20))
    assert any("to be made up for" in each for each in after_a_stop(CatchUpPolicy.ALL, [20], 19))
    assert after_a_stop(CatchUpPolicy.NONE, [10, 11], 9) == []
    assert any("is not late" in each for each in after_a_stop(CatchUpPolicy.NONE, [11], 10))


def test_nothing_is_skipped_where_overlap_is_allowed_or_nothing_is_open() -> None:
    allowed, skipping = asked("create", 0.5, cron()), asked("create", 0.5, cron(overlap=Overlap.SKIP))
    rows = MadeUp().fired(1, 2, 4).decided(3, 3, 1, "SKIPPED", 3.01)
    assert problems(rows, skipping) == []
    assert any("overlap is allowed" in each for each in problems(rows, allowed))
    late = MadeUp().fired(1).decided(2, 4, 3, "SKIPPED", 4.01)
    assert any("no execution was open" in each for each in problems(late, skipping))


def test_max_runs_counts_executions() -> None:
    made = asked("create", 0.5, cron(max_runs=2))
    assert problems(MadeUp().fired(1, 2), made) == []
    assert any("maxRuns is 2" in each for each in problems(MadeUp().fired(1, 2, 3), made))
    assert any("neither" in each for each in problems(MadeUp().fired(1), made))


def test_each_trigger_has_an_execution_and_each_execution_a_request() -> None:
    class Shown:
        execution_id = "TRIGGER/1.61"

    made = asked("create", 0.5, cron("0 0 * * * *"))
    trigger = asked("trigger", 1.6, shown=Shown())
    rows = MadeUp().fired(1.61, cause=Cause.TRIGGER)
    assert problems(rows, made, trigger) == []
    assert any("does not exist" in each for each in problems(MadeUp(), made, trigger))
    assert any("nobody asked for" in each for each in problems(rows, made))
    assert problems(rows, made, asked("trigger?", 1.6)) == []
    assert problems(MadeUp(), made, asked("trigger?", 1.6)) == []
