"""`noonday operation`: list, show, await and stop bulk operations."""

from typing import Any

import click

from noonday.cli.bulk import follow, report
from noonday.cli.client import with_client
from noonday.cli.group import Group
from noonday.cli.instants import brief, whole
from noonday.cli.lookup import find_operation
from noonday.cli.screen import cell_text, compact, done, json_option, patience, show, show_json, show_list, state
from noonday.cli.tables import ListTable, facts
from noonday.model.operation_view import OperationView
from noonday.sdk.sync import SyncClient

EXAMPLES = """
An operation changes many items in the background. These commands start one:
  noonday job pause --tag etl --dry-run
  noonday execution cancel --pool mail --state PENDING
  noonday dead retry --pool mail --since -2h --rate 10

Examples:
  noonday operation list
  noonday operation show 019a3f2e
  noonday operation stop 019a3f2e
"""


@click.group(cls=Group, epilog=EXAMPLES)
def operation() -> None:
    """List, show, await and stop bulk operations."""


@operation.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Maximum number of operations."
)
@json_option
@with_client("read")
def list_(client: SyncClient, limit: int, as_json: bool) -> None:
    """List operations, newest first."""
    with patience("reading operations"):
        page = client.operations.list(limit=limit)
    if as_json:
        return show_json({"operations": page.operations, "more": page.next is not None})
    grid = ListTable(
        "KIND",
        "ID",
        "STATE",
        "DONE",
        "LEFT",
        "STARTED",
        "BY",
        right=("DONE", "LEFT"),
        spare=("STARTED", "BY", "LEFT"),
        ids=("ID",),
    )
    for one in page.operations:
        left = "?" if one.left is None else str(one.left)
        grid.add(one.kind, one.id, state(one.state), str(one.done), left, brief(one.created_at), cell_text(one.by))
    return show_list(grid, "operations", page.next is not None)


@operation.command("show")
@click.argument("operation_id", metavar="OPERATION")
@json_option
@with_client("read")
def show_(client: SyncClient, operation_id: str, as_json: bool) -> None:
    """Show an operation and its progress."""
    found = client.operations.get(find_operation(client, operation_id))
    return show_json(found) if as_json else show(facts(_facts_of(found)))


@operation.command()
@click.argument("operation_id", metavar="OPERATION")
@json_option
@with_client("read")
def wait(client: SyncClient, operation_id: str, as_json: bool) -> None:
    """Wait for the end of an operation. The exit code is 1 if it stopped, or if items could not be changed."""
    report(follow(client, client.operations.get(find_operation(client, operation_id))), as_json)


@operation.command()
@click.argument("operation_id", metavar="OPERATION")
@json_option
@with_client("write")
def stop(client: SyncClient, operation_id: str, as_json: bool) -> None:
    """Stop an operation. What is done stays done."""
    ended = client.operations.stop(find_operation(client, operation_id))
    if as_json:
        return show_json(ended)
    return done(f"operation {ended.id} is {ended.state}: {ended.stopped_because or 'all items were changed'}")


def _facts_of(one: OperationView) -> list[tuple[str, Any]]:
    total = f"{'at least ' if one.total_is_least else ''}{one.total}"
    runs = f"{one.runs_ended} ended, {one.runs_failed} failed" if one.runs_ended else None
    return [
        ("operation", one.id),
        ("kind", one.kind),
        ("filter", compact(one.filter)),
        ("state", state(one.state)),
        ("stopped", cell_text(one.stopped_because) if one.stopped_because else None),
        ("progress", f"{one.done} of {total} changed, {one.skipped} skipped, {one.failed} failed"),
        ("runs", runs),
        ("rate", f"{one.rate_per_sec:g} a second; stops above {one.stop_above_percent} % failures"),
        ("errors", cell_text("; ".join(one.errors)) if one.errors else None),
        ("by", cell_text(one.by)),
        ("started", whole(one.created_at)),
        ("ended", whole(one.ended_at) if one.ended_at else None),
    ]
