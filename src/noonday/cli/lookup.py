"""Lookup of jobs and tasks by id, id prefix or name."""

import re
import uuid
from itertools import islice

from noonday.cli.screen import patience
from noonday.model.errors import Conflict, NotFound, nearest
from noonday.model.view import ExecutionView, JobView
from noonday.sdk.sync import SyncClient

_PREFIX = re.compile(r"[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f-]{0,27}")
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_SOME = 500
MOST_CANDIDATES = 10
"""Maximum number of items that an ambiguous id prefix lists."""
MOST_PAGES = 20
"""Maximum number of pages that are read for an id prefix: many executions of other tenants may share it."""


def find_job(client: SyncClient, text: str) -> str:
    """Return the id of a job. Raises NotFound with the nearest name, or Conflict with all matching jobs."""
    text = text.strip()
    if is_id(text):
        return text.lower()
    with patience(f"looking for {text}"):
        found = _named(client, text) or _beginning_with(client, text.lower())
        if not found:
            raise _unknown(client, text)
    if len(found) > 1:
        raise _ambiguous(text, found)
    return found[0].job_id


def find_task(client: SyncClient, text: str) -> str:
    """Return the id of a task. A task is a job, so the lookup of jobs applies."""
    try:
        return find_job(client, text)
    except NotFound as none:
        raise NotFound(f"no task has the id or name {text!r}; `noonday task list` lists all tasks") from none


def find_execution(client: SyncClient, text: str) -> str:
    """Return the id of an execution, from the id or the beginning of it. Raises NotFound, or Conflict with the candidates."""
    text = text.strip().lower()
    if is_job_id(text):
        raise NotFound(f"{text} is a job id, not an execution id; `noonday job executions {text}` lists its executions")
    if is_id(text):
        return text
    found = _executions_beginning_with(client, text)
    if not found:
        raise NotFound(
            f"{text!r} is not an execution id, and no execution has an id that begins so; `noonday execution list` and "
            "`noonday job executions JOB` list executions"
        )
    if len(found) > 1:
        raise Conflict(_candidates(text, "executions", [_line_of(each) for each in found]))
    return found[0].execution_id


def find_run(client: SyncClient, text: str) -> str:
    """Return the id of a job or of an execution: names and ids of jobs first."""
    try:
        return find_job(client, text)
    except NotFound:
        found = _executions_beginning_with(client, text.strip().lower())
        if len(found) > 1:
            raise Conflict(_candidates(text, "executions", [_line_of(each) for each in found])) from None
        if not found:
            raise
        return found[0].execution_id


def find_operation(client: SyncClient, text: str) -> str:
    """Return the id of an operation, from the id or the beginning of it. Raises NotFound, or Conflict with the candidates."""
    text = text.strip().lower()
    if is_id(text):
        return text
    found = []
    if _PREFIX.fullmatch(text):
        page = client.operations.list(cursor=last_id_with(text), limit=MOST_CANDIDATES)
        found = [each for each in page.operations if each.id.startswith(text)]
    if not found:
        raise NotFound(f"no operation has an id that begins with {text!r}; `noonday operation list` lists them")
    if len(found) > 1:
        raise Conflict(_candidates(text, "operations", [f"{each.id}  {each.state}  {each.kind}" for each in found]))
    return found[0].id


def is_id(text: str) -> bool:
    try:
        return len(text) == 36 and bool(uuid.UUID(text))
    except ValueError:
        return False


def is_job_id(text: str) -> bool:
    """Tell job ids (UUID version 7) from execution ids (UUID version 8)."""
    return is_id(text) and uuid.UUID(text).version == 7


def is_execution_id(text: str) -> bool:
    return is_id(text) and uuid.UUID(text).version == 8


def _named(client: SyncClient, name: str) -> list[JobView]:
    """Return the jobs with that name; if some are active or paused, only those."""
    named = list(next(iter(client.list_jobs(name=name, limit=_SOME, summary=True))).jobs)
    live = [job for job in named if job.state in ("ACTIVE", "PAUSED")]
    return live or named


def _beginning_with(client: SyncClient, prefix: str) -> list[JobView]:
    if not _PREFIX.fullmatch(prefix):
        return []
    # A list runs backwards from its cursor, the last id that has the prefix: one page is enough.
    page = next(iter(client.list_jobs(cursor=last_id_with(prefix), limit=MOST_CANDIDATES, summary=True)))
    return [job for job in page.jobs if job.job_id.startswith(prefix)]


def _executions_beginning_with(client: SyncClient, prefix: str) -> list[ExecutionView]:
    if not _PREFIX.fullmatch(prefix):
        return []
    with patience(f"looking for {prefix}"):
        listing = client.search_executions(id_prefix=prefix, limit=MOST_CANDIDATES)
        found = list[ExecutionView]()
        for page in islice(listing, MOST_PAGES):
            found += page.executions
            if len(found) > 1:
                break
    return found[:MOST_CANDIDATES]


def last_id_with(prefix: str) -> str:
    return prefix + _LAST_ID[len(prefix) :]


def _line_of(one: ExecutionView) -> str:
    return f"{one.execution_id}  {one.state}  {one.job_name or one.handler}"


def _candidates(text: str, things: str, lines: list[str]) -> str:
    listed = "\n".join(f"  {line}" for line in lines[:MOST_CANDIDATES])
    more = "\n  ..." if len(lines) >= MOST_CANDIDATES else ""
    return f"{text!r} matches several {things}; use the id of one, or a longer beginning:\n{listed}{more}"


def _unknown(client: SyncClient, text: str) -> NotFound:
    names = {job.name for job in next(iter(client.list_jobs(limit=_SOME, summary=True))).jobs if job.name}
    guess = nearest(text, names)
    hint = f"did you mean {guess}?" if guess else "`noonday job list` lists all jobs"
    return NotFound(f"no job has the id or name {text!r}; {hint}")


def _ambiguous(text: str, found: list[JobView]) -> Conflict:
    listed = "\n".join(f"  {job.job_id}  {job.state}  {job.name or ''}" for job in found[:10])
    more = "\n  ..." if len(found) > 10 else ""
    return Conflict(f"{text!r} matches several jobs; use the id of one:\n{listed}{more}")
