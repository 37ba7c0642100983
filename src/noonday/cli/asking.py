"""Access to a server: its URL, a token, and a client for the duration of a command."""

import getpass
import os
from collections.abc import Callable
from functools import wraps
from hmac import compare_digest
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from noonday.cli.instants import now
from noonday.crypto.private_file import read_private
from noonday.crypto.tokens import mint, proof_of, secret_file
from noonday.model.errors import InvalidInput, NotFound, Unauthorized
from noonday.sdk.problems import UnexpectedAnswer
from noonday.sdk.sync import SyncClient
from noonday.sdk.problems import ServerUnreachable
from noonday.wiring.settings import Settings, load_settings

F = TypeVar("F", bound=Callable[..., None])
TENANT = "default"
TOKEN_SEC = 3600
_LOCAL = {"localhost", "127.0.0.1", "::1"}


def settings_options(command: F) -> F:
    """Add --data and --config, for commands that read the server's files."""
    for option in (_config_option, _data_option):
        command = option(command)
    return command


def asks(scope: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Pass a command a client of the server that its options name. Must be the innermost decorator.

    `scope` is the scope that the command needs. A token created for the command has this scope only.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def ask(
            *args: Any, url: str | None, token: str | None, data: str | None, config: Path | None, **options: Any
        ) -> None:
            reach = _Reach(url, token, data, config, scope)
            try:
                reach.require_own_server()
                with SyncClient(reach.url, reach.token) as client:
                    command(client, *args, **options)
            except ServerUnreachable as away:
                raise _plainly(away) from away
            except Unauthorized as refused:
                reason = refused.detail if reach.token else "the server requires a token"
                raise Unauthorized(f"{reason}\n  {reach.hint}") from refused

        wrapped: Callable[..., None] = ask
        for option in (_config_option, _data_option, _token_option, _url_option):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _plainly(away: ServerUnreachable) -> ServerUnreachable:
    if "url" not in away.context:
        return away
    url = away.context["url"]
    return ServerUnreachable(
        f"no Noonday server responds at {url}: start one with `noonday up`, or name another with --url (NOONDAY_URL)"
    )


def read_settings(config: Path | None, **flags: Any) -> Settings:
    return load_settings(flags, os.environ, config)


def user() -> str:
    """Return the subject of tokens that this machine creates, as the audit log shows it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"cli:{name}"


_url_option = click.option(
    "--url", envvar="NOONDAY_URL", metavar="URL", help="URL of the server. [default: http://127.0.0.1:8080]"
)
_token_option = click.option(
    "--token", envvar="NOONDAY_TOKEN", metavar="TOKEN", help="API token. Created automatically for a local server."
)
_data_option = click.option(
    "--data", metavar="FILE", help="Data file of the server; its secret is next to it. [default: noonday.db]"
)
_config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings file. [default: noonday.toml]",
)


class _Reach:
    """URL and token of the server."""

    def __init__(self, url: str | None, token: str | None, data: str | None, config: Path | None, scope: str) -> None:
        self._data, self._config, self._scope = data, config, scope
        self._secret: str | None = None
        """Secret that the token was created from, or None if the token was given."""
        self.url = url or self._usual_url()
        self.token = token
        self.hint = "pass a valid token with --token or NOONDAY_TOKEN; `noonday token` on the server creates one"
        if token is None and urlsplit(self.url).hostname in _LOCAL:
            self.token = self._own_token()

    def _usual_url(self) -> str:
        settings = self._settings()
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
        return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"

    def _settings(self) -> Settings:
        return read_settings(self._config, data=self._data)

    def _own_token(self) -> str | None:
        settings = self._settings()
        if settings.auth.algorithm != "HS256":
            return None
        self._secret = settings.auth.secret or self._secret_beside(secret_file(settings.data))
        return own_token(settings, self._secret, self._scope) if self._secret else None

    def require_own_server(self) -> None:
        """Raise Unauthorized unless the server proves that it knows the secret the token was created from.

        Any program may listen on a local port. It must not receive a token before it proves that it is the server.
        """
        if self._secret is None:
            return
        nonce, parts = token_hex(32), urlsplit(self.url)
        expected = proof_of(self._secret, nonce, parts.port or (443 if parts.scheme == "https" else 80))
        try:
            with SyncClient(self.url) as stranger:
                shown = stranger.proof(nonce)
        except (NotFound, InvalidInput, UnexpectedAnswer):
            shown = ""
        if not compare_digest(shown, expected):
            raise Unauthorized(
                f"the program at {self.url} does not know the secret of your server: no token was sent to it"
            )

    def _secret_beside(self, path: Path) -> str | None:
        if path.exists():
            self.hint = f"the token was created from {path}: if the server uses another data file, name it with --data"
            return read_private(path).strip()
        self.hint = (
            f"cannot create a token, {path} does not exist: name the server's data file with --data, or pass --token"
        )
        return None


def own_token(settings: Settings, secret: str, scope: str) -> str:
    """Return a short-lived token of the default tenant with one scope."""
    return mint(
        secret,
        tenant=TENANT,
        subject=user(),
        scopes=[scope],
        ttl_seconds=TOKEN_SEC,
        now=now().timestamp(),
        audience=settings.auth.audience,
        issuer=settings.auth.issuer,
    )
