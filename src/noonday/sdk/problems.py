"""Problem details (RFC 9457) as the server sends them, and the errors they stand for."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from noonday.model.errors import Flaw, InvalidInput, NoondayError

TYPE_PREFIX = "https://noonday.dev/problems/"
_STANDARD = frozenset({"type", "title", "status", "detail", "instance", "errors"})


class UnexpectedAnswer(NoondayError):
    """What answered does not speak as a Noonday server does: a proxy, another service, another version."""

    code = "unexpected-answer"


class Problem(msgspec.Struct, frozen=True):
    """Why one request, or one job of a batch, was refused."""

    code: str
    """The stable name of the kind of problem: that of the class in `noonday.model.errors`."""
    detail: str
    status: int | None = None
    flaws: tuple[Flaw, ...] = ()
    context: dict[str, Any] = msgspec.field(default_factory=dict)

    def error(self) -> NoondayError:
        """The same as an exception of the class that has this code; the root class, if this version knows none."""
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
    """A problem from the members of its JSON object; those that RFC 9457 does not name are its context."""
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
