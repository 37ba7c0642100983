"""`noonday job pause`, `resume` and `cancel`: change one job, or all that match filters."""

from datetime import datetime
from typing import Any

import click

from noonday.cli.bulk import Bulk, bulk_options, filter_options
from noonday.cli.choices import choice, names_of
from noonday.cli.client import with_client
from noonday.cli.completion import complete_jobs
from noonday.cli.group import Command
from noonday.cli.instants import brief, instant
from noonday.cli.lookup import find_job
from noonday.cli.screen import done, json_option, show_json
from noonday.model.job import JobType
from noonday.model.operation import OperationKind
from noonday.model.view import JobView
from noonday.sdk.sync import SyncClient

_filters = filter_options(
    ("--tag", "Only jobs with this tag.", {}),
    ("--pool", "Only jobs of this pool.", {}),
    ("--handler", "Only jobs with this handler.", {}),
    ("--name", "Only jobs with exactly this name.", {}),
    ("--type", "Only jobs of this type.", {"type": choice(JobType), "metavar": names_of(JobType)}),
)
_one = click.argument("job_id", metavar="[JOB]", required=False, shell_complete=complete_jobs)


@click.command(cls=Command)
@_one
@click.option(
    "--until",
    type=instant,
    metavar="TIME",
    help="Time at which the job resumes by itself; one job only. [default: never]",
)
@_filters
@bulk_options
@json_option
@with_client("write")
def pause(client: SyncClient, job_id: str | None, until: datetime | None, as_json: bool, **more: Any) -> None:
    """Pause a job, or all active jobs that match filters: they fire no more until resumed. Running executions continue."""
    bulk, where = _split(more, as_json)
    if bulk.is_one(job_id, "JOB", where):
        return report_change(client.pause(find_job(client, job_id or ""), until=until), "paused", as_json)
    if until is not None:
        raise click.UsageError("--until is for one job: name it, or pause the jobs without it and resume them later.")
    return bulk.run(client, OperationKind.PAUSE_JOBS, where)


@click.command(cls=Command)
@_one
@_filters
@bulk_options
@json_option
@with_client("write")
def resume(client: SyncClient, job_id: str | None, as_json: bool, **more: Any) -> None:
    """Resume a paused job, or all that match filters.

    Missed occurrences run only if the job catches up on pauses (--while-paused).
    """
    bulk, where = _split(more, as_json)
    if bulk.is_one(job_id, "JOB", where):
        return report_change(client.resume(find_job(client, job_id or "")), "resumed", as_json)
    return bulk.run(client, OperationKind.RESUME_JOBS, where)


@click.command(cls=Command)
@_one
@_filters
@click.option("--state", type=choice(("ACTIVE", "PAUSED")), metavar="ACTIVE|PAUSED", help="Only jobs in this state.")
@bulk_options
@json_option
@with_client("write")
def cancel(client: SyncClient, job_id: str | None, as_json: bool, **more: Any) -> None:
    """Cancel a job permanently, or all active and paused jobs that match filters. They remain readable."""
    bulk, where = _split(more, as_json)
    if bulk.is_one(job_id, "JOB", where):
        return report_change(client.delete(find_job(client, job_id or "")), "cancelled", as_json)
    return bulk.run(client, OperationKind.CANCEL_JOBS, where)


def report_change(changed: JobView, verb: str, as_json: bool) -> None:
    """Print what was done to a job, and when it fires next."""
    if as_json:
        return show_json(changed)
    following = f", next {brief(changed.next_fire_at, changed.timezone)}" if changed.next_fire_at else ""
    end = f" until {brief(changed.paused_until, changed.timezone)}" if changed.paused_until else ""
    return done(f"{verb} {label_of(changed)}{end}{following}")


def label_of(one: JobView) -> str:
    return f"{one.name} ({one.job_id})" if one.name else one.job_id


def _split(more: dict[str, Any], as_json: bool) -> tuple[Bulk, dict[str, Any]]:
    how = {name: more.pop(name) for name in ("everything", "rate", "dry_run", "yes", "no_wait")}
    return Bulk(**how, as_json=as_json), more
