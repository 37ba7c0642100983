"""`noonday job skip`: skip occurrences of a job, and undo that."""

from datetime import datetime

import click

from noonday.cli.client import with_client
from noonday.cli.completion import complete_jobs
from noonday.cli.group import Command
from noonday.cli.instants import brief, instant
from noonday.cli.lookup import find_job
from noonday.cli.screen import done, json_option, show_json
from noonday.sdk.sync import SyncClient


@click.command(cls=Command)
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@click.option("--at", type=instant, help="Time of the occurrence.")
@click.option("--next", "count", type=click.IntRange(1), metavar="N", help="Number of the next occurrences.")
@click.option("--reason", help="Reason, which `noonday why` shows.")
@click.option("--undo", is_flag=True, help="Undo the skip of the occurrence --at, or all skips.")
@json_option
@with_client("write")
def skip(
    client: SyncClient,
    job_id: str,
    at: datetime | None,
    count: int | None,
    reason: str | None,
    undo: bool,
    as_json: bool,
) -> None:
    """Skip occurrences to come, by default the next one: they will not fire."""
    if undo and (count is not None or reason is not None):
        raise click.UsageError("--undo goes with --at alone; without --at it undoes all skips")
    if at is not None and count is not None:
        raise click.UsageError("--at and --next are mutually exclusive: use one")
    found = find_job(client, job_id)
    if undo:
        changed = client.undo_skip(found, at=at)
    else:
        changed = client.skip(found, at=at, next=None if at else count or 1, reason=reason)
    if as_json:
        return show_json(changed)
    listed = ", ".join(brief(each.at, changed.timezone) for each in changed.skips) or "nothing"
    following = f", next {brief(changed.next_fire_at, changed.timezone)}" if changed.next_fire_at else ""
    return done(f"{changed.name or changed.job_id} skips {listed}{following}")
