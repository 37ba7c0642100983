"""`noonday token`: create an API token."""

from datetime import timedelta
from pathlib import Path

import click

from noonday.cli.client import TENANT, settings_options
from noonday.cli.group import Command
from noonday.cli.instants import duration

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
    from noonday.cli.server.local import create_token, read_settings, secret_of

    settings = read_settings(config, data=data)
    names, ttl_seconds = scopes.replace(",", " ").split(), int(ttl.total_seconds())
    click.echo(create_token(settings.auth, secret_of(settings), names, ttl_seconds, tenant=tenant, subject=subject))
