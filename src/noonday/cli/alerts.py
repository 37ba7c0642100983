"""`noonday alert`: list and acknowledge alerts."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from noonday.cli.choices import choice_option
from noonday.cli.client import with_client
from noonday.cli.group import Group
from noonday.cli.instants import brief, instant, whole
from noonday.cli.lookup import find_job, is_id
from noonday.cli.notify import notify
from noonday.cli.paging import first_of
from noonday.cli.screen import cell_text, console, done, json_option, patience, show, show_json, show_list, state
from noonday.cli.tables import ListTable, facts
from noonday.model.alert import AlertKind
from noonday.model.alert_view import MOST_UNREAD, AlertView
from noonday.model.errors import Conflict, NotFound
from noonday.sdk.sync import SyncClient

PAGE = 500
SHOWN_KINDS = tuple(kind for kind in AlertKind if kind is not AlertKind.RECOVERED)
"""Kinds that an alert can have. RECOVERED is a state of an alert, not a kind."""

EXAMPLES = """
ALERT is an id, or an id prefix of a recent alert.

Examples:
  noonday alert list                          list unacknowledged alerts
  noonday alert list --all --kind EXHAUSTED
  noonday alert list --job nightly            list the alerts of a job or task
  noonday alert show 019a3f2e
  noonday alert ack 019a3f2e
  noonday alert ack --job nightly             acknowledge all alerts of a job
  noonday alert ack --everything --until -1h  acknowledge all alerts that did not recur in the last hour
"""


@click.group(cls=Group, epilog=EXAMPLES)
def alert() -> None:
    """List and acknowledge alerts.

    An alert is about a job or an endpoint. Repetitions raise its count until it is acknowledged or the job succeeds.
    """


alert.add_command(notify)


@alert.command("list")
@click.option("--all", "everything", is_flag=True, help="Include acknowledged alerts.")
@choice_option("--kind", SHOWN_KINDS, help="Only alerts of this kind.")
@click.option("--job", metavar="JOB", help="Only alerts of this job or task: id, id prefix, or name.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of alerts.")
@json_option
@with_client("read")
def list_(client: SyncClient, everything: bool, kind: str | None, job: str | None, limit: int, as_json: bool) -> None:
    """List alerts, newest first, with the next steps."""
    with patience("reading alerts"):
        where = {
            "unread": None if everything else True,
            "kind": kind,
            "task_id": find_job(client, job) if job else None,
        }
        alerts, more = first_of(_all(client, where, min(PAGE, limit + 1)), limit)
    if as_json:
        return show_json({"alerts": alerts, "more": more})
    grid = ListTable(
        "ABOUT",
        "KIND",
        "STATUS",
        "COUNT",
        "LAST",
        "ID",
        "MESSAGE",
        right=("COUNT",),
        cut=("ABOUT",),
        fold=("MESSAGE",),
    )
    for one in alerts:
        grid.add(
            _about(one), one.kind, state(one.status), str(one.count), brief(one.last_at), one.id, cell_text(one.message)
        )
    show_list(grid, "alerts", more)
    for line in _hints(alerts):
        console(err=True).print(line, style="dim", soft_wrap=True)
    return None


@alert.command("show")
@click.argument("alert_id", metavar="ALERT")
@json_option
@with_client("read")
def show_(client: SyncClient, alert_id: str, as_json: bool) -> None:
    """Show an alert and the next steps."""
    found = client.alerts.get(_find(client, alert_id))
    if as_json:
        return show_json(found)
    return show(facts(_facts_of(found)))


@alert.command()
@click.argument("alert_id", required=False, metavar="[ALERT]")
@choice_option("--kind", SHOWN_KINDS, help="Only alerts of this kind.")
@click.option("--job", metavar="JOB", help="Only alerts of this job or task: id, id prefix, or name.")
@click.option("--until", type=instant, help="Only alerts that did not recur after this time, such as -1h.")
@click.option("--everything", is_flag=True, help="Acknowledge all alerts.")
@json_option
@with_client("write")
def ack(
    client: SyncClient,
    alert_id: str | None,
    kind: str | None,
    job: str | None,
    until: datetime | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Acknowledge one alert, or all that match the filters. A later repetition opens a new alert."""
    many = bool(kind or job or until or everything)
    if many == bool(alert_id):
        raise click.UsageError("pass either an ALERT or filters (--kind, --job, --until, --everything)")
    if alert_id:
        seen = client.alerts.acknowledge(_find(client, alert_id))
        return show_json(seen) if as_json else done(f"acknowledged {seen.id}")
    of_job = find_job(client, job) if job else None
    count = client.alerts.acknowledge_all(kind=kind, task_id=of_job, until=until)
    return show_json({"acknowledged": count}) if as_json else done(f"acknowledged {count} alerts")


