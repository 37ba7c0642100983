"""HTTP transport: typed responses and safe retries over an exchange."""

import uuid
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from noonday.model.errors import IdempotencyInProgress, InvalidInput, NoondayError, Unauthorized
from noonday.sdk.exchange import ConnectionBroken, HttpExchange, Response
from noonday.sdk.forks import on_fork
from noonday.sdk.problems import ClientClosed, ServerUnreachable, UnexpectedAnswer, is_problem, problem_of
from noonday.sdk.tokens import TokenSource

RETRY_WAITS_SEC = (0.05, 0.2, 0.8)
_NOTHING: Mapping[str, Any] = {}

T = TypeVar("T")


class Transport:
    """Sends requests to one server, with the caller's token.

    If the server refuses the token, the request is repeated once with the next token, if there is another one. If a connection
    fails, the request is retried. This is safe: reads change nothing, and `change` adds an Idempotency-Key.
    """

    def __init__(
        self,
        url: str,
        tokens: TokenSource,
        timeout_sec: float,
        sleep: Callable[[float], Awaitable[object]],
        exchange: HttpExchange,
    ) -> None:
        _check_url(url)
        self.url = url.rstrip("/")
        self.sleep = sleep
        self._tokens = tokens
        self.timeout_sec = timeout_sec
        self._exchange = exchange
        self._closed = False
        on_fork(self)

    async def close(self) -> None:
        self._closed = True
        await self._exchange.close()

    def after_fork(self) -> list[object]:
        """Forget the connections in a forked child: their sockets belong to the parent."""
        return self._exchange.after_fork()

    async def get(self, kind: type[T], path: str, query: Mapping[str, Any] = _NOTHING) -> T:
        """Send a GET request. Query parameters that are None are omitted."""
        parameters = {name: _query_text(value) for name, value in query.items() if value is not None}
        return await self.ask(kind, "GET", f"{path}?{urlencode(parameters)}" if parameters else path)

    async def change(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] = _NOTHING,
    ) -> T:
        """Send a change with an Idempotency-Key, so that it is applied once even if the request is repeated."""
        keyed = {"Idempotency-Key": _quoted(key or str(uuid.uuid4())), **headers}
        return await self.ask(kind, method, path, body, keyed)

    async def ask(
        self, kind: type[T], method: str, path: str, body: Any = None, headers: Mapping[str, str] = _NOTHING
    ) -> T:
        """Send a request, with retries, and decode the response. Raises the error of a problem response."""
        for wait in RETRY_WAITS_SEC:
            try:
                return decoded(kind, await self._answer(method, path, body, headers), path)
            # In progress: the server still processes the request whose connection broke.
            except (ConnectionBroken, IdempotencyInProgress):
                await self.sleep(wait)
        try:
            return decoded(kind, await self._answer(method, path, body, headers), path)
        except ConnectionBroken as gone:
            raise self._unreachable(gone) from gone

    async def _answer(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> bytes:
        """Return the body of the response. If the token is refused, ask once for another."""
        self._refuse_if_closed()
        token = await self._tokens.current()
        try:
            return await self._send(method, path, body, headers, token)
        except (Unauthorized, UnexpectedAnswer) as refused:
            # A proxy in front of the server may be what refuses the token, with an answer of its own.
            if isinstance(refused, UnexpectedAnswer) and refused.context.get("status") != 401:
                raise
            following = await self._tokens.after_refusal(token)
            if following is None:
                raise
        return await self._send(method, path, body, headers, following)

    async def _send(self, method: str, path: str, body: Any, headers: Mapping[str, str], token: str | None) -> bytes:
        data = None if body is None else msgspec.json.encode(body)
        all_headers = dict(headers)
        if data is not None:
            all_headers["Content-Type"] = "application/json"
        if token is not None:
            all_headers["Authorization"] = f"Bearer {token}"
        self._refuse_if_closed()
        try:
            response = await self._exchange.send(method, self.url + path, all_headers, data)
        except TimeoutError as late:
            raise ServerUnreachable(f"{self.url} has not answered {method} {path} in {self.timeout_sec:g} s") from late
        if response.status >= 300:
            raise _refusal(response, f"{method} {self.url}{path}")
        return response.body

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed; create a new one")

    def _unreachable(self, why: Exception) -> ServerUnreachable:
        detail = f"no Noonday server answers at {self.url} ({why}): start one with `noonday up`, or name another URL"
        return ServerUnreachable(detail, url=self.url)


class ClientPart:
    """The requests of one kind of resource, over the connections of a client."""

    def __init__(self, http: Transport) -> None:
        self._http = http


def _check_url(url: str) -> None:
    """Raise InvalidInput if a URL names no server."""
    if not url.startswith(("http://", "https://")):
        raise InvalidInput.of("/url", f"the server's URL must begin with http:// or https://, not {url}", url)
    try:
        parts = urlsplit(url)
        names_server = bool(parts.hostname) and parts.port != 0
    except ValueError as bad:
        raise InvalidInput.of("/url", f"the server's URL {url} is not valid: {bad}", url) from bad
    if not names_server:
        raise InvalidInput.of(
            "/url", f"the server's URL must name a host, such as http://127.0.0.1:8080, not {url}", url
        )
    if parts.username is not None:
        raise InvalidInput.of("/url", "the server's URL must have no user name: the token is passed beside it")


def path_of(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def decoded(kind: type[T], raw: bytes | msgspec.Raw, path: str) -> T:
    """Decode a response body; an empty one (204) is None. Raises UnexpectedAnswer."""
    try:
        value: T = _decoder(cast(Hashable, kind)).decode(raw or b"null")
    except msgspec.DecodeError as bad:
        raise UnexpectedAnswer(f"unexpected response to {path}: {bad}") from bad
    return value


@lru_cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _query_text(value: Any) -> str:
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def _quoted(key: str) -> str:
    """Return the key as a structured field string (RFC 9651). Raises InvalidInput."""
    if not (key.isascii() and key.isprintable()):
        raise InvalidInput.of("/idempotency_key", "an Idempotency-Key must have printable ASCII characters only", key)
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _refusal(response: Response, request: str) -> NoondayError:
    try:
        members = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        members = None
    if isinstance(members, dict) and is_problem(members):
        return problem_of(members).error()
    text = response.location or response.body[:200].decode(errors="replace")
    return UnexpectedAnswer(f"{request} returned {response.status} {response.reason}: {text}", status=response.status)
