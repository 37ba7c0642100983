"""`noonday import`: jobs from crontabs, Celery beat and Kubernetes CronJobs."""

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from noonday.cli import exits
from noonday.cli.applying import Action, perform, plan
from noonday.cli.client import with_client
from noonday.cli.group import Group
from noonday.cli.importing.celery_beat import load_beat, read_beat
from noonday.cli.importing.cronjobs import read_cronjobs
from noonday.cli.importing.crontab import CrontabReader
from noonday.cli.importing.imported import Imported, zone_of_machine
from noonday.cli.instants import now
from noonday.cli.job_files import FORMATS, JobSet, WantedJob, read_text, write_jobs
from noonday.cli.screen import console, done
from noonday.cli.yaml_text import load_all
from noonday.model.job import ms_of
from noonday.model.zones import zone
from noonday.sdk.sync import SyncClient

EXAMPLES = """
Without --create, the jobs are printed as a file for `noonday job apply`. What cannot be carried over is named on stderr.

Examples:
  crontab -l | noonday import crontab - > jobs.yaml
  noonday import crontab /etc/crontab --system --create
  noonday import celery-beat shop.celery:app --pool shop
  kubectl get cronjobs -o json | noonday import cronjobs - > jobs.yaml
"""


@click.group("import", cls=Group, epilog=EXAMPLES)
def import_() -> None:
    """Import jobs from crontabs, Celery beat and Kubernetes."""


def _options(command: Any) -> Any:
    for option in (
        click.option("--tz", metavar="ZONE", help="Time zone of the schedules. [default: the zone of this machine]"),
        click.option(
            "--set", "set_name", metavar="NAME", help="Name of the set of jobs. [default: the kind of import]"
        ),
        click.option("--format", "form", type=FORMATS, default="yaml", show_default=True, help="Format of the file."),
        click.option("--create", is_flag=True, help="Create the jobs on the server, instead of printing a file."),
        with_client("write", if_given="create"),
    )[::-1]:
        command = option(command)
    return command


@import_.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE|-")
@click.option("--system", is_flag=True, help="The lines have a user, as in /etc/crontab and /etc/cron.d.")
@_options
def crontab(client: SyncClient | None, file: Path, system: bool, tz: str | None, **how: Any) -> None:
    """Import a crontab as jobs that run commands (handler shell.run).

    The server or a worker must allow commands: `noonday up --allow-shell`.
    """
    has_users = system or str(file) == "/etc/crontab" or str(file).startswith("/etc/cron.d/")
    found = CrontabReader(_zone(tz), has_users=has_users).read(read_text(file))
    _finish(client, found, "crontab", **how)


@import_.command("celery-beat")
@click.argument("source", metavar="MODULE|FILE.json")
@click.option("--pool", default="celery", show_default=True, help="Pool of the tasks without a queue.")
@_options
def celery_beat(client: SyncClient | None, source: str, pool: str, tz: str | None, **how: Any) -> None:
    """Import the schedule of Celery beat. Each task becomes a handler of its name, in the pool of its queue."""
    entries, timezone = load_beat(source)
    _finish(client, read_beat(entries, _zone(tz or timezone or "UTC"), pool), "celery-beat", **how)


@import_.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE|-")
@_options
def cronjobs(client: SyncClient | None, file: Path, tz: str | None, **how: Any) -> None:
    """Import Kubernetes CronJobs, as YAML or JSON, as jobs that run commands (handler shell.run)."""
    text = read_text(file)
    try:
        documents = [msgspec.json.decode(text)]
    except msgspec.DecodeError:
        documents = load_all(text, str(file))
    _finish(client, read_cronjobs(documents, _zone(tz or "UTC")), "cronjobs", **how)


def _zone(named: str | None) -> str:
    """Return a valid time zone, by default that of this machine. Raises InvalidInput."""
    chosen = named or zone_of_machine() or "UTC"
    zone(chosen)
    return chosen


def _finish(
    client: SyncClient | None, found: Imported, kind: str, *, set_name: str | None, form: str, create: bool
) -> None:
    for note in found.notes:
        console(err=True).print(Text(note), soft_wrap=True)
    name = set_name or kind
    if client is None:
        click.echo(write_jobs(found.jobs, name, form, found.notes), nl=False)
        return
    steps = plan(client, JobSet(name, [WantedJob(job, job.name or kind) for job in found.jobs]), ms_of(now()))
    failed = 0
    for step, error in perform(client, steps, prune=False):
        if error is not None:
            failed += 1
            exits.print_error(error)
        elif step.name in found.paused:
            _pause(client, step.name, name)
    created = sum(step.action is Action.CREATE for step in steps)
    done(
        f"set {name}: {created - failed} created, {len(found.notes)} notes" + (f", {failed} refused" if failed else "")
    )
    if failed:
        raise click.exceptions.Exit(exits.FAILED)


def _pause(client: SyncClient, name: str, set_name: str) -> None:
    for job in client.list_jobs(tag=f"apply:{set_name}", name=name, state="ACTIVE").items():
        client.pause(job.job_id)
