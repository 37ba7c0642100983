"""`noonday execution`: show, wait for and cancel executions, and show their logs."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import click
from rich.text import Text

from noonday.cli.bulk import Bulk, bulk_options, filter_options
from noonday.cli.choices import choice
from noonday.cli.client import with_client
from noonday.cli.completion import complete_jobs
from noonday.cli.group import Group
from noonday.cli.instants import brief, duration, exact, instant, length, now, printable, whole
from noonday.cli.job_details import took
from noonday.cli.lookup import find_execution, find_job, find_run, is_id
from noonday.cli.paging import first_of, page_size
from noonday.cli.screen import cell_text, compact, done, json_option, patience, show, show_json, show_list, state
from noonday.cli.tables import ListTable, facts
from noonday.model.operation import OperationKind
from noonday.model.view import ExecutionView
from noonday.sdk.sync import SyncClient

OPEN_STATES = ("PENDING", "RUNNING")
RUN_STATES = ("PENDING", "RUNNING", "SUCCEEDED", "CANCELLED", "EXPIRED", "DEAD")

EXAMPLES = """
Examples:
  noonday execution list --since yesterday --state DEAD      what failed since yesterday?
  noonday execution show 019a3f2e-...      show attempts, errors, progress and result
  noonday execution logs 019a3f2e-...      show what its handler logged
  noonday execution wait nightly           wait for the latest execution of a job and print its result
  noonday execution cancel 019a3f2e-...
  noonday execution cancel --pool mail --state PENDING --dry-run      show which ones would be cancelled
"""


_open_executions = filter_options(
    ("--state", "Only executions in this state.", {"type": choice(OPEN_STATES), "metavar": "|".join(OPEN_STATES)}),
    ("--job", "Only executions of this job: id, id prefix, or name.", {"metavar": "JOB"}),
    ("--pool", "Only executions in this pool.", {}),
    ("--handler", "Only executions with this handler.", {}),
    ("--tag", "Only executions of jobs with this tag.", {}),
    ("--worker", "Only executions that this worker ran last.", {}),
    ("--since", "Scheduled at or after this time.", {"type": instant}),
    ("--until", "Scheduled before this time.", {"type": instant}),
    ("--late-over", "Only executions that started later than this after they were due.", {"type": duration}),
    ("--took-over", "Only executions that run for longer than this.", {"type": duration}),
)


@click.group(cls=Group, epilog=EXAMPLES)
def execution() -> None:
    """List, show, wait for and cancel executions, and show their logs."""


@execution.command("list")
@click.option("--since", type=instant, help="Scheduled at or after this time. [default: 24 hours ago]")
@click.option("--until", type=instant, help="Scheduled before this time.")
@click.option("--state", type=choice(RUN_STATES), metavar="|".join(RUN_STATES), help="Only executions in this state.")
@click.option("--job", metavar="JOB", help="Only executions of this job.")
@click.option("--pool", help="Only executions in this pool.")
@click.option("--handler", help="Only executions with this handler.")
@click.option("--tag", help="Only executions of jobs with this tag.")
@click.option("--worker", help="Only executions that this worker ran last.")
@click.option("--late-over", type=duration, help="Only executions that started later than this after they were due.")
@click.option("--took-over", type=duration, help="Only executions that took longer than this.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of executions.")
@click.option("--all", "no_limit", is_flag=True, help="List all, without a limit.")
@json_option
@with_client("read")
def list_(
    client: SyncClient,
    since: datetime | None,
    job: str | None,
    late_over: timedelta | None,
    took_over: timedelta | None,
    limit: int,
    no_limit: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """List the executions of all jobs, newest first: what ran last night?"""
    with patience("reading executions"):
        listing = client.search_executions(
            since=since or now() - timedelta(days=1),
            job_id=find_job(client, job) if job else None,
            late_over=late_over.total_seconds() if late_over is not None else None,
            took_over=took_over.total_seconds() if took_over is not None else None,
            limit=page_size(limit, no_limit),
            **where,
        )
        found, more = first_of(listing.items(), None if no_limit else limit)
    if as_json:
        return show_json({"executions": found, "more": more})
    return show_list(_table(found), "executions", more)


@execution.command("show")
@click.argument("execution_id", metavar="EXECUTION")
@click.option("--traceback", is_flag=True, help="Show the whole traceback of an error.")
@json_option
@with_client("read")
def show_(client: SyncClient, execution_id: str, traceback: bool, as_json: bool) -> None:
    """Show an execution: its state, attempts, error, progress and result."""
    found = client.get_execution(find_execution(client, execution_id))
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
    found = client.get_execution_logs(find_execution(client, execution_id))
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
@click.argument("execution_id", metavar="[EXECUTION]", required=False)
@_open_executions
@bulk_options
@json_option
@with_client("write")
def cancel(
    client: SyncClient,
    execution_id: str | None,
    everything: bool,
    rate: float,
    dry_run: bool,
    yes: bool,
    no_wait: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Cancel an execution, or all open ones that match filters.

    It is cancelled at once if it has not started, else as soon as its handler stops.
    """
    bulk = Bulk(everything=everything, rate=rate, dry_run=dry_run, yes=yes, no_wait=no_wait, as_json=as_json)
    if not bulk.is_one(execution_id, "EXECUTION", where):
        return bulk.run(client, OperationKind.CANCEL_EXECUTIONS, where)
    asked = client.cancel(find_execution(client, execution_id or ""))
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
    known = of if is_id(of) else find_run(client, of)
    with patience(f"waiting for {of}"):
        answer = client.result(known, timeout=timeout)
    show_json(answer)


def _table(executions: Iterable[ExecutionView]) -> ListTable:
    columns = ("JOB", "EXECUTION", "STATE", "SCHEDULED", "TOOK", "ERROR")
    grid = ListTable(*columns, cut=("JOB", "ERROR"), spare=("ERROR", "SCHEDULED", "TOOK"), ids=("EXECUTION",))
    for one in executions:
        error = f"{one.error.type}: {one.error.message}" if one.error else None
        grid.add(
            cell_text(one.job_name or one.handler),
            one.execution_id,
            state(one.state),
            brief(one.scheduled_at),
            took(one.started_at, one.finished_at),
            cell_text(error),
        )
    return grid


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
