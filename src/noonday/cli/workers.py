"""`noonday workers`: list workers."""

import click

from noonday.cli.client import with_client
from noonday.cli.group import Command
from noonday.cli.instants import brief
from noonday.cli.screen import json_option, show_json, show_list, state
from noonday.cli.tables import ListTable
from noonday.model.view import WorkerView
from noonday.sdk.sync import SyncClient

EXAMPLES = """
Examples:
  noonday workers
  noonday workers --json | jq '.workers[] | select(.stuck != [])'
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--all", "include_gone", is_flag=True, help="Include workers that are gone.")
@json_option
@with_client("operator")
def workers(client: SyncClient, include_gone: bool, as_json: bool) -> None:
    """List workers and the handlers that they run now."""
    listed = [one for one in client.workers() if include_gone or one.state == "ALIVE"]
    if as_json:
        return show_json({"workers": listed})
    grid = ListTable(
        "WORKER",
        "STATE",
        "HOST",
        "PID",
        "STARTED",
        "SEEN",
        "POOLS",
        "RUNS",
        right=("PID",),
        cut=("POOLS", "RUNS"),
        spare=("SEEN", "HOST", "STARTED"),
    )
    for one in listed:
        pools = ", ".join(f"{name} ({slots})" for name, slots in sorted(one.pools.items()))
        grid.add(
            one.worker_id,
            state(one.state),
            one.host or "-",
            str(one.pid or "-"),
            brief(one.started_at),
            brief(one.last_seen_at),
            pools,
            running_of(one),
        )
    return show_list(grid, "workers")


def running_of(one: WorkerView) -> str:
    """Describe the running handlers of a worker, and those that ignore their timeout."""
    counts: dict[str, int] = {}
    for run in one.running:
        counts[run.handler] = counts.get(run.handler, 0) + 1
    shown = ", ".join(f"{handler} x{count}" if count > 1 else handler for handler, count in sorted(counts.items()))
    stuck = f"{len(one.stuck)} stuck: {', '.join(one.stuck)}" if one.stuck else ""
    return "; ".join(part for part in (shown, stuck) if part) or "-"
