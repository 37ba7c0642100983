"""`noonday job apply` and `noonday job export`: jobs in files."""

from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from noonday.cli import exits
from noonday.cli.applying import (
    LIVE,
    OF_CODE,
    Action,
    Step,
    label_of,
    perform,
    plan,
    spec_of,
    times_after,
    times_before,
    times_text,
)
from noonday.cli.client import with_client
from noonday.cli.group import Command
from noonday.cli.instants import now
from noonday.cli.job_files import FORMATS, OF_FILES, read_jobs, without_marks, write_jobs
from noonday.cli.screen import compact, console, done, json_option, patience, show_json
from noonday.model.errors import NoondayError
from noonday.model.job import ms_of
from noonday.model.pool import BUILT_IN_POOLS
from noonday.model.view import JobView
from noonday.sdk.sync import SyncClient

APPLY_EXAMPLES = """
A file is YAML or JSON: a list `jobs` of jobs in the format of the API, and optionally `set`, the name of the set.

  set: billing
  jobs:
    - name: nightly
      type: CRON
      schedule: "0 3 * * *"
      timezone: Europe/Berlin
      target: {pool: demo, handler: demo.echo}

Examples:
  noonday job apply jobs.yaml --dry-run    show what would change, and the next fire times
  noonday job apply jobs/ --prune          also cancel jobs that are no longer in the files
  noonday job apply jobs.yaml --check      exit with 1 if anything differs, for CI
"""
_STYLES = {Action.CREATE: "green", Action.CHANGE: "yellow", Action.GONE: "red", Action.SAME: "dim"}


@click.command(cls=Command, epilog=APPLY_EXAMPLES)
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE|DIR")
@click.option("--set", "set_name", metavar="NAME", help="Name of the set. [default: `set` in the file, or its name]")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--check", is_flag=True, help="Like --dry-run; exit with 1 if anything differs.")
@click.option("--prune", is_flag=True, help="Cancel the jobs of the set that are no longer in the files.")
@json_option
@with_client("write")
def apply(
    client: SyncClient, path: Path, set_name: str | None, dry_run: bool, check: bool, prune: bool, as_json: bool
) -> None:
    """Create and change jobs so that they equal those in files.

    Jobs are found again by uniqueKey, or else by name. Jobs that an earlier `apply` of the same set made and that are no
    longer in the files are reported, and cancelled with --prune only. Nothing is changed if a file has an error.
    """
    files, now_ms = read_jobs(path, set_name), ms_of(now())
    with patience("comparing jobs"):
        steps = plan(client, files, now_ms)
    outcomes: list[tuple[Step, NoondayError | None]] = [(step, None) for step in steps]
    if not (dry_run or check):
        with patience("changing jobs"):
            errors = {id(step): error for step, error in perform(client, steps, prune=prune)}
        outcomes = [(step, errors.get(id(step))) for step in steps]
    if as_json:
        show_json({"set": files.name, "jobs": [_as_json(step, error, now_ms) for step, error in outcomes]})
    else:
        _report(outcomes, files.name, now_ms, is_dry=dry_run or check, prune=prune)
    differs = any(step.action is not Action.SAME for step in steps)
    if any(error for _, error in outcomes) or (check and differs):
        raise click.exceptions.Exit(exits.FAILED)


@click.command(cls=Command)
@click.option("--set", "set_name", metavar="NAME", help="Only jobs that `apply` made for this set.")
@click.option("--pool", help="Only jobs of this pool.")
@click.option("--handler", help="Only jobs with this handler.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--format", "form", type=FORMATS, default="yaml", show_default=True, help="Format of the file.")
@with_client("read")
def export(client: SyncClient, set_name: str | None, tag: str | None, form: str, **where: Any) -> None:
    """Print the live jobs as a file that `noonday job apply` accepts.

    Jobs that cannot be in a file are named on stderr: those declared in code, those of built-in pools, and those without a
    unique name.
    """
    with patience("reading jobs"):
        chosen = tag if set_name is None else OF_FILES + set_name
        jobs = [job for state in LIVE for job in client.list_jobs(state=state, tag=chosen, limit=500, **where).items()]
    names = Counter(job.name for job in jobs)
    kept = []
    for job in sorted(jobs, key=lambda job: (label_of(job), job.job_id)):
        reason = _why_not_in_a_file(job, names[job.name])
        if reason is None:
            kept.append(without_marks(spec_of(job)))
        else:
            _note(f"left out: {label_of(job)} ({job.job_id}): {reason}")
    click.echo(write_jobs(kept, set_name, form), nl=False)


def _why_not_in_a_file(job: JobView, same_name: int) -> str | None:
    if job.target.pool in BUILT_IN_POOLS:
        return f"pool {job.target.pool} is built in"
    if (job.unique_key or "").startswith(OF_CODE):
        return "it is declared in code"
    if job.unique_key is not None and not job.unique_key.startswith(OF_FILES):
        return None
    if job.name is None:
        return "it has neither a name nor a unique key"
    return f"{same_name} jobs have this name" if same_name > 1 else None


def _report(
    outcomes: list[tuple[Step, NoondayError | None]], name: str, now_ms: int, *, is_dry: bool, prune: bool
) -> None:
    for step, error in outcomes:
        if step.action is Action.SAME:
            continue
        text = Text(f"{step.action:<7} {step.name}", style=_STYLES[step.action])
        console().print(text + Text(_remark(step, prune=prune, is_dry=is_dry)), soft_wrap=True)
        for line in _details(step, now_ms):
            done(f"          {line}")
        if error is not None:
            exits.print_error(error)
    counts = Counter(step.action for step, error in outcomes if error is None)
    failed = sum(error is not None for _, error in outcomes)
    summary = ", ".join(f"{counts[action]} {action}" for action in Action if counts[action]) or "no jobs"
    done(
        f"set {name}: {summary}"
        + (f", {failed} refused" if failed else "")
        + ("; nothing was changed" if is_dry else "")
    )


def _remark(step: Step, *, prune: bool, is_dry: bool) -> str:
    if step.action is not Action.GONE or step.present is None:
        return ""
    if prune:
        return f" ({step.present.job_id}): {'would be cancelled' if is_dry else 'cancelled'}"
    return f" ({step.present.job_id}): not in the files any more; it keeps running, --prune cancels it"


def _details(step: Step, now_ms: int) -> list[str]:
    lines = [f"{each.pointer[1:]}: {compact(each.before)} -> {compact(each.after)}" for each in step.differences]
    if step.action is Action.CREATE or step.changes_times:
        after = ", ".join(times_text(times_after(step, now_ms))) or "none"
        before = ", ".join(times_text(times_before(step, now_ms))) or "none"
        lines.append(f"next: {after}" if step.action is Action.CREATE else f"next: {before} -> {after}")
    return lines


def _as_json(step: Step, error: NoondayError | None, now_ms: int) -> dict[str, Any]:
    return {
        "action": step.action,
        "name": step.name,
        "jobId": step.present.job_id if step.present else None,
        "changes": [each._asdict() for each in step.differences],
        "nextBefore": times_text(times_before(step, now_ms)),
        "nextAfter": times_text(times_after(step, now_ms)),
        "error": None if error is None else error.detail,
    }


def _note(text: str) -> None:
    console(err=True).print(Text(text, style="dim"), soft_wrap=True)
