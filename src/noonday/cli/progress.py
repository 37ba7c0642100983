"""Progress bar of a replay."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from noonday.cli.screen import console


@contextmanager
def replaying(total: int) -> Iterator[Any]:
    """Yield a function that takes the numbers of requested and failed items. Only a terminal shows the bar."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    screen = console(err=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("replaying", total=total)
        yield lambda asked_for, failed: bar.update(
            task, completed=asked_for, description=f"replaying, {failed} failed" if failed else "replaying"
        )
