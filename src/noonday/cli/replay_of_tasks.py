"""`noonday task replay`: repeat past calls of tasks."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click

from noonday.cli.client import with_client
from noonday.cli.group import Command
from noonday.cli.instants import brief, instant, now
from noonday.cli.lookup import find_task
from noonday.cli.replaying import check_id, check_period, confirm_unless, default_id, limit_options, replaying
from noonday.cli.replaying_tasks import CallReplay, CallReplayRequest, FoundCalls, find_calls
from noonday.cli.screen import cell_text, done, json_option, patience, show, show_json, state
from noonday.cli.tables import ListTable, facts
from noonday.model.tasks.wire import TaskCallView
from noonday.model.view import ExecutionView
from noonday.sdk.sync import SyncClient

SHOWN = 10
STATUSES = {"failed": "FAILED", "completed": "COMPLETED", "all": None}
EXAMPLES = """
Examples:
  noonday task replay --endpoint https://api.example.com --since -2h --dry-run     preview the calls
  noonday task replay --endpoint https://api.example.com --since -2h --sample 5    send five, then ask to continue
  noonday task replay --task report --status all --since '2030-01-31 09:00' --until '2030-01-31 10:00' --rate 5
  noonday task replay --since -1d --id incident-7 --yes         repeated with the same --id: sends only missing calls
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option(
    "--status",
    type=click.Choice(list(STATUSES), case_sensitive=False),
    default="failed",
    show_default=True,
    help="Result of the calls. Failed calls that were resent or archived since are excluded.",
)
@click.option("--endpoint", metavar="URL", help="Only calls to this scheme, host and port.")
@click.option("--task", metavar="TASK", help="Only calls of this task: id, id prefix, or name.")
@click.option("--since", type=instant, metavar="TIME", help="Only calls scheduled at or after this time, such as -2h.")
@click.option("--until", type=instant, metavar="TIME", help="Only calls scheduled before this time. [default: now]")
@click.option("--id", "replay_id", metavar="ID", help="Name of this replay. Nothing is sent twice under one name.")
@click.option(
    "--sample", type=click.IntRange(0, 500), default=0, metavar="N", help="Send N calls first and show their results."
)
@limit_options(
    rate="Calls per second.",
    failures="Stop if more than N resent calls fail an attempt.",
    dry_run="Count the calls and send nothing.",
)
@json_option
@with_client("write")
def replay(
    client: SyncClient,
    rate: float,
    sample: int,
    most_failures: int,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Repeat past calls of tasks, by default the failed ones.

    Each call becomes a new execution of its task with its original request. --since and --until select calls by their
    scheduled time.
    """
    wanted = _wanted(client, **filters)
    with patience("searching calls"):
        found = client.portal.run(find_calls(client.client, wanted))
    if not as_json:
        show(*_preview(wanted, found))
    if dry_run or not found.ids:
        return show_json({"replay": wanted.replay_id, **found.members()}) if as_json else None
    confirm_unless(yes, f"Resend {sample if 0 < sample < len(found.ids) else len(found.ids)} calls?")
    doing = CallReplay(client.client, wanted.replay_id, rate, most_failures)
    rest = found.ids[sample:]
    if sample:
        _try_out(client, doing, found.ids[:sample], as_json=as_json)
        if rest:
            confirm_unless(yes, f"Continue with the other {len(rest)} at {rate:g} per second?")
    with replaying(len(found.ids)) as progress:
        made = client.portal.run(doing.run(rest, progress))
    if as_json:
        return show_json({"replay": wanted.replay_id, **made.members()})
    for execution, why in list(made.not_sent.items())[:SHOWN]:
        click.echo(f"not sent: {execution}: {why}", err=True)
    return done(f"{made} (replay {wanted.replay_id})")


def _wanted(
    client: SyncClient,
    *,
    status: str,
    endpoint: str | None,
    task: str | None,
    since: datetime | None,
    until: datetime | None,
    replay_id: str | None,
) -> CallReplayRequest:
    until = until or now()
    check_period("--since", since, "--until", until)
    check_id(replay_id, _is_a_word, "ASCII characters without spaces")
    task_id = find_task(client, task) if task else None
    name = replay_id or default_id(status, endpoint, task_id, since, until)
    return CallReplayRequest(name, STATUSES[status.lower()], endpoint, task_id, since, until)


def _is_a_word(text: str) -> bool:
    return all("!" <= character <= "~" for character in text)


def _try_out(client: SyncClient, doing: CallReplay, ids: list[str], *, as_json: bool) -> None:
    """Send the sample and show its results. Raises Conflict if too many calls fail."""
    with patience(f"waiting for {len(ids)} calls"):
        seen = client.portal.run(doing.try_out(ids))
    if not as_json:
        show("", _outcomes(seen))
    doing.limits.refuse_if_stopped()


def _preview(wanted: CallReplayRequest, found: FoundCalls) -> Iterable[Any]:
    left = f" ({found.dealt_with} more were resent or archived since)" if found.dealt_with else ""
    lines = [("replay", wanted.replay_id), ("calls", f"{len(found.ids)}{left}")]
    if found.newest is not None:
        lines += [("first", brief(found.oldest[0].scheduled_at)), ("last", brief(found.newest.scheduled_at))]
    yield facts([*lines, ("endpoints", _counted(found.endpoints)), ("tasks", _counted(found.tasks))])
    if found.oldest:
        yield ""
        yield _examples(found.oldest)


def _counted(counts: Counter[str]) -> str | None:
    lines = [f"{count:>6} {cell_text(name)}" for name, count in counts.most_common(SHOWN)]
    lines += [f"       and {len(counts) - SHOWN} others"] if len(counts) > SHOWN else []
    return "\n".join(lines) or None


def _examples(calls: Iterable[TaskCallView]) -> ListTable:
    grid = ListTable("EXECUTION", "STATUS", "SCHEDULED", "CALLS", "ERROR", cut=("CALLS", "ERROR"), spare=("CALLS",))
    for one in calls:
        grid.add(
            one.id, state(one.status), brief(one.scheduled_at), cell_text(one.webhook_url), cell_text(one.error_message)
        )
    return grid


def _outcomes(executions: Iterable[ExecutionView]) -> ListTable:
    grid = ListTable("SENT AS", "STATE", "TASK", "ERROR", cut=("TASK", "ERROR"))
    for one in executions:
        error = one.error.message if one.error else None
        grid.add(one.execution_id, state(one.state), cell_text(one.job_name or one.job_id), cell_text(error))
    return grid
