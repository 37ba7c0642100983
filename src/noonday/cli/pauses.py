"""`noonday pause` and `noonday resume`: hold a tenant, a pool, or everything."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from noonday.cli.asking import asks
from noonday.cli.group import Command
from noonday.cli.screen import done, json_option, show_json
from noonday.model.view import PauseView
from noonday.sdk.sync import SyncClient

EXAMPLES = """
Jobs are still accepted, what runs goes on, and what falls due waits. One job is paused by `noonday job pause`.

Examples:
  noonday pause --pool mail            nothing is handed to this pool
  noonday pause --tenant acme
  noonday pause --all
  noonday resume --pool mail
"""


def _what(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--tenant", metavar="TENANT", help="All jobs of a tenant."),
        click.option("--pool", metavar="POOL", help="All jobs for a pool."),
        click.option("--all", "everything", is_flag=True, help="Everything."),
    ):
        function = option(function)
    return function


@click.command(cls=Command, epilog=EXAMPLES)
@_what
@json_option
@asks("operator")
def pause(client: SyncClient, tenant: str | None, pool: str | None, everything: bool, as_json: bool) -> None:
    """Hold a tenant, a pool, or everything. Without a word: show what is held."""
    if tenant is None and pool is None and not everything:
        return _show(client.pauses(), as_json)
    kind, name = _one(tenant, pool, everything)
    return _show(client.hold(kind, name), as_json)


@click.command(cls=Command, epilog=EXAMPLES)
@_what
@json_option
@asks("operator")
def resume(client: SyncClient, tenant: str | None, pool: str | None, everything: bool, as_json: bool) -> None:
    """Let go what was held, as fast as the pools take it."""
    kind, name = _one(tenant, pool, everything)
    return _show(client.let_go(kind, name), as_json)


def _one(tenant: str | None, pool: str | None, everything: bool) -> tuple[str, str]:
    named = {"TENANT": tenant, "POOL": pool, "ALL": "" if everything else None}
    said = [(kind, name) for kind, name in named.items() if name is not None]
    if len(said) != 1:
        raise click.UsageError("say one of --tenant, --pool and --all")
    return said[0]


def _show(pauses: Sequence[PauseView], as_json: bool) -> None:
    if as_json:
        return show_json({"pauses": pauses})
    if not pauses:
        return done("nothing is held")
    for each in pauses:
        what = f"{each.kind.lower()} {each.name}" if each.name else "everything"
        done(f"{what} is held since {each.since:%Y-%m-%d %H:%M:%S} by {each.by}")
    return None
