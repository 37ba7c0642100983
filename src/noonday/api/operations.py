"""Request handling: authenticate, decode, run the route's function, encode. Decoders are compiled at startup."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from noonday.api.context import ANONYMOUS, ApiServices, RequestContext
from noonday.api.errors import BadHeader, MethodNotAllowed, Stopping, reply_of
from noonday.api.headers import idempotency_key, tenant_to_read, trace_of, version_to_match
from noonday.api.query import QueryReader
from noonday.api.rate_limit import within_quota
from noonday.api.redaction import redacted
from noonday.api.reply import PROBLEM_JSON, Header, Reply
from noonday.api.request import Request
from noonday.api.routing import Route, snake
from noonday.intake.idempotency import AlreadyAnswered, Idempotency
from noonday.model.caller import Caller
from noonday.model.decoding import BodyDecoder
from noonday.model.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    PayloadTooLarge,
    VersionMismatch,
    few_suggestions,
)
from noonday.model.view import JobView


def resources(routes: Iterable[Route], services: ApiServices) -> list[StarletteRoute]:
    """Return one Starlette route per path, in the order of each path's first route."""
    by_path = dict[str, dict[str, Operation]]()
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = Operation(route, services)
    return [
        StarletteRoute(path, Resource(operations, _status_observer(path, services)))
        for path, operations in by_path.items()
    ]


def _status_observer(path: str, services: ApiServices) -> Callable[[int], None]:
    return services.on_answer if path.startswith("/v1/") else lambda status: None


