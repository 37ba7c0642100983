"""`noonday job`: create, list and change jobs."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from noonday.cli.apply import apply, export
from noonday.cli.choices import choice, names_of
from noonday.cli.client import with_client
from noonday.cli.completion import complete_jobs
from noonday.cli.executions import RUN_STATES
from noonday.cli.group import Group
from noonday.cli.instants import brief, instant
from noonday.cli.job_changes import cancel, label_of, pause, report_change, resume
from noonday.cli.job_details import facts_of, how_to_see_the_error, schedule_of, took
from noonday.cli.job_flags import in_flags, job_options, members_of, patch_of, payload_option, pool_of, spec_of
from noonday.cli.lookup import find_job
from noonday.cli.moves import move
from noonday.cli.paging import PAGE, first_of, page_size
from noonday.cli.screen import (
    cell_text,
    console,
    done,
    json_option,
    patience,
    show,
    show_json,
    show_list,
    state,
)
from noonday.cli.skips import skip
from noonday.cli.tables import ListTable, facts
from noonday.model.errors import InvalidInput
from noonday.model.job import JobType
from noonday.model.pool import NOTICES_POOL
from noonday.model.view import BackfillView, ExecutionView, JobView, OccurrenceView
from noonday.sdk.sync import SyncClient

MOST_NOTICES = 10_000
"""Number of jobs that send notices that a list passes over before it ends."""
STATES = ("ACTIVE", "PAUSED", "COMPLETED", "DEAD", "CANCELLED")

EXAMPLES = """
JOB is an id, an id prefix, or a name.

Examples:
  noonday job create --handler demo.echo --payload '{"hello": 1}'          run now
  noonday job create --handler demo.echo --at 09:00                        run once, at 09:00 local time
  noonday job create --handler demo.fail --cron '0 3 * * *' --tz Europe/Berlin --name nightly --max-attempts 3
  noonday job create --file job.json
  noonday job list --state PAUSED
  noonday job list --json | jq -r '.jobs[].jobId'
  noonday job apply jobs.yaml --dry-run            keep jobs in files
  noonday job change nightly --cron '0 4 * * *' --timeout 30m
  noonday job pause nightly
  noonday job pause nightly --until 'tomorrow 06:00'
  noonday job pause --tag etl --dry-run            show which jobs would be paused
  noonday job trigger nightly
  noonday job skip nightly --next 2 --reason 'maintenance'
  noonday job move nightly --at 'tomorrow 03:00' --to 'tomorrow 05:00'
  noonday job backfill nightly --from 2026-01-01 --to 2026-01-31 --preview
