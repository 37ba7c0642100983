"""`noonday endpoint`: health and limits of the endpoints that tasks call."""

from datetime import timedelta
from typing import Any

import click
from msgspec.structs import replace
from rich.text import Text

from noonday.cli.client import with_client
from noonday.cli.flag_errors import at_flags
from noonday.cli.group import Group
from noonday.cli.instants import brief, duration, whole
from noonday.cli.screen import cell_text, done, json_option, show, show_json, show_list, state
from noonday.cli.tables import ListTable, facts
from noonday.model.endpoint import EndpointSettings
from noonday.model.endpoint_view import EndpointView
from noonday.model.errors import InvalidInput, NotFound
from noonday.sdk.sync import SyncClient

ANY = "any"
DAY = timedelta(days=1)
_FLAGS = {"max_concurrency": "--concurrency", "rate_per_sec": "--rate", "disable_after_days": "--disable-after"}

EXAMPLES = """
ENDPOINT is an id (ep_...) or a URL. Only scheme, host and port of the URL count.

Examples:
  noonday endpoint list                                                           list endpoints with their health
  noonday endpoint set https://api.example.com --rate 10 --burst 20               at most 10 calls per second
  noonday endpoint set https://api.example.com --concurrency 5                    at most 5 concurrent calls; keep the rate
  noonday endpoint set https://api.example.com --rate any --disable-after 14d
  noonday endpoint show https://api.example.com
  noonday endpoint disable https://api.example.com                                make no more calls
  noonday endpoint enable https://api.example.com                                 resume its tasks
"""


@click.group(cls=Group, epilog=EXAMPLES)
def endpoint() -> None:
    """Show and limit the endpoints that tasks call.

    An endpoint is a scheme, host and port. An endpoint that fails for days is disabled: its tasks stop until it is enabled.
    """


@endpoint.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Maximum number of endpoints."
)
@json_option
@with_client("read")
def list_(client: SyncClient, limit: int, as_json: bool) -> None:
    """List endpoints that were called or have settings, sorted by name."""
    found = client.endpoints.list(limit=limit)
    if as_json:
        return show_json(found)
    grid = ListTable(
        "ENDPOINT",
        "HEALTH",
        "RATE",
        "AT ONCE",
        "LAST SUCCESS",
        "LAST ERROR",
        cut=("LAST ERROR",),
        spare=("LAST ERROR",),
    )
    for one in found.endpoints:
        settings, health = one.settings, one.health
        last = brief(health.last_success_at)
        grid.add(one.endpoint, _state(one), _rate(settings), _at_once(settings), last, cell_text(_last_error(one)))
    return show_list(grid, "endpoints", more=found.next is not None)


@endpoint.command("show")
@click.argument("endpoint_", metavar="ENDPOINT")
@json_option
@with_client("read")
def show_(client: SyncClient, endpoint_: str, as_json: bool) -> None:
    """Show the settings and health of an endpoint."""
    return _print(client.endpoints.get(_checked(endpoint_)), as_json)


def _limit(kind: type) -> Any:
    def read(text: str) -> Any:
        return ANY if text.strip().lower() == ANY else kind(text)

    read.__name__ = "number"
    return read


@endpoint.command("set")
@click.argument("endpoint_", metavar="ENDPOINT")
@click.option("--rate", type=_limit(float), metavar="NUMBER", help="Maximum calls per second; `any` removes the limit.")
@click.option("--burst", type=int, metavar="NUMBER", help="Maximum calls at once after an idle period.")
@click.option(
    "--concurrency", type=_limit(int), metavar="NUMBER", help="Maximum concurrent calls; `any` removes the limit."
)
@click.option(
    "--disable-after",
    type=duration,
    metavar="DURATION",
    help="Disable the endpoint after failures for this long without a success; 0 disables it never. [default: 5d]",
)
@json_option
@with_client("write")
def set_(client: SyncClient, endpoint_: str, as_json: bool, **flags: Any) -> None:
    """Change the settings of an endpoint. Settings without a flag keep their values."""
    name = _checked(endpoint_)
    wanted = _changed(_settings_of(client, name), **flags)
    try:
        return _print(client.endpoints.set(name, wanted), as_json)
    except InvalidInput as refused:
        raise at_flags(refused, _flag_of) from refused


