"""Lookup of jobs and tasks by id, id prefix or name."""

import re
import uuid

from noonday.cli.screen import patience
from noonday.model.errors import Conflict, NotFound, nearest
from noonday.model.view import JobView
from noonday.sdk.sync import SyncClient

_PREFIX = re.compile(r"[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f-]{0,27}")
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_SOME = 500


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
    cursor = prefix + _LAST_ID[len(prefix) :]
    page = next(iter(client.list_jobs(cursor=cursor, limit=5, summary=True)))
    return [job for job in page.jobs if job.job_id.startswith(prefix)]


def _unknown(client: SyncClient, text: str) -> NotFound:
    names = {job.name for job in next(iter(client.list_jobs(limit=_SOME, summary=True))).jobs if job.name}
    guess = nearest(text, names)
    hint = f"did you mean {guess}?" if guess else "`noonday job list` lists all jobs"
    return NotFound(f"no job has the id or name {text!r}; {hint}")


def _ambiguous(text: str, found: list[JobView]) -> Conflict:
    listed = "\n".join(f"  {job.job_id}  {job.state}  {job.name or ''}" for job in found[:10])
    more = "\n  ..." if len(found) > 10 else ""
    return Conflict(f"{text!r} matches several jobs; use the id of one:\n{listed}{more}")
