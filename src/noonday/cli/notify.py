"""`noonday notify`: who is told of alerts, and how."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click
import msgspec

from noonday.alerts.preferences import PreferenceSpec, PreferenceView
from noonday.cli.asking import asks
from noonday.cli.choices import choice
from noonday.cli.group import Group
from noonday.cli.instants import duration, length
from noonday.cli.screen import done, json_option, said, show_json, show_list
from noonday.cli.tables import Listing
from noonday.model.alert import AlertKind
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.notice import ChannelType, Recipient
from noonday.sdk.sync import SyncClient

FIRST = "first"
"""What a first failure is called here as well."""
_KINDS = (FIRST, *(kind.lower() for kind in AlertKind))

EXAMPLES = """
Examples:
  noonday notify set ops --email ops@example.com
  noonday notify set ops --on exhausted --on recovered --digest 5m     change what there is
  noonday notify set pager --webhook https://hooks.example.com/noonday --digest 0
  noonday notify set sam --email sam@example.com --on first --pool billing
  noonday notify test ops                                              is it read where it should be?
  noonday notify list
"""


@click.group(cls=Group, epilog=EXAMPLES)
def notify() -> None:
    """Say who is told when jobs and tasks fail or recover, and how."""


@notify.command("list")
@json_option
@asks("read")
def list_(client: SyncClient, as_json: bool) -> None:
    """List who is told of what."""
    found = client.alert_preferences.list()
    if as_json:
        return show_json({"preferences": found})
    grid = Listing("ID", "USER", "BY", "WHERE", "OF", "WITHIN", "ONLY", cut=("WHERE", "OF", "ONLY"), spare=("USER",))
    for one in found:
        by = one.channel.type if one.channel else "-"
        grid.add(one.id, said(one.user), by, said(_where(one)), _kinds(one), _within(one), said(_only(one)))
    return show_list(grid, "alert preferences")


@notify.command("set")
@click.argument("preference_id", metavar="ID")
@click.option("--email", metavar="ADDRESS", help="Tell by email.")
@click.option("--webhook", metavar="URL", help="Tell by a signed call of this URL.")
@click.option("--push", metavar="ADDRESS", help="Tell by push, if the server has such a channel.")
@click.option("--on", "kinds", type=choice(_KINDS), multiple=True, help="Of what; may be given several times.")
@click.option(
    "--digest", type=duration, metavar="DURATION", help="What happens within this is one message; 0: at once."
)
@click.option("--pool", "pools", multiple=True, metavar="POOL", help="Only what happens in this pool.")
@click.option("--job", "jobs", multiple=True, metavar="JOB", help="Only this job, or this task.")
@click.option("--user", help="Who that is, as you call them. [default: you]")
@click.option("--enabled/--disabled", default=None, help="Whether anything is sent.")
@json_option
@asks("admin")
def set_(client: SyncClient, preference_id: str, as_json: bool, **flags: Any) -> None:
    """Say what somebody wants to be told of, or change some of it. ID is a name of your choice, such as ops.

    Without --on: dead letters, what was stopped, disabled or missed, and what has recovered. Without --digest: 5m.
    """
    wanted = _changed(_present(client, preference_id), **flags)
    try:
        view = client.alert_preferences.put(preference_id, wanted)
    except InvalidInput as refused:
        raise _in_flags(refused, wanted.channel.type) from refused
    return show_json(view) if as_json else done(_told(view))


@notify.command()
@click.argument("preference_id", metavar="ID")
@json_option
@asks("admin")
def delete(client: SyncClient, preference_id: str, as_json: bool) -> None:
    """Tell nobody any more under this id."""
    client.alert_preferences.delete(preference_id)
    return show_json({"deleted": preference_id}) if as_json else done(f"deleted {preference_id}")


@notify.command()
@click.argument("preference_id", metavar="ID")
@json_option
@asks("admin")
def test(client: SyncClient, preference_id: str, as_json: bool) -> None:
    """Send a test notice now."""
    sent = client.alert_preferences.test(preference_id)
    if as_json:
        return show_json(sent)
    return done(f"on its way; `noonday why {sent.job_id}` tells what became of it")


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
        raise click.UsageError("say how: --email ADDRESS, --webhook URL or --push ADDRESS")
    told: dict[str, Any] = {
        "channel": channel,
        "kinds": tuple(dict.fromkeys(map(_kind, kinds))) or None,
        "digest_seconds": None if digest is None else int(digest.total_seconds()),
        "pools": tuple(pools) or None,
        "job_ids": tuple(jobs) or None,
        "user": user,
        "enabled": enabled,
    }
    wanted = {name: value for name, value in told.items() if value is not None}
    return PreferenceSpec(**wanted) if present is None else msgspec.structs.replace(present, **wanted)


def _channel(email: str | None, webhook: str | None, push: str | None) -> Recipient | None:
    given = [
        *([] if email is None else [Recipient(ChannelType.EMAIL, email)]),
        *([] if webhook is None else [Recipient(ChannelType.WEBHOOK, url=webhook)]),
        *([] if push is None else [Recipient(ChannelType.PUSH, push)]),
    ]
    if len(given) > 1:
        raise click.UsageError("one channel at a time: for another one, choose another ID")
    return given[0] if given else None


def _kind(word: str) -> AlertKind:
    return AlertKind.FAILED if word == FIRST else AlertKind(word.upper())


def _told(view: PreferenceView) -> str:
    off = "" if view.enabled else " (disabled)"
    only = f", only of {_only(view)}" if _only(view) != "-" else ""
    return f"{view.id}: {_where(view)} is told of {_kinds(view)}{only}, {_window(view)}{off}"


def _where(view: PreferenceView) -> str:
    return (view.channel and (view.channel.address or view.channel.url)) or "-"


def _kinds(view: PreferenceView) -> str:
    return ", ".join(kind.lower() for kind in view.kinds)


def _within(view: PreferenceView) -> str:
    if not view.enabled:
        return "disabled"
    return length(view.digest_seconds) if view.digest_seconds else "at once"


def _window(view: PreferenceView) -> str:
    return f"at most once in {length(view.digest_seconds)}" if view.digest_seconds else "at once"


def _only(view: PreferenceView) -> str:
    return ", ".join((*view.pools, *view.job_ids)) or "-"


def _in_flags(refused: InvalidInput, channel: ChannelType) -> InvalidInput:
    flags = {"channel": f"--{channel.lower()}", "kinds": "--on", "digest_seconds": "--digest", "user": "--user"}
    flags |= {"pools": "--pool", "job_ids": "--job"}
    flaws = [
        msgspec.structs.replace(flaw, pointer=flags.get(flaw.pointer.split("/")[1], flaw.pointer))
        for flaw in refused.flaws
    ]
    return InvalidInput(refused.detail, flaws, **refused.context)
