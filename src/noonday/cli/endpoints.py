"""`noonday endpoint`: those whom tasks call."""

from datetime import timedelta
from typing import Any

import click
from msgspec.structs import replace
from rich.text import Text

from noonday.cli.asking import asks
from noonday.cli.group import Group
from noonday.cli.instants import brief, duration, whole
from noonday.cli.screen import done, json_option, said, show, show_json, show_list, state
from noonday.cli.tables import Listing, facts
from noonday.model.endpoint import EndpointSettings
from noonday.model.errors import Flaw, InvalidInput, NotFound
from noonday.sdk.sync import SyncClient
from noonday.tasks.endpoints import EndpointView

ANY = "any"
DAY = timedelta(days=1)
_FLAGS = {"max_concurrency": "--concurrency", "rate_per_sec": "--rate", "disable_after_days": "--disable-after"}

EXAMPLES = """
ENDPOINT is a URL, of which scheme, host and port count, or an id (ep_...).

Examples:
  noonday endpoint list                                                           how they are doing
  noonday endpoint set https://api.example.com --rate 10 --burst 20               at most 10 calls a second
  noonday endpoint set https://api.example.com --concurrency 5                    at most 5 at once; the rate stays
  noonday endpoint set https://api.example.com --rate any --disable-after 14d
  noonday endpoint show https://api.example.com
  noonday endpoint disable https://api.example.com                                no more calls
  noonday endpoint enable https://api.example.com                                 its tasks go on
"""


@click.group(cls=Group, epilog=EXAMPLES)
def endpoint() -> None:
    """See how those whom tasks call are doing, and limit how fast they are called.

    An endpoint is scheme, host and port. One that fails for days is disabled: its tasks are stopped until it is enabled.
    """


@endpoint.command("list")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Show so many, by name.")
@json_option
@asks("read")
def list_(client: SyncClient, limit: int, as_json: bool) -> None:
    """List the endpoints that were called or have settings, by name."""
    found = client.endpoints.list(limit=limit)
    if as_json:
        return show_json(found)
    grid = Listing(
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
        grid.add(one.endpoint, _state(one), _rate(settings), _at_once(settings), last, said(_last_error(one)))
    return show_list(grid, "endpoints", more=found.next is not None)


@endpoint.command("show")
@click.argument("endpoint_", metavar="ENDPOINT")
@json_option
@asks("read")
def show_(client: SyncClient, endpoint_: str, as_json: bool) -> None:
    """Show an endpoint: what is set for it, and how it is doing."""
    return _print(client.endpoints.get(_checked(endpoint_)), as_json)


def _limit(kind: type) -> Any:
    def read(text: str) -> Any:
        return ANY if text.strip().lower() == ANY else kind(text)

    read.__name__ = "number"
    return read


@endpoint.command("set")
@click.argument("endpoint_", metavar="ENDPOINT")
@click.option("--rate", type=_limit(float), metavar="NUMBER", help="At most so many calls a second; any: no limit.")
@click.option("--burst", type=int, metavar="NUMBER", help="So many at once when there were none for a while.")
@click.option("--concurrency", type=_limit(int), metavar="NUMBER", help="At most so many calls at once; any: no limit.")
@click.option(
    "--disable-after",
    type=duration,
    metavar="DURATION",
    help="Disable it when it failed for so long without a success (5d, if not said); 0: never.",
)
@json_option
@asks("write")
def set_(client: SyncClient, endpoint_: str, as_json: bool, **flags: Any) -> None:
    """Limit how fast an endpoint is called, or say when it is disabled; what is not said stays as it is."""
    name = _checked(endpoint_)
    wanted = _changed(_settings_of(client, name), **flags)
    try:
        return _print(client.endpoints.set(name, wanted), as_json)
    except InvalidInput as refused:
        raise _in_flags(refused) from refused


@endpoint.command()
@click.argument("endpoint_", metavar="ENDPOINT")
@json_option
@asks("write")
def enable(client: SyncClient, endpoint_: str, as_json: bool) -> None:
    """Enable an endpoint: tasks that were stopped because it was disabled go on."""
    found = client.endpoints.enable(_checked(endpoint_))
    return show_json(found) if as_json else done(f"enabled {found.endpoint}: its tasks go on")


@endpoint.command()
@click.argument("endpoint_", metavar="ENDPOINT")
@json_option
@asks("write")
def disable(client: SyncClient, endpoint_: str, as_json: bool) -> None:
    """Disable an endpoint: its tasks are stopped, and new ones are refused."""
    found = client.endpoints.disable(_checked(endpoint_))
    return show_json(found) if as_json else done(f"disabled {found.endpoint}: its tasks are stopped")


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
    wished = {name: None if value == ANY else value for name, value in new.items() if value is not None}
    if not wished:
        raise click.UsageError("say what to set: --rate, --burst, --concurrency, --disable-after")
    return replace(settings, **wished)


def _print(found: EndpointView, as_json: bool) -> None:
    return show_json(found) if as_json else show(facts(_facts_of(found)))


def _facts_of(found: EndpointView) -> list[tuple[str, str | Text]]:
    settings, health = found.settings, found.health
    rows: list[tuple[str, str | Text]] = [("endpoint", found.endpoint), ("id", found.id), ("health", _state(found))]
    if health.disabled_at is not None:
        rows += [("disabled", whole(health.disabled_at)), ("because", f"it {said(health.disabled_because)}")]
    if health.failing_since is not None:
        rows.append(("failing since", f"{whole(health.failing_since)}, {health.failures} calls"))
    rows += [("last success", whole(health.last_success_at)), ("last failure", whole(health.last_failure_at))]
    if health.last_error is not None:
        rows.append(("last error", said(health.last_error)))
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


def _in_flags(refused: InvalidInput) -> InvalidInput:
    flaws = [
        Flaw(_FLAGS.get(name := flaw.pointer[1:], f"--{name}"), flaw.detail, flaw.value, flaw.allowed, flaw.nearest)
        for flaw in refused.flaws
    ]
    return InvalidInput(refused.detail, flaws, **refused.context)
