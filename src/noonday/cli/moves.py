"""`noonday job move`: let one occurrence of a job fire at another time."""

from datetime import datetime

import click

from noonday.cli.client import with_client
from noonday.cli.completion import complete_jobs
from noonday.cli.group import Command
from noonday.cli.instants import brief, instant
from noonday.cli.lookup import find_job
from noonday.cli.screen import done, json_option, show_json
from noonday.sdk.sync import SyncClient


@click.command(
    cls=Command, epilog="A moved occurrence is named by its new time. Move it to its former time to undo the move."
)
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@click.option("--at", type=instant, required=True, help="Time of the occurrence.")
@click.option("--to", type=instant, required=True, help="Time at which it fires instead.")
@click.option("--reason", help="Reason, which `noonday why` shows.")
@json_option
@with_client("write")
def move(client: SyncClient, job_id: str, at: datetime, to: datetime, reason: str | None, as_json: bool) -> None:
    """Move one occurrence of a recurring job: it fires once, at the other time."""
    changed = client.move(find_job(client, job_id), at, to, reason=reason)
    if as_json:
        return show_json(changed)
    zone = changed.timezone
    following = f", next {brief(changed.next_fire_at, zone)}" if changed.next_fire_at else ""
    return done(f"moved {brief(at, zone)} of {changed.name or changed.job_id} to {brief(to, zone)}{following}")
