"""`noonday dead groups`, and `noonday dead retry` and `archive` as bulk operations."""

from datetime import datetime
from typing import Any

import click

from noonday.cli.bulk import Bulk
from noonday.cli.client import with_client
from noonday.cli.group import Command
from noonday.cli.instants import brief, instant
from noonday.cli.lookup import find_job
from noonday.cli.screen import cell_text, json_option, patience, show_json, show_list
from noonday.cli.tables import ListTable
from noonday.model.operation import OperationKind
from noonday.sdk.sync import SyncClient

FLAGS = ("fingerprint", "rate", "sample", "stop_above", "dry_run", "yes", "no_wait")
"""Options that make a command an operation."""


def operation_options(kind: OperationKind) -> list[click.Parameter]:
    """Return the options with which a command on dead letters runs as an operation."""
    text = "Only dead letters with this error; `noonday dead groups` lists the fingerprints."
    options: list[click.Parameter] = [click.Option(["--fingerprint"], metavar="FINGERPRINT", help=text)]
    if kind is OperationKind.RETRY_DEAD_LETTERS:
        options += [
            click.Option(
                ["--sample"],
                type=click.IntRange(0, 100),
                metavar="N",
                help="Retry N first, and the others once these have run. [default: 5]",
            ),
            click.Option(
                ["--stop-above"],
                type=click.IntRange(0, 100),
                metavar="PERCENT",
                help="Stop if more than PERCENT of the latest runs fail. [default: 20]",
            ),
        ]
    return [
        *options,
        click.Option(["--rate"], type=click.FloatRange(0.1, 1_000), help="Maximum number per second. [default: 50]"),
        click.Option(["--dry-run"], is_flag=True, help="Show what would change, and change nothing."),
        click.Option(["--yes"], is_flag=True, help="Do not ask for confirmation."),
        click.Option(["--no-wait"], is_flag=True, help="Start the operation and do not wait for its end."),
    ]


def as_operation(
    client: SyncClient, kind: OperationKind, where: dict[str, Any], how: dict[str, Any], *, as_json: bool
) -> bool:
    """Run the command as an operation if one of its flags is given. Returns whether it did."""
    given = {name: value for name, value in how.items() if value not in (None, False)}
    if not given:
        return False
    numbers = {"sample_size": given.get("sample"), "stop_above_percent": given.get("stop_above")}
    bulk = Bulk(
        everything=True,
        rate=given.get("rate", 50),
        dry_run=given.get("dry_run", False),
        yes=given.get("yes", False),
        no_wait=given.get("no_wait", False),
        as_json=as_json,
    )
    conditions = {**where, "fingerprint": given.get("fingerprint")}
    bulk.run(client, kind, conditions, **{name: value for name, value in numbers.items() if value is not None})
    return True


@click.command(cls=Command)
@click.option("--job", metavar="JOB", help="Only executions of this job: id, id prefix, or name.")
@click.option("--pool", help="Only executions in this pool.")
@click.option("--handler", help="Only executions of this handler.")
@click.option("--since", type=instant, help="Only those that failed at or after this time, such as -2h.")
@click.option("--until", type=instant, help="Only those that failed before this time.")
@json_option
@with_client("read")
def groups(
    client: SyncClient, job: str | None, since: datetime | None, until: datetime | None, as_json: bool, **where: Any
) -> None:
    """Group the newest dead letters by their error: one problem, or many?

    Errors that differ only by quoted texts, numbers and ids are one group. `noonday dead retry --fingerprint` retries one.
    """
    with patience("reading dead letters"):
        job_id = find_job(client, job) if job else None
        found = client.dead_letter_groups(job_id=job_id, since=since, until=until, **where)
    if as_json:
        return show_json(found)
    headers = ("COUNT", "ERROR", "FINGERPRINT", "JOBS", "LAST", "PER HOUR")
    grid = ListTable(*headers, right=("COUNT", "JOBS", "PER HOUR"), cut=("ERROR",), spare=("JOBS", "LAST", "PER HOUR"))
    for one in found.groups:
        count = f"{one.count}+" if one.is_least else str(one.count)
        grid.add(count, cell_text(one.message), one.fingerprint, str(one.jobs), brief(one.last_at), f"{one.per_hour:g}")
    return show_list(grid, "dead letters", found.is_least)
