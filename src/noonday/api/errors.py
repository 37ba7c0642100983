"""The only map from errors to HTTP: problem details by RFC 9457.

A client keys on `type`, whose last part is the error's `code`; `title` and `detail` are for people. `errors` names each
flaw with its JSON pointer, the value found there and what would be valid. An error that is not in the table is ours, not
the caller's: it is logged, and answered without a word about what happened.
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
    """Problem details (RFC 9457). More members may follow, such as the scope that was required."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: tuple[Flaw, ...] = ()
    """Each thing that is wrong with the request: at most 20 of a job, and 100 of a batch."""
    left_out: int = 0
    """How many more there are."""


class MalformedBody(NoondayError):
    code = "malformed-body"


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


class Unexpected(NoondayError):
    """Stands for whatever went wrong on our side."""

    code = "internal-error"


@dataclass(frozen=True)
class Answer:
    """How an error is answered."""

    status: HTTPStatus
    title: str
    retry_after_sec: int | None = None


ANSWERS: Mapping[type[NoondayError], Answer] = {
    MalformedBody: Answer(HTTPStatus.BAD_REQUEST, "The body is not readable as JSON"),
    BadHeader: Answer(HTTPStatus.BAD_REQUEST, "A header is malformed"),
    model.Unauthorized: Answer(HTTPStatus.UNAUTHORIZED, "A valid bearer token is needed"),
    model.Forbidden: Answer(HTTPStatus.FORBIDDEN, "The token does not allow this"),
    model.NotFound: Answer(HTTPStatus.NOT_FOUND, "There is no such thing"),
    UnknownRoute: Answer(HTTPStatus.NOT_FOUND, "There is no such path"),
    MethodNotAllowed: Answer(HTTPStatus.METHOD_NOT_ALLOWED, "This path does not take this method"),
    model.Conflict: Answer(HTTPStatus.CONFLICT, "The present state does not allow this"),
    model.IdempotencyInProgress: Answer(
        HTTPStatus.CONFLICT, "The first request with this Idempotency-Key is still being answered", retry_after_sec=1
    ),
    model.VersionMismatch: Answer(HTTPStatus.PRECONDITION_FAILED, "The job has changed since that version"),
    model.PayloadTooLarge: Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request carries too much"),
    UnsupportedMediaType: Answer(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Only JSON is accepted"),
    UnknownHost: Answer(HTTPStatus.MISDIRECTED_REQUEST, "This server is not called by that name"),
    model.InvalidInput: Answer(HTTPStatus.UNPROCESSABLE_ENTITY, "The request says something that cannot be"),
    model.BadData: Answer(HTTPStatus.UNPROCESSABLE_ENTITY, "A value cannot be stored"),
    model.IdempotencyMismatch: Answer(
        HTTPStatus.UNPROCESSABLE_ENTITY, "This Idempotency-Key was used for a different request"
    ),
    model.QuotaExceeded: Answer(HTTPStatus.TOO_MANY_REQUESTS, "The tenant has as many as it may have"),
    Unexpected: Answer(HTTPStatus.INTERNAL_SERVER_ERROR, "Something went wrong on our side"),
    model.StoreUnavailable: Answer(HTTPStatus.SERVICE_UNAVAILABLE, "The store cannot be used now", retry_after_sec=5),
    model.SignalsUnavailable: Answer(
        HTTPStatus.SERVICE_UNAVAILABLE, "Stored, but workers cannot be told now", retry_after_sec=5
    ),
    model.Busy: Answer(HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests of this kind at once", retry_after_sec=1),
    model.StaleEpoch: Answer(HTTPStatus.SERVICE_UNAVAILABLE, "Another process took over", retry_after_sec=5),
    NotReady: Answer(HTTPStatus.SERVICE_UNAVAILABLE, "Not ready", retry_after_sec=5),
}

OURS = frozenset(
    {
        model.AlreadyRunning,
        model.EngineStopped,
        model.Unavailable,
        model.IndexUnavailable,
        model.BusUnavailable,
        model.TokensUnavailable,
        model.LeasesUnavailable,
        model.BadKey,
        model.BadSettings,
        model.DoNotRetry,
        model.ExecutionFailed,
    }
)
"""Errors that no request can cause: if one comes up here, it is answered as internal-error."""


def reply_of(error: Exception, path: str, *, token_sent: bool = False) -> Reply:
    """The answer to a request on `path` that ended with `error`."""
    known = known_error(error, path)
    answer = answer_of(known)
    body = msgspec.json.encode(problem_of(known, instance_of(path)))
    return Reply(body, answer.status, PROBLEM_JSON, _headers(known, answer, token_sent))


def problem_of(error: NoondayError, instance: str, most_flaws: int | None = None) -> dict[str, Any]:
    """Problem details, with the error's context as further members.

    Of many flaws the first are told, and the number of the others as `leftOut`.
    """
    answer = answer_of(error)
    members = {name: shown(value) for name, value in error.context.items()}
    members |= {
        "type": PROBLEMS + error.code,
        "title": answer.title,
        "status": int(answer.status),
        "detail": error.detail[:LONGEST_DETAIL] or answer.title,
        "instance": instance,
    }
    if isinstance(error, model.InvalidInput) and error.flaws:
        told = error.flaws[: error.most_flaws if most_flaws is None else min(most_flaws, error.most_flaws)]
        members["errors"] = [msgspec.structs.replace(flaw, value=shown(flaw.value)) for flaw in told]
        if left_out := error.context.get("leftOut", 0) + len(error.flaws) - len(told):
            members["leftOut"] = left_out
    return members


def answer_of(error: NoondayError) -> Answer:
    return next(ANSWERS[cls] for cls in type(error).__mro__ if cls in ANSWERS)


def instance_of(path: str) -> str:
    return quote(path, safe="/:@!$&'()*+,;=~", errors="replace")


def shown(value: Any) -> Any:
    """The value as it may stand in an answer: plain, whole if it is small, else its beginning."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=str)
        text = msgspec.json.encode(plain)
    except (UnicodeEncodeError, RecursionError):
        return ascii(value)[:LONGEST_VALUE]
    return plain if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE].decode(errors="ignore") + "..."


def known_error(error: Exception, path: str) -> NoondayError:
    """The error itself if the table has it; else one that stands for it and points to the log."""
    if isinstance(error, NoondayError) and any(cls in ANSWERS for cls in type(error).__mro__):
        return error
    incident = str(uuid4())
    log.error("request failed unexpectedly", path=path, incident=incident, exc_info=error)
    return Unexpected("the server's log has the reason under this incident", incident=incident)


def _headers(error: NoondayError, answer: Answer, token_sent: bool) -> list[Header]:
    headers = []
    if isinstance(error, model.QuotaExceeded):
        headers += over_quota(error)
    if answer.retry_after_sec is not None:
        headers.append((b"retry-after", b"%d" % answer.retry_after_sec))
    if isinstance(error, model.Unauthorized | model.Forbidden):
        headers.append((b"www-authenticate", _challenge(error, token_sent).encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.context["allowed"]).encode()))
    return headers


def _challenge(error: NoondayError, token_sent: bool) -> str:
    """RFC 6750: who sent no token is told only that one is needed."""
    challenge = 'Bearer realm="noonday"'
    if isinstance(error, model.Forbidden):
        return f'{challenge}, error="insufficient_scope", scope="{error.context.get("required", "")}"'
    return f'{challenge}, error="invalid_token"' if token_sent else challenge
