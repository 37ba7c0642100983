"""`noonday execution`: show, wait for and cancel executions, and show their logs."""

from datetime import timedelta
from typing import Any

import click
from rich.text import Text

from noonday.cli.client import with_client
from noonday.cli.completion import complete_jobs
from noonday.cli.group import Group
from noonday.cli.instants import brief, duration, exact, length, printable, whole
from noonday.cli.job_details import took
from noonday.cli.lookup import find_job, is_id, is_job_id
from noonday.cli.screen import cell_text, compact, done, json_option, patience, show, show_json, state
from noonday.cli.tables import ListTable, facts
from noonday.model.errors import NotFound
from noonday.model.view import ExecutionView
from noonday.sdk.sync import SyncClient

EXAMPLES = """
Examples:
  noonday execution show 019a3f2e-...      show attempts, errors, progress and result
  noonday execution logs 019a3f2e-...      show what its handler logged
  noonday execution wait nightly           wait for the latest execution of a job and print its result
  noonday execution cancel 019a3f2e-...
"""


@click.group(cls=Group, epilog=EXAMPLES)
def execution() -> None:
    """Show, wait for and cancel executions of a job, and show their logs."""


@execution.command("show")
@click.argument("execution_id", metavar="EXECUTION")
@click.option("--traceback", is_flag=True, help="Show the whole traceback of an error.")
@json_option
@with_client("read")
def show_(client: SyncClient, execution_id: str, traceback: bool, as_json: bool) -> None:
    """Show an execution: its state, attempts, error, progress and result."""
    found = client.get_execution(checked(execution_id))
    if as_json:
        return show_json(found)
    show(facts(_facts_of(found)))
    if found.attempts:
        show("", _attempts(found))
    if found.error and found.error.traceback and traceback:
        show("", Text(printable(found.error.traceback)))
    return None


@execution.command()
@click.argument("execution_id", metavar="EXECUTION")
@click.option("--attempt", type=click.IntRange(min=1), help="Show only this attempt.")
@json_option
@with_client("read")
def logs(client: SyncClient, execution_id: str, attempt: int | None, as_json: bool) -> None:
    """Show what the handler of an execution logged, by attempt.

    Shows the last lines that it logged through `ctx.logger`. The lines of an attempt are kept when it ends.
    """
    found = client.get_execution_logs(checked(execution_id))
    if as_json:
        return show_json(found)
    wanted = [each for each in found.attempts if attempt in (None, each.attempt)]
    if not wanted:
        of = f"attempt {attempt} of {execution_id}" if attempt else execution_id
        click.echo(f"no log lines of {of}; those of an attempt are kept when it ends", err=True)
    for each in wanted:
        done(f"attempt {each.attempt}, {each.outcome}, ended {whole(each.finished_at)}:")
        click.echo(printable((each.text or "[redacted]").expandtabs()), nl=False)
    return None


@execution.command()
@click.argument("execution_id", metavar="EXECUTION")
@json_option
@with_client("write")
def cancel(client: SyncClient, execution_id: str, as_json: bool) -> None:
    """Cancel an execution: at once if it has not started, else as soon as its handler stops."""
    asked = client.cancel(checked(execution_id))
    if as_json:
        return show_json(asked)
    if asked.state == "CANCELLED":
        done(f"cancelled {asked.execution_id}")
    else:
        done(f"cancellation of {asked.execution_id} requested; it stays {asked.state} until its handler stops")
    return None


@execution.command()
@click.argument("of", metavar="EXECUTION|JOB", shell_complete=complete_jobs)
@click.option("--timeout", type=duration, help="Maximum time to wait. [default: no limit]")
@with_client("read")
def wait(client: SyncClient, of: str, timeout: timedelta | None) -> None:
    """Wait for an execution to end and print its result as JSON.

    For a JOB, waits for its latest execution, or for the first one if it has none yet. The exit code is 1 if the
    execution fails or does not end in time.
    """
    known = of if is_id(of) else find_job(client, of)
    with patience(f"waiting for {of}"):
        answer = client.result(known, timeout=timeout)
    show_json(answer)


def checked(text: str) -> str:
    if not is_id(text):
        raise NotFound(f"{text!r} is not an execution id; `noonday job executions JOB` lists the executions of a job")
    if is_job_id(text):
        raise NotFound(f"{text} is a job id, not an execution id; `noonday job executions {text}` lists its executions")
    return text


def _facts_of(one: ExecutionView) -> list[tuple[str, Any]]:
    return [
        ("execution", one.execution_id),
        ("job", f"{cell_text(one.job_name)} ({one.job_id})" if one.job_name else one.job_id),
        ("state", state(one.state)),
        ("waits for", cell_text(one.waiting_for) if one.waiting_for else None),
        ("next attempt", whole(one.next_attempt_at) if one.next_attempt_at and one.attempt > 1 else None),
        ("cause", one.cause + (f" {one.retry_of}" if one.retry_of else "")),
        ("target", f"{one.handler} in pool {one.pool}"),
        ("scheduled", whole(one.scheduled_at)),
        ("started", _started(one)),
        ("finished", whole(one.finished_at) if one.finished_at else None),
        ("worker", one.worker_id),
        ("error", Text(cell_text(f"{one.error.type}: {one.error.message}"), style="red") if one.error else None),
        ("progress", compact(one.progress) if one.progress is not None else None),
        ("result", compact(one.result) if one.result is not None else None),
        ("cancel", cell_text(one.cancel_requested) if one.cancel_requested else None),
        ("logs", one.logs_url),
        ("trace", one.trace_id),
    ]


def _started(one: ExecutionView) -> str | None:
    if one.started_at is None:
        return None
    late = (one.started_at - one.due_at).total_seconds()
    return f"{exact(one.started_at)}, {length(late)} after it was due" if late > 0 else exact(one.started_at)


def _attempts(one: ExecutionView) -> ListTable:
    grid = ListTable("ATTEMPT", "STATE", "STARTED", "TOOK", "WORKER", "ERROR", right=("ATTEMPT",), fold=("ERROR",))
    for each in one.attempts:
        error = f"{each.error.type}: {each.error.message}" if each.error else None
        grid.add(
            str(each.attempt),
            state(each.state),
            brief(each.started_at),
            took(each.started_at, each.finished_at),
            each.worker_id or "-",
            cell_text(error),
        )
    return grid
