"""Presenters of tasks: from rows to wire types, with secrets redacted."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from noonday.intake.presenters import state_of
from noonday.model.attempt import AttemptRecord
from noonday.model.errors import NotFound
from noonday.model.execution import Execution, Failure, State
from noonday.model.job import JobState, instant_of
from noonday.model.redaction import redacted_call
from noonday.model.rows import JobRow, KnownCall, WebhookRow
from noonday.model.tasks.wire import (
    STATUS_NAMES,
    ResentView,
    ResolvedBy,
    TaskAttemptView,
    TaskCallView,
    TaskDeadLetterView,
    TaskExchangesView,
    TaskExchangeView,
    TaskExecutionView,
    TaskStatus,
    TaskView,
)
from noonday.model.view import AttemptView, ExecutionView, JobView
from noonday.tasks.translating import call_of, limits_of, schedule_of


def row_of(row: JobRow, executions: Iterable[Execution]) -> WebhookRow:
    """Build the row of a task from its job and its latest executions, in any order."""
    known = list(executions)
    running = any(execution.state is State.RUNNING for execution in known)
    return WebhookRow(row, running, max(known, key=_age if row.job.spec.one_shot else _id, default=None))


def status_of(row: WebhookRow) -> TaskStatus:
    """Return the status of a task. The store implements the same rule in SQL.

    A halted job is FAILED: its receiver returned 410, or its endpoint is disabled. Raises NotFound if the task is deleted.
    """
    return _status(state_of(row.row), row, is_halted=row.row.job.halted is not None)


def status_after(edited: JobView, before: WebhookRow) -> TaskStatus:
    """Return the status of a task after an edit, from the edited job and the executions before the edit."""
    is_halted = before.row.job.halted is not None and edited.state == JobState.PAUSED.name
    return _status(edited.state, before, is_halted=is_halted)


def task_view(job: JobView, status: TaskStatus, executions: Sequence[ExecutionView] | None = None) -> TaskView:
    """Build the view of a task; it has a list of executions unless `executions` is None."""
    waiting = (execution.next_attempt_at for execution in executions or job.executions)
    coming = [at for at in (job.next_fire_at, *waiting) if at is not None]
    return TaskView(
        id=job.job_id,
        name=job.name,
        status=status,
        payload=redacted_call(call_of(job)),
        next_execution=min(coming, default=None),
        created_at=job.created_at,
        updated_at=job.updated_at,
        stopped_because=job.halted if job.halted is not None else UNSET,
        executions=UNSET if executions is None else tuple(map(execution_view, executions)),
        **schedule_of(job),
        **limits_of(job),
    )


def execution_view(execution: ExecutionView) -> TaskExecutionView:
    return TaskExecutionView(
        id=execution.execution_id,
        task_id=execution.job_id,
        status=STATUS_NAMES.get(execution.state, execution.state),
        scheduled_at=execution.scheduled_at,
        started_at=execution.started_at,
        completed_at=execution.finished_at,
        attempt_number=execution.attempt,
        next_attempt_at=execution.next_attempt_at,
        error_message=execution.error.message if execution.error else None,
        retry_of=execution.retry_of,
        attempts=tuple(map(_attempt_view, execution.attempts)),
    )


def call_view(call: KnownCall, execution: ExecutionView, url: str | None) -> TaskCallView:
    """Build the view of a call. `url` is None if the task's definition is deleted."""
    return TaskCallView(
        **asdict(execution_view(execution)),
        task_name=execution.job_name,
        webhook_url=url,
        resolved_by=resolved_by(call),
        retried_as=call.retried_as,
    )


def resent_view(execution: ExecutionView, *, with_present_payload: bool) -> ResentView:
    return ResentView(**asdict(execution_view(execution)), with_present_payload=with_present_payload)


def dead_view(call: KnownCall, name: str | None, url: str | None) -> TaskDeadLetterView:
    row = call.execution
    error = msgspec.json.decode(row.failure, type=Failure) if row.failure else None
    failed_at = instant_of(call.died_ms)
    assert failed_at is not None
    return TaskDeadLetterView(
        id=row.id,
        task_id=row.job_id,
        task_name=name,
        webhook_url=url,
        error_type=error.type if error else None,
        error_message=error.message if error else None,
        attempts=row.attempt,
        failed_at=failed_at,
        resolved_at=instant_of(call.resolved_ms),
        resolved_by=resolved_by(call),
        retried_as=call.retried_as,
    )


def resolved_by(call: KnownCall) -> ResolvedBy | None:
    """Return how a dead letter was resolved, or None if it is open."""
    if call.retried_as is not None:
        return ResolvedBy.RETRY
    return ResolvedBy.ARCHIVE if call.archived else None


def exchanges_view(execution: ExecutionView, records: Sequence[tuple[AttemptRecord, Any]]) -> TaskExchangesView:
    """Build the view of an execution with its exchanges. `records` has each attempt's record and its decrypted content."""
    return TaskExchangesView(
        execution=execution_view(execution), exchanges=tuple(_exchange_view(*record) for record in records)
    )


def _exchange_view(record: AttemptRecord, content: Any) -> TaskExchangeView:
    return TaskExchangeView(
        attempt_number=record.attempt,
        started_at=instant_of(record.started_ms),
        completed_at=instant_of(record.ended_ms),
        **content,
    )


def _attempt_view(attempt: AttemptView) -> TaskAttemptView:
    return TaskAttemptView(
        attempt_number=attempt.attempt,
        status=STATUS_NAMES.get(attempt.state, attempt.state),
        started_at=attempt.started_at,
        completed_at=attempt.finished_at,
        error_message=attempt.error.message if attempt.error else None,
    )


_FOR_EVER_MS = 2**62


def _id(execution: Execution) -> str:
    return execution.id


def _age(execution: Execution) -> tuple[int, str]:
    """Sort by end time: a dead letter and its retry have the same nominal time, and their ids are in no order."""
    return (_FOR_EVER_MS if execution.finished_ms is None else execution.finished_ms), execution.id


def _status(state: str, row: WebhookRow, *, is_halted: bool) -> TaskStatus:
    if state == JobState.CANCELLED.name:
        raise NotFound("the task was deleted")
    if is_halted:
        return TaskStatus.FAILED
    if state == JobState.PAUSED.name:
        return TaskStatus.PAUSED
    if state == JobState.ACTIVE.name:
        return TaskStatus.RUNNING if row.running else TaskStatus.SCHEDULED
    return TaskStatus.FAILED if _has_failed(row) else TaskStatus.COMPLETED


def _has_failed(row: WebhookRow) -> bool:
    is_success = row.latest is None or row.latest.state is State.SUCCEEDED
    return row.row.job.spec.one_shot and not is_success
