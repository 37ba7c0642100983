"""`noonday why`: explain why an occurrence ran or did not run."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import click

from noonday.cli.client import with_client
from noonday.cli.completion import complete_jobs
from noonday.cli.group import Command
from noonday.cli.instants import exact, instant, length, now, printable, relative, whole
from noonday.cli.job_details import schedule_of
from noonday.cli.lookup import find_run, is_execution_id
from noonday.cli.screen import done, json_option, patience, show_json
from noonday.cli.why_execution import history, show_execution
from noonday.model.view import ExecutionView, JobView, OccurrenceView
from noonday.sdk.sync import SyncClient

PAGE = 500
REACHES = tuple(timedelta(minutes=minutes) for minutes in (1, 60)) + tuple(
    timedelta(days=days) for days in (1, 31, 366, 3_660, 36_600)
)
"""Search distances around a time, the shortest first because most occurrences are near."""
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)

EXAMPLES = """
Examples:
  noonday why nightly                    explain the latest occurrence, or the next one if there is none yet
  noonday why nightly --at 03:00         explain the occurrence nearest to 03:00 today
  noonday why nightly --at 'yesterday 02:30'
  noonday why 019a3f2e-...               explain an execution: its attempts and their errors
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("job_id", metavar="JOB|EXECUTION", shell_complete=complete_jobs)
@click.option("--at", type=instant, help="Explain the occurrence nearest to this time.")
@json_option
@with_client("read")
def why(client: SyncClient, job_id: str, at: datetime | None, as_json: bool) -> None:
    """Explain why a job did or did not run, or what happened to an execution."""
    meant = find_run(client, job_id)
    if is_execution_id(meant):
        return show_execution(client, meant, at, as_json)
    with patience("reading occurrences"):
        job = client.get_job(meant, executions=1)
        occurrence = _nearest_to(client, job, at) if at else _latest(client, job)
        known = occurrence.execution_id if occurrence else None
        execution = client.get_execution(known) if known else None
    if as_json:
        return show_json({"jobId": job.job_id, "occurrence": occurrence, "execution": execution})
    for line in explain(job, at, occurrence, execution):
        done(line)
    return None


def explain(
    job: JobView, at: datetime | None, occurrence: OccurrenceView | None, execution: ExecutionView | None
) -> Iterator[str]:
    """Yield the explanation of one occurrence, line by line."""
    end = f" until {whole(job.paused_until, job.timezone)}" if job.paused_until else ""
    yield f"Job {printable(job.name) if job.name else job.job_id} is {job.state}{end} and runs {schedule_of(job)}."
    if occurrence is None:
        yield from _nothing(job, at)
        return
    if at and not occurrence.scheduled_at <= at <= occurrence.until:
        yield f"{_not_then(job, at)} The nearest occurrence:"
    yield f"{_when(job, occurrence)}: {OUTCOMES.get(occurrence.outcome, _unknown)(occurrence)}"
    if execution:
        yield from history(execution)


def _missed(one: OccurrenceView) -> str:
    missed = "these occurrences" if one.count > 1 else "this occurrence"
    return (
        f"MISSED: no scheduler was running at the time, and the catch-up policy of the job excludes {missed} "
        f"({one.reason}). To run missed occurrences: noonday job backfill"
    )


def _due(one: OccurrenceView) -> str:
    reasons = ". ".join(part for part in (printable(one.reason), _expected(one)) if part)
    return f"DUE: its time has come, and it waits: {reasons}."


def _expected(one: OccurrenceView) -> str:
    """Describe the position in the queue and the expected start, as far as they are known."""
    parts = []
    if one.position is not None:
        parts.append(f"{_before_it(one.position, one.position_is_least)} before it")
    if one.expected_at is not None:
        seconds = (one.expected_at - now()).total_seconds()
        soon = f"in {length(seconds)}" if seconds >= 1 else "at any moment"
        verb = "it cannot start earlier than" if one.position_is_least else "expected to start"
        parts.append(f"{verb} {soon} (at {one.expected_at.astimezone():%H:%M:%S %Z})")
    return "; ".join(parts)


def _before_it(position: int, is_least: bool) -> str:
    if position == 0 and not is_least:
        return "nothing is"
    return f"at least {position} are" if is_least else f"{position} {'is' if position == 1 else 'are'}"


