"""Reasons for used-up attempts in a run of `make chaos`, and attempts that it reports."""

from collections import Counter
from contextlib import closing
from typing import Any

import msgspec
import pytest

from noonday.model.execution import State
from tests.scenarios.cluster.chaos.attempts import (
    Deploy,
    DispatchRecord,
    check_attempts,
    read_dispatches,
    stopped_unheard,
    under_way_at_deploys,
    was_hindered,
)
from tests.scenarios.cluster.history import BROKER, EVERYONE, FROZEN, KILLED, Fault
from tests.scenarios.cluster.store import new_copy

P, R, FAILED, TIMED_OUT, LOST, SUCCEEDED, DEAD = (
    State[name] for name in ("PENDING", "RUNNING", "FAILED", "TIMED_OUT", "FAILED_WORKER_LOST", "SUCCEEDED", "DEAD")
)
STOP_ASKED_MS, ENDED_MS = 12_000, 20_000
DEPLOY = Deploy("71", STOP_ASKED_MS, ENDED_MS)
LOST_IN_DEPLOY = [(P, 0), (R, 10_000, "w"), (LOST, 45_000, None, "worker w is lost"), (P, 45_000)]
RETURNED = [(P, 0), (R, 10_000, "w"), (P, 16_000, None, "INTERRUPTED")]
AGAIN = [(R, 50_000, "v"), (SUCCEEDED, 51_000)]


def records_of(*transitions: tuple[Any, ...]) -> list[DispatchRecord]:
    """Dispatches of the execution `x`, read from a store whose worker `w` is process 71 and `v` process 72."""
    with closing(new_copy()) as copy:
        for worker, pid in (("w", 71), ("v", 72)):
            copy.execute("INSERT INTO workers VALUES (?, 0, 'host', ?, '{}', '[]', 0, 0, 'LOST', '[]')", (worker, pid))
        copy.execute(
            """INSERT INTO executions (job_id, id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool,
                                       handler, lane, watch, created_ms, transitions)
               VALUES ('j', 'x', 't', 0, 0, ?, 1, 1, 1, 0, 'p', 'act', 1, 0, 0, ?)""",
            (int(transitions[-1][0]), msgspec.json.encode(transitions).decode()[1:-1]),
        )
        return read_dispatches(copy)


def problems(
    *transitions: tuple[Any, ...],
    faults: list[Fault] | None = None,
    deploys: list[Deploy] | None = None,
    lines: list[dict[str, Any]] | None = None,
) -> list[str]:
    return list(check_attempts(records_of(*transitions), lines or [], faults or [], deploys or []))


def test_transitions_are_read_as_one_record_per_dispatch() -> None:
    failed = {"type": "ValueError", "message": "told to fail"}
    found = records_of(
        (P, 0), (R, 1, "w"), (FAILED, 2, None, failed), (P, 2), (R, 3, "v"), (P, 4, None, "SNOOZED"), *AGAIN
    )

    assert found == [
        DispatchRecord("x", 1, 1, "FAILED", 2, "71", 1, failed),
        DispatchRecord("x", 2, 2, "SNOOZED", 4, "72", 3),
        DispatchRecord("x", 3, 2, "SUCCEEDED", 51_000, "72", 50_000),
    ]


def test_a_dispatch_that_dies_ends_with_its_last_failure() -> None:
    found = records_of((P, 0), (R, 1, "w"), (LOST, 2, None, "worker w is lost"), (DEAD, 2))

    assert [(record.outcome, record.reason) for record in found] == [("FAILED_WORKER_LOST", "worker w is lost")]


def test_an_attempt_lost_by_a_deploy_is_reported() -> None:
    (problem,) = problems(*LOST_IN_DEPLOY, *AGAIN, deploys=[DEPLOY])

    assert problem.startswith("deploy: attempt 1 of x")
    assert "71" in problem


def test_a_last_attempt_lost_by_a_deploy_is_reported() -> None:
    assert len(problems(*LOST_IN_DEPLOY[:-1], (DEAD, 45_000), deploys=[DEPLOY])) == 1


def test_a_run_that_a_deploy_returns_is_no_problem() -> None:
    assert problems(*RETURNED, *AGAIN, deploys=[DEPLOY]) == []


def test_an_attempt_lost_with_a_worker_that_met_no_fault_is_reported() -> None:
    (problem,) = problems(*LOST_IN_DEPLOY, *AGAIN)

    assert problem.startswith("I15: attempt 1 of x")


