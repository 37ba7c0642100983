"""`noonday task`: jobs that call webhooks."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import click
from msgspec import UNSET
from rich.text import Text

from noonday.cli.call_flags import call_options, in_flags, patch_of, spec_of
from noonday.cli.choices import choice, names_of
from noonday.cli.client import with_client
from noonday.cli.completion import complete_tasks
from noonday.cli.dead import dead_of_tasks
from noonday.cli.group import Group
from noonday.cli.instants import brief, length, printable, whole
from noonday.cli.job_details import took
from noonday.cli.lookup import find_execution, find_task
from noonday.cli.replay_of_tasks import replay
from noonday.cli.screen import cell_text, compact, console, done, json_option, show, show_json, show_list, state
from noonday.cli.tables import ListTable, facts
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.retry import Backoff
from noonday.model.tasks.wire import (
    ExecutionStatus,
    Pagination,
    TaskExchangeView,
    TaskExecutionView,
    TaskRetry,
    TaskStatus,
    TaskView,
)
from noonday.sdk.sync import SyncClient

EXAMPLES = """
TASK is an id, an id prefix, or a name. A time is 2030-01-31T09:00:00Z or +10m; or '2030-01-31 09:00' or 09:00 in the zone of
--timezone, by default in local time.

Examples:
  noonday task create https://api.example.com/hook --body '{"hello": 1}'          call now
  noonday task create https://api.example.com/hook --in 10m --name reminder       call once, in ten minutes
  noonday task create https://api.example.com/report --every '15 minutes' --header 'Authorization: Bearer s3cr3t'
  noonday task create https://api.example.com/report --interval 'daily at 08:00' --timezone Europe/Berlin --name report
  noonday task list --status FAILED
  noonday task calls report                                                       show requests and responses
  noonday task change report --cron '0 7 * * mon-fri' --attempts 10
  noonday task pause report
  noonday task resend report                                                      repeat its last call
  noonday task dead list --since -2h                                              list calls that failed all attempts
  noonday task replay --endpoint https://api.example.com --since -2h --dry-run    preview a replay of failed calls
