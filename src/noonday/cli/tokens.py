"""`noonday token`: create an API token."""

from datetime import timedelta
from pathlib import Path

import click

from noonday.cli.asking import TENANT, read_settings, settings_options, user
from noonday.cli.group import Command
from noonday.cli.instants import duration, now
from noonday.crypto.private_file import read_private
from noonday.crypto.tokens import mint, secret_file
from noonday.model.errors import BadSettings, NotFound
from noonday.wiring.settings import Settings

EXAMPLES = """
A token is signed with the server's secret: the setting auth.secret, or else the file FILE.secret next to the data file.

Scopes, each of which includes the previous ones:
  read      read jobs and executions
  write     create and change jobs
  admin     webhook secrets, the audit log, and pauses of the token's tenant
  operator  pools, tenants, and the whole server

Examples:
  noonday token                                              default tenant, scopes read and write
  noonday token --tenant acme --scopes read --ttl 1h
  export NOONDAY_TOKEN=$(noonday token --data /var/lib/noonday/noonday.db --scopes operator)
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--tenant", default=TENANT, show_default=True, help="Tenant of the token.")
@click.option("--scopes", default="read,write", show_default=True, metavar="A,B,..", help="Scopes of the token.")
@click.option("--ttl", type=duration, default="30d", show_default=True, help="Lifetime of the token.")
@click.option("--subject", help="Owner of the token, shown in the audit log. [default: cli:USER]")
@settings_options
def token(tenant: str, scopes: str, ttl: timedelta, subject: str | None, data: str | None, config: Path | None) -> None:
    """Create an API token and print only the token."""
    settings = read_settings(config, data=data)
    made = mint(
        secret_of(settings),
        tenant=tenant,
        subject=subject or user(),
        scopes=scopes.replace(",", " ").split(),
        ttl_seconds=int(ttl.total_seconds()),
        now=now().timestamp(),
        audience=settings.auth.audience,
        issuer=settings.auth.issuer,
    )
    click.echo(made)


def secret_of(settings: Settings) -> str:
    """Return the secret that signs the server's tokens. Raises NotFound if the server has never been started."""
    if settings.auth.algorithm != "HS256":
        raise BadSettings(f"auth.algorithm is {settings.auth.algorithm}: get tokens from your identity provider")
    if settings.auth.secret:
        return settings.auth.secret
    path = secret_file(settings.data)
    if not path.exists():
        raise NotFound(
            f"the secret file {path} does not exist: name the server's data file with --data; "
            f"for a new server, `noonday up --data {settings.data}` creates both files"
        )
    return read_private(path).strip()