class Resource:
    """ASGI application for all methods of one path."""

    def __init__(self, operations: Mapping[str, "Operation"], on_answer: Callable[[int], None]) -> None:
        self._on_answer = on_answer
        self._operations = dict(operations)
        if "GET" in operations:
            self._operations["HEAD"] = operations["GET"]
        self._allowed = sorted([*self._operations, "OPTIONS"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            reply = await self._answer(request)
        except asyncio.CancelledError:
            # Only a server that stops cancels requests: those that have not ended in time. Its own response would be no problem.
            reply = reply_of(Stopping(STOPPING), request.path)
        self._on_answer(reply.status)
        await reply.send(send, without_body=request.method == "HEAD")

    async def _answer(self, request: Request) -> Reply:
        try:
            operation = self._operations.get(request.method)
            return await operation.answer(request) if operation else self._without_operation(request)
        except Exception as error:
            # The outermost layer: every error becomes problem details here, and a server error is logged.
            return reply_of(error, request.path, token_sent=b"authorization" in request.headers)

    def _without_operation(self, request: Request) -> Reply:
        if request.method == "OPTIONS":
            return Reply(status=204, headers=[(b"allow", ", ".join(self._allowed).encode())])
        detail = f"{request.method} is not allowed on this path; use one of {', '.join(self._allowed)}"
        raise MethodNotAllowed(detail, allowed=self._allowed)


STOPPING = (
    "this process stops, and the request has not ended in time: it may have taken effect; repeat it with the same "
    "Idempotency-Key"
)
MOST_SUGGESTIONS = 5
"""Maximum number of unknown names per request for which `nearest` is computed."""
REFUSALS = (InvalidInput, PayloadTooLarge, NotFound, Conflict, VersionMismatch)
"""Errors that are stored under the Idempotency-Key: a repeated request gets the same refusal, even if state changed."""


class Operation:
    """Handles the requests of one route."""

    def __init__(self, route: Route, services: ApiServices) -> None:
        self._route = route
        self._services = services
        parameters = route.parameters
        self._path = [PathReader(name, expected) for name, expected in route.path_parameters.items()]
        self._query = QueryReader(parameters.get("query", _NoQuery))
        self._body = BodyDecoder(parameters["body"]) if "body" in parameters else None
        default_limit = services.limits.batch_bytes if route.is_batch else services.limits.body_bytes
        self._body_limit = route.body_bytes or default_limit

    async def answer(self, request: Request) -> Reply:
        with few_suggestions(MOST_SUGGESTIONS):
            return await self._answer(request)

    async def _answer(self, request: Request) -> Reply:
        caller = await self._admit(request)
        body = await self._read_body(request) if self._body else b""
        arguments = self._arguments(request, body)
        trace = trace_of(request.header(b"traceparent"))
        idem = self._idempotency(request, body)
        try:
            result = await self._perform(
                RequestContext(self._services, caller, idem, trace, request.wait_until_gone), arguments
            )
        except AlreadyAnswered as answered:
            return self._replay(answered)
        except REFUSALS as refusal:
            reply = reply_of(refusal, request.path)
            if idem and not self._route.key_gives_id:
                await self._services.intake.receipts.keep_refusal(caller, idem, reply.status, reply.body)
            return reply
        if isinstance(result, Reply):
            return result
        if caller.is_visitor:
            result = redacted(result)
        headers = self._resource_headers(result)
        if self._route.creates_jobs:
            headers += within_quota(self._services.intake.quotas.standing(caller.tenant))
        return Reply(self._route.encode(result), self._route.status_for(result), self._route.media_type, headers)

    async def _read_body(self, request: Request) -> bytes:
        route = self._route
        return await request.json_body(self._body_limit, route.accepts, is_optional=route.body_is_optional)

    async def _perform(self, context: RequestContext, arguments: dict[str, Any]) -> Any:
        if self._route.is_change or self._route.is_work or self._route.scope is None:
            return await self._route.perform(context, **arguments)
        if self._route.before_read is not None:
            await self._route.before_read(context, **arguments)
        async with self._services.reads.admit(context.caller.tenant):
            return await self._route.perform(context, **arguments)

    async def _admit(self, request: Request) -> Caller:
        if self._route.scope is None:
            return ANONYMOUS
        caller = await self._services.authenticator.authenticate(request.header(b"authorization"))
        caller.require(self._route.scope)
        visited = request.header(b"noonday-tenant")
        return caller if visited is None else await self._visit(caller, visited)

    async def _visit(self, caller: Caller, visited: str) -> Caller:
        if self._route.is_change or self._route.is_work:
            raise Forbidden(
                "Noonday-Tenant allows reads only; to change this tenant, use one of its own tokens",
                required="operator",
            )
        visitor = caller.visiting(tenant_to_read(visited))
        if visitor.is_visitor:
            await self._services.intake.visits.note(visitor)
        return visitor

    def _arguments(self, request: Request, body: bytes) -> dict[str, Any]:
        arguments: dict[str, Any] = {reader.name: reader.read(request.path_values) for reader in self._path}
        parameters = self._route.parameters
        # Probes of public routes may carry query parameters of their own; they are ignored.
        query = self._query.read(request.query if self._route.scope or "query" in parameters else b"")
        if "query" in parameters:
            arguments["query"] = query
        if "if_version" in parameters:
            arguments["if_version"] = version_to_match(request.header(b"if-match"))
        if self._body:
            arguments["body"] = self._body.decode(body or (b"{}" if self._route.body_is_optional else b""))
        return arguments

    def _idempotency(self, request: Request, body: bytes) -> Idempotency | None:
        header = request.header(b"idempotency-key")
        if header is None and self._route.needs_key:
            raise BadHeader(
                "Idempotency-Key is required: send a value that is unique to this change", header="Idempotency-Key"
            )
        if header is None or not self._route.is_change:
            return None
        request_line = f"{request.method} {request.path}?".encode(errors="replace") + request.query + b"\n"
        fingerprint = blake2b(request_line + body, digest_size=16).hexdigest()
        return Idempotency(idempotency_key(header), fingerprint, self._route.status_for, self._route.encode)

    def _replay(self, answered: AlreadyAnswered) -> Reply:
        replay: Header = (b"idempotency-replay", b"true")
        if answered.status >= 400:
            return Reply(answered.body, answered.status, PROBLEM_JSON, [replay])
        headers = (
            self._resource_headers(msgspec.json.decode(answered.body, type=_StoredResponse)) if answered.body else []
        )
        return Reply(answered.body, answered.status, self._route.media_type, [replay, *headers])

    def _resource_headers(self, result: Any) -> list[Header]:
        """Return `ETag` for a job and `Location` for a created resource."""
        headers = []
        if self._route.returns is JobView:
            headers.append((b"etag", b'"%d"' % result.version))
        if self._route.location is not None:
            path, member = self._route.location
            headers.append((b"location", (path + getattr(result, member)).encode()))
        return headers


class PathReader:
    """Validates one path parameter. Raises NotFound for a malformed id and InvalidInput for a malformed name."""

    def __init__(self, wire: str, expected: Any) -> None:
        meta: msgspec.Meta = expected.__metadata__[0]
        self.name = snake(wire)
        self._wire = wire
        self._noun = meta.title
        self._pattern = re.compile(meta.pattern or "")

    def read(self, values: Mapping[str, str]) -> str:
        text = values[self._wire]
        if self._pattern.fullmatch(text):
            return text.lower() if self._noun else text
        if self._noun:
            raise NotFound(f"no {self._noun} {text!r}; expected a UUID")
        detail = f"invalid path parameter {self._wire}"
        raise InvalidInput.of(f"/{self._wire}", detail, text, allowed=self._pattern.pattern)


class _StoredResponse(msgspec.Struct, rename="camel"):
    """Members of a stored response from which its headers are derived."""

    id: str = ""
    job_id: str = ""
    execution_id: str = ""
    version: int = 0


class _NoQuery(msgspec.Struct):
    pass
