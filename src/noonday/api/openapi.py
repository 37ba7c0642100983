"""OpenAPI 3.1 document, generated from the routes."""

from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec import inspect

from noonday.api import contract
from noonday.api.errors import PROBLEM_TYPES, PROBLEMS, Problem
from noonday.api.headers import IDEMPOTENCY_KEY, IF_MATCH
from noonday.api.hosts import CHECKED_PATHS
from noonday.api.query import without_none
from noonday.api.reply import PROBLEM_JSON
from noonday.api.routing import NO_CONTENT, Route
from noonday.model.view import JobView

REF = "#/components/schemas/{name}"
ABOUT = """Noonday runs jobs on time: once, after a delay, or on a schedule. It records what it did and why.

Every path under `/v1` needs a bearer token (JWT) with the scope that its operation names. The scopes are `read`, `write`,
`admin` and `operator`; each includes those before it. All but `operator` are limited to the token's tenant. The scope `worker`
lets a remote worker take executions of the tenant, and nothing else. An operator reads another tenant with the header
`Noonday-Tenant`; payloads and results are redacted. Errors are problem details (RFC 9457): key on `type`, never on the text. A
change with an `Idempotency-Key` is applied once, even if the request is repeated within 24 hours. Lists are paged: pass `next`
as `cursor`.
"""