"""


@click.group(cls=Group, epilog=EXAMPLES)
def job() -> None:
    """Create, inspect and change jobs."""


@job.command(epilog="A time is 2030-01-31T09:00:00Z, local time such as '2030-01-31 09:00' or 09:00, or +10m.")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE|-",
    help="Job as JSON, in the format of the API; flags override it.",
)
@job_options
@click.option("--idempotency-key", metavar="KEY", help="Commands with the same key create one job.")
@json_option
@with_client("write")
def create(client: SyncClient, file: Path | None, idempotency_key: str | None, as_json: bool, **flags: Any) -> None:
    """Create a job.

    With --unique-key, replaces the existing job with that key.
    """
    members = members_of(flags, file)
    target = members.get("target", {})
    if not isinstance(target, dict) or "handler" not in target:
        raise click.UsageError("a job needs --handler or --file; `noonday pool list` lists the handlers")
    try:
        if "pool" not in target:
            target["pool"] = pool_of(target["handler"], client.pools())
        made = client.create(spec_of(members), idempotency_key=idempotency_key)
    except InvalidInput as refused:
        raise in_flags(refused, file) from refused
    if as_json:
        return show_json(made)
    _warn(made)
    zone = made.timezone or flags["tz"]
    return done(
        f"created {label_of(made)}" + (f", fires {brief(made.next_fire_at, zone)}" if made.next_fire_at else "")
    )


@job.command(epilog="A field without a flag keeps its value. --payload replaces the whole payload.")
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@job_options
@click.option("--if-version", type=int, metavar="N", help="Change the job only if it has this version.")
@json_option
@with_client("write")
def change(client: SyncClient, job_id: str, if_version: int | None, as_json: bool, **flags: Any) -> None:
    """Change the fields of a job whose flags are given."""
    found, payload = find_job(client, job_id), None
    if flags["payload"] is not None:
        present = client.get_job(found, executions=0)
        payload, if_version = present.payload, present.version if if_version is None else if_version
    patch = patch_of(flags, payload)
    if not patch:
        raise click.UsageError("nothing to change: pass the flags of the fields to change; `--help` lists them")
    try:
        changed = client.change(found, patch, if_version=if_version)
    except InvalidInput as refused:
        raise in_flags(refused) from refused
    if not as_json:
        _warn(changed)
    report_change(changed, "changed", as_json)


@job.command("list")
@click.option("--state", type=choice(STATES), metavar="|".join(STATES), help="Only jobs in this state.")
@click.option("--type", "kind", type=choice(JobType), metavar=names_of(JobType), help="Only jobs of this type.")
@click.option("--pool", help="Only jobs of this pool.")
@click.option("--handler", help="Only jobs with this handler.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--name", help="Only jobs with exactly this name.")
@click.option("--unique-key", metavar="KEY", help="Only the job with this key.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of jobs.")
@click.option("--all", "no_limit", is_flag=True, help="List all, without a limit.")
@json_option
@with_client("read")
def list_(client: SyncClient, limit: int, no_limit: bool, as_json: bool, kind: str | None, **where: Any) -> None:
    """List jobs, newest first.

    Jobs that send notices of alerts are listed with --pool notices only.
    """
    with patience("reading jobs"):
        listing = client.list_jobs(type=kind, limit=page_size(limit, no_limit), summary=not as_json, **where)
        items = listing.items() if any(where.values()) else without_notices(listing.items())
        jobs, more = first_of(items, None if no_limit else limit)
    if as_json:
        return show_json({"jobs": jobs, "more": more})
    grid = ListTable(
        "NAME",
        "ID",
        "STATE",
        "RUNS",
        "HANDLER",
        "NEXT",
        cut=("NAME", "RUNS", "HANDLER"),
        fold=("NEXT",),
        spare=("HANDLER", "RUNS"),
        ids=("ID",),
    )
    for one in jobs:
        grid.add(
            cell_text(one.name),
            one.job_id,
            state(one.state),
            schedule_of(one),
            one.target.handler,
            brief(one.next_fire_at, one.timezone),
        )
    return show_list(grid, "jobs", more)


@job.command("show")
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@click.option("--executions", type=click.IntRange(0, 100), default=10, show_default=True, help="Number of executions.")
@json_option
@with_client("read")
def show_(client: SyncClient, job_id: str, executions: int, as_json: bool) -> None:
    """Show a job and its latest executions."""
    found = client.get_job(find_job(client, job_id), executions=executions)
    if as_json:
        return show_json(found)
    show(facts(facts_of(found)))
    for warning in found.warnings:
        show(Text(f"warning: {warning}", style="yellow"))
    if found.executions:
        show("", executions_table(found.executions))
    if look := how_to_see_the_error(found.executions):
        show("", look)
    return None


job.add_command(pause)
job.add_command(resume)
job.add_command(cancel)


@job.command()
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@payload_option("Payload of this run, instead of the job's own.")
@click.option("--force", is_flag=True, help="Run although an execution is open and the overlap policy forbids it.")
@click.option("--idempotency-key", metavar="KEY", help="Commands with the same key run the job once.")
@json_option
@with_client("write")
def trigger(
    client: SyncClient, job_id: str, payload: Any, force: bool, idempotency_key: str | None, as_json: bool
) -> None:
    """Run a job now, in addition to its schedule."""
    made = client.trigger(
        find_job(client, job_id),
        payload=msgspec.UNSET if payload is None else msgspec.json.decode(payload),
        force=force,
        idempotency_key=idempotency_key,
    )
    if as_json:
        return show_json(made)
    return done(f"triggered: execution {made.execution_id}")


job.add_command(skip)
job.add_command(move)


@job.command("executions")
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@click.option("--state", type=choice(RUN_STATES), metavar="|".join(RUN_STATES), help="Only executions in this state.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of executions.")
@click.option("--all", "no_limit", is_flag=True, help="List all, without a limit.")
@json_option
@with_client("read")
def executions_(client: SyncClient, job_id: str, state: str | None, limit: int, no_limit: bool, as_json: bool) -> None:
    """List the executions of a job, newest first."""
    with patience("reading executions"):
        listing = client.list_executions(find_job(client, job_id), state=state, limit=page_size(limit, no_limit))
        found, more = first_of(listing.items(), None if no_limit else limit)
    if as_json:
        return show_json({"executions": found, "more": more})
    return show_list(executions_table(found), "executions", more)


@job.command("occurrences")
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@click.option("--from", "from_", type=instant, help="Start of the period. [default: one day ago]")
@click.option("--to", type=instant, help="End of the period. [default: one day from now]")
@click.option(
    "--limit", type=click.IntRange(1, PAGE), default=PAGE, show_default=True, help="Maximum number of occurrences."
)
@json_option
@with_client("read")
def occurrences_(
    client: SyncClient, job_id: str, from_: datetime | None, to: datetime | None, limit: int, as_json: bool
) -> None:
    """List the occurrences of a job's schedule in a period of time.

    Shows which occurrences fired, which did not fire and why, and which are planned.
    """
    job = find_job(client, job_id)
    page = client.occurrences(job, from_, to, limit=limit)
    if as_json:
        return show_json(page)
    zone = client.get_job(job, executions=0).timezone
    grid = ListTable("TIME", "OUTCOME", "COUNT", "WHY", "EXECUTION", right=("COUNT",), cut=("WHY",), spare=("COUNT",))
    for one in page.occurrences:
        grid.add(_span(one, zone), state(one.outcome), str(one.count), cell_text(one.reason), one.execution_id or "-")
    return show_list(grid, "occurrences", page.is_least or len(page.occurrences) == limit)


@job.command()
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@click.option("--from", "from_", type=instant, required=True, help="Start of the period.")
@click.option("--to", type=instant, required=True, help="End of the period; in the past.")
@click.option(
    "--id", "backfill_id", metavar="ID", help="Name of the backfill. The same id again creates only missing executions."
)
@click.option("--preview", is_flag=True, help="Show the occurrences without running them.")
@json_option
@with_client("write")
def backfill(
    client: SyncClient,
    job_id: str,
    from_: datetime,
    to: datetime,
    backfill_id: str | None,
    preview: bool,
    as_json: bool,
) -> None:
    """Run the occurrences of a job's schedule in a past period of time."""
    job = find_job(client, job_id)
    answer = client.backfill(job, from_, to, backfill_id=backfill_id, preview=True)
    if not preview:
        with patience(f"creating {answer.total} executions"):
            answer = _fill(client, job, from_, to, backfill_id)
    if as_json:
        return show_json(answer)
    times = ", ".join(brief(one) for one in answer.first) + (", ..." if answer.total > len(answer.first) else "")
    if preview:
        done(f"would run {answer.total} occurrences: {times or 'none'}")
    else:
        done(f"created {answer.created} executions for {answer.total} occurrences (backfill {answer.backfill_id})")
    return None


