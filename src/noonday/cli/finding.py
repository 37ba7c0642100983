"""Which job is meant: by its id, the beginning of its id, or its name."""

import re
import uuid

from noonday.cli.screen import patience
from noonday.model.errors import Conflict, NotFound, nearest
from noonday.model.view import JobView
from noonday.sdk.sync import SyncClient

_PREFIX = re.compile(r"[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f-]{0,27}")
_SOME = 500


def find_job(client: SyncClient, said: str) -> str:
    """The id of the job. Raises NotFound with the nearest name, or Conflict that lists those it could be."""
    text = said.strip()
    if is_id(text):
        return text.lower()
    with patience(f"looking for {text}"):
        found = _named(client, text) or _beginning_with(client, text.lower())
        if not found:
            raise _unknown(client, text)
    if len(found) > 1:
        raise _ambiguous(text, found)
    return found[0].job_id


def is_id(text: str) -> bool:
    try:
        return len(text) == 36 and bool(uuid.UUID(text))
    except ValueError:
        return False


def is_job_id(text: str) -> bool:
    """Ids of jobs are UUIDs of version 7, those of executions of version 8."""
    return is_id(text) and uuid.UUID(text).version == 7


def _named(client: SyncClient, name: str) -> list[JobView]:
    """Jobs of that name; if some of them may still fire, only those."""
    named = list(next(iter(client.list_jobs(name=name, limit=_SOME, summary=True))).jobs)
    live = [job for job in named if job.state in ("ACTIVE", "PAUSED")]
    return live or named


def _beginning_with(client: SyncClient, prefix: str) -> list[JobView]:
    if not _PREFIX.fullmatch(prefix):
        return []
    # Lists run backwards from a cursor, and "~" sorts after every id that begins so: no need to read them all.
    page = next(iter(client.list_jobs(cursor=f"{prefix}~", limit=5, summary=True)))
    return [job for job in page.jobs if job.job_id.startswith(prefix)]


def _unknown(client: SyncClient, text: str) -> NotFound:
    names = {job.name for job in next(iter(client.list_jobs(limit=_SOME, summary=True))).jobs if job.name}
    guess = nearest(text, names)
    hint = f"did you mean {guess}?" if guess else "`noonday job list` shows those there are"
    return NotFound(f"no job has the id or the name {text!r}; {hint}")


def _ambiguous(text: str, found: list[JobView]) -> Conflict:
    listed = "\n".join(f"  {job.job_id}  {job.state}  {job.name or ''}" for job in found[:10])
    more = "\n  ..." if len(found) > 10 else ""
    return Conflict(f"{text!r} could be any of these jobs; say the id:\n{listed}{more}")