def _planned(one: OccurrenceView) -> str:
    if not one.reason.startswith("planned"):
        return f"PLANNED for {relative(one.scheduled_at)}, but it will not fire at present: {one.reason}."
    note = one.reason.removeprefix("planned").removeprefix("; ")
    return f"PLANNED: it fires {relative(one.scheduled_at)}" + (f" ({note})." if note else ".")


def _paused(one: OccurrenceView) -> str:
    if one.reason.startswith("the job is paused until"):
        return f"PAUSED: it does not fire, because {one.reason}."
    return f"PAUSED: the job was paused ({one.reason})."


def _unknown(one: OccurrenceView) -> str:
    return f"{one.outcome}: {one.reason}."


OUTCOMES: dict[str, Callable[[OccurrenceView], str]] = {
    "FIRED": lambda one: "FIRED.",
    "MISSED": _missed,
    "SKIPPED": lambda one: f"SKIPPED: {one.reason}.",
    "MOVED": lambda one: f"MOVED: {printable(one.reason)}.",
    "PAUSED": _paused,
    "EXPIRED": lambda one: f"EXPIRED: it was too late to start ({one.reason}).",
    "EDITED": lambda one: (
        f"EDITED: the job was changed, and its new schedule does not include this time ({one.reason})."
    ),
    "CANCELLED": lambda one: f"CANCELLED: the job was cancelled before this time ({one.reason}).",
    "ERROR": lambda one: f"ERROR: the occurrence could not be fired ({one.reason}).",
    "DUE": _due,
    "PLANNED": _planned,
}
"""Explanation of each outcome."""


def _when(job: JobView, one: OccurrenceView) -> str:
    if one.count == 1:
        return f"Occurrence {whole(one.scheduled_at, job.timezone)}"
    return f"{one.count} occurrences from {exact(one.scheduled_at)} to {whole(one.until)}"


def _not_then(job: JobView, at: datetime) -> str:
    if at < job.created_at:
        return f"The job did not exist at {exact(at)}: it was created {whole(job.created_at)}."
    return f"The job has no occurrence at {exact(at)}, or the record of it has expired."


def _nothing(job: JobView, at: datetime | None) -> Iterator[str]:
    yield _not_then(job, at) if at else "The job has had no occurrence yet, and none is planned."
    if job.executions:
        last = job.executions[0]
        yield f"Its latest execution is {last.execution_id} ({last.state}), cause {last.cause}, {relative(last.due_at)}."


# Search for the occurrence to explain


def _latest(client: SyncClient, job: JobView) -> OccurrenceView | None:
    """Return the latest due occurrence, or the first planned one if none is due yet."""
    present = now()
    return _before(client, job, present, job.created_at) or _after(client, job, present)


def _nearest_to(client: SyncClient, job: JobView, at: datetime) -> OccurrenceView | None:
    earlier, later = _before(client, job, at, None), _after(client, job, at)
    if earlier is None or later is None:
        return earlier or later
    return later if later.scheduled_at - at < at - earlier.until else earlier


def _before(client: SyncClient, job: JobView, at: datetime, since: datetime | None) -> OccurrenceView | None:
    """Return the last occurrence that begins at or before an instant, including its whole second."""
    end = _floor_ms(at) + timedelta(milliseconds=999 if at.microsecond == 0 else 0)
    for reach in REACHES:
        begin = max(EARLIEST, end - reach)
        found = _last_between(client, job, begin, end)
        if found:
            return found
        if since is not None and begin < since - timedelta(minutes=1):
            return None
    return None


def _last_between(client: SyncClient, job: JobView, begin: datetime, end: datetime) -> OccurrenceView | None:
    """Return the last occurrence of a period by bisection, because a page contains only the first ones."""
    page = client.occurrences(job.job_id, begin, end, limit=PAGE).occurrences
    if len(page) < PAGE or end - begin < timedelta(seconds=1):
        return page[-1] if page else None
    middle = _floor_ms(begin + (end - begin) / 2)
    return _last_between(client, job, middle, end) or _last_between(client, job, begin, middle)


def _after(client: SyncClient, job: JobView, at: datetime) -> OccurrenceView | None:
    begin = _floor_ms(at)
    for reach in REACHES:
        page = client.occurrences(job.job_id, begin, begin + reach, limit=1).occurrences
        if page:
            return page[0]
    return None


def _floor_ms(at: datetime) -> datetime:
    utc = at.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)
