"""Typed routes: the signature of a function decides how its requests are decoded, validated and documented.

A route's function takes a `RequestContext`, then any of these parameters: `body` (a type decoded from JSON), `query` (a
struct with one field per query parameter), `if_version` (from If-Match), and path parameters by name. Its result is encoded
as JSON, unless it is a `Reply`. The OpenAPI document is generated from the same routes, so the two always agree.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import getdoc, signature
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from noonday.api.reply import JSON
from noonday.model.caller import TENANT_PATTERN, WORKER
from noonday.model.operation_view import OperationView
from noonday.model.tasks.wire import TaskView
from noonday.model.view import ExecutionView, JobView

TokenScope = Literal["read", "write", "admin", "operator", "worker"]

_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_FORMAT = {"format": "uuid"}

TaskIdInPath = Annotated[str, msgspec.Meta(pattern=_UUID, title="task", extra_json_schema=_FORMAT)]
JobIdInPath = Annotated[str, msgspec.Meta(pattern=_UUID, title="job", extra_json_schema=_FORMAT)]
ExecutionIdInPath = Annotated[str, msgspec.Meta(pattern=_UUID, title="execution", extra_json_schema=_FORMAT)]
DeadLetterIdInPath = Annotated[str, msgspec.Meta(pattern=_UUID, title="dead letter", extra_json_schema=_FORMAT)]
OperationIdInPath = Annotated[str, msgspec.Meta(pattern=_UUID, title="operation", extra_json_schema=_FORMAT)]
PoolName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")]
TenantName = Annotated[str, msgspec.Meta(pattern=TENANT_PATTERN)]

Cursor = Annotated[str, msgspec.Meta(max_length=1000, description="`next` of the previous page")]
PageSize = Annotated[int, msgspec.Meta(ge=1, le=500)]

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
NO_CONTENT = 204
_LOCATIONS = {
    JobView: ("/v1/jobs/", "job_id"),
    ExecutionView: ("/v1/executions/", "execution_id"),
    TaskView: ("/v1/tasks/", "id"),
    OperationView: ("/v1/operations/", "id"),
}


@dataclass(frozen=True)
class Route:
    """A method, a path, and the function that handles it."""

    method: str
    path: str
    perform: Callable[..., Awaitable[Any]]
    scope: TokenScope | None
    """Scope that the token needs; None if the route needs no token."""
    status: int = 200
    created_nothing: Callable[[Any], bool] | None = None
    """True if a result means that nothing was created; the status is then 200 instead of `status`."""
    encode: Callable[[Any], bytes] = encode
    returns: Any = None
    """Type of the response, if it differs from the function's return annotation."""
    media_type: str = JSON
    accepts: tuple[str, ...] = (JSON,)
    """Media types of the body. All of them are JSON."""
    body_schema: Any = None
    """Type of the body in the OpenAPI document, if it differs from that of the parameter."""
    body_is_optional: bool = False
    """True if a request without a body has an empty object instead."""
    is_batch: bool = False
    """True if the size limit of batches applies to the body."""
    creates_jobs: bool = False
    """True if it counts against the tenant's quota of jobs."""
    body_bytes: int | None = None
    """Maximum size of the body, if neither the limit of batches nor that of other requests applies."""
    is_per_user: bool = False
    """True if it counts against the daily quota of a user."""
    needs_key: bool = False
    """True if requests need an Idempotency-Key."""
    key_gives_id: bool = False
    """True if the id of the result follows from the Idempotency-Key. A repeated request is performed again, and nothing is
    stored under the key."""
    is_safe: bool = False
    """True if it changes nothing, although its method is not GET."""
    before_read: Callable[..., Awaitable[None]] | None = None
    """Awaited with the arguments of `perform`, before the request takes one of the tenant's concurrent reads."""
    documented: bool = True
    parameters: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        hints = get_type_hints(self.perform, include_extras=True)
        names = list(signature(self.perform).parameters)[1:]
        object.__setattr__(self, "parameters", {name: hints[name] for name in names})
        object.__setattr__(self, "returns", self.returns or hints["return"])
        if self.status == NO_CONTENT:
            object.__setattr__(self, "encode", lambda _: b"")

    @property
    def documented_body(self) -> Any:
        """Type of the body in the OpenAPI document."""
        return self.body_schema or self.parameters["body"]

    def status_for(self, result: Any) -> int:
        return 200 if self.created_nothing is not None and self.created_nothing(result) else self.status

    @property
    def statuses(self) -> tuple[int, ...]:
        return (self.status,) if self.created_nothing is None else (200, self.status)

    @property
    def is_change(self) -> bool:
        """True if it changes a resource, and takes an Idempotency-Key. A remote worker repeats a request by its lease."""
        return self.method != "GET" and not self.is_safe and not self.is_work

    @property
    def is_work(self) -> bool:
        """True if remote workers call it."""
        return self.scope == WORKER

    @property
    def location(self) -> tuple[str, str] | None:
        """Path of the created resource, and the result's attribute that completes it."""
        return _LOCATIONS.get(self.returns) if self.status == 201 else None

    @property
    def path_parameters(self) -> dict[str, Any]:
        """Types of the path parameters, by their names in the path."""
        return {wire: self.parameters[snake(wire)] for wire in re.findall(r"{(\w+)}", self.path)}

    @cached_property
    def doc(self) -> tuple[str, str]:
        """First line of the function's docstring, and the rest."""
        summary, _, description = (getdoc(self.perform) or "").partition("\n")
        return summary, description.strip()


def snake(wire: str) -> str:
    return re.sub(r"[A-Z]", lambda capital: "_" + capital[0].lower(), wire)
