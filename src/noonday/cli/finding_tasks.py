"""Which task is meant."""

from noonday.cli.finding import find_job
from noonday.model.errors import NotFound
from noonday.sdk.sync import SyncClient


def find_task(client: SyncClient, text: str) -> str:
    """The id of the task. A task is a job, and found as one."""
    try:
        return find_job(client, text)
    except NotFound as none:
        raise NotFound(f"no task has the id or the name {text!r}; `noonday task list` shows those there are") from none
