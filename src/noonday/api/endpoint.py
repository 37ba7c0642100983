"""Routes made ready to answer: the steps of one request, with everything compiled beforehand."""

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from noonday.api.call import ANONYMOUS, Call, Engine
from noonday.api.decoding import BodyDecoder
from noonday.api.errors import BadHeader, MethodNotAllowed, reply_of
from noonday.api.headers import idempotency_key, tenant_to_read, trace_of, version_to_match
from noonday.api.incoming import Incoming
from noonday.api.query import QueryReader
from noonday.api.rate_limit import within_quota
from noonday.api.redaction import withheld
from noonday.api.reply import PROBLEM_JSON, Header, Reply
from noonday.api.routing import Route, snake
from noonday.intake.idempotency import Answered, Idempotency
from noonday.model.caller import Caller
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


def resources(routes: Iterable[Route], engine: Engine) -> list[StarletteRoute]:
    """One entry per path, in the order in which the paths first appear."""
    by_path = dict[str, dict[str, Endpoint]]()
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = Endpoint(route, engine)
    return [StarletteRoute(path, Resource(endpoints, _told(path, engine))) for path, endpoints in by_path.items()]


def _told(path: str, engine: Engine) -> Callable[[int], None]:
    return engine.on_answer if path.startswith("/v1/") else lambda status: None


