"""`noonday alert notify`: recipients of alerts."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click
import msgspec

from noonday.cli.choices import choice
from noonday.cli.client import with_client
from noonday.cli.flag_errors import at_flags
from noonday.cli.group import Group
from noonday.cli.instants import duration, length
from noonday.cli.screen import cell_text, done, json_option, show_json, show_list
from noonday.cli.tables import ListTable
from noonday.model.alert import AlertKind
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.notice import ChannelType, Recipient
from noonday.model.preference import PreferenceSpec, PreferenceView
from noonday.sdk.sync import SyncClient

FIRST = "first"
"""Alias of the alert kind FAILED, the first failure of a job."""
_KINDS = (FIRST, *(kind.lower() for kind in AlertKind))

EXAMPLES = """
Examples:
  noonday alert notify set ops --email ops@example.com
  noonday alert notify set ops --on exhausted --on recovered --digest 5m     change an existing recipient
  noonday alert notify set pager --webhook https://hooks.example.com/noonday --digest 0
  noonday alert notify set sam --email sam@example.com --on first --pool billing
  noonday alert notify test ops                                              check that notices arrive
  noonday alert notify list
"""


@click.group(cls=Group, epilog=EXAMPLES)
def notify() -> None:
    """Choose who receives alerts, and how."""


@notify.command("list")
@json_option
@with_client("read")
def list_(client: SyncClient, as_json: bool) -> None:
    """List the recipients of alerts."""
    found = client.alert_preferences.list()
    if as_json:
        return show_json({"preferences": found})
    grid = ListTable("ID", "USER", "BY", "WHERE", "OF", "WITHIN", "ONLY", cut=("WHERE", "OF", "ONLY"), spare=("USER",))
    for one in found:
        by = one.channel.type if one.channel else "-"
        grid.add(
            one.id, cell_text(one.user), by, cell_text(_where(one)), _kinds(one), _within(one), cell_text(_only(one))
        )
    return show_list(grid, "alert preferences")


@notify.command("set")
@click.argument("preference_id", metavar="ID")
@click.option("--email", metavar="ADDRESS", help="Send by email to this address.")
@click.option("--webhook", metavar="URL", help="Send by a signed call to this URL.")
@click.option("--push", metavar="ADDRESS", help="Send by push, if the server has a push channel.")
@click.option("--on", "kinds", type=choice(_KINDS), multiple=True, help="Kind of alert to send; repeatable.")
@click.option(
    "--digest",
    type=duration,
    metavar="DURATION",
    help="Combine the alerts of this period in one message; 0 sends each at once.",
)
@click.option("--pool", "pools", multiple=True, metavar="POOL", help="Only alerts of this pool; repeatable.")
@click.option("--job", "jobs", multiple=True, metavar="JOB", help="Only alerts of this job or task; repeatable.")
@click.option("--user", help="Name of the recipient. [default: you]")
@click.option("--enabled/--disabled", default=None, help="Turn sending on or off.")
@json_option
@with_client("admin")
def set_(client: SyncClient, preference_id: str, as_json: bool, **flags: Any) -> None:
    """Add or change a recipient of alerts. ID is a name of your choice, such as ops.

    Without --on, a new recipient gets exhausted, stopped, disabled, missed and recovered. Without --digest, 5m.
    """
    wanted = _changed(_present(client, preference_id), **flags)
    try:
        view = client.alert_preferences.put(preference_id, wanted)
    except InvalidInput as refused:
        raise _in_flags(refused, wanted.channel.type) from refused
    return show_json(view) if as_json else done(_describe(view))


@notify.command()
@click.argument("preference_id", metavar="ID")
@json_option
@with_client("admin")
def delete(client: SyncClient, preference_id: str, as_json: bool) -> None:
    """Delete a recipient of alerts."""
    client.alert_preferences.delete(preference_id)
    return show_json({"deleted": preference_id}) if as_json else done(f"deleted {preference_id}")


@notify.command()
@click.argument("preference_id", metavar="ID")
@json_option
@with_client("admin")
def test(client: SyncClient, preference_id: str, as_json: bool) -> None:
    """Send a test notice now."""
    sent = client.alert_preferences.test(preference_id)
    if as_json:
        return show_json(sent)
    return done(f"test notice queued; `noonday why {sent.job_id}` shows its result")


def _present(client: SyncClient, preference_id: str) -> PreferenceSpec | None:
    try:
        kept = client.alert_preferences.get(preference_id)
    except NotFound:
        return None
    names = set(PreferenceSpec.__struct_fields__).intersection(PreferenceView.__struct_fields__)
    return PreferenceSpec(**{name: getattr(kept, name) for name in names})


def _changed(
    present: PreferenceSpec | None,
    *,
    email: str | None,
    webhook: str | None,
    push: str | None,
    kinds: Sequence[str],
    digest: timedelta | None,
    pools: Sequence[str],
    jobs: Sequence[str],
    user: str | None,
    enabled: bool | None,
) -> PreferenceSpec:
    channel = _channel(email, webhook, push)
    if channel is None and present is None:
        raise click.UsageError("a new recipient needs --email ADDRESS, --webhook URL or --push ADDRESS")
    given: dict[str, Any] = {
        "channel": channel,
        "kinds": tuple(dict.fromkeys(map(_kind, kinds))) or None,
        "digest_seconds": None if digest is None else int(digest.total_seconds()),
        "pools": tuple(pools) or None,
        "job_ids": tuple(jobs) or None,
        "user": user,
        "enabled": enabled,
    }
    wanted = {name: value for name, value in given.items() if value is not None}
    return PreferenceSpec(**wanted) if present is None else msgspec.structs.replace(present, **wanted)


def _channel(email: str | None, webhook: str | None, push: str | None) -> Recipient | None:
    given = [
        *([] if email is None else [Recipient(ChannelType.EMAIL, email)]),
        *([] if webhook is None else [Recipient(ChannelType.WEBHOOK, url=webhook)]),
        *([] if push is None else [Recipient(ChannelType.PUSH, push)]),
    ]
    if len(given) > 1:
        raise click.UsageError("a recipient has one channel; use another ID for a second channel")
    return given[0] if given else None


def _kind(word: str) -> AlertKind:
    return AlertKind.FAILED if word == FIRST else AlertKind(word.upper())


def _describe(view: PreferenceView) -> str:
    off = "" if view.enabled else " (disabled)"
    only = f", only from {_only(view)}" if _only(view) != "-" else ""
    return f"{view.id}: {_where(view)} receives {_kinds(view)}{only}, {_window(view)}{off}"


def _where(view: PreferenceView) -> str:
    return (view.channel and (view.channel.address or view.channel.url)) or "-"


def _kinds(view: PreferenceView) -> str:
    return ", ".join(kind.lower() for kind in view.kinds)


def _within(view: PreferenceView) -> str:
    if not view.enabled:
        return "disabled"
    return length(view.digest_seconds) if view.digest_seconds else "at once"


def _window(view: PreferenceView) -> str:
    return f"at most one message per {length(view.digest_seconds)}" if view.digest_seconds else "at once"


def _only(view: PreferenceView) -> str:
    return ", ".join((*view.pools, *view.job_ids)) or "-"


def _in_flags(refused: InvalidInput, channel: ChannelType) -> InvalidInput:
    flags = {"channel": f"--{channel.lower()}", "kinds": "--on", "digest_seconds": "--digest", "user": "--user"}
    flags |= {"pools": "--pool", "job_ids": "--job"}
    return at_flags(refused, lambda pointer: flags.get(pointer.split("/")[1], pointer))
