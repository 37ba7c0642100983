"""Tokens of a client: fixed, from a file that is read again when it changes, or from a function of the application."""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from noonday.model.errors import InvalidInput
from noonday.sdk.forks import on_fork
from noonday.sdk.problems import TokenUnavailable

TokenProvider = Callable[[], str | Awaitable[str]]
"""Function that returns a token, such as one that asks an identity provider. A plain function runs in a thread."""

MOST_BYTES = 65_536
"""Maximum size of a token file."""


class TokenSource(Protocol):
    """The tokens that a client sends."""

    async def current(self) -> str | None:
        """Return the token to send, or None to send none. Raises TokenUnavailable."""

    async def after_refusal(self, refused: str | None) -> str | None:
        """Return the token to send after the server refused one, or None if there is no other. Raises TokenUnavailable."""


def tokens_of(
    token: str | None, provider: TokenProvider | None, file: str | os.PathLike[str] | None, timeout_sec: float
) -> TokenSource:
    """Return the tokens of the one source that is given. Raises InvalidInput for several. `timeout_sec` bounds the provider."""
    given = {"token": token, "token_provider": provider, "token_file": file}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidInput(f"{' and '.join(named)} cannot be combined: set one of them", allowed=list(given))
    if provider is not None:
        if not callable(provider):
            detail = f"token_provider is a {type(provider).__name__}: expected a function that returns a token"
            raise InvalidInput.of("/token_provider", detail)
        return _ProvidedTokens(provider, timeout_sec)
    if file is not None:
        return _FileTokens(Path(file))
    return _FixedToken(token.strip() if token else None)


class _FixedToken:
    def __init__(self, token: str | None) -> None:
        self._token = token

    async def current(self) -> str | None:
        return self._token

    async def after_refusal(self, refused: str | None) -> str | None:
        return None


class _FileTokens:
    """The content of a file, which another program replaces before the token expires."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token: str | None = None
        self._seen: tuple[int, ...] | None = None
        """What identified the content when it was read last."""

    async def current(self) -> str | None:
        return self._read_if_changed()

    async def after_refusal(self, refused: str | None) -> str | None:
        self._seen = None
        token = self._read_if_changed()
        return None if token == refused else token

    def _read_if_changed(self) -> str | None:
        """Return the token. While the file cannot be read, the token that was read before stays in use."""
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                self._read()
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            if self._token is None:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise TokenUnavailable(f"cannot read the token file {self._path}: {reason}") from error
        return self._token

    def _read(self) -> None:
        """Read the token. An empty file is being replaced: a token that was read before stays in use."""
        with self._path.open(encoding="utf-8") as file:
            token = file.read(MOST_BYTES + 1).strip()
        if len(token) > MOST_BYTES:
            raise TokenUnavailable(f"the token file {self._path} has more than {MOST_BYTES} bytes: it is not a token")
        if not token and self._token is None:
            raise TokenUnavailable(f"the token file {self._path} is empty: write the token to it")
        self._token = token or self._token


class _ProvidedTokens:
    """Tokens of the application's function, which is called for the first request and after a refusal.

    Requests that are refused at the same time share one call. A forked child asks on its own.
    """

    def __init__(self, provider: TokenProvider, timeout_sec: float) -> None:
        self._provider = provider
        self._is_async = inspect.iscoroutinefunction(provider)
        self._timeout_sec = timeout_sec
        self._token: str | None = None
        self._calls = 0
        self._lock = asyncio.Lock()
        on_fork(self)

    async def current(self) -> str | None:
        return self._token if self._token is not None else await self._ask(self._calls)

    async def after_refusal(self, refused: str | None) -> str | None:
        if self._token != refused:
            return self._token
        token = await self._ask(self._calls)
        return None if token == refused else token

    async def _ask(self, calls: int) -> str:
        """Return the token of the next call of the provider after `calls` calls."""
        try:
            async with asyncio.timeout(self._timeout_sec), self._lock:
                if self._token is None or self._calls == calls:
                    token = await self._call()
                    self._token, self._calls = token, self._calls + 1
                return self._token
        except TimeoutError as late:
            raise TokenUnavailable(f"token_provider has not returned within {self._timeout_sec:g} s") from late

    async def _call(self) -> str:
        try:
            returned = self._provider() if self._is_async else await asyncio.to_thread(self._provider)
            token = returned if isinstance(returned, str) else await returned
        except Exception as error:
            raise TokenUnavailable(f"token_provider failed: {type(error).__name__}: {error}") from error
        if not isinstance(token, str) or not token.strip():
            raise TokenUnavailable(f"token_provider returned {_shown(token)}: expected a token, as text")
        return token.strip()

    def after_fork(self) -> list[object]:
        """Reset the lock in a forked child: a task of the parent may hold it."""
        self._lock = asyncio.Lock()
        return []


def _shown(value: object) -> str:
    return "an empty text" if isinstance(value, str) else f"a {type(value).__name__}"
