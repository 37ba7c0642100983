"""How far a replay has come."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from noonday.cli.screen import console


@contextmanager
def replaying(total: int) -> Iterator[Any]:
    """Gives what is to be told (how many were asked for, how many failed); only a terminal shows it."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    screen = console(err=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("replaying", total=total)
        yield lambda asked_for, failed: bar.update(
            task, completed=asked_for, description=f"replaying, {failed} failed" if failed else "replaying"
        )
