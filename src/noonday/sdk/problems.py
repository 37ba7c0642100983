"""Problem details (RFC 9457) of responses, and the exceptions that they map to."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from noonday.model.errors import Flaw, InvalidInput, NoondayError

TYPE_PREFIX = "https://noonday.dev/problems/"
_STANDARD = frozenset({"type", "title", "status", "detail", "instance", "errors"})


class UnexpectedAnswer(NoondayError):
    """The response is not that of a Noonday server: it may come from a proxy, another service or another version."""

    code = "unexpected-answer"


class ServerUnreachable(NoondayError):
    """The server did not respond, or not in time."""

    code = "server-unreachable"


class TokenUnavailable(NoondayError):
    """The client has no token to send: its provider failed, or its token file cannot be read."""

    code = "token-unavailable"


class ClientClosed(NoondayError):
    """The client was closed before or during the call."""

    code = "client-closed"


class Problem(msgspec.Struct, frozen=True):
    """Problem of one request, or of one job of a batch."""

    code: str
    """Stable code: that of the class in `noonday.model.errors`."""
    detail: str
    status: int | None = None
    flaws: tuple[Flaw, ...] = ()
    context: dict[str, Any] = msgspec.field(default_factory=dict)

    def error(self) -> NoondayError:
        """Return an exception of the class with this code, or a NoondayError if the code is unknown."""
        kind = _kinds().get(self.code, NoondayError)
        error = kind(self.detail)
        if kind is NoondayError:
            error.code = self.code
        if isinstance(error, InvalidInput):
            error.flaws = self.flaws
        error.context = dict(self.context)
        return error


def is_problem(members: Mapping[str, Any]) -> bool:
    return isinstance(members.get("type"), str) and members["type"].startswith(TYPE_PREFIX)


def problem_of(members: Mapping[str, Any]) -> Problem:
    """Return the problem of a JSON object. Extension members become its context."""
    return Problem(
        code=str(members["type"]).removeprefix(TYPE_PREFIX),
        detail=str(members.get("detail") or members.get("title") or ""),
        status=members.get("status"),
        flaws=msgspec.convert(members.get("errors", ()), tuple[Flaw, ...]),
        context={name: value for name, value in members.items() if name not in _STANDARD},
    )


def _kinds() -> dict[str, type[NoondayError]]:
    return {kind.code: kind for kind in _tree(NoondayError)}


def _tree(root: type[NoondayError]) -> Iterator[type[NoondayError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _tree(kind)
