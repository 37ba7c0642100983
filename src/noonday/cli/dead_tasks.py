"""`noonday task dead`: calls that failed all their attempts."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import click

from noonday.cli.asking import asks
from noonday.cli.dead import in_bulk
from noonday.cli.executions import checked
from noonday.cli.finding_tasks import find_task
from noonday.cli.group import Group
from noonday.cli.instants import brief, instant
from noonday.cli.jobs import first_of, page_size
from noonday.cli.screen import done, json_option, patience, said, show_json, show_list
from noonday.cli.tables import ListTable
from noonday.model.tasks.wire import TaskDeadFilter, TaskDeadLetterView
from noonday.sdk.sync import SyncClient

F = TypeVar("F", bound=Callable[..., None])

EXAMPLES = """
Examples:
  noonday task dead list --endpoint https://api.example.com --error TIMEOUT
  noonday task dead retry 019a3f2e-...                    retry one call, as its task is now
  noonday task dead retry --task report --since -1d       retry all calls that match the filters
  noonday task dead archive --all
"""


@click.group(cls=Group, epilog=EXAMPLES)
def dead() -> None:
    """List, retry or archive calls that failed all attempts.

    These are the dead letters of tasks; `noonday dead` lists the dead letters of all jobs.
    """


def _conditions(command: F) -> F:
    for option in (
        click.option("--until", type=instant, help="Only calls that failed before this time."),
        click.option("--since", type=instant, help="Only calls that failed at or after this time, such as -2h."),
        click.option("--error", metavar="TEXT", help="Only errors with this text, such as TIMEOUT or 'answered 503'."),
        click.option("--endpoint", metavar="URL", help="Only calls to this scheme, host and port."),
        click.option("--task", metavar="TASK", help="Only calls of this task: id, id prefix, or name."),
    ):
        command = option(command)
    return command


@dead.command("list")
@_conditions
@click.option("--archived", is_flag=True, help="List archived calls instead.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of calls.")
@click.option("--all", "no_limit", is_flag=True, help="List all, without a limit.")
@json_option
@asks("read")
def list_(client: SyncClient, archived: bool, limit: int, no_limit: bool, as_json: bool, **where: Any) -> None:
    """List calls that failed all attempts, newest first."""
    with patience("reading dead letters"):
        meant = _filter(client, archived=archived, **where)
        letters, more = first_of(_all(client, meant, page_size(limit, no_limit)), None if no_limit else limit)
    if as_json:
        return show_json({"dead_letters": letters, "more": more})
    headers = ("EXECUTION", "FAILED", "TASK", "CALLS", "ATTEMPTS", "ERROR")
    grid = ListTable(*headers, right=("ATTEMPTS",), cut=("TASK", "CALLS", "ERROR"), spare=("ATTEMPTS", "CALLS", "TASK"))
    for one in letters:
        name, error = one.task_name or one.task_id, f"{one.error_type}: {one.error_message}"
        grid.add(one.id, brief(one.failed_at), said(name), said(one.webhook_url), str(one.attempts), said(error))
    return show_list(grid, "dead letters of tasks", more)


@dead.command()
@click.argument("execution_id", required=False, metavar="[EXECUTION]")
@_conditions
@click.option("--all", "everything", is_flag=True, help="Retry all dead letters of tasks.")
@json_option
@asks("write")
def retry(client: SyncClient, execution_id: str | None, everything: bool, as_json: bool, **where: Any) -> None:
    """Retry one dead letter, or all that match the filters, each as its task is now."""
    if _is_one(execution_id, everything, where):
        made = client.tasks.retry_dead(checked(execution_id or ""))
        return show_json(made) if as_json else done(f"retried as execution {made.id}")
    changed = in_bulk(_filter(client, **where), client.tasks.retry_dead_where, "retrying")
    return show_json({"changed": changed}) if as_json else done(f"{changed} calls retried")


@dead.command()
@click.argument("execution_id", required=False, metavar="[EXECUTION]")
@_conditions
@click.option("--all", "everything", is_flag=True, help="Archive all dead letters of tasks.")
@json_option
@asks("write")
def archive(client: SyncClient, execution_id: str | None, everything: bool, as_json: bool, **where: Any) -> None:
    """Archive one dead letter, or all that match the filters. Archived dead letters are not listed."""
    if _is_one(execution_id, everything, where):
        letter = client.tasks.archive_dead(checked(execution_id or ""))
        return show_json(letter) if as_json else done(f"archived {letter.id}")
    changed = in_bulk(_filter(client, **where), client.tasks.archive_dead_where, "archiving")
    return show_json({"changed": changed}) if as_json else done(f"{changed} dead letters archived")


def _is_one(execution_id: str | None, everything: bool, where: dict[str, Any]) -> bool:
    conditions = [name for name, value in where.items() if value is not None]
    if execution_id and (conditions or everything):
        raise click.UsageError("pass an EXECUTION or filters, not both")
    if not (execution_id or conditions or everything):
        raise click.UsageError("pass an EXECUTION, filters (--task, --endpoint, --error, --since, --until), or --all")
    return execution_id is not None


def _filter(
    client: SyncClient,
    *,
    task: str | None,
    endpoint: str | None,
    error: str | None,
    since: datetime | None,
    until: datetime | None,
    archived: bool = False,
) -> TaskDeadFilter:
    task_id = find_task(client, task) if task else None
    return TaskDeadFilter(task_id=task_id, endpoint=endpoint, error=error, since=since, until=until, archived=archived)


def _all(client: SyncClient, meant: TaskDeadFilter, size: int) -> Iterator[TaskDeadLetterView]:
    page = client.tasks.dead_letters(meant, limit=size)
    yield from page.dead_letters
    while page.next is not None:
        page = client.tasks.dead_letters(meant, cursor=page.next, limit=size)
        yield from page.dead_letters
