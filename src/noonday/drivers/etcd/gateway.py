"""Client of etcd's JSON gateway, with several endpoints, TLS, a password, and a timeout for every call."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from noonday.model.errors import BadSettings, LeasesUnavailable

T = TypeVar("T")

NOT_FOUND, FAILED_PRECONDITION = 5, 9
_TRY_ELSEWHERE = {1, 2, 4, 8, 13, 14}
"""gRPC codes after which another endpoint may succeed: this one has no leader, is overloaded, or is shutting down."""
_EXPIRED_TOKEN = ("invalid auth token", "revision of auth store is old", "user name is empty")
_AUTH_DISABLED = "authentication is not enabled"
_LONGEST_HEDGE_SEC = 0.3


@dataclass(frozen=True)
class EtcdOptions:
    """Credentials and timeout for etcd. Files are in PEM."""

    ca_file: Path | None = None
    """CA certificates to verify the servers with. Without it, those that this system trusts."""
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    timeout_sec: float = 1.0
    """Timeout of one call over all endpoints, in seconds."""


class EtcdRefused(LeasesUnavailable):
    """etcd refused a request. `reason` is the gRPC code."""

    def __init__(self, reason: int, detail: str) -> None:
        super().__init__(f"etcd refuses: {detail}")
        self.reason = reason


class Gateway:
    """Client of several endpoints that asks first the one that answered last.

    If an endpoint is slow, the next one is asked as well, and the first answer counts: one dead endpoint of three costs a
    fraction of a second. So a call may arrive twice, which must be harmless.
    """

    def __init__(self, endpoints: Sequence[str], options: EtcdOptions) -> None:
        self._endpoints = _checked(endpoints, options)
        self._options = options
        self._tls = _tls(options) if any(each.startswith("https:") for each in self._endpoints) else None
        self._hedge_sec = min(_LONGEST_HEDGE_SEC, options.timeout_sec / len(self._endpoints))
        self._session: aiohttp.ClientSession | None = None
        self._token = ""

    async def call(self, path: str, body: Mapping[str, Any], answer: type[T]) -> T:
        """Send a request and return the decoded answer. Raises Refused, or LeasesUnavailable if no answer comes in time."""
        try:
            async with asyncio.timeout(self._options.timeout_sec):
                result = await self._first_answer(path, msgspec.json.encode(body))
        except TimeoutError:
            result = LeasesUnavailable(f"no answer within {self._options.timeout_sec:g} s from {self._names()}")
        if isinstance(result, LeasesUnavailable):
            raise result
        return _decoded(result, answer)

    async def wait_for_change(self, first_key: bytes, end_key: bytes, revision: int) -> None:
        """Return when one of these keys changes from that revision on, or when etcd has compacted the revision.

        Waits for ever if nothing changes. Raises LeasesUnavailable if the watch cannot start, or ends.
        """
        request = {"create_request": {"key": first_key, "range_end": end_key, "start_revision": str(revision)}}
        endpoint = self._endpoints[0]
        try:
            async with (
                asyncio.timeout(self._options.timeout_sec) as opening,
                self._request(endpoint, "watch", msgspec.json.encode(request)) as response,
            ):
                async for line in response.content:
                    opening.reschedule(None)
                    if _has_changes(_checked_answer(endpoint, response.status, line)):
                        return
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise LeasesUnavailable(f"the watch on {endpoint} broke: {_describe(error)}") from error
        raise LeasesUnavailable(f"{endpoint} ended the watch")

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _first_answer(self, path: str, body: bytes) -> bytes | LeasesUnavailable:
        failures: list[str] = []
        remaining = list(self._endpoints)
        pending: set[asyncio.Task[bytes | LeasesUnavailable]] = set()
        async with asyncio.TaskGroup() as group:
            while remaining or pending:
                if remaining:
                    pending.add(group.create_task(self._ask(remaining.pop(0), path, body)))
                timeout = self._hedge_sec if remaining else None
                done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for result in (task.result() for task in done):
                    if isinstance(result, bytes | EtcdRefused):
                        _cancel(pending)
                        return result
                    failures.append(result.detail)
        return LeasesUnavailable("; ".join(failures))

    async def _ask(self, endpoint: str, path: str, body: bytes) -> bytes | LeasesUnavailable:
        """Ask one endpoint. Returns its error instead of raising it, which would end the wait for other endpoints."""
        try:
            answer = await self._with_token(endpoint, path, body)
        except LeasesUnavailable as failure:
            return failure
        self._endpoints.sort(key=lambda each: each != endpoint)
        return answer

    async def _with_token(self, endpoint: str, path: str, body: bytes) -> bytes:
        if not self._options.user:
            return await self._post(endpoint, path, body)
        if self._token:
            try:
                return await self._post(endpoint, path, body)
            except EtcdRefused as refusal:
                if not refusal.detail.endswith(_EXPIRED_TOKEN):
                    raise
        self._token = await self._new_token(endpoint)
        return await self._post(endpoint, path, body)

    async def _new_token(self, endpoint: str) -> str:
        self._token = ""
        credentials = msgspec.json.encode({"name": self._options.user, "password": self._options.password})
        try:
            return _decoded(await self._post(endpoint, "auth/authenticate", credentials), _Authenticated).token
        except EtcdRefused as refusal:
            if refusal.detail.endswith(_AUTH_DISABLED):
                return ""
            raise

    async def _post(self, endpoint: str, path: str, body: bytes) -> bytes:
        try:
            return await self._post_once(endpoint, path, body)
        except aiohttp.ClientConnectorError as error:
            raise LeasesUnavailable(f"{endpoint}: {_describe(error)}") from error
        except (aiohttp.ClientError, OSError):
            # Most likely the server closed a connection that was idle.
            return await self._post_again(endpoint, path, body)

    async def _post_again(self, endpoint: str, path: str, body: bytes) -> bytes:
        try:
            return await self._post_once(endpoint, path, body)
        except (aiohttp.ClientError, OSError) as error:
            raise LeasesUnavailable(f"{endpoint}: {_describe(error)}") from error

    async def _post_once(self, endpoint: str, path: str, body: bytes) -> bytes:
        async with self._request(endpoint, path, body) as response:
            return _checked_answer(endpoint, response.status, await response.read())

    def _request(self, endpoint: str, path: str, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            # Our own timeouts span several requests, so aiohttp's timeouts, which are for one, are off.
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Content-Type": "application/json"},
            )
        headers = {"Authorization": self._token} if self._token else None
        tls = self._tls if self._tls is not None else True
        return self._session.post(f"{endpoint}/v3/{path}", data=body, headers=headers, ssl=tls, allow_redirects=False)

    def _names(self) -> str:
        return ", ".join(sorted(self._endpoints))


class _Authenticated(msgspec.Struct):
    token: str


class _Error(msgspec.Struct):
    """An error of the gateway of etcd 3.4 to 3.6, alone or in a stream."""

    message: str = ""
    code: int = 0
    error: Any = None


class _Watched(msgspec.Struct):
    canceled: bool = False
    compact_revision: str = ""
    cancel_reason: str = "no reason given"
    events: list[msgspec.Raw] = []


class _WatchAnswer(msgspec.Struct):
    result: _Watched


def _has_changes(line: bytes) -> bool:
    watched = _decoded(line, _WatchAnswer).result
    if watched.canceled and not watched.compact_revision:
        raise LeasesUnavailable(f"etcd ended the watch: {watched.cancel_reason}")
    return watched.canceled or bool(watched.events)


def _checked_answer(endpoint: str, status: int, answer: bytes) -> bytes:
    """Return the answer. Raises Refused or LeasesUnavailable if it is an error."""
    try:
        error = msgspec.json.decode(answer, type=_Error)
    except msgspec.DecodeError:
        raise LeasesUnavailable(f"{endpoint} is not an etcd: it answered {status} {answer[:80]!r}") from None
    if status == 200 and error.error is None:
        return answer
    inner = error.error if isinstance(error.error, dict) else {}
    reason = inner.get("grpc_code") or inner.get("code") or error.code
    detail = inner.get("message") or error.message
    if reason in _TRY_ELSEWHERE or not reason:
        raise LeasesUnavailable(f"{endpoint}: {detail or status}")
    raise EtcdRefused(reason, detail)


def _decoded(body: bytes, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=answer, strict=False)
    except msgspec.DecodeError as error:
        raise LeasesUnavailable(f"unreadable answer from etcd, {body[:200]!r}: {error}") from error


def _cancel(tasks: set[asyncio.Task[bytes | LeasesUnavailable]]) -> None:
    for task in tasks:
        task.cancel()


def _checked(endpoints: Sequence[str], options: EtcdOptions) -> list[str]:
    schemes = ("https://",) if options.ca_file or options.cert_file else ("http://", "https://")
    for endpoint in endpoints:
        if not endpoint.startswith(schemes):
            raise BadSettings(f"etcd endpoint {endpoint!r} must begin with {' or '.join(schemes)}")
    if not endpoints:
        raise BadSettings("etcd needs at least one endpoint in etcd.urls, such as http://127.0.0.1:2379")
    return [endpoint.rstrip("/") for endpoint in endpoints]


def _tls(options: EtcdOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file:
            context.load_cert_chain(options.cert_file, options.key_file)
    except OSError as error:
        files = ", ".join(str(file) for file in (options.ca_file, options.cert_file, options.key_file) if file)
        raise BadSettings(f"invalid certificates for etcd ({files}): {error}") from error
    return context


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
