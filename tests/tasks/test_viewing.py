"""The view of a task."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from noonday.model.errors import NotFound
from noonday.model.execution import FINAL, OPEN, Execution, Failure, State
from noonday.model.firing import Fire
from noonday.model.job import JobSpec, JobState
from noonday.model.redaction import REDACTED
from noonday.model.rows import JobRow, WebhookRow
from noonday.model.tasks.wire import STATE_OF, TaskSpec, TaskStatus
from noonday.model.view import AttemptView, ExecutionView, JobView
from noonday.tasks.translating import to_job_spec
from noonday.tasks.viewing import execution_view, row_of, status_after, status_of, task_view
from tests.support import factories
from tests.support.factories import MINUTE, NOW_MS, SECOND, instant
from tests.tasks.requests import LATER, URL, decoded, once


def task(
    spec: TaskSpec,
    *executions: Execution,
    state: JobState = JobState.ACTIVE,
    coming: bool = False,
    halted: str | None = None,
) -> WebhookRow:
    job = factories.job(to_job_spec(spec, NOW_MS), state=state, halted=halted)
    is_open = any(execution.state in OPEN for execution in executions)
    return row_of(JobRow(job, Fire(NOW_MS, NOW_MS if coming else None), is_open), executions)


class TestStatuses:
    def test_task_with_a_next_fire_is_scheduled(self) -> None:
        assert status_of(task(decoded(), coming=True)) is TaskStatus.SCHEDULED

    def test_task_with_a_running_execution_is_running(self) -> None:
        running = factories.execution(state=State.RUNNING)
        for coming in (True, False):
            assert status_of(task(once(), running, coming=coming)) is TaskStatus.RUNNING

    def test_task_waiting_for_a_retry_is_scheduled(self) -> None:
        assert status_of(task(once(), factories.execution(attempt=2))) is TaskStatus.SCHEDULED

    def test_paused_task_is_paused_even_while_running(self) -> None:
        running = factories.execution(state=State.RUNNING)
        assert status_of(task(decoded(), running, state=JobState.PAUSED)) is TaskStatus.PAUSED

    @pytest.mark.parametrize("state", sorted(FINAL))
    def test_one_time_task_is_completed_only_by_success(self, state: State) -> None:
        status = status_of(task(once(), factories.execution(state=state)))
        assert status is (TaskStatus.COMPLETED if state is State.SUCCEEDED else TaskStatus.FAILED)

    def test_one_time_task_without_executions_is_completed(self) -> None:
        assert status_of(task(once())) is TaskStatus.COMPLETED

    @pytest.mark.parametrize("later", [State.DEAD, State.SUCCEEDED])
    def test_latest_end_decides_between_executions_of_one_time(self, later: State) -> None:
        earlier = State.SUCCEEDED if later is State.DEAD else State.DEAD
        for first, second in (("a", "b"), ("b", "a")):
            runs = (
                factories.execution(id=first, state=earlier, finished_ms=NOW_MS),
                factories.execution(id=second, state=later, finished_ms=NOW_MS + SECOND),
            )
            status = status_of(task(once(), *runs))
            assert status is (TaskStatus.FAILED if later is State.DEAD else TaskStatus.COMPLETED)

    def test_a_recurring_task_that_came_to_its_end_is_completed_even_if_the_last_run_died(self) -> None:
        assert status_of(task(decoded(), factories.execution(state=State.DEAD))) is TaskStatus.COMPLETED

    def test_a_recurring_task_goes_on_after_a_run_that_died(self) -> None:
        assert status_of(task(decoded(), factories.execution(state=State.DEAD), coming=True)) is TaskStatus.SCHEDULED

    def test_stopped_task_has_failed(self) -> None:
        done = factories.execution(state=State.SUCCEEDED)
        assert status_of(task(decoded(), done, state=JobState.PAUSED, halted="410")) is TaskStatus.FAILED

    def test_deleted_task_is_not_found(self) -> None:
        with pytest.raises(NotFound):
            status_of(task(decoded(), state=JobState.CANCELLED, halted="410"))

    def test_every_state_at_rest_has_one_status(self) -> None:
        assert sorted(STATE_OF.values()) == sorted(OPEN | FINAL)

    @pytest.mark.parametrize(
        ("halted", "state", "status"),
        [
            ("410", "PAUSED", TaskStatus.FAILED),
            ("410", "ACTIVE", TaskStatus.SCHEDULED),
            (None, "PAUSED", TaskStatus.PAUSED),
            (None, "COMPLETED", TaskStatus.COMPLETED),
        ],
    )
    def test_halted_task_is_failed_after_an_edit_while_paused(
        self, halted: str | None, state: str, status: TaskStatus
    ) -> None:
        before = task(decoded(), state=JobState.PAUSED, halted=halted)
        assert status_after(job_view(to_job_spec(decoded(), NOW_MS), state=state), before) is status


def job_view(spec: JobSpec, **changes: Any) -> JobView:
    fields = {field: getattr(spec, field) for field in spec.__struct_fields__}
    usual = {
        "job_id": "j-1",
        "tenant": "acme",
        "state": "ACTIVE",
        "version": 1,
        "created_at": instant(NOW_MS),
        "updated_at": instant(NOW_MS + MINUTE),
        "next_fire_at": LATER,
        "next_fire_at_local": None,
    }
    return JobView(**{**fields, **usual, **changes})


def ran(**changes: Any) -> ExecutionView:
    known = {name: None for name in ExecutionView.__struct_fields__ if name not in ("attempts", "transitions")}
    usual = {
        "execution_id": "e-1",
        "job_id": "j-1",
        "state": "SUCCEEDED",
        "attempt": 1,
        "scheduled_at": LATER,
        "due_at": LATER,
    }
    return ExecutionView(**{**known, **usual, **changes})


class TestAnswers:
    def test_task_view_has_the_fields_of_the_request(self) -> None:
        spec = decoded(
            name="Report", payload={"webhook_url": URL, "body": [1]}, interval="Daily at 8am", timezone="Asia/Tokyo"
        )
        view = task_view(job_view(to_job_spec(spec, NOW_MS)), TaskStatus.SCHEDULED)
        assert msgspec.json.decode(msgspec.json.encode(view)) == {
            "id": "j-1",
            "name": "Report",
            "type": "RECURRING",
            "status": "SCHEDULED",
            "payload": {"webhook_url": URL, "method": "POST", "headers": {}, "body": [1]},
            "scheduled_at": None,
            "cron_expression": None,
            "interval": "Daily at 8am",
            "timezone": "Asia/Tokyo",
            "end_date": None,
            "retry": {"max_attempts": 5, "backoff": "EXPONENTIAL", "initial_delay_ms": 30000},
            "timeout_seconds": 30.0,
            "ordered": False,
            "ordering_key": None,
            "next_execution": "2030-01-01T01:00:00Z",
            "created_at": "2030-01-01T00:00:00Z",
            "updated_at": "2030-01-01T00:01:00Z",
        }

    def test_next_execution_may_be_a_retry(self) -> None:
        retry_at = LATER - timedelta(minutes=5)
        waiting = ran(state="PENDING", attempt=2, next_attempt_at=retry_at)
        job = job_view(to_job_spec(decoded(), NOW_MS))
        assert task_view(job, TaskStatus.SCHEDULED, [waiting]).next_execution == retry_at
        alone = job_view(to_job_spec(once(), NOW_MS), next_fire_at=None)
        assert task_view(alone, TaskStatus.SCHEDULED, [waiting]).next_execution == retry_at

    def test_a_task_with_no_executions_yet_has_an_empty_list_if_asked_for_it(self) -> None:
        view = task_view(job_view(to_job_spec(decoded(), NOW_MS)), TaskStatus.SCHEDULED, [])
        assert msgspec.json.decode(msgspec.json.encode(view))["executions"] == []

    def test_secret_header_is_redacted(self) -> None:
        headers = {"Authorization": "Bearer x", "X-Team": "a"}
        job = to_job_spec(decoded(payload={"webhook_url": URL, "headers": headers}), NOW_MS)
        shown = task_view(job_view(job), TaskStatus.SCHEDULED).payload
        assert shown["headers"] == {"Authorization": REDACTED, "X-Team": "a"}
        assert job.payload["headers"] == headers

    @pytest.mark.parametrize("payload", [None, [1], {"unreadable": "no key"}, {"given": "x"}])
    def test_any_payload_can_be_shown(self, payload: Any) -> None:
        view = task_view(job_view(factories.every(1_000_000, payload=payload)), TaskStatus.SCHEDULED)
        assert (view.interval, view.cron_expression) == ("every 1000000 seconds", None)

    def test_dead_execution_is_failed_with_its_error(self) -> None:
        attempt = AttemptView(
            attempt=1,
            dispatch=1,
            state="TIMED_OUT",
            worker_id="w-1",
            started_at=LATER,
            finished_at=LATER,
            error=Failure("Timeout", "no answer in 30 s"),
        )
        dead = ran(state="DEAD", attempt=5, error=Failure("HttpError", "status 500"), attempts=(attempt,))
        view = execution_view(dead)
        assert (view.id, view.task_id, view.status) == ("e-1", "j-1", "FAILED")
        assert (view.attempt_number, view.error_message) == (5, "status 500")
        assert (view.attempts[0].status, view.attempts[0].error_message) == ("TIMED_OUT", "no answer in 30 s")

    @pytest.mark.parametrize(("status", "state"), STATE_OF.items())
    def test_executions_are_named_by_status(self, status: str, state: State) -> None:
        assert execution_view(ran(state=state.name)).status == status
