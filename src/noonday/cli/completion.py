"""Names of jobs and tasks for shell completion."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from noonday.cli.client import access_to
from noonday.cli.exchange import client_of
from noonday.model.pool import NOTICES_POOL, WEBHOOKS_POOL

WITHIN_SEC = 1.0
"""Time after which a completion ends without names."""
NAMES = 500
"""Number of jobs, the newest, whose names are completed."""


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of jobs that begin with a text; none if no server answers in time."""
    return _names(ctx, incomplete, None)


def complete_tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of tasks that begin with a text; none if no server answers in time."""
    return _names(ctx, incomplete, WEBHOOKS_POOL)


def _names(ctx: click.Context, incomplete: str, pool: str | None) -> list[CompletionItem]:
    given: dict[str, Any] = {name: ctx.params.get(name) for name in ("url", "token", "data", "config")}
    try:
        access = access_to(**given, scope="read")
        _require_listener(access.url)
        with _deadline():
            access.require_own_server()
            with client_of(access.url, access.token) as client:
                page = next(iter(client.list_jobs(pool=pool, limit=NAMES, summary=True)))
    except Exception:  # a shell that completes a word shows no errors
        return []
    names = {one.name for one in page.jobs if one.name and one.target.pool != NOTICES_POOL}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete) and not _is_split(name)]


def _require_listener(url: str) -> None:
    """Raise OSError at once if no program listens at a URL. The client would try to connect several times."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    socket.create_connection((parts.hostname or "", port), WITHIN_SEC).close()


def _is_split(name: str) -> bool:
    """Return whether a shell would split the name into several words."""
    return any(character.isspace() for character in name)


@contextmanager
def _deadline() -> Iterator[None]:
    """Raise TimeoutError in the block after `WITHIN_SEC`."""

    def end(*_: object) -> None:
        raise TimeoutError

    former = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, WITHIN_SEC)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
