"""`noonday pause` and `noonday resume`: pause a tenant, a pool, or everything."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from noonday.cli.client import with_client
from noonday.cli.group import Command
from noonday.cli.instants import whole
from noonday.cli.screen import done, json_option, show_json
from noonday.model.view import PauseView
from noonday.sdk.sync import SyncClient

EXAMPLES = """
During a pause, jobs are accepted, running executions continue, and due executions wait. To pause one job, use
`noonday job pause`.

Examples:
  noonday pause --pool mail            dispatch nothing to this pool
  noonday pause --tenant acme
  noonday pause --all
  noonday resume --pool mail
"""


def _what(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--tenant", metavar="TENANT", help="All jobs of this tenant."),
        click.option("--pool", metavar="POOL", help="All jobs of this pool."),
        click.option("--all", "everything", is_flag=True, help="All jobs."),
    ):
        function = option(function)
    return function


@click.command(cls=Command, epilog=EXAMPLES)
@_what
@json_option
@with_client("operator")
def pause(client: SyncClient, tenant: str | None, pool: str | None, everything: bool, as_json: bool) -> None:
    """Pause a tenant, a pool, or everything (--all). Without arguments, lists what is paused and pauses nothing."""
    if tenant is None and pool is None and not everything:
        return _show(client.pauses(), as_json)
    _require_one(tenant, pool, everything)
    if tenant is not None:
        return _show(client.pause_tenant(tenant), as_json)
    return _show(client.pause_all() if pool is None else client.pause_pool(pool), as_json)


@click.command(cls=Command, epilog=EXAMPLES)
@_what
@json_option
@with_client("operator")
def resume(client: SyncClient, tenant: str | None, pool: str | None, everything: bool, as_json: bool) -> None:
    """Resume a tenant, a pool, or everything. Waiting executions start as pools have capacity."""
    _require_one(tenant, pool, everything)
    if tenant is not None:
        left = client.resume_tenant(tenant)
    else:
        left = client.resume_all() if pool is None else client.resume_pool(pool)
    if not as_json:
        done(f"resumed {f'tenant {tenant}' if tenant else f'pool {pool}' if pool else 'everything'}")
        if not left:
            return None
    return _show(left, as_json)


def _require_one(tenant: str | None, pool: str | None, everything: bool) -> None:
    if [tenant is not None, pool is not None, everything].count(True) != 1:
        raise click.UsageError("pass exactly one of --tenant, --pool and --all")


def _show(pauses: Sequence[PauseView], as_json: bool) -> None:
    if as_json:
        return show_json({"pauses": pauses})
    if not pauses:
        return done("nothing is paused; `noonday pause --all` pauses everything")
    for each in pauses:
        what = f"{each.kind.lower()} {each.name}" if each.name else "everything"
        done(f"{what} is paused since {whole(each.since)} by {each.by}")
    return None
