"""The only map from errors to HTTP responses: problem details (RFC 9457).

Clients key on `type`, whose last segment is the error's `code`; `title` and `detail` are for people. `errors` lists each
flaw with its JSON pointer, the value and the allowed values. An error that `PROBLEM_TYPES` does not list is a server error:
it is logged, and the response is `internal-error` without further detail.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
import structlog

from noonday.api.rate_limit import over_quota
from noonday.api.reply import PROBLEM_JSON, Header, Reply
from noonday.model import errors as model
from noonday.model.errors import Flaw, NoondayError

PROBLEMS = "https://noonday.dev/problems/"
LONGEST_VALUE = 500
LONGEST_DETAIL = 4_000

log = structlog.get_logger("noonday.api")


class Problem(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Problem details (RFC 9457). Extension members, such as `required` (a scope), may follow."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: tuple[Flaw, ...] = ()
    """Flaws of the request: at most 20 for a job and 100 for a batch."""
    left_out: int = 0
    """Number of flaws that `errors` omits."""


class BadHeader(NoondayError):
    code = "bad-header"


class UnknownRoute(NoondayError):
    code = "unknown-route"


class UnknownHost(NoondayError):
    code = "unknown-host"


class MethodNotAllowed(NoondayError):
    code = "method-not-allowed"


class UnsupportedMediaType(NoondayError):
    code = "unsupported-media-type"


class NotReady(NoondayError):
    code = "not-ready"


class Stopping(NoondayError):
    """The process stops, and a request has not ended in time."""

    code = "stopping"


class Unexpected(NoondayError):
    """A server error whose cause the response does not disclose."""

    code = "internal-error"


@dataclass(frozen=True)
class ProblemType:
    """HTTP status, title and retry time of a class of errors."""

    status: HTTPStatus
    title: str
    retry_after_sec: int | None = None


PROBLEM_TYPES: Mapping[type[NoondayError], ProblemType] = {
    model.MalformedBody: ProblemType(HTTPStatus.BAD_REQUEST, "Malformed JSON body"),
    BadHeader: ProblemType(HTTPStatus.BAD_REQUEST, "Invalid header"),
    model.Unauthorized: ProblemType(HTTPStatus.UNAUTHORIZED, "Missing or invalid token"),
    model.Forbidden: ProblemType(HTTPStatus.FORBIDDEN, "Forbidden"),
    model.NotFound: ProblemType(HTTPStatus.NOT_FOUND, "Not found"),
    UnknownRoute: ProblemType(HTTPStatus.NOT_FOUND, "Unknown path"),
    MethodNotAllowed: ProblemType(HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed"),
    model.Conflict: ProblemType(HTTPStatus.CONFLICT, "Conflict with the current state"),
    model.NotInThisMode: ProblemType(HTTPStatus.CONFLICT, "Not available in this mode"),
    model.LeaseLost: ProblemType(HTTPStatus.CONFLICT, "Lease lost"),
    model.IdempotencyInProgress: ProblemType(
        HTTPStatus.CONFLICT, "A request with this Idempotency-Key is in progress", retry_after_sec=1
    ),
    model.VersionMismatch: ProblemType(HTTPStatus.PRECONDITION_FAILED, "Version mismatch"),
    model.PayloadTooLarge: ProblemType(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Request too large"),
    UnsupportedMediaType: ProblemType(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Unsupported media type"),
    UnknownHost: ProblemType(HTTPStatus.MISDIRECTED_REQUEST, "Unknown host name"),
    model.InvalidInput: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid request"),
    model.BadData: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY, "Value cannot be stored"),
    model.IdempotencyMismatch: ProblemType(
        HTTPStatus.UNPROCESSABLE_ENTITY, "Idempotency-Key reused with a different request"
    ),
    model.QuotaExceeded: ProblemType(HTTPStatus.TOO_MANY_REQUESTS, "Quota exceeded"),
    Unexpected: ProblemType(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error"),
    model.StoreUnavailable: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "Store unavailable", retry_after_sec=5),
    model.SignalsUnavailable: ProblemType(
        HTTPStatus.SERVICE_UNAVAILABLE, "Revocation stored but not delivered to workers", retry_after_sec=5
    ),
    model.BusUnavailable: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "Bus unavailable", retry_after_sec=5),
    Stopping: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "Process is stopping", retry_after_sec=1),
    model.Busy: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "Too many concurrent requests", retry_after_sec=1),
    model.StaleEpoch: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "Another process took over", retry_after_sec=5),
    NotReady: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, "Not ready", retry_after_sec=5),
}


def reply_of(error: Exception, path: str, *, token_sent: bool = False) -> Reply:
    """Return the problem response to a request on `path` that raised `error`."""
    public = public_error(error, path)
    kind = problem_type_of(public)
    body = msgspec.json.encode(problem_of(public, instance_of(path)))
    return Reply(body, kind.status, PROBLEM_JSON, _headers(public, kind, token_sent))


def problem_of(error: NoondayError, instance: str, most_flaws: int | None = None) -> dict[str, Any]:
    """Return problem details, with the error's context as extension members.

    `errors` lists the first `most_flaws` flaws; `leftOut` counts the others.
    """
    kind = problem_type_of(error)
    members = {name: truncated(value) for name, value in error.context.items()}
    members |= {
        "type": PROBLEMS + error.code,
        "title": kind.title,
        "status": int(kind.status),
        "detail": error.detail[:LONGEST_DETAIL] or kind.title,
        "instance": instance,
    }
    if isinstance(error, model.InvalidInput) and error.flaws:
        listed = error.flaws[: error.most_flaws if most_flaws is None else min(most_flaws, error.most_flaws)]
        members["errors"] = [msgspec.structs.replace(flaw, value=truncated(flaw.value)) for flaw in listed]
        if left_out := error.context.get("leftOut", 0) + len(error.flaws) - len(listed):
            members["leftOut"] = left_out
    return members


def problem_type_of(error: NoondayError) -> ProblemType:
    return next(PROBLEM_TYPES[cls] for cls in type(error).__mro__ if cls in PROBLEM_TYPES)


def instance_of(path: str) -> str:
    return quote(path, safe="/:@!$&'()*+,;=~", errors="replace")


def truncated(value: Any) -> Any:
    """Return the value as JSON builtins, or its first 500 characters of JSON if it is longer."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=str)
        text = msgspec.json.encode(plain)
    except (UnicodeEncodeError, RecursionError):
        return ascii(value)[:LONGEST_VALUE]
    return plain if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE].decode(errors="ignore") + "..."