def unread_text(count: int) -> str:
    return f"{count}+" if count >= MOST_UNREAD else str(count)


def _all(client: SyncClient, where: dict[str, Any], size: int) -> Iterator[AlertView]:
    page = client.alerts.list(**where, limit=size)
    yield from page.alerts
    while page.next_cursor is not None:
        page = client.alerts.list(**where, limit=size, cursor=page.next_cursor)
        yield from page.alerts


def _find(client: SyncClient, text: str) -> str:
    """Return the id of an alert. Raises NotFound, or Conflict with all matching ids."""
    if is_id(text):
        return text.lower()
    newest = client.alerts.list(limit=PAGE).alerts
    found = [one.id for one in newest if one.id.startswith(text.lower())]
    if not found:
        raise NotFound(f"no alert has the id {text!r}; `noonday alert list --all` lists all alerts")
    if len(found) > 1:
        raise Conflict(f"{text!r} matches several alerts, {', '.join(found[:5])}: use a longer prefix")
    return found[0]


def _about(one: AlertView) -> str:
    return cell_text(one.name or one.job_id or one.endpoint or "the tenant")


def _hints(alerts: list[AlertView]) -> Iterator[str]:
    """Yield the next step for each kind of alert in the list."""
    seen = set[str]()
    for one in alerts:
        if one.kind not in seen and one.status != "RECOVERED" and (todo := _todo(one)):
            seen.add(one.kind)
            yield f"{one.kind}: {todo}"


def _todo(one: AlertView) -> str | None:
    if one.kind in (AlertKind.FAILED, AlertKind.EXHAUSTED) and one.job_id:
        look = f"noonday job show {one.job_id}"
        if one.task_id:
            look = f"noonday task calls {one.job_id}"
        elif one.execution_id:
            look = f"noonday execution show {one.execution_id} --traceback"
        again = f"; then noonday dead retry --job {one.job_id}" if one.kind is AlertKind.EXHAUSTED else ""
        return look + again
    if one.kind is AlertKind.STOPPED and one.task_id:
        return f"noonday task calls {one.task_id}; noonday task resume {one.task_id} calls it again"
    if one.kind in (AlertKind.MISSED, AlertKind.SLOW) and one.job_id:
        return f"noonday why {one.execution_id or one.job_id}"
    return None


def _facts_of(one: AlertView) -> list[tuple[str, Any]]:
    return [
        ("alert", one.id),
        ("kind", one.kind),
        ("status", state(one.status)),
        ("about", _about(one)),
        ("task" if one.task_id else "job", one.job_id),
        ("execution", one.execution_id),
        ("endpoint", cell_text(one.endpoint) if one.endpoint else None),
        ("message", cell_text(one.message)),
        ("count", str(one.count)),
        ("first", whole(one.first_at)),
        ("last", whole(one.last_at)),
        ("acknowledged", _acknowledged(one)),
        ("recovered", whole(one.recovered_at) if one.recovered_at else None),
        ("next", _todo(one)),
    ]


def _acknowledged(one: AlertView) -> str | None:
    if one.acknowledged_at is None:
        return None
    return f"{whole(one.acknowledged_at)} by {cell_text(one.acknowledged_by)}"
