"""etcd over its own JSON gateway: several endpoints, TLS, a password, and no wait without an end."""

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
_PERHAPS_ELSEWHERE = {1, 2, 4, 8, 13, 14}
"""gRPC's codes after which another endpoint may do better: this one has no leader, is overloaded, or is ending."""
_TOKEN_IS_OLD = ("invalid auth token", "revision of auth store is old", "user name is empty")
_NO_PASSWORDS_HERE = "authentication is not enabled"
_LONGEST_PATIENCE_SEC = 0.3


@dataclass(frozen=True)
class EtcdOptions:
    """How to get into an etcd that does not let everybody in, and how long to wait for it. Files are in PEM."""

    ca_file: Path | None = None
    """Of the authority that signed the servers' certificates; without it, those that this system trusts."""
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    timeout_sec: float = 1.0
    """How long one call may take, all endpoints together."""


class Refused(LeasesUnavailable):
    """etcd understood, and says no. `reason` is gRPC's code."""

    def __init__(self, reason: int, detail: str) -> None:
        super().__init__(f"etcd refuses: {detail}")
        self.reason = reason


class Gateway:
    """Asks the endpoint that answered last. Where it takes its time, the next is asked as well, and the first answer counts:
    one dead endpoint of three costs a fraction of a second. So a call may arrive twice, and that has to be harmless."""

    def __init__(self, endpoints: Sequence[str], options: EtcdOptions) -> None:
        self._endpoints = _checked(endpoints, options)
        self._options = options
        self._tls = _tls(options) if any(each.startswith("https:") for each in self._endpoints) else None
        self._patience_sec = min(_LONGEST_PATIENCE_SEC, options.timeout_sec / len(self._endpoints))
        self._session: aiohttp.ClientSession | None = None
        self._token = ""

    async def call(self, path: str, body: Mapping[str, Any], answer: type[T]) -> T:
        """Raises Refused if etcd says no, LeasesUnavailable if it says nothing in time."""
        try:
            async with asyncio.timeout(self._options.timeout_sec):
                said = await self._first_answer(path, msgspec.json.encode(body))
        except TimeoutError:
            said = LeasesUnavailable(f"no answer within {self._options.timeout_sec:g} s from {self._names()}")
        if isinstance(said, LeasesUnavailable):
            raise said
        return _decoded(said, answer)

    async def news(self, first_key: bytes, end_key: bytes, revision: int) -> None:
        """Return when something happens to these keys from that revision on, or etcd no longer knows what did.

        Waits for ever if nothing happens. Raises LeasesUnavailable if the watch cannot begin, or ends.
        """
        wish = {"create_request": {"key": first_key, "range_end": end_key, "start_revision": str(revision)}}
        endpoint = self._endpoints[0]
        try:
            async with (
                asyncio.timeout(self._options.timeout_sec) as opening,
                self._request(endpoint, "watch", msgspec.json.encode(wish)) as response,
            ):
                async for line in response.content:
                    opening.reschedule(None)
                    if _is_news(_understood(endpoint, response.status, line)):
                        return
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise LeasesUnavailable(f"the watch on {endpoint} broke: {_said(error)}") from error
        raise LeasesUnavailable(f"{endpoint} ended the watch")

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _first_answer(self, path: str, body: bytes) -> bytes | LeasesUnavailable:
        failures: list[str] = []
        unasked = list(self._endpoints)
        asked: set[asyncio.Task[bytes | LeasesUnavailable]] = set()
        async with asyncio.TaskGroup() as group:
            while unasked or asked:
                if unasked:
                    asked.add(group.create_task(self._ask(unasked.pop(0), path, body)))
                patience = self._patience_sec if unasked else None
                done, asked = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for said in (task.result() for task in done):
                    if isinstance(said, bytes | Refused):
                        _cancel(asked)
                        return said
                    failures.append(said.detail)
        return LeasesUnavailable("; ".join(failures))

    async def _ask(self, endpoint: str, path: str, body: bytes) -> bytes | LeasesUnavailable:
        """Failures are answers here: one endpoint's must not end the wait for another's."""
        try:
            said = await self._with_token(endpoint, path, body)
        except LeasesUnavailable as failure:
            return failure
        self._endpoints.sort(key=lambda each: each != endpoint)
        return said

    async def _with_token(self, endpoint: str, path: str, body: bytes) -> bytes:
        if not self._options.user:
            return await self._post(endpoint, path, body)
        if self._token:
            try:
                return await self._post(endpoint, path, body)
            except Refused as refusal:
                if not refusal.detail.endswith(_TOKEN_IS_OLD):
                    raise
        self._token = await self._new_token(endpoint)
        return await self._post(endpoint, path, body)

    async def _new_token(self, endpoint: str) -> str:
        self._token = ""
        who = msgspec.json.encode({"name": self._options.user, "password": self._options.password})
        try:
            return _decoded(await self._post(endpoint, "auth/authenticate", who), _Authenticated).token
        except Refused as refusal:
            if refusal.detail.endswith(_NO_PASSWORDS_HERE):
                return ""
            raise

    async def _post(self, endpoint: str, path: str, body: bytes) -> bytes:
        try:
            return await self._post_once(endpoint, path, body)
        except aiohttp.ClientConnectorError as error:
            raise LeasesUnavailable(f"{endpoint}: {_said(error)}") from error
        except (aiohttp.ClientError, OSError):
            # Most likely a connection that the server closed while we did not use it.
            return await self._post_again(endpoint, path, body)

    async def _post_again(self, endpoint: str, path: str, body: bytes) -> bytes:
        try:
            return await self._post_once(endpoint, path, body)
        except (aiohttp.ClientError, OSError) as error:
            raise LeasesUnavailable(f"{endpoint}: {_said(error)}") from error

    async def _post_once(self, endpoint: str, path: str, body: bytes) -> bytes:
        async with self._request(endpoint, path, body) as response:
            return _understood(endpoint, response.status, await response.read())

    def _request(self, endpoint: str, path: str, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            # Our own timeouts span several requests, so aiohttp's, which are for one, are off.
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


class _Complaint(msgspec.Struct):
    """An error, alone or in a stream, of the gateways of etcd 3.4 to 3.6."""

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


def _is_news(line: bytes) -> bool:
    watched = _decoded(line, _WatchAnswer).result
    if watched.canceled and not watched.compact_revision:
        raise LeasesUnavailable(f"etcd ended the watch: {watched.cancel_reason}")
    return watched.canceled or bool(watched.events)


def _understood(endpoint: str, status: int, said: bytes) -> bytes:
    """What was said, unless it is a complaint."""
    try:
        complaint = msgspec.json.decode(said, type=_Complaint)
    except msgspec.DecodeError:
        raise LeasesUnavailable(f"{endpoint} does not speak as etcd does: {status} {said[:80]!r}") from None
    if status == 200 and complaint.error is None:
        return said
    inner = complaint.error if isinstance(complaint.error, dict) else {}
    reason = inner.get("grpc_code") or inner.get("code") or complaint.code
    detail = inner.get("message") or complaint.message
    if reason in _PERHAPS_ELSEWHERE or not reason:
        raise LeasesUnavailable(f"{endpoint}: {detail or status}")
    raise Refused(reason, detail)


def _decoded(said: bytes, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(said, type=answer, strict=False)
    except msgspec.DecodeError as error:
        raise LeasesUnavailable(f"etcd said {said[:200]!r}: {error}") from error


def _cancel(tasks: set[asyncio.Task[bytes | LeasesUnavailable]]) -> None:
    for task in tasks:
        task.cancel()


def _checked(endpoints: Sequence[str], options: EtcdOptions) -> list[str]:
    schemes = ("https://",) if options.ca_file or options.cert_file else ("http://", "https://")
    for endpoint in endpoints:
        if not endpoint.startswith(schemes):
            raise BadSettings(f"the etcd endpoint {endpoint!r} does not begin with {' or '.join(schemes)}")
    if not endpoints:
        raise BadSettings("etcd needs at least one endpoint, such as http://127.0.0.1:2379")
    return [endpoint.rstrip("/") for endpoint in endpoints]


def _tls(options: EtcdOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file:
            context.load_cert_chain(options.cert_file, options.key_file)
    except OSError as error:
        files = ", ".join(str(file) for file in (options.ca_file, options.cert_file, options.key_file) if file)
        raise BadSettings(f"cannot use the certificates for etcd ({files}): {error}") from error
    return context


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