@endpoint.command()
@click.argument("endpoint_", metavar="ENDPOINT")
@json_option
@with_client("write")
def enable(client: SyncClient, endpoint_: str, as_json: bool) -> None:
    """Enable an endpoint and resume the tasks that stopped when it was disabled."""
    found = client.endpoints.enable(_checked(endpoint_))
    return show_json(found) if as_json else done(f"enabled {found.endpoint}; its tasks are resumed")


@endpoint.command()
@click.argument("endpoint_", metavar="ENDPOINT")
@json_option
@with_client("write")
def disable(client: SyncClient, endpoint_: str, as_json: bool) -> None:
    """Disable an endpoint: its tasks stop, and new tasks for it are refused."""
    found = client.endpoints.disable(_checked(endpoint_))
    return show_json(found) if as_json else done(f"disabled {found.endpoint}; its tasks are stopped")


def _checked(text: str) -> str:
    return text if "://" in text or text.startswith("ep_") else f"https://{text}"


def _settings_of(client: SyncClient, name: str) -> EndpointSettings:
    try:
        return client.endpoints.get(name).settings
    except NotFound:
        return EndpointSettings()


def _changed(
    settings: EndpointSettings,
    *,
    rate: float | str | None,
    burst: int | None,
    concurrency: int | str | None,
    disable_after: timedelta | None,
) -> EndpointSettings:
    new: dict[str, Any] = {"rate_per_sec": rate, "burst": burst, "max_concurrency": concurrency}
    new["disable_after_days"] = None if disable_after is None else disable_after / DAY
    changes = {name: None if value == ANY else value for name, value in new.items() if value is not None}
    if not changes:
        raise click.UsageError("nothing to set: pass --rate, --burst, --concurrency or --disable-after")
    return replace(settings, **changes)


def _print(found: EndpointView, as_json: bool) -> None:
    return show_json(found) if as_json else show(facts(_facts_of(found)))


def _facts_of(found: EndpointView) -> list[tuple[str, str | Text]]:
    settings, health = found.settings, found.health
    rows: list[tuple[str, str | Text]] = [("endpoint", found.endpoint), ("id", found.id), ("health", _state(found))]
    if health.disabled_at is not None:
        rows += [("disabled", whole(health.disabled_at)), ("because", f"it {cell_text(health.disabled_because)}")]
    if health.failing_since is not None:
        rows.append(("failing since", f"{whole(health.failing_since)}, {health.failures} calls"))
    rows += [("last success", whole(health.last_success_at)), ("last failure", whole(health.last_failure_at))]
    if health.last_error is not None:
        rows.append(("last error", cell_text(health.last_error)))
    rows += [("rate", _rate(settings)), ("at once", _at_once(settings))]
    days = settings.disable_after_days
    return [*rows, ("disabled after", f"{days:g} days of failures" if days else "never")]


def _state(found: EndpointView) -> Text:
    return state(found.health.status)


def _last_error(found: EndpointView) -> str | None:
    return found.health.last_error if found.health.failing_since or found.health.disabled_at else None


def _rate(settings: EndpointSettings) -> str:
    if settings.rate_per_sec is None:
        return ANY
    return f"{settings.rate_per_sec:g}/s" + (f", burst {settings.burst}" if settings.burst > 1 else "")


def _at_once(settings: EndpointSettings) -> str:
    return ANY if settings.max_concurrency is None else str(settings.max_concurrency)


def _flag_of(pointer: str) -> str:
    return _FLAGS.get(pointer[1:], f"--{pointer[1:]}")