@pytest.mark.parametrize(
    "fault",
    [
        Fault(KILLED, "71", 15_000),
        Fault(FROZEN, "71", 11_000, 13_000),
        Fault("cut off from kafka", "71", 5_000, 12_500),
        Fault("kafka: kill", BROKER, 13_000, 30_000),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_fault_that_kept_the_worker_from_reporting_explains_a_loss(fault: Fault) -> None:
    assert problems(*LOST_IN_DEPLOY, *AGAIN, deploys=[DEPLOY], faults=[fault]) == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault(KILLED, "72", 15_000),
        Fault(FROZEN, "71", 1_000, 4_000),
        Fault("cut off from redis", "71", 11_000, 30_000),
        Fault("redis: freeze", EVERYONE, 11_000, 30_000),
        Fault("postgres: freeze", "postgres", 11_000, 30_000),
        Fault("kafka: kill", BROKER, 1_000, 9_000),
        Fault("kafka: kill", BROKER, ENDED_MS + 1, 40_000),
    ],
    ids=lambda fault: f"{fault.kind} of {fault.victim or 'everyone'} at {fault.at_ms}",
)
def test_other_faults_do_not_explain_a_loss(fault: Fault) -> None:
    assert len(problems(*LOST_IN_DEPLOY, *AGAIN, deploys=[DEPLOY], faults=[fault])) == 1


@pytest.mark.parametrize(("at_ms", "until_ms", "explains"), [(13_000, 30_000, True), (ENDED_MS + 1, 40_000, False)])
def test_broker_away_at_the_end_of_a_deploy_leaves_reports_unacknowledged(
    at_ms: int, until_ms: int, explains: bool
) -> None:
    away = Fault("kafka: kill", BROKER, at_ms, until_ms)

    assert [fault.victim for fault in stopped_unheard([DEPLOY], [away])] == ([DEPLOY.process] if explains else [])


@pytest.mark.parametrize(
    ("fault", "explains"),
    [
        (Fault("kafka: kill", BROKER, STOP_ASKED_MS - 5_000, STOP_ASKED_MS + 1), True),
        (Fault(FROZEN, "71", STOP_ASKED_MS + 1, STOP_ASKED_MS + 2), True),
        (Fault(FROZEN, "72", STOP_ASKED_MS + 1, STOP_ASKED_MS + 2), False),
        (Fault("kafka: kill", BROKER, ENDED_MS + 1, ENDED_MS + 9), False),
        (Fault("kafka: kill", BROKER, 1, STOP_ASKED_MS - 5_000), False),
    ],
    ids=str,
)
def test_fault_during_a_stop_explains_a_stop_deadline(fault: Fault, explains: bool) -> None:
    assert was_hindered(DEPLOY, ENDED_MS, [fault], {"71", "72"}) is explains


def test_a_broker_that_is_away_explains_no_loss_of_a_worker_that_goes_on() -> None:
    away = Fault("kafka: kill", BROKER, 13_000, 30_000)

    assert len(problems(*LOST_IN_DEPLOY, *AGAIN, faults=[away])) == 1


@pytest.mark.parametrize("failure", [{"type": "ProcessDied", "message": "signal 9"}, None, "text"])
def test_an_interrupted_run_that_is_reported_as_a_failure_is_reported(failure: Any) -> None:
    (problem,) = problems(
        (P, 0), (R, 10_000, "w"), (FAILED, 16_000, None, failure), (P, 16_000), *AGAIN, deploys=[DEPLOY]
    )

    assert "during a deploy" in problem


def test_a_failure_that_the_payload_asks_for_is_no_problem() -> None:
    failure = {"type": "ValueError", "message": "told to fail"}

    assert problems((P, 0), (R, 10_000, "w"), (FAILED, 16_000, None, failure), (P, 16_000), *AGAIN) == []


def test_an_attempt_that_grew_without_a_failure_is_reported() -> None:
    lines = [
        {"what": "start", "execution": "x", "dispatch": 1, "attempt": 1},
        {"what": "start", "execution": "x", "dispatch": 2, "attempt": 2},
    ]
    (problem,) = problems(*RETURNED, *AGAIN, lines=lines)

    assert problem.startswith("I5: dispatch 2 of x ran as attempt 2")


def test_dispatches_in_flight_on_a_stopping_worker_are_counted() -> None:
    returned, lost = records_of(*RETURNED, *AGAIN), records_of(*LOST_IN_DEPLOY, *AGAIN)
    before = records_of((P, 0), (R, 10_000, "w"), (SUCCEEDED, 11_000))
    elsewhere = records_of((P, 0), (R, 10_000, "v"), (SUCCEEDED, 16_000))

    found = under_way_at_deploys([*returned, *lost, *before, *elsewhere], [DEPLOY])

    assert found == Counter({"INTERRUPTED": 1, "FAILED_WORKER_LOST": 1})
