"""`noonday token`: tokens for those who call the API."""

from datetime import timedelta
from pathlib import Path

import click

from noonday.api.auth import mint
from noonday.cli.asking import TENANT, read_settings, settings_options, user
from noonday.cli.group import Command
from noonday.cli.instants import duration, now
from noonday.crypto.private_file import read_private
from noonday.model.errors import BadSettings, NotFound
from noonday.wiring.server import secret_file
from noonday.wiring.settings import Settings

EXAMPLES = """
A token is signed with the secret of the server: auth.secret if it is set, else what stands in FILE.secret beside the
data file. Scopes, each with those before it: read; write; admin, for
webhook secrets, the audit and pausing of the own tenant; operator, for pools, tenants and everything of the server.

Examples:
  noonday token                                              for the default tenant, to read and write
  noonday token --tenant acme --scopes read --ttl 1h
  export NOONDAY_TOKEN=$(noonday token --data /var/lib/noonday/noonday.db --scopes operator)
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--tenant", default=TENANT, show_default=True)
@click.option("--scopes", default="read,write", show_default=True, metavar="A,B,..")
@click.option("--ttl", type=duration, default="30d", show_default=True, help="How long it is valid.")
@click.option("--subject", help="Who it is for, as the audit will show it. [default: cli:USER]")
@settings_options
def token(tenant: str, scopes: str, ttl: timedelta, subject: str | None, data: str | None, config: Path | None) -> None:
    """Print a token and nothing else."""
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
    """What the server's tokens are signed with. Raises NotFound if the server has not been started yet."""
    if settings.auth.algorithm != "HS256":
        raise BadSettings(f"auth.algorithm is {settings.auth.algorithm}: tokens come from your identity provider")
    if settings.auth.secret:
        return settings.auth.secret
    path = secret_file(settings)
    if not path.exists():
        raise NotFound(
            f"there is no secret at {path}: name the server's data file with --data; "
            f"if it is new, start it once with `noonday up --data {settings.data}`"
        )
    return read_private(path).strip()
