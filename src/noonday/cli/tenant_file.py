"""`noonday tenant apply`: set tenants from a file."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from noonday.cli.client import with_client
from noonday.cli.group import Command
from noonday.cli.screen import done, json_option, show_json
from noonday.model.caller import TENANT_RULE, is_tenant_name
from noonday.model.decoding import flaw_of
from noonday.model.errors import Flaw, InvalidInput, NotFound, nearest
from noonday.model.tenancy import flaws_of_tenant
from noonday.model.view import TenantInPool, TenantSettings
from noonday.sdk.sync import SyncClient

EXAMPLES = """
The file replaces all settings of each tenant that it names. Other tenants do not change.

  [tenants.acme]
  weight = 4
  maxJobs = 10000
  [tenants.acme.pools.mail]
  maxRunning = 5

Examples:
  noonday tenant apply tenants.toml --dry-run
  noonday tenant apply tenants.toml
"""


class Difference(NamedTuple):
    """Setting that the file changes, named by its path, such as `pools.mail.maxRunning`."""

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.name} {_plain(self.old)} -> {_plain(self.new)}"


@click.command("apply", cls=Command, epilog=EXAMPLES)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@json_option
@with_client("operator")
def apply(client: SyncClient, file: Path, dry_run: bool, as_json: bool) -> None:
    """Set tenants from a TOML file. If the file has an error, nothing is changed."""
    wanted = read_tenants(file)
    changes = {name: _differences(client.get_tenant(name).settings, settings) for name, settings in wanted.items()}
    for name, differences in changes.items():
        if differences and not dry_run:
            client.put_tenant(name, wanted[name])
        if not as_json:
            done(f"{name}: " + (", ".join(map(str, differences)) or "unchanged"))
    if as_json:
        return show_json({"dryRun": dry_run, "tenants": {name: _as_json(each) for name, each in changes.items()}})
    if dry_run:
        click.echo("dry run: nothing was changed", err=True)
    return None


def read_tenants(file: Path) -> dict[str, TenantSettings]:
    """Return the settings of each tenant that a file names. Raises InvalidInput with every flaw of the file."""
    content = _read(file)
    flaws = [_unknown(f"/{name}", name, value, ["tenants"]) for name, value in content.items() if name != "tenants"]
    tables = content.get("tenants", {})
    if not isinstance(tables, dict):
        flaws.append(Flaw("/tenants", "must be tables, such as [tenants.acme]", tables))
        tables = {}
    tenants = {}
    for name, table in tables.items():
        tenants[name], of_tenant = _read_tenant(name, table)
        flaws += of_tenant
    if flaws:
        raise _of_file(file, flaws)
    return tenants


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as missing:
        raise NotFound(f"cannot read {file}: {missing.strerror}") from missing
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as bad:
        raise InvalidInput(f"{file} is not valid TOML: {bad}") from bad


def _read_tenant(name: str, table: Any) -> tuple[TenantSettings, list[Flaw]]:
    """Return the valid settings of a tenant, and every flaw."""
    at = f"/tenants/{name}"
    flaws = []
    if not is_tenant_name(name):
        flaws.append(Flaw(at, f"a tenant's name must have {TENANT_RULE}", name))
    good, unread = _read_table(table, TenantSettings, at)
    settings = msgspec.convert(good, TenantSettings)
    outside = [msgspec.structs.replace(flaw, pointer=at + flaw.pointer) for flaw in flaws_of_tenant(settings)]
    return settings, flaws + unread + outside


def _read_table(table: Any, kind: type[msgspec.Struct], at: str) -> tuple[dict[str, Any], list[Flaw]]:
    if not isinstance(table, dict):
        return {}, [Flaw(at, "must be a table", table)]
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    good, flaws = {}, []
    for name, value in table.items():
        place = f"{at}/{name}"
        if name not in known:
            flaws.append(_unknown(place, name, value, known))
        elif name == "pools":
            good[name], of_pools = _read_pools(value, place)
            flaws += of_pools
        else:
            try:
                msgspec.convert({name: value}, kind)
                good[name] = value
            except msgspec.ValidationError as complaint:
                flaw = flaw_of(complaint, {name: value}, kind)
                flaws.append(msgspec.structs.replace(flaw, pointer=place, value=value))
    return good, flaws


def _read_pools(tables: Any, at: str) -> tuple[dict[str, Any], list[Flaw]]:
    if not isinstance(tables, dict):
        return {}, [Flaw(at, "must be tables, such as [tenants.acme.pools.mail]", tables)]
    good, flaws = {}, []
    for pool, table in tables.items():
        good[pool], of_pool = _read_table(table, TenantInPool, f"{at}/{pool}")
        flaws += of_pool
    return good, flaws


def _unknown(place: str, name: str, value: Any, known: list[str]) -> Flaw:
    return Flaw(place, f"unknown key {name!r}", value, known, nearest(name, known))


def _of_file(file: Path, flaws: list[Flaw]) -> InvalidInput:
    """Return one error for all flaws, with locations such as `tenants.toml: tenants.acme.maxJobs`."""
    placed = [msgspec.structs.replace(flaw, pointer=f"{file}: {flaw.pointer[1:].replace('/', '.')}") for flaw in flaws]
    count = "1 invalid value" if len(flaws) == 1 else f"{len(flaws)} invalid values"
    return InvalidInput(f"{count} in {file}; nothing was changed", placed)


def _differences(old: TenantSettings, new: TenantSettings) -> list[Difference]:
    before, after = dict(flat(_members(old))), dict(flat(_members(new)))
    names = dict.fromkeys([*before, *after])
    return [
        Difference(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]


def _members(settings: TenantSettings) -> dict[str, Any]:
    return {"weight": settings.weight, **msgspec.to_builtins(settings)}


def flat(table: dict[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each leaf of nested tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{at}{name}.")
        else:
            yield at + name, value


def _plain(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _as_json(differences: list[Difference]) -> dict[str, Any]:
    return {name: {"old": old, "new": new} for name, old, new in differences}
