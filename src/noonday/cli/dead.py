"""`noonday dead` and `noonday task dead`: executions that failed all their attempts, of all jobs or of tasks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from noonday.cli.client import with_client
from noonday.cli.dead_groups import FLAGS, as_operation, groups, operation_options
from noonday.cli.group import Group
from noonday.cli.instants import brief, instant
from noonday.cli.lookup import find_execution, find_job, find_task
from noonday.cli.paging import first_of, page_size
from noonday.cli.screen import cell_text, console, done, json_option, patience, show_json, show_list
from noonday.cli.tables import ListTable
from noonday.model.filters import DeadFilter
from noonday.model.operation import OperationKind as Kind
from noonday.model.tasks.wire import TaskDeadFilter, TaskDeadLetterView, TaskExecutionView
from noonday.model.view import BulkView, DeadLetterView, ExecutionView
from noonday.sdk.sync import SyncClient

FilterT = TypeVar("FilterT")
LetterT = TypeVar("LetterT")
RetriedT = TypeVar("RetriedT")

EXAMPLES = """
Examples:
  noonday dead list --pool mail --since -2h
  noonday dead retry 019a3f2e-...                    retry one dead letter
  noonday dead retry --job nightly --since -1d       retry all that match the filters
  noonday dead groups                                one problem, or many?
  noonday dead retry --fingerprint 5c1e90fb37aa02d4  retry 5 of one group, then the others
  noonday dead archive --all
"""
EXAMPLES_OF_TASKS = """
Examples:
  noonday task dead list --endpoint https://api.example.com --error TIMEOUT
  noonday task dead retry 019a3f2e-...                    retry one call, as its task is now
  noonday task dead retry --task report --since -1d       retry all calls that match the filters
  noonday task dead archive --all
