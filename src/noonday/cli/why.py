"""`noonday why`: what became of an occurrence, in words."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import click

from noonday.cli.asking import asks
from noonday.cli.finding import find_job
from noonday.cli.group import Command
from noonday.cli.instants import exact, instant, length, now, printable, relative, whole
from noonday.cli.jobs import in_its_zone, schedule_of
from noonday.cli.screen import done, json_option, patience, show_json
from noonday.model.view import AttemptView, ExecutionView, JobView, OccurrenceView
from noonday.sdk.sync import SyncClient

PAGE = 500
REACHES = tuple(timedelta(minutes=minutes) for minutes in (1, 60)) + tuple(
    timedelta(days=days) for days in (1, 31, 366, 3_660, 36_600)
)
"""How far around a time an occurrence is looked for: near first, since most are."""
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)

EXAMPLES = """
Examples:
  noonday why nightly                    the latest occurrence, or the next if there was none yet
  noonday why nightly --at 03:00         the one at three o'clock today, or the nearest to it
  noonday why nightly --at '2026-03-29 02:30'
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("job_id", metavar="JOB")
@click.option("--at", type=instant, help="Which occurrence is meant: the one at this time, or the nearest to it.")
@json_option
@asks("read")
def why(client: SyncClient, job_id: str, at: datetime | None, as_json: bool) -> None:
    """Say why a job did or did not run."""
    with patience("looking into it"):
        job = client.get_job(find_job(client, job_id), executions=1)
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
    """The story of one occurrence, line by line."""
    yield f"Job {printable(job.name) if job.name else job.job_id} is {job.state}, runs {schedule_of(job)}."
    if occurrence is None:
        yield from _nothing(job, at)
        return
    if at and not occurrence.scheduled_at <= at <= occurrence.until:
        yield f"{_not_then(job, at)} The nearest occurrence:"
    yield f"{_when(job, occurrence)}: {OUTCOMES.get(occurrence.outcome, _unknown)(occurrence)}"
    if execution:
        yield from _story(execution)


def _fired(one: OccurrenceView) -> str:
    return "FIRED."


def _missed(one: OccurrenceView) -> str:
    them = "them" if one.count > 1 else "it"
    return (
        f"MISSED: the time passed while no scheduler ran, and the job does not make up for {them} ({one.reason}). "
        "To run what was missed: noonday job backfill"
    )


def _skipped(one: OccurrenceView) -> str:
    return f"SKIPPED: {one.reason}."


def _paused(one: OccurrenceView) -> str:
    return f"PAUSED: it did not fire because the job was paused ({one.reason})."


def _expired(one: OccurrenceView) -> str:
    return f"EXPIRED: it came too late to start ({one.reason})."


def _edited(one: OccurrenceView) -> str:
    return f"EDITED: the job was changed, and this time is no longer one of its times ({one.reason})."


def _cancelled(one: OccurrenceView) -> str:
    return f"CANCELLED: the job was cancelled before this time ({one.reason})."


def _error(one: OccurrenceView) -> str:
    return f"ERROR: it could not be fired ({one.reason})."


def _due(one: OccurrenceView) -> str:
    told = ". ".join(part for part in (printable(one.reason), _expected(one)) if part)
    return f"DUE: its time has come, and it waits: {told}."


def _expected(one: OccurrenceView) -> str:
    """How many are before it, and when it starts, as far as that is known."""
    told = []
    if one.position is not None:
        told.append(f"{_before_it(one.position, one.position_is_least)} before it")
    if one.expected_at is not None:
        seconds = (one.expected_at - now()).total_seconds()
        soon = f"in {length(seconds)}" if seconds >= 1 else "at any moment"
        verb = "it cannot start earlier than" if one.position_is_least else "expected to start"
        told.append(f"{verb} {soon} (at {one.expected_at.astimezone():%H:%M:%S})")
    return "; ".join(told)


def _before_it(position: int, is_least: bool) -> str:
    if position == 0 and not is_least:
        return "nothing is"
    return f"at least {position} are" if is_least else f"{position} {'is' if position == 1 else 'are'}"


def _planned(one: OccurrenceView) -> str:
    if not one.reason.startswith("planned"):
        return f"PLANNED for {relative(one.scheduled_at)}, but it will not fire as things are: {one.reason}."
    note = one.reason.removeprefix("planned").removeprefix("; ")
    return f"PLANNED: it fires {relative(one.scheduled_at)}" + (f" ({note})." if note else ".")


