"""Access to a server: its URL, a token, and a client for the duration of a command."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from noonday.cli.exchange import client_of
from noonday.cli.flag_errors import in_own_flags
from noonday.cli.instants import single_line
from noonday.model.errors import InvalidInput, Unauthorized
from noonday.sdk.problems import ServerUnreachable, UnexpectedAnswer

F = TypeVar("F", bound=Callable[..., None])
TENANT = "default"
LONGEST_ANSWER = 160
"""Number of characters that are shown of an answer that is not Noonday's."""
_LOCAL = {"localhost", "127.0.0.1", "::1"}


def settings_options(command: F) -> F:
    """Add --data and --config, for commands that read the server's files."""
    for option in (config_option, _data_option):
        command = option(command)
    return command


def with_client(scope: str, *, if_given: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Pass a command a client of the server that its options name. Must be the innermost decorator.

    `scope` is the scope that the command needs. A token created for the command has this scope only. A command that needs a
    server with the option `if_given` only gets None without it.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(
            *args: Any, url: str | None, token: str | None, data: str | None, config: Path | None, **options: Any
        ) -> None:
            if if_given is not None and not options[if_given]:
                command(None, *args, **options)
                return
            access = access_to(url, token, data, config, scope)
            try:
                access.require_own_server()
                with client_of(access.url, access.token) as client:
                    command(client, *args, **options)
            except ServerUnreachable as away:
                raise _plainly(away) from away
            except InvalidInput as refused:
                raise in_own_flags(refused, click.get_current_context().command) from refused
            except UnexpectedAnswer as foreign:
                raise _not_noonday(foreign, access.url) from foreign
            except Unauthorized as refused:
                reason = refused.detail if access.token else "the server requires a token"
                raise Unauthorized(f"{reason}\n  {access.hint}") from refused

        wrapped: Callable[..., None] = call
        for option in (config_option, _data_option, _token_option, _url_option):
            wrapped = option(wrapped)
        return wrapped

    return decorate


class Access:
    """URL and token of a server."""

    hint = "pass a valid token with --token or NOONDAY_TOKEN; `noonday token` on the server creates one"

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self.token = token

    def require_own_server(self) -> None:
        """Raise Unauthorized if the token must not be sent to the program at this URL."""


def is_local(url: str) -> bool:
    return urlsplit(url).hostname in _LOCAL


def access_to(url: str | None, token: str | None, data: str | None, config: Path | None, scope: str) -> Access:
    if url is not None and (token is not None or not is_local(url)):
        return Access(url, token)
    from noonday.cli.server.access import LocalAccess  # Reads the server's settings, which take time to load.

    return LocalAccess(url, token, data, config, scope)


def _plainly(away: ServerUnreachable) -> ServerUnreachable:
    if "url" not in away.context:
        return away
    url = away.context["url"]
    return ServerUnreachable(
        f"no Noonday server responds at {url}: start one with `noonday up`, or name another with --url (NOONDAY_URL)"
    )


def _not_noonday(answer: UnexpectedAnswer, url: str) -> UnexpectedAnswer:
    reason = single_line(answer.detail, LONGEST_ANSWER)
    return UnexpectedAnswer(
        f"{url} does not answer as Noonday does: check --url (NOONDAY_URL), and that no proxy stands between\n  {reason}"
    )


_url_option = click.option(
    "--url", envvar="NOONDAY_URL", metavar="URL", help="URL of the server. [default: http://127.0.0.1:8080]"
)
_token_option = click.option(
    "--token", envvar="NOONDAY_TOKEN", metavar="TOKEN", help="API token. Created automatically for a local server."
)
_data_option = click.option(
    "--data", metavar="FILE", help="Data file of the server; its secret is next to it. [default: noonday.db]"
)
log_level_option = click.option(
    "--log-level", help="Minimum log level: DEBUG, INFO, WARNING or ERROR. [default: WARNING]"
)
config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings file. [default: noonday.toml]",
)