"""


@click.group(cls=Group, epilog=EXAMPLES)
def task() -> None:
    """Schedule webhook calls and inspect the results.

    A task is a job that calls a URL. It needs no worker of yours. `noonday secret` manages the signing secrets.
    """


@task.command()
@click.argument("webhook_url", metavar="URL")
@call_options
@click.option("--idempotency-key", metavar="KEY", help="Commands with the same key and --at create one task.")
@json_option
@with_client("write")
def create(client: SyncClient, webhook_url: str, idempotency_key: str | None, as_json: bool, **flags: Any) -> None:
    """Create a task that calls a URL once or on a schedule."""
    try:
        made = client.tasks.create(spec_of(webhook_url, flags), idempotency_key=idempotency_key)
    except InvalidInput as refused:
        raise in_flags(refused, flags) from refused
    _report(made, "created", as_json)


@task.command("list")
@click.option("--status", type=choice(TaskStatus), metavar=names_of(TaskStatus), help="Only tasks with this status.")
@click.option("--page", type=click.IntRange(1), default=1, show_default=True, help="Page number.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="Tasks per page.")
@json_option
@with_client("read")
def list_(client: SyncClient, status: str | None, page: int, limit: int, as_json: bool) -> None:
    """List tasks, newest first."""
    found = client.tasks.list(status=status, page=page, limit=limit)
    if as_json:
        return show_json(found)
    grid = ListTable(
        "NAME",
        "ID",
        "STATUS",
        "CALLS",
        "RUNS",
        "NEXT",
        cut=("NAME", "CALLS", "RUNS"),
        fold=("NEXT",),
        spare=("RUNS",),
    )
    for one in found.tasks:
        grid.add(
            cell_text(one.name),
            one.id,
            state(one.status),
            cell_text(_call(one.payload)),
            _runs(one),
            brief(one.next_execution, one.timezone),
        )
    show_list(grid, "tasks")
    return _print_page_count(found.pagination)


@task.command("show")
@click.argument("task_id", metavar="TASK", shell_complete=complete_tasks)
@json_option
@with_client("read")
def show_(client: SyncClient, task_id: str, as_json: bool) -> None:
    """Show a task and its latest executions."""
    found = client.tasks.get(find_task(client, task_id))
    if as_json:
        return show_json(found)
    show(facts(_facts_of(found)))
    if found.executions:
        show("", _executions_table(found.executions))
    return None


@task.command("executions")
@click.argument("task_id", metavar="TASK", shell_complete=complete_tasks)
@click.option(
    "--status",
    type=choice(ExecutionStatus),
    metavar=names_of(ExecutionStatus),
    help="Only executions with this status.",
)
@click.option(
    "--limit", type=click.IntRange(1, 500), default=10, show_default=True, help="Maximum number of executions."
)
@json_option
@with_client("read")
def executions_(client: SyncClient, task_id: str, status: str | None, limit: int, as_json: bool) -> None:
    """List the executions of a task, newest first."""
    found = client.tasks.executions(find_task(client, task_id), status=status, limit=limit)
    if as_json:
        return show_json(found)
    return show_list(_executions_table(found.executions), "executions")


@task.command()
@click.argument("task_id", metavar="TASK", shell_complete=complete_tasks)
@click.argument("execution_id", required=False, metavar="[EXECUTION]")
@json_option
@with_client("read")
def calls(client: SyncClient, task_id: str, execution_id: str | None, as_json: bool) -> None:
    """Show the request, response and timing of each attempt.

    Without EXECUTION, shows the latest execution. Values of secret headers are not stored.
    """
    known = find_task(client, task_id)
    found = client.tasks.calls(known, find_execution(client, execution_id) if execution_id else _latest(client, known))
    if as_json:
        return show_json(found)
    parts = [part for one in found.exchanges for part in _describe_exchange(one)]
    parts += _attempts_without_exchange(found.execution, found.exchanges)
    return show(*parts) if parts else console(err=True).print("no calls yet", style="dim")


@task.command()
@click.argument("task_id", metavar="TASK", shell_complete=complete_tasks)
@click.argument("execution_id", required=False, metavar="[EXECUTION]")
@click.option("--idempotency-key", metavar="KEY", help="Commands with the same key make one call.")
@json_option
@with_client("write")
def resend(
    client: SyncClient, task_id: str, execution_id: str | None, idempotency_key: str | None, as_json: bool
) -> None:
    """Repeat a call with its original request, whatever its result was.

    Without EXECUTION, repeats the call that ended last.
    """
    known = find_task(client, task_id)
    meant = find_execution(client, execution_id) if execution_id else _latest_that_ended(client, known)
    made = client.tasks.resend(known, meant, idempotency_key=idempotency_key)
    if as_json:
        return show_json(made)
    changed = (
        ", with the task's present request: the original one is no longer stored" if made.with_present_payload else ""
    )
    return done(f"{meant} is repeated as execution {made.id}{changed}")


@task.command()
@click.argument("task_id", metavar="TASK", shell_complete=complete_tasks)
@json_option
@with_client("write")
def pause(client: SyncClient, task_id: str, as_json: bool) -> None:
    """Pause a task: it makes no calls until resumed. A call in progress continues."""
    _report(client.tasks.pause(find_task(client, task_id)), "paused", as_json)


@task.command()
@click.argument("task_id", metavar="TASK", shell_complete=complete_tasks)
@json_option
@with_client("write")
def resume(client: SyncClient, task_id: str, as_json: bool) -> None:
    """Resume a task that was paused, or that its receiver stopped."""
    _report(client.tasks.resume(find_task(client, task_id)), "resumed", as_json)


@task.command(epilog="--header replaces the header of that name; 'NAME:' removes it.")
@click.argument("task_id", metavar="TASK", shell_complete=complete_tasks)
@click.argument("webhook_url", required=False, metavar="[URL]")
@call_options
@json_option
@with_client("write")
def change(client: SyncClient, task_id: str, webhook_url: str | None, as_json: bool, **flags: Any) -> None:
    """Change a task. Fields without a flag keep their values."""
    present = client.tasks.get(find_task(client, task_id))
    try:
        changed = client.tasks.change(present.id, patch_of(present, webhook_url, flags))
    except InvalidInput as refused:
        raise in_flags(refused, flags) from refused
    _report(changed, "changed", as_json)


@task.command()
@click.argument("task_id", metavar="TASK", shell_complete=complete_tasks)
@json_option
@with_client("write")
def delete(client: SyncClient, task_id: str, as_json: bool) -> None:
    """Delete a task. It makes no more calls and is no longer readable."""
    known = find_task(client, task_id)
    client.tasks.delete(known)
    if as_json:
        return show_json({"deleted": known})
    return done(f"deleted {known}")


task.add_command(dead_of_tasks)
task.add_command(replay)


def _latest(client: SyncClient, task_id: str) -> str:
    found = client.tasks.executions(task_id, limit=1).executions
    if not found:
        raise NotFound(f"task {task_id} has made no call yet")
    return found[0].id


def _latest_that_ended(client: SyncClient, task_id: str) -> str:
    found = client.tasks.executions(task_id, limit=500).executions
    ended = [one for one in found if one.completed_at is not None]
    if not ended:
        raise NotFound(f"task {task_id} has no finished call yet")
    return max(ended, key=lambda one: (one.completed_at, one.id)).id


def _report(task: TaskView, verb: str, as_json: bool) -> None:
    if as_json:
        return show_json(task)
    label = f"{task.name} ({task.id})" if task.name else task.id
    following = f", next call {brief(task.next_execution, task.timezone)}" if task.next_execution else ""
    return done(f"{verb} {label}{following}")


def _print_page_count(pages: Pagination) -> None:
    if pages.page < pages.pages:
        note = f"page {pages.page} of {pages.pages}: --page {pages.page + 1} shows more"
        console(err=True).print(note, style="dim")


def _runs(task: TaskView) -> str:
    where = f" in {task.timezone}" if task.timezone else ""
    if task.interval:
        return task.interval + where
    return task.cron_expression + (where or " in UTC") if task.cron_expression else "once"


def _call(payload: dict[str, Any] | None) -> str:
    return f"{payload.get('method')} {payload.get('webhook_url')}" if payload else "-"


def _facts_of(task: TaskView) -> list[tuple[str, Any]]:
    call = task.payload or {}
    body = call.get("body")
    return [
        ("task", task.id),
        ("name", cell_text(task.name) if task.name else None),
        ("status", state(task.status)),
        ("stopped", cell_text(task.stopped_because) if task.stopped_because is not UNSET else None),
        ("calls", cell_text(_call(task.payload))),
        ("headers", _headers((call.get("headers") or {}).items())),
        ("body", compact(body) if body is not None else None),
        ("runs", _runs(task)),
        ("next", whole(task.next_execution, task.timezone) if task.next_execution else None),
        ("until", whole(task.end_date) if task.end_date else None),
        ("retries", _retries(task.retry)),
        ("timeout", length(task.timeout_seconds)),
        ("ordered", "yes: one call at a time" if task.ordered else None),
        ("ordering key", task.ordering_key),
        ("created", whole(task.created_at)),
        ("updated", whole(task.updated_at) if task.updated_at != task.created_at else None),
    ]


def _retries(retry: TaskRetry) -> str:
    attempts = f"{retry.max_attempts} attempts"
    if retry.statuses is not None:
        attempts += f" after {', '.join(_spans(retry.statuses)) or 'no status'}"
    if retry.backoff is Backoff.LIST:
        return f"{attempts}, delays {', '.join(length(ms / 1000) for ms in retry.delays_ms or ())}"
    return f"{attempts}, {retry.backoff} from {length((retry.initial_delay_ms or 0) / 1000)}"


def _spans(statuses: Sequence[int]) -> Iterator[str]:
    """Group consecutive statuses: `409`, `500-599`."""
    for _, group in groupby(enumerate(sorted(statuses)), key=lambda pair: pair[1] - pair[0]):
        run = [status for _, status in group]
        yield str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def _executions_table(executions: Iterable[TaskExecutionView]) -> ListTable:
    headers = ("EXECUTION", "STATUS", "SCHEDULED", "ATTEMPT", "TOOK", "ERROR")
    grid = ListTable(*headers, right=("ATTEMPT",), cut=("ERROR",), spare=("TOOK", "ATTEMPT"))
    for one in executions:
        grid.add(
            one.id,
            state(one.status),
            brief(one.scheduled_at),
            str(one.attempt_number),
            took(one.started_at, one.completed_at),
            _error_text(one),
        )
    return grid


def _error_text(one: TaskExecutionView) -> str:
    again = f"; again {brief(one.next_attempt_at)}" if one.next_attempt_at and one.error_message else ""
    return cell_text(one.error_message) + again


def _describe_exchange(one: TaskExchangeView) -> Iterator[Any]:
    answer, error, sent = one.response or {}, one.error or {}, one.request or {}
    outcome = f"answered {answer['status']}" if answer else "not answered"
    yield Text(f"attempt {one.attempt_number}, {brief(one.started_at)}: {outcome}", style="bold")
    yield facts(
        [
            ("sent", cell_text(f"{sent.get('method')} {sent.get('url')}")),
            ("", _headers(sent.get("headers") or ())),
            ("", cell_text(sent["body"].rstrip()) if sent.get("body") else None),
            ("received", str(answer["status"]) if answer else None),
            ("", _headers(answer.get("headers") or ())),
            ("", cell_text(answer["body"].rstrip()) if answer.get("body") else None),
            ("", "(truncated)" if answer.get("truncated") else None),
            ("error", Text(cell_text(f"{error['kind']}: {error['detail']}"), style="red") if error else None),
            ("took", _split(one)),
        ]
    )
    yield ""


_PARTS = {"dns_ms": "dns", "connect_ms": "connect", "tls_ms": "tls", "first_byte_ms": "first byte"}


def _split(one: TaskExchangeView) -> str:
    """Format the duration of a call by phase: `31 ms: dns 2 ms, connect 9 ms, tls 12 ms, first byte 8 ms`."""
    took = {name: length(ms / 1000) for name, ms in one.timings.items() if ms is not None}
    parts = [f"{word} {took[name]}" for name, word in _PARTS.items() if name in took]
    reused = ["reused connection"] if one.reused_connection else []
    return f"{took.get('total_ms', '-')}: {', '.join(reused + parts)}"


def _attempts_without_exchange(execution: TaskExecutionView, exchanges: Iterable[TaskExchangeView]) -> Iterator[Text]:
    """Yield the attempts without a reported call: no call was made, or the worker died."""
    reported = {one.attempt_number for one in exchanges}
    for attempt in execution.attempts:
        if attempt.attempt_number not in reported:
            why = cell_text(attempt.error_message)
            yield Text(f"attempt {attempt.attempt_number}, {brief(attempt.started_at)}: {attempt.status}, {why}")
    if execution.next_attempt_at:
        yield Text(f"next attempt {brief(execution.next_attempt_at)}")


def _headers(headers: Iterable[Any]) -> str | None:
    return printable("\n".join(f"{name}: {value}" for name, value in headers)) or None
