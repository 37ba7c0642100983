"""The oracle of completeness on invented histories: what it demands, what it allows, and what it cannot know."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from noonday.model.execution import Cause, State
from noonday.model.job import CatchUp, CatchUpPolicy, JobSpec, JobState, JobType, Overlap, Target, instant_of
from tests.simulation.ends_of_pauses import check_ends_of_pauses
from tests.simulation.history import Answer, History
from tests.simulation.plans import check_plans
from tests.simulation.rows import Resumed, StoredDecision, StoredExecution, StoredJob, StoredTransition

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
    resumed: dict[str, list[Resumed]] = field(default_factory=lambda: defaultdict(list))

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

    def resumed_at(self, at_sec: float, until_sec: float) -> "MadeUp":
        at_ms, until_ms = (NOON + round(sec * 1000) for sec in (at_sec, until_sec))
        self.resumed[JOB].append(Resumed(JOB, until_ms, at_ms))
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


def test_missed_range_around_a_moved_time_began_when_its_first_part_did() -> None:
    answers = asked("create", 0.5, cron()), asked("move", 0.7, shown=ShownJob(((6, 30.5),)))
    rows = MadeUp().fired(13, late_ms=100).decided(1, 5, 5, "MISSED", 13.1).decided(6, 6, 1, "MOVED", 13.1)
    assert problems(rows.decided(7, 12, 6, "MISSED", 13.1), *answers, until_sec=13.5, calm=False) == []


def test_nothing_is_skipped_where_overlap_is_allowed_or_nothing_is_open() -> None:
    allowed, skipping = asked("create", 0.5, cron()), asked("create", 0.5, cron(overlap=Overlap.SKIP))
    rows = MadeUp().fired(1, 2, 4).decided(3, 3, 1, "SKIPPED", 3.01)
    assert problems(rows, skipping) == []
    assert any("overlap is allowed" in each for each in problems(rows, allowed))
    late = MadeUp().fired(1).decided(2, 4, 3, "SKIPPED", 4.01)
    assert any("no execution was open" in each for each in problems(late, skipping))


@dataclass
class ShownMove:
    at: datetime
    to: datetime


@dataclass
class ShownJob:
    """A job as an answer shows it: its moves, in seconds."""

    pairs: tuple[tuple[float, float], ...] = ()

    @property
    def moves(self) -> list[ShownMove]:
        return [ShownMove(*(instant_of(NOON + round(sec * 1000)) for sec in pair)) for pair in self.pairs]


def test_moved_time_fires_at_its_new_time_only() -> None:
    answers = asked("create", 0.5, cron()), asked("move", 0.7, shown=ShownJob(((2, 2.5),)))
    rows = MadeUp().fired(1, 2.5, 3, 4).decided(2, 2, 1, "MOVED", 2.01)
    assert problems(rows, *answers) == []
    assert any("nobody moved it" in each for each in problems(rows, answers[0]))
    assert any("is in no plan" in each for each in problems(rows, answers[0]))
    twice = MadeUp().fired(1, 2, 2.5, 3, 4)
    assert any(each.startswith("move: execution") for each in problems(twice, *answers))
    forgotten = MadeUp().fired(1, 3, 4).decided(2, 2, 1, "MOVED", 2.01)
    assert any("neither" in each for each in problems(forgotten, *answers))


def test_occurrence_that_was_moved_again_fires_at_its_last_time_only() -> None:
    first, second = asked("move", 0.7, shown=ShownJob(((2, 2.5),))), asked("move", 0.9, shown=ShownJob(((2, 3.5),)))
    answers = asked("create", 0.5, cron()), first, second
    rows = MadeUp().fired(1, 3, 3.5, 4).decided(2, 2, 1, "MOVED", 2.01)
    assert problems(rows, *answers) == []
    assert any("is in no plan" in each for each in problems(rows.fired(2.5), *answers))


def test_move_without_an_answer_may_have_happened() -> None:
    at = NOON + 2_000, NOON + 2_500
    answers = asked("create", 0.5, cron()), replace(asked("move?", 0.7), value=at)
    assert problems(MadeUp().fired(1, 2, 3, 4), *answers) == []
    assert problems(MadeUp().fired(1, 2.5, 3, 4).decided(2, 2, 1, "MOVED", 2.01), *answers) == []


def paused_until(at_sec: float, until_sec: float | None) -> Answer:
    until_ms = None if until_sec is None else NOON + round(until_sec * 1000)
    return replace(asked("pause", at_sec), value=until_ms)


def ends(rows: MadeUp, *answers: Answer, now_sec: float = 30) -> list[str]:
    return list(check_ends_of_pauses(rows, History(list(answers)), [], NOON + round(now_sec * 1000)))


def test_job_is_resumed_once_at_the_end_of_its_last_pause() -> None:
    pause = paused_until(1, 5)
    assert ends(MadeUp().resumed_at(5.1, 5), pause) == []
    assert any("was to be resumed" in each for each in ends(MadeUp(), pause))
    assert any("ahead of the end" in each for each in ends(MadeUp().resumed_at(4, 5), pause))
    assert any("and was at" in each for each in ends(MadeUp().resumed_at(9, 5), pause))
    assert any("nobody asked" in each for each in ends(MadeUp().resumed_at(6, 6), pause))
    replaced = pause, paused_until(2, 9)
    assert ends(MadeUp().resumed_at(9.1, 9), *replaced) == []
    assert any("replaced or taken back" in each for each in ends(MadeUp().resumed_at(5.1, 5), *replaced))
    assert any(
        "replaced or taken back" in each for each in ends(MadeUp().resumed_at(5.1, 5), pause, asked("resume", 2))
    )
    assert ends(MadeUp(), pause, paused_until(2, None)) == []


def test_times_since_the_end_of_a_pause_are_in_the_plan() -> None:
    answers = asked("create", 0.5, cron()), paused_until(1.5, 3.5)
    rows = MadeUp().fired(1, 4).decided(2, 3, 2, "PAUSED", 3.52).resumed_at(3.52, 3.5)
    assert problems(rows, *answers) == []
    without = MadeUp().fired(1).decided(2, 3, 2, "PAUSED", 3.52).resumed_at(3.52, 3.5)
    assert any("neither" in each for each in problems(without, *answers))


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
