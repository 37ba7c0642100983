"""`noonday why EXECUTION`: explain what happened to an execution."""

from collections.abc import Iterator
from datetime import datetime

import click

from noonday.cli.instants import exact, length, printable, relative, whole
from noonday.cli.job_details import how_to_see_the_error, schedule_of
from noonday.cli.screen import done, patience, show_json
from noonday.model.errors import NotFound
from noonday.model.view import AttemptView, ExecutionView, JobView
from noonday.sdk.sync import SyncClient

CAUSES = {
    "SCHEDULE": "It runs the occurrence {scheduled} of {job}.",
    "TRIGGER": "{job} was triggered by a person or a program at {scheduled}.",
    "BACKFILL": "It runs the missed occurrence {scheduled} of {job}, because of a backfill.",
    "RETRY_OF": "It runs {retry_of} of {job} again, because a person retried that dead letter.",
}
"""Explanation of each cause of an execution."""

REVOCATIONS = {"PAUSED": "the job was paused", "EDITED": "the job was changed"}
"""Explanation of each reason for which a dispatched execution is revoked."""


def show_execution(client: SyncClient, execution_id: str, at: datetime | None, as_json: bool) -> None:
    """Print the explanation of an execution."""
    if at is not None:
        raise click.UsageError("--at goes with a JOB, because an EXECUTION has one time")
    with patience("reading the execution"):
        one = client.get_execution(execution_id)
        job = _job_of(client, one)
    if as_json:
        return show_json({"jobId": one.job_id, "execution": one})
    for line in explain_execution(one, job):
        done(line)
    return None


def explain_execution(one: ExecutionView, job: JobView | None) -> Iterator[str]:
    """Yield why an execution exists, its attempts, its timeline and the next step, line by line."""
    name = f"job {printable(one.job_name)} ({one.job_id})" if one.job_name else f"job {one.job_id}"
    reason = CAUSES.get(one.cause, "Its cause is " + one.cause + ", for {scheduled} of {job}.").format(
        job=name, scheduled=whole(one.scheduled_at, job.timezone if job else None), retry_of=one.retry_of
    )
    yield reason[0].upper() + reason[1:]
    if job is not None:
        yield f"The job is {job.state} and runs {schedule_of(job)}."
    yield from history(one)
    if one.transitions:
        yield "Timeline:"
        for each in one.transitions:
            worker = f" on {each.worker_id}" if each.worker_id else ""
            why = f" ({printable(each.reason)})" if each.reason else ""
            yield f"  {exact(each.at)}  {each.state}, attempt {each.attempt}{worker}{why}"


def _job_of(client: SyncClient, one: ExecutionView) -> JobView | None:
    """Return the job of an execution; None if it is gone."""
    try:
        return client.get_job(one.job_id, executions=0)
    except NotFound:
        return None


def history(one: ExecutionView) -> Iterator[str]:
    """Yield the state of an execution, its attempts, and the next step, line by line."""
    yield f"Execution {one.execution_id} of {one.handler} in pool {one.pool} is {one.state}."
    for attempt in one.attempts:
        yield f"  {_attempt(one, attempt)}"
    yield from _rest(one)


def _attempt(one: ExecutionView, attempt: AttemptView) -> str:
    late = (attempt.started_at - one.due_at).total_seconds() if attempt.started_at else 0
    begun = f"began {exact(attempt.started_at)}" if attempt.started_at else "did not begin"
    if attempt.attempt == 1 and attempt.dispatch == 1 and late > 0:
        begun += f", {length(late)} after it was due,"
    if attempt.finished_at is None or attempt.started_at is None:
        return f"Attempt {attempt.attempt} {begun} and is running on {attempt.worker_id}."
    ended = f"{attempt.state} after {length((attempt.finished_at - attempt.started_at).total_seconds())}"
    error = f": {printable(f'{attempt.error.type}: {attempt.error.message}')}" if attempt.error else ""
    return f"Attempt {attempt.attempt} {begun} on {attempt.worker_id}: {ended}{error}"


def _rest(one: ExecutionView) -> Iterator[str]:
    if one.waiting_for:
        yield f"The execution waits for: {printable(one.waiting_for)}."
    if one.state == "PENDING" and one.next_attempt_at and one.attempt > 1:
        yield f"Attempt {one.attempt} starts {relative(one.next_attempt_at)}."
    if one.cancel_requested:
        yield f"The execution was asked to stop: {REVOCATIONS.get(one.cancel_requested) or printable(one.cancel_requested)}."
    if look := how_to_see_the_error([one]):
        yield look
    if one.state == "DEAD":
        yield f"The execution failed permanently after attempt {one.attempt}. To run it again:"
        yield f"  noonday dead retry {one.execution_id}"
