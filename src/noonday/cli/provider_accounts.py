"""`noonday provider`: commands of the accounts at mail, SMS and push services."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import UNSET, UnsetType
from rich.text import Text

from noonday.cli.choices import choice, names_of
from noonday.cli.client import with_client
from noonday.cli.flag_errors import at_flags
from noonday.cli.group import Command
from noonday.cli.instants import whole
from noonday.cli.screen import cell_text, compact, done, json_option, show, show_json, show_list
from noonday.cli.tables import ListTable, facts
from noonday.model.errors import InvalidInput
from noonday.model.notifications.sending import ProviderKind
from noonday.model.notifications.wire import AccountLimits, ProviderSpec, ProviderView
from noonday.sdk.sync import SyncClient


def _pair(form: str) -> Callable[[str], tuple[str, str]]:
    def read(text: str) -> tuple[str, str]:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            # A value is not repeated: it may be a secret that was typed by mistake.
            raise click.BadParameter(f"expected {form}")
        return name, value

    read.__name__ = "text"
    return read


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--kind",
    type=choice(ProviderKind),
    metavar=names_of(ProviderKind),
    required=True,
    help="Protocol of the provider. The channel follows from it.",
)
@click.option(
    "--setting",
    "settings",
    type=_pair("NAME=VALUE"),
    multiple=True,
    metavar="NAME=VALUE|NAME=@FILE",
    help="Setting of the kind; repeatable. VALUE is JSON such as 587, or else a text.",
)
@click.option("--secret", "prompted", multiple=True, metavar="NAME", help="Ask for this secret; repeatable.")
@click.option(
    "--secret-file",
    "from_files",
    type=_pair("NAME=FILE"),
    multiple=True,
    metavar="NAME=FILE",
    help="Read this secret from a file; repeatable.",
)
@click.option(
    "--secret-env",
    "from_variables",
    type=_pair("NAME=VARIABLE"),
    multiple=True,
    metavar="NAME=VARIABLE",
    help="Read this secret from an environment variable; repeatable.",
)
@click.option("--order", type=int, default=1, show_default=True, help="The account with the lowest is tried first.")
@click.option("--rate", type=float, metavar="NUMBER", help="Maximum messages per second.")
@click.option("--concurrency", type=int, metavar="NUMBER", help="Maximum concurrent calls.")
@json_option
@with_client("admin")
def put(
    client: SyncClient,
    name: str,
    kind: str,
    settings: Sequence[tuple[str, str]],
    prompted: Sequence[str],
    from_files: Sequence[tuple[str, str]],
    from_variables: Sequence[tuple[str, str]],
    order: int,
    rate: float | None,
    concurrency: int | None,
    as_json: bool,
) -> None:
    """Create or replace a provider account. An account that was stopped starts again.

    Without any secret, the stored ones are kept, provided that kind and settings are unchanged.
    """
    spec = ProviderSpec(
        kind=ProviderKind(kind.upper()),
        order=order,
        limits=AccountLimits(rate_per_sec=rate, max_concurrency=concurrency),
        settings={key: _setting(key, value) for key, value in settings},
        secrets=_secrets(prompted, from_files, from_variables),
    )
    try:
        view = client.providers.put(name, spec)
    except InvalidInput as refused:
        raise at_flags(refused, _flag_of) from refused
    return show_json(view) if as_json else _print(view)


@click.command("list", cls=Command)
@json_option
@with_client("read")
def list_(client: SyncClient, as_json: bool) -> None:
    """List the provider accounts, in the order in which they are tried."""
    found = client.providers.list()
    if as_json:
        return show_json({"providers": found})
    grid = ListTable("NAME", "CHANNEL", "KIND", "ORDER", "STATE", right=("ORDER",), cut=("STATE",))
    for one in found:
        grid.add(one.name, one.channel, one.kind, str(one.order), _state(one))
    return show_list(grid, "provider accounts")


@click.command("show", cls=Command)
@click.argument("name", metavar="NAME")
@json_option
@with_client("read")
def show_(client: SyncClient, name: str, as_json: bool) -> None:
    """Show a provider account, without the values of its secrets."""
    view = client.providers.get(name)
    return show_json(view) if as_json else _print(view)


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@json_option
@with_client("admin")
def delete(client: SyncClient, name: str, as_json: bool) -> None:
    """Delete a provider account with its secrets."""
    client.providers.delete(name)
    return show_json({"deleted": name}) if as_json else done(f"deleted {name}")


def _setting(name: str, value: str) -> Any:
    if value.startswith("@"):
        return _read_file(value[1:], "--setting", strip=False)
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _secrets(
    prompted: Sequence[str], from_files: Sequence[tuple[str, str]], from_variables: Sequence[tuple[str, str]]
) -> dict[str, str] | UnsetType:
    secrets = {name: _read_file(path, "--secret-file", strip=True) for name, path in from_files}
    secrets |= {name: _read_variable(variable) for name, variable in from_variables}
    secrets |= {name: click.prompt(name, hide_input=True, err=True) for name in prompted}
    return secrets or UNSET


def _read_file(path: str, flag: str, *, strip: bool) -> str:
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", param_hint=flag) from error
    except UnicodeError as error:
        raise click.BadParameter(f"{path} is not UTF-8 text", param_hint=flag) from error
    # Editors end a file with a line end, which is not part of a secret.
    return text.rstrip("\r\n") if strip else text


def _read_variable(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise click.BadParameter(f"the variable {variable} is not set", param_hint="--secret-env")
    return value


def _flag_of(pointer: str) -> str:
    _, section, *rest = pointer.split("/")
    flags = {"settings": "--setting", "secrets": "--secret", "kind": "--kind", "order": "--order"}
    if section == "limits":
        return "--rate" if rest == ["rate_per_sec"] else "--concurrency"
    return " ".join([flags[section], *rest]) if section in flags else pointer


def _state(view: ProviderView) -> Text:
    return Text(cell_text(view.fault), "red") if view.fault else Text("in use", "green")


def _print(view: ProviderView) -> None:
    limits = view.limits
    show(
        facts(
            [
                ("account", view.name),
                ("kind", view.kind.value),
                ("channel", view.channel.value),
                ("order", str(view.order)),
                ("state", _state(view)),
                ("stopped", whole(view.fault_at) if view.fault_at else None),
                ("settings", compact(view.settings)),
                ("secrets", ", ".join(map(cell_text, view.secret_names)) or "none"),
                ("rate", f"{limits.rate_per_sec:g}/s" if limits.rate_per_sec else None),
                ("at once", str(limits.max_concurrency) if limits.max_concurrency else None),
                ("created", whole(view.created_at)),
                ("updated", whole(view.updated_at) if view.updated_at != view.created_at else None),
            ]
        )
    )
