"""What is printed: tables for people, JSON for programs."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from noonday.cli.instants import printable

WIDE = 10_000
"""Columns of an output that is not a terminal: whoever reads it cuts the lines, not us."""
_STYLES = {
    "SUCCEEDED": "green",
    "ACTIVE": "green",
    "ALIVE": "green",
    "FIRED": "green",
    "RUNNING": "cyan",
    "PLANNED": "dim",
    "COMPLETED": "dim",
    "CANCELLED": "dim",
    "GONE": "dim",
    "PENDING": "yellow",
    "PAUSED": "yellow",
    "DUE": "yellow",
    "SKIPPED": "yellow",
    "EXPIRED": "yellow",
    "MISSED": "magenta",
    "EDITED": "magenta",
}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def console(*, err: bool = False) -> Console:
    """Where to print. Names and messages are never read as markup."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def show(*parts: RenderableType) -> None:
    out = console()
    for part in parts:
        out.print(part)


def show_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(*headers: str, right: Sequence[str] = (), fold: Sequence[str] = (), cut: Sequence[str] = ()) -> Table:
    """Columns as wide as their content. When the terminal is too narrow those in `fold` and `cut` give way."""
    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        justify: Any = "right" if header in right else "left"
        # A width of its own keeps the others whole: only what may be cut is ever made smaller.
        grid.add_column(
            header, justify=justify, no_wrap=header not in fold, overflow="ellipsis" if header in cut else "fold"
        )
    return grid


def facts(pairs: Iterable[tuple[str, RenderableType | None]]) -> Table:
    """Names and values, one below the other; what is None is left out."""
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            grid.add_row(name, value)
    return grid


def state(name: str | None) -> Text:
    return Text(name or "-", style=_STYLES.get(name or "", "red" if name else ""))


def compact(value: Any) -> str:
    """A value as JSON in one line."""
    return printable(msgspec.json.encode(value).decode())


def said(text: str | None) -> str:
    return printable(text) if text else "-"


def done(text: str) -> None:
    """Say what was done, where a person looks for it."""
    console().print(Text(text))


@contextmanager
def patience(text: str) -> Iterator[None]:
    """Show that something is under way once it has taken a second; nothing at all before that."""
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
