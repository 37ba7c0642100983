"""`noonday secret`: signing secrets of webhook calls."""

from datetime import timedelta

import click

from noonday.cli.choices import choice
from noonday.cli.client import with_client
from noonday.cli.flag_errors import at_flags
from noonday.cli.group import Group
from noonday.cli.instants import brief, duration
from noonday.cli.screen import console, done, json_option, show_json, show_list
from noonday.cli.tables import ListTable
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.secret import DAY_SEC, MadeSecret, NewSecret, SecretKind
from noonday.sdk.sync import SyncClient

EVERY = "all endpoints without a secret of their own"

EXAMPLES = """
Examples:
  noonday secret make                                           for all endpoints without a secret of their own
  noonday secret make --endpoint https://api.example.com        for one endpoint
  noonday secret make --kind ed25519                            print the public key; receivers need no secret
  noonday secret make --overlap 7d                              replace the secret; both sign for a week
  noonday secret list
  noonday secret end secret-019a3f2e-...
"""


@click.group(cls=Group, epilog=EXAMPLES)
def secret() -> None:
    """Manage the signing secrets of webhook calls.

    `make` and `end` need a token with scope admin.
    """


@secret.command()
@click.option("--endpoint", metavar="URL", help="Only for this scheme, host and port.")
@click.option(
    "--kind", type=choice(("hmac", "ed25519")), default="hmac", show_default=True, help="Signature algorithm."
)
@click.option(
    "--overlap",
    type=duration,
    default="24h",
    show_default=True,
    metavar="DURATION",
    help="How long the previous secret also signs.",
)
@json_option
@with_client("admin")
def make(client: SyncClient, endpoint: str | None, kind: str, overlap: timedelta, as_json: bool) -> None:
    """Create or replace a secret and print it. It is not shown again.

    Prints only the secret (whsec_...) on stdout; with --kind ed25519, only the public key (whpk_...).
    """
    wanted = NewSecret(endpoint, SecretKind(kind.upper()), _seconds(overlap))
    try:
        made = client.secrets.make(wanted)
    except InvalidInput as refused:
        raise at_flags(refused, lambda _: "--endpoint") from refused
    if as_json:
        return show_json(made)
    click.echo(made.secret)
    return _print_secret(made)


@secret.command("list")
@json_option
@with_client("read")
def list_(client: SyncClient, as_json: bool) -> None:
    """List the secrets, newest first, without their values."""
    found = client.secrets.list()
    if as_json:
        return show_json({"secrets": found})
    grid = ListTable("ID", "KIND", "FOR", "MADE", "ENDS", cut=("FOR",))
    for one in found:
        grid.add(one.id, one.kind, one.endpoint or EVERY, brief(one.created_at), brief(one.expires_at))
    return show_list(grid, "secrets")


@secret.command()
@click.argument("secret_id", metavar="ID")
@json_option
@with_client("admin")
def end(client: SyncClient, secret_id: str, as_json: bool) -> None:
    """Revoke a secret: no further call is signed with it."""
    try:
        client.secrets.end(secret_id)
    except Conflict as last:
        raise Conflict(last.detail.replace("overlap_seconds 0", "--overlap 0"), **last.context) from last
    return show_json({"ended": secret_id}) if as_json else done(f"ended {secret_id}")


def _seconds(overlap: timedelta) -> int:
    seconds = int(overlap.total_seconds())
    if not 0 <= seconds <= 30 * DAY_SEC:
        raise click.BadParameter(f"{seconds} s is not allowed; at most 30d", param_hint="--overlap")
    return seconds


def _print_secret(made: MadeSecret) -> None:
    what = "This is the public key" if made.kind is SecretKind.ED25519 else "Give it to the receiver of the calls"
    console(err=True).print(
        f"created {made.id} for {made.endpoint or EVERY}. {what}. It is not shown again.", soft_wrap=True
    )