class Resource:
    """Everything that can be done on one path. An ASGI application."""

    def __init__(self, endpoints: Mapping[str, "Endpoint"], on_answer: Callable[[int], None]) -> None:
        self._on_answer = on_answer
        self._endpoints = dict(endpoints)
        if "GET" in endpoints:
            self._endpoints["HEAD"] = endpoints["GET"]
        self._allowed = sorted([*self._endpoints, "OPTIONS"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Incoming(scope, receive)
        reply = await self._answer(request)
        self._on_answer(reply.status)
        await reply.send(send, without_body=request.method == "HEAD")

    async def _answer(self, request: Incoming) -> Reply:
        try:
            endpoint = self._endpoints.get(request.method)
            return await endpoint.answer(request) if endpoint else self._without_endpoint(request)
        except Exception as error:
            # The edge of the system: every error becomes problem details here, and those of our own making a log entry.
            return reply_of(error, request.path, token_sent=b"authorization" in request.headers)

    def _without_endpoint(self, request: Incoming) -> Reply:
        if request.method == "OPTIONS":
            return Reply(status=204, headers=[(b"allow", ", ".join(self._allowed).encode())])
        detail = f"{request.method} is not possible here; {', '.join(self._allowed)} are"
        raise MethodNotAllowed(detail, allowed=self._allowed)


MOST_SUGGESTIONS = 5
"""How many unknown names of one request are answered with the nearest known one."""
REFUSALS = (InvalidInput, PayloadTooLarge, NotFound, Conflict, VersionMismatch)
"""Answers too: the same request under the same key is refused again, whatever has changed in between."""


class Endpoint:
    """Answers the requests of one route."""

    def __init__(self, route: Route, engine: Engine) -> None:
        self._route = route
        self._engine = engine
        parameters = route.parameters
        self._path = [PathReader(name, expected) for name, expected in route.path_parameters.items()]
        self._query = QueryReader(parameters.get("query", _NoQuery))
        self._body = BodyDecoder(parameters["body"]) if "body" in parameters else None
        self._body_limit = engine.limits.batch_bytes if route.is_batch else engine.limits.body_bytes

    async def answer(self, request: Incoming) -> Reply:
        with few_suggestions(MOST_SUGGESTIONS):
            return await self._answer(request)

    async def _answer(self, request: Incoming) -> Reply:
        caller = await self._admit(request)
        body = await request.json_body(self._body_limit) if self._body else b""
        arguments = self._arguments(request, body)
        trace = trace_of(request.header(b"traceparent"))
        idem = self._idempotency(request, body)
        try:
            result = await self._perform(Call(self._engine, caller, idem, trace), arguments)
        except Answered as answered:
            return self._replay(answered)
        except REFUSALS as refusal:
            reply = reply_of(refusal, request.path)
            if idem:
                await self._engine.desk.receipts.keep_refusal(caller, idem, reply.status, reply.body)
            return reply
        if isinstance(result, Reply):
            return result
        if caller.is_visitor:
            result = withheld(result)
        headers = self._links(result)
        if self._route.creates_jobs:
            headers += within_quota(self._engine.desk.standing(caller))
        return Reply(self._route.encode(result), self._route.status_for(result), self._route.media_type, headers)

    async def _perform(self, call: Call, arguments: dict[str, Any]) -> Any:
        if self._route.is_change or self._route.scope is None:
            return await self._route.perform(call, **arguments)
        async with self._engine.turns.turn(call.caller.tenant):
            return await self._route.perform(call, **arguments)

    async def _admit(self, request: Incoming) -> Caller:
        if self._route.scope is None:
            return ANONYMOUS
        caller = await self._engine.authenticator.authenticate(request.header(b"authorization"))
        caller.require(self._route.scope)
        visited = request.header(b"noonday-tenant")
        return caller if visited is None else await self._visit(caller, visited)

    async def _visit(self, caller: Caller, visited: str) -> Caller:
        if self._route.is_change:
            raise Forbidden("Noonday-Tenant is for reading: a change needs a token of that tenant", required="operator")
        visitor = caller.visiting(tenant_to_read(visited))
        if visitor.is_visitor:
            await self._engine.reading.visits.note(visitor)
        return visitor

    def _arguments(self, request: Incoming, body: bytes) -> dict[str, Any]:
        arguments: dict[str, Any] = {reader.name: reader.read(request.path_values) for reader in self._path}
        parameters = self._route.parameters
        # A probe may carry a query that means something only to whoever sends it.
        query = self._query.read(request.query if self._route.scope or "query" in parameters else b"")
        if "query" in parameters:
            arguments["query"] = query
        if "if_version" in parameters:
            arguments["if_version"] = version_to_match(request.header(b"if-match"))
        if self._body:
            arguments["body"] = self._body.decode(body)
        return arguments

    def _idempotency(self, request: Incoming, body: bytes) -> Idempotency | None:
        header = request.header(b"idempotency-key")
        if header is None and self._route.needs_key:
            raise BadHeader("this needs an Idempotency-Key, so that it can be sent again", header="Idempotency-Key")
        if header is None or not self._route.is_change:
            return None
        asked = f"{request.method} {request.path}?".encode(errors="replace") + request.query + b"\n"
        fingerprint = blake2b(asked + body, digest_size=16).hexdigest()
        return Idempotency(idempotency_key(header), fingerprint, self._route.status_for, self._route.encode)

    def _replay(self, answered: Answered) -> Reply:
        again: Header = (b"idempotency-replay", b"true")
        if answered.status >= 400:
            return Reply(answered.body, answered.status, PROBLEM_JSON, [again])
        links = self._links(msgspec.json.decode(answered.body, type=_Named)) if answered.body else []
        return Reply(answered.body, answered.status, self._route.media_type, [again, *links])

    def _links(self, result: Any) -> list[Header]:
        """The ETag of a job, and the Location of what was made."""
        headers = []
        if self._route.returns is JobView:
            headers.append((b"etag", b'"%d"' % result.version))
        if self._route.place is not None:
            path, member = self._route.place
            headers.append((b"location", (path + getattr(result, member)).encode()))
        return headers


class PathReader:
    """Checks one path parameter: an id that cannot exist is not found, a name that cannot be is refused."""

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
            raise NotFound(f"there is no {self._noun} {text!r}: an id is a UUID")
        detail = f"the {self._wire} in the path is not valid"
        raise InvalidInput.of(f"/{self._wire}", detail, text, allowed=self._pattern.pattern)


class _Named(msgspec.Struct, rename="camel"):
    """The parts of a kept answer that its headers are made of."""

    id: str = ""
    job_id: str = ""
    execution_id: str = ""
    version: int = 0


class _NoQuery(msgspec.Struct):
    pass
