"""`noonday user`: where the users of an application are reached."""

import click

from noonday.cli.client import with_client
from noonday.cli.group import Group
from noonday.cli.instants import whole
from noonday.cli.screen import cell_text, done, json_option, show, show_json
from noonday.cli.tables import facts
from noonday.model.notifications.wire import UserSpec, UserView
from noonday.sdk.sync import SyncClient

EXAMPLES = """
USER is your application's id of the user, such as u-17.

Examples:
  noonday user put u-17 --email a@example.com --phone +4930123456 --zone Europe/Berlin
  noonday user show u-17
  noonday user delete u-17
"""


@click.group(cls=Group, epilog=EXAMPLES)
def user() -> None:
    """Manage the profiles of users, whom notifications reach."""


@user.command()
@click.argument("user_id", metavar="USER")
@click.option("--email", metavar="ADDRESS", help="Email address.")
@click.option("--phone", metavar="NUMBER", help="Phone number in E.164, such as +4930123456.")
@click.option("--zone", metavar="ZONE", help="Time zone, such as Europe/Berlin. [default: UTC]")
@click.option("--locale", metavar="TAG", help="Language, such as de or pt-BR.")
@json_option
@with_client("write")
def put(
    client: SyncClient,
    user_id: str,
    email: str | None,
    phone: str | None,
    zone: str | None,
    locale: str | None,
    as_json: bool,
) -> None:
    """Create or replace the profile of a user. Fields without a flag are removed."""
    view = client.users.put(user_id, UserSpec(zone=zone, locale=locale, email=email, phone=phone))
    return show_json(view) if as_json else _print(view)


@user.command("show")
@click.argument("user_id", metavar="USER")
@json_option
@with_client("read")
def show_(client: SyncClient, user_id: str, as_json: bool) -> None:
    """Show the profile of a user."""
    view = client.users.get(user_id)
    return show_json(view) if as_json else _print(view)


@user.command()
@click.argument("user_id", metavar="USER")
@json_option
@with_client("write")
def delete(client: SyncClient, user_id: str, as_json: bool) -> None:
    """Delete the profile of a user. Notifications that are not sent yet end FAILED."""
    client.users.delete(user_id)
    return show_json({"deleted": user_id}) if as_json else done(f"deleted {user_id}")


def _print(view: UserView) -> None:
    show(
        facts(
            [
                ("user", cell_text(view.user_id)),
                ("email", cell_text(view.email)),
                ("phone", cell_text(view.phone)),
                ("zone", cell_text(view.zone)),
                ("locale", cell_text(view.locale)),
                ("created", whole(view.created_at)),
                ("updated", whole(view.updated_at) if view.updated_at != view.created_at else None),
            ]
        )
    )
