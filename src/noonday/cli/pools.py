"""`noonday pool`: list and configure worker pools."""

from datetime import timedelta
from typing import Any

import click
import msgspec

from noonday.cli.bounds import count, put_limit
from noonday.cli.client import with_client
from noonday.cli.group import Group
from noonday.cli.instants import duration
from noonday.cli.job_flags import in_flags, put_flags, refuse_idle_retry_flags, retry_options
from noonday.cli.screen import cell_text, done, json_option, show_json, show_list
from noonday.cli.tables import ListTable
from noonday.model.decoding import BodyDecoder
from noonday.model.errors import Forbidden, InvalidInput, NotFound
from noonday.model.view import PoolSettings
from noonday.sdk.sync import SyncClient

_read_settings = BodyDecoder(PoolSettings)

EXAMPLES = """
A pool exists once a worker registers it, or once `noonday pool set` creates it.

Examples:
  noonday pool list
  noonday pool set mail --timeout 5m --max-attempts 3 --description 'sends mail'
"""


@click.group(cls=Group, epilog=EXAMPLES)
def pool() -> None:
    """List and configure worker pools."""


@pool.command("list")
@json_option
@with_client("operator")
def list_(client: SyncClient, as_json: bool) -> None:
    """List pools with their handlers, workers and backlog."""
    try:
        pools = client.pools(all_tenants=True)
    except Forbidden:
        pools = client.pools()
    if as_json:
        return show_json({"pools": pools})
    numbers = ("WORKERS", "RUNNING", "QUEUED", "DUE")
    grid = ListTable("POOL", *numbers, "HANDLERS", "NOTE", right=numbers, fold=("HANDLERS", "NOTE"))
    for one in pools:
        running = f"{one.running}/{one.capacity}" if one.capacity else str(one.running)
        handlers = ", ".join(sorted(handler.name for handler in one.handlers))
        note = cell_text(one.note or one.settings.description)
        grid.add(one.name, str(one.workers), running, str(one.queued), str(one.due), handlers or "-", note)
    return show_list(grid, "pools")


@pool.command("set")
@click.argument("name", metavar="POOL")
@click.option("--timeout", type=duration, help="Maximum duration of an attempt; a job or handler may override it.")
@click.option("--max-running", type=count, help="Maximum executions dispatched at the same time, for all tenants.")
@click.option("--description", help="Description shown in lists.")
@retry_options
@json_option
@with_client("operator")
def set_(
    client: SyncClient,
    name: str,
    timeout: timedelta | None,
    max_running: Any,
    description: str | None,
    as_json: bool,
    **retry: Any,
) -> None:
    """Create a pool or change its settings. Settings without a flag keep their values."""
    settings: dict[str, Any] = _present(client, name)
    put_flags(settings, {"timeout": timeout, **retry})
    refuse_idle_retry_flags(retry, settings.get("retryPolicy"))
    put_limit(settings, "maxRunning", max_running)
    if description is not None:
        settings["description"] = description
    try:
        changed = client.put_pool(name, _read_settings.decode(msgspec.json.encode(settings)))
    except InvalidInput as refused:
        raise in_flags(refused) from refused
    if as_json:
        return show_json(changed)
    return done(f"set {changed.name}: {msgspec.json.encode(changed.settings).decode()}")


def _present(client: SyncClient, name: str) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = msgspec.to_builtins(client.get_pool(name).settings)
    except NotFound:
        return {}
    return settings