def _unknown(one: OccurrenceView) -> str:
    return f"{one.outcome}: {one.reason}."


OUTCOMES: dict[str, Callable[[OccurrenceView], str]] = {
    "FIRED": _fired,
    "MISSED": _missed,
    "SKIPPED": _skipped,
    "PAUSED": _paused,
    "EXPIRED": _expired,
    "EDITED": _edited,
    "CANCELLED": _cancelled,
    "ERROR": _error,
    "DUE": _due,
    "PLANNED": _planned,
}
"""What each outcome means, in words."""

WISHES = {"PAUSED": "the job was paused", "EDITED": "the job was changed"}


def _when(job: JobView, one: OccurrenceView) -> str:
    if one.count == 1:
        return f"Occurrence {whole(one.scheduled_at)}{in_its_zone(one.local, job)}"
    return f"{one.count} occurrences from {exact(one.scheduled_at)} to {whole(one.until)}"


def _not_then(job: JobView, at: datetime) -> str:
    if at < job.created_at:
        return f"It did not exist at {exact(at)}: it was created {whole(job.created_at)}."
    return f"It has no occurrence at {exact(at)}, or what was decided about it is no longer kept."


def _nothing(job: JobView, at: datetime | None) -> Iterator[str]:
    yield _not_then(job, at) if at else "It has had no occurrence yet, and none is planned."
    if job.executions:
        last = job.executions[0]
        yield f"Its latest execution is {last.execution_id} ({last.state}), by {last.cause}, {relative(last.due_at)}."


def _story(one: ExecutionView) -> Iterator[str]:
    yield f"Execution {one.execution_id} of {one.handler} in pool {one.pool} is {one.state}."
    for attempt in one.attempts:
        yield f"  {_attempt(one, attempt)}"
    yield from _rest(one)


def _attempt(one: ExecutionView, attempt: AttemptView) -> str:
    late = (attempt.started_at - one.due_at).total_seconds() if attempt.started_at else 0
    begun = f"began {exact(attempt.started_at)}" if attempt.started_at else "did not begin"
    if attempt.attempt == 1 and attempt.dispatch == 1 and late > 0:
        begun += f", {length(late)} after it was due,"
    if attempt.finished_at is None or attempt.started_at is None:
        return f"Attempt {attempt.attempt} {begun} and runs on {attempt.worker_id}."
    ended = f"{attempt.state} after {length((attempt.finished_at - attempt.started_at).total_seconds())}"
    error = f": {printable(f'{attempt.error.type}: {attempt.error.message}')}" if attempt.error else ""
    return f"Attempt {attempt.attempt} {begun} on {attempt.worker_id}: {ended}{error}"


def _rest(one: ExecutionView) -> Iterator[str]:
    if one.waiting_for:
        yield f"It waits for: {printable(one.waiting_for)}."
    if one.state == "PENDING" and one.next_attempt_at and one.attempt > 1:
        yield f"Attempt {one.attempt} follows {relative(one.next_attempt_at)}."
    if one.cancel_requested:
        yield f"It was asked to stop: {WISHES.get(one.cancel_requested) or printable(one.cancel_requested)}."
    if one.state == "DEAD":
        yield f"It was given up after attempt {one.attempt}. To run it again:"
        yield f"  noonday dead retry {one.execution_id}"


# Which occurrence is meant


def _latest(client: SyncClient, job: JobView) -> OccurrenceView | None:
    """The last one whose time has come; if there is none, the first that is planned."""
    present = now()
    return _before(client, job, present, job.created_at) or _after(client, job, present)


def _nearest_to(client: SyncClient, job: JobView, at: datetime) -> OccurrenceView | None:
    earlier, later = _before(client, job, at, None), _after(client, job, at)
    if earlier is None or later is None:
        return earlier or later
    return later if later.scheduled_at - at < at - earlier.until else earlier


def _before(client: SyncClient, job: JobView, at: datetime, since: datetime | None) -> OccurrenceView | None:
    """The last occurrence that begins at or before an instant, whose own moment is included whole."""
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
    """By halves: a list is cut at its end, and what is asked for is the end."""
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
