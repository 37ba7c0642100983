"""Bulk operations of commands: preview, confirmation and progress of a change by filters."""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from noonday.cli.lookup import find_job
from noonday.cli.replaying import confirm_unless
from noonday.cli.screen import cell_text, console, done, patience, show, show_json
from noonday.cli.tables import ListTable
from noonday.model.operation import OperationKind
from noonday.model.operation_view import OperationPreview, OperationView
from noonday.sdk.sync import SyncClient

F = TypeVar("F", bound=Callable[..., None])
LOOK_SEC = 0.5
_VERBS = {
    OperationKind.PAUSE_JOBS: ("pause", "jobs"),
    OperationKind.RESUME_JOBS: ("resume", "jobs"),
    OperationKind.CANCEL_JOBS: ("cancel", "jobs"),
    OperationKind.CANCEL_EXECUTIONS: ("cancel", "executions"),
    OperationKind.RETRY_DEAD_LETTERS: ("retry", "dead letters"),
    OperationKind.ARCHIVE_DEAD_LETTERS: ("archive", "dead letters"),
}


def bulk_options(command: F) -> F:
    """Add the options that all commands of bulk operations share."""
    for option in (
        click.option("--no-wait", is_flag=True, help="With filters: start the operation and do not wait for its end."),
        click.option("--yes", is_flag=True, help="With filters: do not ask for confirmation."),
        click.option("--dry-run", is_flag=True, help="With filters: show what would change, and change nothing."),
        click.option(
            "--rate",
            type=click.FloatRange(0.1, 1_000),
            default=50,
            show_default=True,
            help="With filters: maximum number of changes per second.",
        ),
        click.option("--all", "everything", is_flag=True, help="All, without a filter."),
    ):
        command = option(command)
    return command


class Bulk:
    """The bulk options of a command."""

    def __init__(
        self, *, everything: bool, rate: float, dry_run: bool, yes: bool, no_wait: bool, as_json: bool = False
    ) -> None:
        self.everything = everything
        self.rate = rate
        self.dry_run = dry_run
        self.yes = yes
        self.no_wait = no_wait
        self.as_json = as_json

    def is_one(self, argument: str | None, name: str, where: Mapping[str, Any]) -> bool:
        """Return whether the command concerns one item. Raises UsageError unless it has either an item or filters."""
        filters = any(value is not None for value in where.values())
        if argument is not None and (filters or self.everything or self.dry_run or self.no_wait):
            raise click.UsageError(f"pass a {name} or filters, not both")
        if argument is None and not (filters or self.everything):
            raise click.UsageError(f"pass a {name}, filters, or --all; `--help` lists the filters")
        return argument is not None

    def run(self, client: SyncClient, kind: OperationKind, where: Mapping[str, Any], **how: Any) -> None:
        """Preview a change, ask, start it, and wait for its end."""
        conditions = _conditions(client, where)
        with patience("looking for what matches"):
            preview = client.operations.preview(kind, **conditions)
        if self.dry_run:
            return show_json(preview) if self.as_json else self._show(kind, preview)
        if not preview.affected.count and not preview.affected.is_least:
            return show_json(preview) if self.as_json else done(f"no {_VERBS[kind][1]} match")
        if not self.yes:
            self._show(kind, preview, err=True)
            confirm_unless(False, f"{_sentence(kind, preview)}?".capitalize())
        started = client.operations.start(kind, before=preview.until, rate_per_sec=self.rate, **how, **conditions)
        if self.no_wait:
            return show_json(started) if self.as_json else done(f"started operation {started.id}")
        return report(follow(client, started), self.as_json)

    def _show(self, kind: OperationKind, preview: OperationPreview, *, err: bool = False) -> None:
        grid = ListTable("WHAT", "ID", cut=("WHAT",), ids=("ID",))
        for sample in preview.samples:
            grid.add(cell_text(sample.text), sample.id)
        if err:
            if len(grid):
                console(err=True).print(grid)
            return
        done(f"would {_sentence(kind, preview)}")
        if len(grid):
            show(grid)


def follow(client: SyncClient, started: OperationView) -> OperationView:
    """Show the progress of an operation until it has ended. An interruption ends the command, not the operation."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    screen = console(err=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(f"operation {started.id}", total=None if started.total_is_least else started.total)
        while started.ended_at is None:
            time.sleep(LOOK_SEC)
            started = client.operations.get(started.id)
            bar.update(task, completed=started.done + started.skipped + started.failed)
    return started


def report(ended: OperationView, as_json: bool) -> None:
    """Print the end of an operation. The exit code is 1 if it stopped, or if items could not be changed."""
    if as_json:
        show_json(ended)
    else:
        things = _VERBS[OperationKind(ended.kind)][1]
        skipped = f", {ended.skipped} skipped" if ended.skipped else ""
        failed = f", {ended.failed} failed" if ended.failed else ""
        done(f"{ended.done} {things} changed{skipped}{failed} (operation {ended.id})")
        if ended.stopped_because:
            console(err=True).print(f"stopped: {ended.stopped_because}", style="yellow", soft_wrap=True)
        for error in ended.errors:
            console(err=True).print(cell_text(error), style="red", soft_wrap=True)
    if ended.stopped_because or ended.failed:
        click.get_current_context().exit(1)


def _conditions(client: SyncClient, where: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in where.items() if value is not None}
    if "job" in given:
        given["job_id"] = find_job(client, given.pop("job"))
    return {name: _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _sentence(kind: OperationKind, preview: OperationPreview) -> str:
    verb, things = _VERBS[kind]
    least = "at least " if preview.affected.is_least else ""
    return f"{verb} {least}{preview.affected.count} {things}"


def filter_options(*options: tuple[str, str, dict[str, Any]]) -> Callable[[F], F]:
    """Return a decorator that adds filters: their flags, their help and more."""

    def decorate(command: F) -> F:
        for flag, text, more in reversed(options):
            command = click.option(flag, help=text, **more)(command)
        return command

    return decorate
