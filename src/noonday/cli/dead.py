"""`noonday dead`: executions that failed all their attempts."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from noonday.cli.asking import asks
from noonday.cli.executions import checked
from noonday.cli.finding import find_job
from noonday.cli.group import Group
from noonday.cli.instants import brief, instant
from noonday.cli.jobs import first_of, page_size
from noonday.cli.screen import console, done, json_option, patience, said, show_json, show_list
from noonday.cli.tables import ListTable
from noonday.model.filters import DeadFilter
from noonday.model.view import BulkView
from noonday.sdk.sync import SyncClient

F = TypeVar("F", bound=Callable[..., None])
FilterT = TypeVar("FilterT")

EXAMPLES = """
Examples:
  noonday dead list --pool mail --since -2h
  noonday dead retry 019a3f2e-...                    retry one dead letter
  noonday dead retry --job nightly --since -1d       retry all that match the filters
  noonday dead archive --all
"""


@click.group(cls=Group, epilog=EXAMPLES)
def dead() -> None:
    """List, retry or archive dead letters.

    A dead letter is an execution that failed all its attempts.
    """


def _conditions(command: F) -> F:
    for option in (
        click.option("--until", type=instant, help="Only those that failed before this time."),
        click.option("--since", type=instant, help="Only those that failed at or after this time, such as -2h."),
        click.option("--handler", help="Only executions of this handler."),
        click.option("--pool", help="Only executions in this pool."),
        click.option("--job", metavar="JOB", help="Only executions of this job: id, id prefix, or name."),
    ):
        command = option(command)
    return command


@dead.command("list")
@_conditions
@click.option("--archived", is_flag=True, help="List archived dead letters instead.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of dead letters.")
@click.option("--all", "no_limit", is_flag=True, help="List all, without a limit.")
@json_option
@asks("read")
def list_(client: SyncClient, archived: bool, limit: int, no_limit: bool, as_json: bool, **where: Any) -> None:
    """List dead letters, newest first."""
    with patience("reading dead letters"):
        meant = _filter(client, archived=archived, **where)
        listing = client.dead_letters(meant, limit=page_size(limit, no_limit))
        letters, more = first_of(listing.items(), None if no_limit else limit)
    if as_json:
        return show_json({"deadLetters": letters, "more": more})
    grid = ListTable(
        "EXECUTION",
        "DIED",
        "HANDLER",
        "JOB",
        "ATTEMPTS",
        "ERROR",
        right=("ATTEMPTS",),
        cut=("JOB", "ERROR"),
        spare=("HANDLER", "ATTEMPTS", "JOB"),
    )
    for one in letters:
        it = one.execution
        error = f"{it.error.type}: {it.error.message}" if it.error else None
        name = said(it.job_name) if it.job_name else it.job_id
        grid.add(it.execution_id, brief(one.died_at), it.handler, name, str(it.attempt), said(error))
    return show_list(grid, "dead letters", more)


@dead.command()
@click.argument("execution_id", required=False, metavar="[EXECUTION]")
@_conditions
@click.option("--all", "everything", is_flag=True, help="Retry all dead letters.")
@json_option
@asks("write")
def retry(client: SyncClient, execution_id: str | None, everything: bool, as_json: bool, **where: Any) -> None:
    """Retry one dead letter, or all that match the filters, with a new set of attempts."""
    if _is_one(execution_id, everything, where):
        made = client.retry_dead(checked(execution_id or ""))
        return show_json(made) if as_json else done(f"retried as execution {made.execution_id}")
    meant = _filter(client, **where)
    changed = in_bulk(meant, client.retry_dead_where, "retrying")
    return show_json({"changed": changed}) if as_json else done(f"{changed} dead letters retried")


@dead.command()
@click.argument("execution_id", required=False, metavar="[EXECUTION]")
@_conditions
@click.option("--all", "everything", is_flag=True, help="Archive all dead letters.")
@json_option
@asks("write")
def archive(client: SyncClient, execution_id: str | None, everything: bool, as_json: bool, **where: Any) -> None:
    """Archive one dead letter, or all that match the filters. Archived dead letters are not listed."""
    if _is_one(execution_id, everything, where):
        letter = client.archive_dead(checked(execution_id or ""))
        return show_json(letter) if as_json else done(f"archived {letter.execution.execution_id}")
    meant = _filter(client, **where)
    changed = in_bulk(meant, client.archive_dead_where, "archiving")
    return show_json({"changed": changed}) if as_json else done(f"{changed} dead letters archived")


def _is_one(execution_id: str | None, everything: bool, where: dict[str, Any]) -> bool:
    conditions = [name for name, value in where.items() if value is not None]
    if execution_id and (conditions or everything):
        raise click.UsageError("pass an EXECUTION or filters, not both")
    if not (execution_id or conditions or everything):
        raise click.UsageError("pass an EXECUTION, filters (--job, --pool, --handler, --since, --until), or --all")
    return execution_id is not None


def _filter(
    client: SyncClient,
    *,
    job: str | None,
    pool: str | None,
    handler: str | None,
    since: datetime | None,
    until: datetime | None,
    archived: bool = False,
) -> DeadFilter:
    job_id = find_job(client, job) if job else None
    return DeadFilter(job_id=job_id, pool=pool, handler=handler, since=since, until=until, archived=archived)


def in_bulk(meant: FilterT, act: Callable[[FilterT], BulkView], verb: str) -> int:
    """Repeat a bulk action until no item is left or a call changes none. Returns the number of changed items."""
    changed = 0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console(err=True), transient=True, disable=not console(err=True).is_terminal
    ) as bar:
        task = bar.add_task(verb, total=None)
        while True:
            answer = act(meant)
            changed += answer.changed
            bar.update(task, completed=changed)
            if not (answer.more and answer.changed):
                return changed
