"""Access to the server of this machine, with a token that is created from the server's secret."""

from hmac import compare_digest
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

from noonday.cli.client import TENANT, Access, is_local
from noonday.cli.exchange import client_of
from noonday.cli.server.local import create_token, read_settings, url_of
from noonday.crypto.private_file import read_private
from noonday.crypto.tokens import proof_of, secret_file
from noonday.model.errors import InvalidInput, NotFound, Unauthorized
from noonday.sdk.problems import UnexpectedAnswer
from noonday.wiring.settings import Settings

TOKEN_SEC = 3600


class LocalAccess(Access):
    """Access to the server that the settings describe, if no other is named."""

    def __init__(self, url: str | None, token: str | None, data: str | None, config: Path | None, scope: str) -> None:
        settings = read_settings(config, data=data)
        super().__init__(url or url_of(settings), token)
        self._secret: str | None = None
        """Secret that the token was created from, or None if the token was given."""
        if token is None and is_local(self.url) and settings.auth.algorithm == "HS256":
            self._secret = self._secret_of(settings)
            if self._secret:
                self.token = create_token(settings.auth, self._secret, [scope], TOKEN_SEC, tenant=TENANT)

    def require_own_server(self) -> None:
        """Raise Unauthorized unless the server proves that it knows the secret the token was created from.

        Any program may listen on a local port. It must not receive a token before it proves that it is the server.
        """
        if self._secret is None:
            return
        nonce, parts = token_hex(32), urlsplit(self.url)
        expected = proof_of(self._secret, nonce, parts.port or (443 if parts.scheme == "https" else 80))
        try:
            with client_of(self.url) as client_without_token:
                shown = client_without_token.proof(nonce)
        except (NotFound, InvalidInput, UnexpectedAnswer):
            shown = ""
        if not compare_digest(shown, expected):
            raise Unauthorized(
                f"the program at {self.url} does not know the secret of your server: no token was sent to it"
            )

    def _secret_of(self, settings: Settings) -> str | None:
        if settings.auth.secret:
            return settings.auth.secret
        path = secret_file(settings.data)
        if path.exists():
            self.hint = f"the token was created from {path}: if the server uses another data file, name it with --data"
            return read_private(path).strip()
        self.hint = (
            f"cannot create a token, {path} does not exist: name the server's data file with --data, or pass --token"
        )
        return None
