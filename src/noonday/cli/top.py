"""`noonday top`: live load of the server."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from noonday.cli.alerts import unread_text
from noonday.cli.client import with_client
from noonday.cli.group import Command
from noonday.cli.instants import length, now
from noonday.cli.screen import console, show, show_json
from noonday.cli.tables import ListTable
from noonday.cli.workers import running_of
from noonday.model.errors import Forbidden
from noonday.model.view import PoolView, WorkerView
from noonday.runtime.clock import SystemClock
from noonday.sdk.problems import ServerUnreachable
from noonday.sdk.sync import SyncClient

BARS = " ▁▂▃▄▅▆▇█"
HISTORY = 60
ROWS = 15

EXAMPLES = """
Examples:
  noonday top                 update until Ctrl-C
  noonday top --once
  noonday top --json          print one frame for scripts
"""


@dataclass(frozen=True)
class Frame:
    """State of the server at one moment."""

    overview: dict[str, Any]
    pools: list[PoolView]
    workers: list[WorkerView]
    unread: int = 0
    """Number of unacknowledged alerts."""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@click.option(
    "--every", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds between frames."
)
@click.option("--json", "as_json", is_flag=True, help="Print one frame as JSON, for scripts.")
@with_client("operator")
def top(client: SyncClient, once: bool, every: float, as_json: bool) -> None:
    """Show the live load of the server.

    Shows rate, lateness, backlog, pools and workers.
    """
    if as_json:
        frame = read_frame(client)
        shown = {"overview": frame.overview, "pools": frame.pools, "workers": frame.workers}
        return show_json(shown | {"unreadAlerts": frame.unread})
    if once or not console().is_terminal:
        frame = read_frame(client)
        return show(*screen(frame, [frame.overview["ratePerSec"] or 0]))
    return _live(client, every)


def read_frame(client: SyncClient) -> Frame:
    """Return the state for all tenants if the token allows it, else for the token's tenant."""
    alive = [one for one in client.workers() if one.state == "ALIVE"]
    unread = client.alerts.list(limit=1).unread
    try:
        return Frame(client.overview(all_tenants=True), client.pools(all_tenants=True), alive, unread)
    except Forbidden:
        return Frame(client.overview(), client.pools(), alive, unread)


def _live(client: SyncClient, every: float) -> None:
    clock = SystemClock()
    rates: deque[float] = deque(maxlen=HISTORY)
    frame = read_frame(client)
    with Live(console=console(), screen=True, auto_refresh=False) as live:
        while True:
            warning = ""
            try:
                frame = read_frame(client)
                rates.append(frame.overview["ratePerSec"] or 0)
            except ServerUnreachable:
                warning = "the server does not respond; showing the last frame"
            live.update(Lines(*screen(frame, rates, warning)), refresh=True)
            client.portal.run(clock.sleep(every))


def screen(frame: Frame, rates: "deque[float] | list[float]", warning: str = "") -> Iterator[Text | ListTable | str]:
    """Yield the parts of one frame, from top to bottom."""
    seen = frame.overview
    yield Text.assemble(
        ("noonday top", "bold"), f"  {now().astimezone():%Y-%m-%d %H:%M:%S %Z}", (f"  {warning}", "red")
    )
    yield ""
    yield from _figures(seen)
    if frame.unread:
        yield _line(("unread alerts", unread_text(frame.unread), "red"), ("see", "noonday alert list", ""))
    if len(rates) > 1:
        yield Text.assemble(("rate ", "dim"), (spark(list(rates)), "cyan"))
    yield ""
    yield _pools(frame.pools)
    yield ""
    yield _workers(frame.workers)


def spark(values: list[float]) -> str:
    """Return a sparkline scaled to its highest value."""
    most = max(values, default=0) or 1
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)


def _figures(seen: dict[str, Any]) -> Iterator[Text]:
    late = seen["latenessMs"]
    oldest = f" (oldest {length(seen['oldestDueAgeMs'] / 1000)})" if seen["oldestDueAgeMs"] else ""
    yield _line(
        ("rate", "-" if seen["ratePerSec"] is None else f"{seen['ratePerSec']:g}/s", ""),
        *((f"late {each}", _ms(late[each]), "") for each in ("p50", "p95", "p99")),
        ("tick", _ms(seen["tickAgeMs"]), ""),
    )
    yield _line(
        ("due", f"{seen['due']}{oldest}", ""),
        ("queued", str(seen["queued"]), ""),
        ("running", str(seen["running"]), ""),
        ("workers", str(seen["workers"]), "" if seen["workers"] else "red"),
        ("dead letters", str(seen["deadLetters"]), "red" if seen["deadLetters"] else ""),
    )


def _line(*figures: tuple[str, str, str]) -> Text:
    return Text("   ").join(
        Text.assemble((name, "dim"), " ", (value, f"bold {style}")) for name, value, style in figures
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else length(value / 1000)


def _pools(pools: list[PoolView]) -> ListTable:
    numbers = ("WORKERS", "RUNNING", "QUEUED", "DUE")
    grid = ListTable("POOL", *numbers, "NOTE", right=numbers, fold=("NOTE",))
    busy_first = sorted(pools, key=lambda one: (-one.running - one.queued - one.due, one.name))
    for one in busy_first[:ROWS]:
        running = f"{one.running}/{one.capacity}"
        grid.add(one.name, str(one.workers), running, str(one.queued), str(one.due), Text(one.note or "", "yellow"))
    return grid


def _workers(workers: list[WorkerView]) -> ListTable:
    grid = ListTable("WORKER", "HOST", "PID", "UP", "RUNS", right=("PID",), fold=("RUNS",))
    for one in workers[:ROWS]:
        age = length((now() - one.started_at).total_seconds())
        grid.add(one.worker_id, one.host or "-", str(one.pid or "-"), age, running_of(one))
    return grid
