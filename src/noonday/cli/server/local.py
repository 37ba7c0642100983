"""The server of this machine: its settings, its secret, and tokens signed with it."""

import getpass
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noonday.cli.instants import now
from noonday.crypto.private_file import read_private
from noonday.crypto.tokens import mint, secret_file
from noonday.model.errors import BadSettings, NotFound
from noonday.wiring.settings import Settings
from noonday.wiring.settings.access import AuthSettings
from noonday.wiring.settings.loading import load_settings


def read_settings(config: Path | None, **flags: Any) -> Settings:
    return load_settings(flags, os.environ, config)


def url_of(settings: Settings) -> str:
    """Return the URL at which a command on this machine reaches the server."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def secret_of(settings: Settings) -> str:
    """Return the secret that signs the server's tokens.

    Raises BadSettings if an identity provider signs them, NotFound if the server has never been started.
    """
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


def create_token(
    auth: AuthSettings,
    secret: str,
    scopes: Sequence[str],
    ttl_seconds: int,
    *,
    tenant: str,
    subject: str | None = None,
) -> str:
    """Return a token that is valid from now on."""
    return mint(
        secret,
        tenant=tenant,
        subject=subject or user(),
        scopes=scopes,
        ttl_seconds=ttl_seconds,
        now=now().timestamp(),
        audience=auth.audience,
        issuer=auth.issuer,
    )


def user() -> str:
    """Return the subject of tokens that this machine creates, as the audit log shows it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"cli:{name}"