"""


@click.group(cls=Group, epilog=EXAMPLES)
def dead() -> None:
    """List, retry or archive dead letters.

    A dead letter is an execution that failed all its attempts.
    """


@click.group("dead", cls=Group, epilog=EXAMPLES_OF_TASKS)
def dead_of_tasks() -> None:
    """List, retry or archive calls that failed all attempts.

    These are the dead letters of tasks; `noonday dead` lists the dead letters of all jobs.
    """


@dataclass(frozen=True, kw_only=True)
class DeadLetters(Generic[FilterT, LetterT, RetriedT]):
    """Dead letters of all jobs or of tasks: filters, requests and texts of their commands."""

    filters: Sequence[click.Option]
    filter_of: Callable[..., FilterT]
    pages: Callable[[SyncClient, FilterT, int], Iterator[LetterT]]
    table: Callable[[Sequence[LetterT]], ListTable]
    retry: Callable[[SyncClient, str], RetriedT]
    retry_where: Callable[[SyncClient, FilterT], BulkView]
    archive: Callable[[SyncClient, str], LetterT]
    archive_where: Callable[[SyncClient, FilterT], BulkView]
    id_of_retried: Callable[[RetriedT], str]
    id_of_letter: Callable[[LetterT], str]
    member: str
    """Name of the list in JSON."""
    title: str
    """Name of the dead letters in texts, such as "dead letters of tasks"."""
    things: str
    """Name of the executions in texts: "dead letters" or "calls"."""
    has_operations: bool = False
    """True if bulk operations retry and archive them."""
    help_of_list: str
    help_of_retry: str


def add_commands(group: click.Group, letters: DeadLetters[Any, Any, Any]) -> None:
    """Add the commands list, retry and archive to a group."""

    @group.command("list", help=letters.help_of_list, params=list(letters.filters))
    @click.option("--archived", is_flag=True, help=f"List archived {letters.things} instead.")
    @click.option(
        "--limit", type=click.IntRange(1), default=50, show_default=True, help=f"Maximum number of {letters.things}."
    )
    @click.option("--all", "no_limit", is_flag=True, help="List all, without a limit.")
    @json_option
    @with_client("read")
    def list_(client: SyncClient, archived: bool, limit: int, no_limit: bool, as_json: bool, **where: Any) -> None:
        with patience("reading dead letters"):
            listing = letters.pages(
                client, letters.filter_of(client, archived=archived, **where), page_size(limit, no_limit)
            )
            found, more = first_of(listing, None if no_limit else limit)
        if as_json:
            return show_json({letters.member: found, "more": more})
        return show_list(letters.table(found), letters.title, more)

    @group.command(help=letters.help_of_retry, params=_one_or_many(letters, Kind.RETRY_DEAD_LETTERS))
    @json_option
    @with_client("write")
    def retry(client: SyncClient, execution_id: str | None, everything: bool, as_json: bool, **where: Any) -> None:
        how = {name: where.pop(name, None) for name in FLAGS}
        if _is_one(letters, execution_id, everything, where, how):
            retried = letters.retry(client, find_execution(client, execution_id or ""))
            return show_json(retried) if as_json else done(f"retried as execution {letters.id_of_retried(retried)}")
        if as_operation(client, Kind.RETRY_DEAD_LETTERS, where, how, as_json=as_json):
            return None
        changed = _in_bulk(client, letters.filter_of(client, **where), letters.retry_where, "retrying")
        return show_json({"changed": changed}) if as_json else done(f"{changed} {letters.things} retried")

    @group.command(params=_one_or_many(letters, Kind.ARCHIVE_DEAD_LETTERS))
    @json_option
    @with_client("write")
    def archive(client: SyncClient, execution_id: str | None, everything: bool, as_json: bool, **where: Any) -> None:
        """Archive one dead letter, or all that match the filters. Archived dead letters are not listed."""
        how = {name: where.pop(name, None) for name in FLAGS}
        if _is_one(letters, execution_id, everything, where, how):
            letter = letters.archive(client, find_execution(client, execution_id or ""))
            return show_json(letter) if as_json else done(f"archived {letters.id_of_letter(letter)}")
        if as_operation(client, Kind.ARCHIVE_DEAD_LETTERS, where, how, as_json=as_json):
            return None
        changed = _in_bulk(client, letters.filter_of(client, **where), letters.archive_where, "archiving")
        return show_json({"changed": changed}) if as_json else done(f"{changed} dead letters archived")


def _one_or_many(letters: DeadLetters[Any, Any, Any], kind: Kind) -> list[click.Parameter]:
    """Return the parameters of a command on one dead letter or on many."""
    execution = click.Argument(["execution_id"], required=False, metavar="[EXECUTION]")
    verb = kind.partition("_")[0].capitalize()
    everything = click.Option(["--all", "everything"], is_flag=True, help=f"{verb} all {letters.title}.")
    operation = operation_options(kind) if letters.has_operations else []
    return [execution, *letters.filters, everything, *operation]


def _is_one(
    letters: DeadLetters[Any, Any, Any],
    execution_id: str | None,
    everything: bool,
    where: dict[str, Any],
    how: dict[str, Any],
) -> bool:
    given = [name for name, value in where.items() if value is not None]
    given += [name for name in ("fingerprint",) if how[name] is not None]
    if execution_id and (given or everything or any(value not in (None, False) for value in how.values())):
        raise click.UsageError("pass an EXECUTION or filters, not both")
    if not (execution_id or given or everything):
        flags = ", ".join(option.opts[0] for option in letters.filters)
        raise click.UsageError(f"pass an EXECUTION, filters ({flags}), or --all")
    return execution_id is not None


def _in_bulk(
    client: SyncClient, where: FilterT, act: Callable[[SyncClient, FilterT], BulkView], description: str
) -> int:
    """Repeat a bulk action until no item is left or a call changes none. Returns the number of changed items."""
    changed = 0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    screen = console(err=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(description, total=None)
        while True:
            answer = act(client, where)
            changed += answer.changed
            bar.update(task, completed=changed)
            if not (answer.more and answer.changed):
                return changed


def _filter(client: SyncClient, *, job: str | None, **where: Any) -> DeadFilter:
    return DeadFilter(job_id=find_job(client, job) if job else None, **where)


def _filter_of_tasks(client: SyncClient, *, task: str | None, **where: Any) -> TaskDeadFilter:
    return TaskDeadFilter(task_id=find_task(client, task) if task else None, **where)


def _pages_of_tasks(client: SyncClient, where: TaskDeadFilter, size: int) -> Iterator[TaskDeadLetterView]:
    page = client.tasks.dead_letters(where, limit=size)
    yield from page.dead_letters
    while page.next is not None:
        page = client.tasks.dead_letters(where, cursor=page.next, limit=size)
        yield from page.dead_letters


def _table(letters: Sequence[DeadLetterView]) -> ListTable:
    headers = ("JOB", "EXECUTION", "DIED", "HANDLER", "ATTEMPTS", "ERROR")
    spare = ("DIED", "HANDLER", "ATTEMPTS")
    grid = ListTable(*headers, right=("ATTEMPTS",), cut=("JOB", "ERROR"), spare=spare, ids=("EXECUTION",))
    for one in letters:
        it = one.execution
        error = f"{it.error.type}: {it.error.message}" if it.error else None
        name = cell_text(it.job_name) if it.job_name else it.job_id
        grid.add(name, it.execution_id, brief(one.died_at), it.handler, str(it.attempt), cell_text(error))
    return grid


def _table_of_tasks(letters: Sequence[TaskDeadLetterView]) -> ListTable:
    headers = ("TASK", "EXECUTION", "FAILED", "CALLS", "ATTEMPTS", "ERROR")
    cut, spare = ("TASK", "CALLS", "ERROR"), ("FAILED", "ATTEMPTS", "CALLS")
    grid = ListTable(*headers, right=("ATTEMPTS",), cut=cut, spare=spare, ids=("EXECUTION",))
    for one in letters:
        name, error = one.task_name or one.task_id, f"{one.error_type}: {one.error_message}"
        grid.add(
            cell_text(name),
            one.id,
            brief(one.failed_at),
            cell_text(one.webhook_url),
            str(one.attempts),
            cell_text(error),
        )
    return grid


def _option(flag: str, text: str, **more: Any) -> click.Option:
    return click.Option([flag], help=text, **more)


OF_JOBS = DeadLetters[DeadFilter, DeadLetterView, ExecutionView](
    filters=(
        _option("--job", "Only executions of this job: id, id prefix, or name.", metavar="JOB"),
        _option("--pool", "Only executions in this pool."),
        _option("--handler", "Only executions of this handler."),
        _option("--since", "Only those that failed at or after this time, such as -2h.", type=instant),
        _option("--until", "Only those that failed before this time.", type=instant),
    ),
    filter_of=_filter,
    pages=lambda client, where, size: client.dead_letters(where, limit=size).items(),
    table=_table,
    retry=lambda client, execution_id: client.retry_dead(execution_id),
    retry_where=lambda client, where: client.retry_dead_where(where),
    archive=lambda client, execution_id: client.archive_dead(execution_id),
    archive_where=lambda client, where: client.archive_dead_where(where),
    id_of_retried=lambda execution: execution.execution_id,
    id_of_letter=lambda letter: letter.execution.execution_id,
    member="deadLetters",
    title="dead letters",
    has_operations=True,
    things="dead letters",
    help_of_list="List dead letters, newest first.",
    help_of_retry="Retry one dead letter, or all that match the filters, with a new set of attempts.",
)
OF_TASKS = DeadLetters[TaskDeadFilter, TaskDeadLetterView, TaskExecutionView](
    filters=(
        _option("--task", "Only calls of this task: id, id prefix, or name.", metavar="TASK"),
        _option("--endpoint", "Only calls to this scheme, host and port.", metavar="URL"),
        _option("--error", "Only errors with this text, such as TIMEOUT or 'answered 503'.", metavar="TEXT"),
        _option("--since", "Only calls that failed at or after this time, such as -2h.", type=instant),
        _option("--until", "Only calls that failed before this time.", type=instant),
    ),
    filter_of=_filter_of_tasks,
    pages=_pages_of_tasks,
    table=_table_of_tasks,
    retry=lambda client, execution_id: client.tasks.retry_dead(execution_id),
    retry_where=lambda client, where: client.tasks.retry_dead_where(where),
    archive=lambda client, execution_id: client.tasks.archive_dead(execution_id),
    archive_where=lambda client, where: client.tasks.archive_dead_where(where),
    id_of_retried=lambda execution: execution.id,
    id_of_letter=lambda letter: letter.id,
    member="dead_letters",
    title="dead letters of tasks",
    things="calls",
    help_of_list="List calls that failed all attempts, newest first.",
    help_of_retry="Retry one dead letter, or all that match the filters, each as its task is now.",
)

add_commands(dead, OF_JOBS)
dead.add_command(groups)
add_commands(dead_of_tasks, OF_TASKS)
