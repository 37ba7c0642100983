"""`noonday tenant`: weight, limits and usage of tenants."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click
import msgspec

from noonday.cli.bounds import NONE, count, number, put_limit, seconds
from noonday.cli.client import TENANT, with_client
from noonday.cli.group import Group
from noonday.cli.instants import now
from noonday.cli.screen import done, json_option, show_json
from noonday.cli.tenant_file import apply, flat
from noonday.cli.usage import usage
from noonday.model.decoding import BodyDecoder
from noonday.model.errors import NotFound
from noonday.model.view import TenantSettings, TenantView
from noonday.sdk.sync import SyncClient

_read_settings = BodyDecoder(TenantSettings)

EXAMPLES = """
Examples:
  noonday tenant show acme
  noonday tenant set acme --weight 4 --rate 50 --burst 200
  noonday tenant set acme --max-running 20 --max-running-in mail=5
  noonday tenant set acme --rate none          remove the rate limit
  noonday tenant set acme --max-jobs 10000 --retention-days 90
  noonday tenant apply tenants.toml --dry-run
"""

DAYS_OF_USAGE = 400
"""Number of days for which a server keeps the usage of tenants."""
NAMES = {
    "weight": "weight",
    "rate": "ratePerSec",
    "burst": "burst",
    "max_running": "maxRunning",
    "max_jobs": "maxJobs",
    "max_payload_bytes": "maxPayloadBytes",
    "default_spread": "defaultSpreadSec",
    "retention_days": "retentionDays",
}


def _in_pool(text: str) -> tuple[str, Any]:
    pool, is_there, most = text.rpartition("=")
    if not (pool and is_there):
        raise click.BadParameter(f"{text!r} is not POOL=N; write, for example, mail=5")
    return pool, count(most)


@click.group(cls=Group, epilog=EXAMPLES)
def tenant() -> None:
    """Manage the weight and limits of tenants."""


@tenant.command("show")
@click.argument("name", metavar="TENANT")
@json_option
@with_client("operator")
def show(client: SyncClient, name: str, as_json: bool) -> None:
    """Show the settings of a tenant."""
    view = client.get_tenant(name)
    if view.updated_at is None and name != TENANT and not _has_run(client, name):
        raise NotFound(
            f"no such tenant: {name} has no settings, and has run nothing in {DAYS_OF_USAGE} days; "
            f"`noonday tenant set {name}` gives it settings"
        )
    _show(view, as_json)


@tenant.command("set")
@click.argument("name", metavar="TENANT")
@click.option("--weight", type=int, help="Share of capacity while other tenants wait, 1 to 1000.")
@click.option("--rate", type=number, help="Maximum dispatches per second.")
@click.option("--burst", type=count, help="Maximum dispatches at once after an idle period.")
@click.option("--max-running", type=count, help="Maximum executions dispatched at the same time.")
@click.option("--max-running-in", type=_in_pool, multiple=True, metavar="POOL=N", help="The same for one pool.")
@click.option("--max-jobs", type=count, help="Maximum number of waiting jobs.")
@click.option("--max-payload-bytes", type=count, help="Maximum size of a payload in bytes.")
@click.option("--default-spread", type=seconds, help="Spread of schedules without one of their own, such as 3m.")
@click.option("--retention-days", type=count, help="Days to keep finished executions.")
@json_option
@with_client("operator")
def set_(client: SyncClient, name: str, max_running_in: Sequence[tuple[str, Any]], as_json: bool, **flags: Any) -> None:
    """Change the settings of a tenant. Settings without a flag keep their values; `none` removes a limit."""
    settings: dict[str, Any] = msgspec.to_builtins(client.get_tenant(name).settings)
    for pool, most in max_running_in:
        pools = settings.setdefault("pools", {})
        pools.pop(pool, None)
        if most is not NONE:
            pools[pool] = {"maxRunning": most}
    for flag, value in flags.items():
        put_limit(settings, NAMES[flag], value)
    _show(client.put_tenant(name, _read_settings.decode(msgspec.json.encode(settings))), as_json)


tenant.add_command(apply)
tenant.add_command(usage)


def _has_run(client: SyncClient, name: str) -> bool:
    today = now().date()
    return client.usage(name, today - timedelta(days=DAYS_OF_USAGE), today).total.runs > 0


def _show(view: TenantView, as_json: bool) -> None:
    if as_json:
        return show_json(view)
    listed = ", ".join(f"{name} {value}" for name, value in flat(msgspec.to_builtins(view.settings)))
    return done(f"{view.tenant}: {listed or 'no limits'}")
