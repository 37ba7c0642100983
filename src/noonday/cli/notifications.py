"""`noonday notification`: push messages, SMS and emails to users."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from noonday.cli.choices import choice, names_of
from noonday.cli.client import with_client
from noonday.cli.flag_errors import at_flags
from noonday.cli.group import Group
from noonday.cli.instants import brief, duration, instant, now, whole
from noonday.cli.job_flags import read_json
from noonday.cli.screen import cell_text, done, json_option, show, show_json, show_list, state
from noonday.cli.tables import ListTable, facts
from noonday.model.decoding import BodyDecoder
from noonday.model.errors import InvalidInput
from noonday.model.notifications.notification import NotificationPriority, NotificationStatus
from noonday.model.notifications.sending import ChannelKind
from noonday.model.notifications.wire import (
    IfPast,
    NotificationEventView,
    NotificationSpec,
    NotificationView,
)
from noonday.sdk.sync import SyncClient

EXAMPLES = """
A notification reaches a user of your application over the first channel that works. `noonday user put` says where the user is
reached, `noonday provider put` adds an account for a channel.

Examples:
  noonday notification send u-17 --channel email --title Shipped --text 'Order A-17 is on its way'
  noonday notification send u-17 --channel sms --channel email --text 'Your code is 1234' --in 10m --expires 5m
  noonday notification send u-17 --channel push --title Reminder --local-time '2030-01-31 09:00'
  noonday notification list --user u-17
  noonday notification show 01a230d5-1280-81a7-9c1e-5b2f6d8e9a01
"""
_FLAGS = {
    "/user_id": "USER",
    "/channels": "--channel",
    "/priority": "--priority",
    "/content/title": "--title",
    "/content/text": "--text",
    "/content/html": "--html",
    "/content/data": "--push-data",
    "/content": "--text",
    "/local_time": "--local-time",
    "/expires_at": "--expires",
    "/dedupe_key": "--dedupe-key",
    "/dedupe_seconds": "--dedupe-for",
    "/if_past": "--if-past",
}
_read_spec = BodyDecoder(NotificationSpec)


@click.group(cls=Group, epilog=EXAMPLES)
def notification() -> None:
    """Send notifications to users, and see what became of them."""


def _text(text: str) -> str:
    """Option type of a text, or of @FILE, which has the text."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text("utf-8")
    except (OSError, UnicodeError) as bad:
        raise click.BadParameter(f"cannot read {text[1:]}: {bad}") from bad


_text.__name__ = "text"


@notification.command()
@click.argument("user_id", metavar="USER")
@click.option(
    "--channel",
    "channels",
    type=choice(ChannelKind),
    metavar=names_of(ChannelKind),
    multiple=True,
    required=True,
    help="Channel; repeat it for others that are tried in this order if one does not work.",
)
@click.option("--title", help="Title of a push message, subject of an email.")
@click.option("--text", type=_text, metavar="TEXT|@FILE", help="Text of the message.")
@click.option("--html", type=_text, metavar="HTML|@FILE", help="HTML of an email.")
@click.option("--push-data", metavar="JSON|@FILE|-", help="JSON for the application on the device.")
@click.option(
    "--priority",
    type=choice(NotificationPriority),
    metavar=names_of(NotificationPriority),
    help="Priority. [default: NORMAL]",
)
@click.option("--at", type=instant, help="Send at this time. [default: now]")
@click.option("--in", "in_", type=duration, metavar="DURATION", help="Send after this duration.")
@click.option("--local-time", metavar="'DATE TIME'", help="Send at this time in the zone of the user.")
@click.option(
    "--expires",
    type=duration,
    metavar="DURATION",
    help="Do not send it later than this after its time. Not with --local-time. [default: 24h]",
)
@click.option("--dedupe-key", metavar="KEY", help="Of the notifications of a user with the same KEY, send one.")
@click.option("--dedupe-for", type=duration, metavar="DURATION", help="How long KEY counts. [default: 24h]")
@click.option("--if-past", type=choice(IfPast), metavar=names_of(IfPast), help="Send now if the time has passed.")
@click.option("--idempotency-key", metavar="KEY", help="Commands with the same key and time send one notification.")
@json_option
@with_client("write")
def send(client: SyncClient, user_id: str, idempotency_key: str | None, as_json: bool, **flags: Any) -> None:
    """Send a notification to a user. USER is your application's id of the user."""
    try:
        accepted = client.notifications.send(_spec_of(user_id, flags), idempotency_key=idempotency_key)
    except InvalidInput as refused:
        raise _in_flags(refused, flags) from refused
    if as_json:
        return show_json(accepted)
    when = "now" if accepted.status is NotificationStatus.QUEUED else brief(accepted.send_at)
    done(f"accepted {accepted.id}, to be sent {when}")
    return done(f"  noonday notification show {accepted.id}")


