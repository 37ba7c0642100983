"""Terminal output: tables for people, JSON for programs."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec
from rich.console import Console, RenderableType
from rich.text import Text

from noonday.cli.instants import printable
from noonday.cli.tables import ListTable

WIDE = 10_000
"""Width in columns if the output is not a terminal. The program that reads the output cuts the lines."""
_STYLES = {
    state: style
    for style, states in {
        "green": ("SUCCEEDED", "ACTIVE", "SCHEDULED", "ALIVE", "FIRED", "RECOVERED", "HEALTHY", "SENT", "DELIVERED"),
        "cyan": ("RUNNING", "QUEUED", "ACCEPTED"),
        "dim": ("PLANNED", "COMPLETED", "CANCELLED", "GONE", "ACKNOWLEDGED", "SUPPRESSED", "DUPLICATE"),
        "yellow": ("FAILING", "PENDING", "PAUSED", "DUE", "SKIPPED", "MOVED", "EXPIRED", "DEFERRED"),
        "magenta": ("MISSED", "EDITED", "UNKNOWN", "FELL_BACK"),
    }.items()
    for state in states
}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def console(*, err: bool = False) -> Console:
    """Return a console for stdout or stderr that never interprets text as markup."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def show(*parts: RenderableType) -> None:
    out = console()
    if out.is_terminal:
        return out.print(*parts, sep="\n")
    with out.capture() as written:
        out.print(*parts, sep="\n")
    # Trailing blanks are useless to a program and make a pager wrap lines.
    return click.echo("\n".join(line.rstrip() for line in written.get().splitlines()))


def show_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def show_list(rows: ListTable, what: str, more: bool = False) -> None:
    """Print the rows; on stderr, note that there are none or that there are more."""
    if not len(rows):
        return console(err=True).print(f"no {what}", style="dim")
    show(rows)
    if more:
        console(err=True).print(f"more {what} exist; raise --limit to list them", style="dim")
    return None


def state(name: str | None) -> Text:
    return Text(name or "-", style=_STYLES.get(name or "", "red" if name else ""))


def compact(value: Any) -> str:
    """Format a value as JSON on one line."""
    return printable(msgspec.json.encode(value).decode())


def cell_text(text: str | None) -> str:
    """Return a text for a table cell, without control characters; `-` if there is none."""
    return printable(text) if text else "-"


def done(text: str) -> None:
    """Print one line of text on stdout. A command is not wrapped, so that it can be copied."""
    console().print(Text(text), soft_wrap=text.startswith("  noonday "))


@contextmanager
def patience(text: str) -> Iterator[None]:
    """Show a spinner on a terminal if the block takes longer than one second."""
    screen = console(err=True)
    if not screen.is_terminal:
        yield
        return
    status = screen.status(Text(text))
    starting = threading.Timer(1.0, status.start)
    starting.daemon = True
    starting.start()
    try:
        yield
    finally:
        starting.cancel()
        starting.join()
        status.stop()
