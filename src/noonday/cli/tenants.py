"""`noonday tenant`: what a tenant may use."""

from collections.abc import Callable
from typing import Any

import click
import msgspec

from noonday.api.decoding import BodyDecoder
from noonday.cli.asking import asks
from noonday.cli.group import Group
from noonday.cli.screen import done, json_option, show_json
from noonday.model.view import TenantSettings, TenantView
from noonday.sdk.sync import SyncClient

_read_settings = BodyDecoder(TenantSettings)

EXAMPLES = """
Examples:
  noonday tenant show acme
  noonday tenant set acme --weight 4 --rate 50 --burst 200
  noonday tenant set acme --rate none          no longer bounded
"""

NAMES = {
    "weight": "weight",
    "rate": "ratePerSec",
    "burst": "burst",
}


NONE = object()


def _or_none(read: Callable[[str], Any], name: str) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        return NONE if text == "none" else read(text)

    convert.__name__ = f"{name}|none"
    return convert


_count = _or_none(click.INT, "integer")
_number = _or_none(click.FLOAT, "number")


@click.group(cls=Group, epilog=EXAMPLES)
def tenant() -> None:
    """What a tenant may use: its weight, and its limits."""


@tenant.command("show")
@click.argument("name", metavar="TENANT")
@json_option
@asks
def show(client: SyncClient, name: str, as_json: bool) -> None:
    """Show the settings of a tenant."""
    _show(client.get_tenant(name), as_json)


@tenant.command("set")
@click.argument("name", metavar="TENANT")
@click.option("--weight", type=int, help="Its share while others wait, 1 to 1000.")
@click.option("--rate", type=_number, help="How many executions are handed out a second.")
@click.option("--burst", type=_count, help="How many at once after a quiet while.")
@json_option
@asks
def set_(client: SyncClient, name: str, as_json: bool, **flags: Any) -> None:
    """Change the settings of a tenant. What is not given stays as it is; `none` takes a limit away."""
    settings: dict[str, Any] = msgspec.to_builtins(client.get_tenant(name).settings)
    for flag, value in flags.items():
        if value is NONE:
            settings.pop(NAMES[flag], None)
        elif value is not None:
            settings[NAMES[flag]] = value
    _show(client.put_tenant(name, _read_settings.decode(msgspec.json.encode(settings))), as_json)


def _show(view: TenantView, as_json: bool) -> None:
    if as_json:
        return show_json(view)
    said = msgspec.to_builtins(view.settings)
    return done(f"{view.tenant}: " + (", ".join(f"{name} {value}" for name, value in said.items()) or "no limits"))