@notification.command("list")
@click.option("--user", "user_id", metavar="USER", required=True, help="Your application's id of the user.")
@click.option(
    "--status",
    type=choice(NotificationStatus),
    metavar="STATUS",
    help="Only those with this status, such as SENT or FAILED.",
)
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Maximum number.")
@json_option
@with_client("read")
def list_(client: SyncClient, user_id: str, status: str | None, limit: int, as_json: bool) -> None:
    """List the notifications of a user, newest first."""
    found = client.notifications.list(user_id, status=status, limit=limit)
    if as_json:
        return show_json(found)
    grid = ListTable(
        "ID", "STATUS", "SEND AT", "CHANNELS", "REASON", cut=("REASON",), fold=("SEND AT",), spare=("CHANNELS",)
    )
    for one in found.notifications:
        channels = ", ".join(one.channels)
        grid.add(one.id, state(one.status), brief(one.send_at), channels, cell_text(one.reason))
    return show_list(grid, "notifications", more=found.next is not None)


@notification.command("show")
@click.argument("notification_id", metavar="ID")
@json_option
@with_client("read")
def show_(client: SyncClient, notification_id: str, as_json: bool) -> None:
    """Show a notification: its status, the reason, and what happened to it."""
    found = client.notifications.get(notification_id)
    if as_json:
        return show_json(found)
    show(facts(_facts_of(found)))
    if found.events:
        show("", _events_table(found.events))
    return None


def _spec_of(user_id: str, flags: Mapping[str, Any]) -> NotificationSpec:
    if sum(flags[name] is not None for name in ("at", "in_", "local_time")) > 1:
        raise click.UsageError("--at, --in and --local-time are mutually exclusive: use one")
    if flags["expires"] is not None and flags["local_time"] is not None:
        raise click.UsageError("--expires counts from the send time, which the server computes from --local-time")
    at = _send_time(flags["at"], flags["in_"])
    data = None if flags["push_data"] is None else read_json(flags["push_data"], "--push-data")
    content = {"title": flags["title"], "text": flags["text"], "html": flags["html"], "data": data}
    members = {
        "user_id": user_id,
        "channels": flags["channels"],
        "content": _given(content),
        "priority": flags["priority"],
        "scheduled_at": at,
        "local_time": flags["local_time"] and flags["local_time"].strip().replace(" ", "T"),
        "expires_at": None if flags["expires"] is None else (at or now()) + flags["expires"],
        "dedupe_key": flags["dedupe_key"],
        "dedupe_seconds": None if flags["dedupe_for"] is None else round(flags["dedupe_for"].total_seconds()),
        "if_past": flags["if_past"],
    }
    spec: NotificationSpec = _read_spec.decode(msgspec.json.encode(_given(members)))
    return spec


def _send_time(at: datetime | None, after: timedelta | None) -> datetime | None:
    return at if after is None else now() + after


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _in_flags(refused: InvalidInput, flags: Mapping[str, Any]) -> InvalidInput:
    at = "--at" if flags["in_"] is None else "--in"

    def flag_of(pointer: str) -> str:
        if pointer.startswith("/scheduled_at"):
            return at
        return next((flag for place, flag in _FLAGS.items() if f"{pointer}/".startswith(f"{place}/")), pointer)

    return at_flags(refused, flag_of)


def _facts_of(found: NotificationView) -> list[tuple[str, str | Text | None]]:
    return [
        ("notification", found.id),
        ("user", cell_text(found.user_id)),
        ("status", state(found.status)),
        ("reason", cell_text(found.reason) if found.reason else None),
        ("channels", ", ".join(found.channels)),
        ("priority", found.priority.value),
        ("send at", whole(found.send_at)),
        ("expires", whole(found.expires_at)),
        ("final", "yes" if found.final else "no: it may still be sent"),
    ]


def _events_table(events: tuple[NotificationEventView, ...]) -> ListTable:
    grid = ListTable("AT", "EVENT", "CHANNEL", "PROVIDER", "DETAIL", cut=("DETAIL",), fold=("AT",), spare=("CHANNEL",))
    for one in events:
        grid.add(brief(one.at), state(one.kind), one.channel or "-", cell_text(one.provider), cell_text(one.detail))
    return grid
