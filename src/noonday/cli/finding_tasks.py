"""Task lookup by id, id prefix or name."""

from noonday.cli.finding import find_job
from noonday.model.errors import NotFound
from noonday.sdk.sync import SyncClient


def find_task(client: SyncClient, text: str) -> str:
    """Return the id of a task. A task is a job, so the lookup of jobs applies."""
    try:
        return find_job(client, text)
    except NotFound as none:
        raise NotFound(f"no task has the id or name {text!r}; `noonday task list` lists all tasks") from none