def public_error(error: Exception, path: str) -> NoondayError:
    """Return the error if `PROBLEM_TYPES` lists it; else log it and return an `Unexpected` that names the log entry."""
    if isinstance(error, NoondayError) and any(cls in PROBLEM_TYPES for cls in type(error).__mro__):
        return error
    incident = str(uuid4())
    log.error("request failed unexpectedly", path=path, incident=incident, exc_info=error)
    return Unexpected("the request failed; search the server's log for this incident", incident=incident)


def _headers(error: NoondayError, kind: ProblemType, token_sent: bool) -> list[Header]:
    headers = []
    if isinstance(error, model.QuotaExceeded):
        headers += over_quota(error)
    if kind.retry_after_sec is not None:
        headers.append((b"retry-after", b"%d" % kind.retry_after_sec))
    if isinstance(error, model.Unauthorized | model.Forbidden):
        headers.append((b"www-authenticate", _challenge(error, token_sent).encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.context["allowed"]).encode()))
    return headers


def _challenge(error: NoondayError, token_sent: bool) -> str:
    """Return the `WWW-Authenticate` challenge. By RFC 6750 it has no error code if the request had no token."""
    challenge = 'Bearer realm="noonday"'
    if isinstance(error, model.Forbidden):
        return f'{challenge}, error="insufficient_scope", scope="{error.context.get("required", "")}"'
    return f'{challenge}, error="invalid_token"' if token_sent else challenge