Schema = dict[str, Any]


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document."""
    documented = [route for route in routes if route.documented]
    types = list(dict.fromkeys(_types(documented)))
    schemas, components = _schemas(types)
    schema_of = dict(zip(types, schemas, strict=True))
    paths = dict[str, Any]()
    for route in documented:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Noonday", "version": version("noonday"), "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(map(_tag, documented))],
        "paths": paths,
        "components": {"schemas": components, "responses": _problem_responses(), "securitySchemes": _SECURITY},
    }


_SECURITY = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "Claims `sub`, `tenant`, `scope` and `exp`. `noonday token` prints one.",
    }
}


def _types(routes: Iterable[Route]) -> Iterator[Any]:
    for route in routes:
        if route.status != NO_CONTENT:
            yield route.returns
        if "body" in route.parameters:
            yield route.documented_body
        yield from route.path_parameters.values()
        yield from (without_none(field.type) for field in _query_fields(route))
    yield Problem


def _schemas(types: Sequence[Any]) -> tuple[Sequence[Schema], dict[str, Schema]]:
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    for struct in _structs(inspect.multi_type_info(types)):
        properties = components[struct.cls.__name__]["properties"]
        for field in struct.fields:
            _mark_instants(properties[field.encode_name], field.type)
    contract.narrow(components, REF)
    return schemas, components


def _structs(kinds: Iterable[inspect.Type]) -> Iterator[inspect.StructType]:
    """Yield every reachable struct type once."""
    waiting, seen = list(kinds), set[type]()
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, inspect.StructType):
            if kind.cls in seen:
                continue
            seen.add(kind.cls)
            yield kind
        waiting.extend(_parts(kind))


def _parts(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields)
    elif isinstance(kind, inspect.UnionType):
        yield from kind.types
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield kind.item_type
    elif isinstance(kind, inspect.Metadata):
        yield kind.type


def _mark_instants(schema: Schema, kind: inspect.Type) -> None:
    """Add the format `date-time`, which msgspec omits unless the type requires an offset."""
    if isinstance(kind, inspect.DateTimeType):
        schema["format"] = "date-time"
    elif isinstance(kind, inspect.UnionType):
        for option, part in zip(schema.get("anyOf", ()), kind.types, strict=False):
            _mark_instants(option, part)
    elif isinstance(kind, inspect.VarTupleType):
        _mark_instants(schema["items"], kind.item_type)


def _operation(route: Route, schema_of: dict[Any, Schema]) -> dict[str, Any]:
    summary, description = route.doc
    operation: dict[str, Any] = {
        "operationId": _camel(route.perform.__name__),
        "summary": summary,
        "description": description,
        "tags": [_tag(route)],
        "parameters": [*_parameters(route, schema_of)],
        "responses": {str(status): _success(route, status, schema_of) for status in route.statuses} | _problems(route),
    }
    if "body" in route.parameters:
        schema = schema_of[route.documented_body]
        content = {media_type: {"schema": schema} for media_type in route.accepts}
        operation["requestBody"] = {"required": not route.body_is_optional, "content": content}
    if route.scope is not None:
        operation["security"] = [{"bearer": [route.scope]}]
    return operation


def _tag(route: Route) -> str:
    return route.perform.__module__.rpartition(".")[2].replace("_", " ")


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _parameters(route: Route, schema_of: dict[Any, Schema]) -> Iterator[dict[str, Any]]:
    for name, expected in route.path_parameters.items():
        yield {"name": name, "in": "path", "required": True, "schema": schema_of[expected]}
    for field in _query_fields(route):
        schema = dict(schema_of[without_none(field.type)])
        if field.default not in (msgspec.NODEFAULT, None):
            schema["default"] = field.default
        yield {"name": field.encode_name, "in": "query", "required": field.required, "schema": schema}
    if "if_version" in route.parameters:
        yield _IF_MATCH
    if route.is_change:
        yield _ID_KEY if route.key_gives_id else _IDEMPOTENCY_KEY | {"required": route.needs_key}


def _query_fields(route: Route) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(route.parameters["query"]) if "query" in route.parameters else ()


_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": 'ETag of the version to replace, such as `"3"`; `*` matches any version.',
    "schema": {"type": "string", "pattern": IF_MATCH},
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes the request safe to repeat: the first response is stored for 24 hours. Quoted or bare.",
    "schema": {"type": "string", "pattern": IDEMPOTENCY_KEY},
}

_ID_KEY = _IDEMPOTENCY_KEY | {
    "description": "Makes the request safe to repeat: the same key and time give the same id, and one notification is sent "
    "within 24 hours. Quoted or bare.",
}


def _success(route: Route, status: int, schema_of: dict[Any, Schema]) -> dict[str, Any]:
    headers = dict[str, Any]()
    if route.returns is JobView:
        headers["ETag"] = _header("Version of the job, in quotes", pattern='^"[0-9]+"$', required=True)
    if route.location is not None:
        headers["Location"] = _header("Path of the created resource", format="uri-reference", required=True)
    if route.is_change and not route.key_gives_id:
        headers["Idempotency-Replay"] = _header(
            "`true` if this is the stored response to an earlier request", enum=["true"]
        )
    if route.creates_jobs:
        headers |= _rate_limit(required=False)
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if route.status != NO_CONTENT:
        response["content"] = {route.media_type: {"schema": schema_of[route.returns]}}
    return response | ({"headers": headers} if headers else {})


def _header(description: str, *, required: bool = False, **schema: Any) -> dict[str, Any]:
    return {"description": description, "required": required, "schema": {"type": "string", **schema}}


def _rate_limit(*, required: bool) -> dict[str, Any]:
    policy = 'Quota of jobs of the tenant, if it has one, such as `"max-jobs";q=1000`, or the quota that is exceeded'
    left = 'What is left of it, and if 0, seconds until a retry: `"max-jobs";r=37`'
    return {
        "RateLimit-Policy": _header(policy, required=required, pattern='^"[a-z-]+";q=[0-9]+$'),
        "RateLimit": _header(left, required=required, pattern='^"[a-z-]+";r=[0-9]+(;t=[0-9]+)?$'),
    }


def _problems(route: Route) -> dict[str, Any]:
    return {str(int(status)): {"$ref": f"#/components/responses/{_name(status)}"} for status in _statuses(route)}


def _statuses(route: Route) -> Iterator[HTTPStatus]:
    """Yield the statuses of the problems that the route can return."""
    if "body" in route.parameters or route.is_change:
        yield HTTPStatus.BAD_REQUEST
    if route.scope is not None:
        yield from (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)
    elif "query" in route.parameters:
        yield from (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
    if route.path in CHECKED_PATHS:
        yield HTTPStatus.MISDIRECTED_REQUEST
    if route.path_parameters:
        # An id that equals a fixed segment, such as `batch`, matches a path with other methods.
        yield from (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
    if route.is_change or route.is_work:
        yield HTTPStatus.CONFLICT
    if "if_version" in route.parameters:
        yield HTTPStatus.PRECONDITION_FAILED
    if "body" in route.parameters:
        yield from (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    if route.creates_jobs or route.is_per_user:
        yield HTTPStatus.TOO_MANY_REQUESTS
    yield from (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE)


def _problem_responses() -> dict[str, Any]:
    return {
        _name(status): _problem_response(status) for status in sorted({kind.status for kind in PROBLEM_TYPES.values()})
    }


def _problem_response(status: HTTPStatus) -> dict[str, Any]:
    types = [
        f"- `{PROBLEMS}{error.code}`: {kind.title}" for error, kind in PROBLEM_TYPES.items() if kind.status == status
    ]
    response = {
        "description": "\n".join([status.phrase, "", *types]),
        "content": {PROBLEM_JSON: {"schema": {"$ref": REF.format(name="Problem")}}},
    }
    headers = _HEADERS_OF_STATUS.get(status)
    return response | ({"headers": headers} if headers else {})


_CHALLENGE = _header("Required kind of token", required=True)
_HEADERS_OF_STATUS = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": _CHALLENGE},
    HTTPStatus.FORBIDDEN: {"WWW-Authenticate": _CHALLENGE},
    HTTPStatus.METHOD_NOT_ALLOWED: {"Allow": _header("Methods of this path", required=True)},
    HTTPStatus.CONFLICT: {"Retry-After": _header("Seconds to wait before a retry", pattern="^[0-9]+$")},
    HTTPStatus.TOO_MANY_REQUESTS: {
        "Retry-After": _header("Seconds to wait before a retry", pattern="^[0-9]+$", required=True),
        **_rate_limit(required=True),
    },
    HTTPStatus.SERVICE_UNAVAILABLE: {
        "Retry-After": _header("Seconds to wait before a retry", pattern="^[0-9]+$", required=True)
    },
}


def _name(status: HTTPStatus) -> str:
    return status.phrase.title().replace(" ", "")