def _fill(client: SyncClient, job: str, from_: datetime, to: datetime, backfill_id: str | None) -> BackfillView:
    """Repeat the backfill until a call creates nothing new: one call creates one page."""
    created = 0
    while True:
        answer = client.backfill(job, from_, to, backfill_id=backfill_id)
        created += answer.created
        if not answer.created or created >= answer.total:
            return msgspec.structs.replace(answer, created=created)


job.add_command(apply)
job.add_command(export)


def without_notices(jobs: Iterable[JobView]) -> Iterator[JobView]:
    """Yield jobs without those that send notices. Ends after `MOST_NOTICES` of these."""
    notices = 0
    for one in jobs:
        if one.target.pool != NOTICES_POOL:
            yield one
        elif (notices := notices + 1) == MOST_NOTICES:
            return


def executions_table(executions: Iterable[ExecutionView]) -> ListTable:
    grid = ListTable(
        "EXECUTION",
        "STATE",
        "SCHEDULED",
        "ATTEMPT",
        "TOOK",
        "CAUSE",
        "ERROR",
        right=("ATTEMPT",),
        cut=("ERROR",),
        spare=("ATTEMPT", "TOOK", "CAUSE"),
        ids=("EXECUTION",),
    )
    for one in executions:
        grid.add(
            one.execution_id,
            state(one.state),
            brief(one.scheduled_at),
            str(one.attempt),
            took(one.started_at, one.finished_at),
            one.cause,
            cell_text(f"{one.error.type}: {one.error.message}" if one.error else one.waiting_for),
        )
    return grid


def _warn(one: JobView) -> None:
    for warning in one.warnings:
        console(err=True).print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)


def _span(one: OccurrenceView, zone: str | None) -> str:
    first = brief(one.scheduled_at, zone)
    return first if one.count == 1 else f"{first} to {brief(one.until, zone)}"
