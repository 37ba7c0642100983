"""Exit codes, and the error report on stderr."""

from typing import Any

import msgspec
from click import Context, Group, echo, style

from noonday.cli.instants import printable
from noonday.model.errors import (
    AlreadyRunning,
    BadSettings,
    Flaw,
    InvalidInput,
    MissingExtra,
    NoondayError,
    NotFound,
    Unavailable,
)
from noonday.sdk.problems import ServerUnreachable

OK = 0
FAILED = 1
USAGE = 2
STORE = 3
UNREACHABLE = 4
NOT_FOUND = 5
INTERRUPTED = 130

MEANINGS = {
    OK: "success",
    FAILED: "refused or failed; stderr gives the reason",
    USAGE: "invalid command line or setting",
    STORE: "the data file is in use by another process, or the file or a server is unusable",
    UNREACHABLE: "no server responds at the URL",
    NOT_FOUND: "no such job, execution, pool or file",
}

_CODES: tuple[tuple[type[NoondayError], int], ...] = (
    (AlreadyRunning, STORE),
    (Unavailable, STORE),
    (ServerUnreachable, UNREACHABLE),
    (NotFound, NOT_FOUND),
    (BadSettings, USAGE),
    (MissingExtra, USAGE),
)


class ExitCodes(Group):
    """Command group that prints a command's error and exits with the code of that error."""

    def invoke(self, ctx: Context) -> Any:
        try:
            return super().invoke(ctx)
        except NoondayError as error:
            print_error(error)
            ctx.exit(code_of(error))
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def code_of(error: NoondayError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def print_error(error: NoondayError) -> None:
    """Print an error with every flaw: its location, the given value, the allowed values and the nearest match."""
    echo(f"{style('error:', fg='red', bold=True)} {printable(error.detail or error.code)}", err=True)
    flaws = error.flaws if isinstance(error, InvalidInput) else ()
    for flaw in flaws:
        for line in _lines_of(flaw, alone=len(flaws) == 1 and flaw.detail in error.detail):
            echo(f"  {line}", err=True)


def _lines_of(flaw: Flaw, *, alone: bool) -> list[str]:
    lines = []
    if alone and flaw.pointer:
        lines.append(f"at: {flaw.pointer}")
    if not alone:
        lines.append(printable(f"{flaw.pointer}: {flaw.detail}" if flaw.pointer else flaw.detail))
    facts = []
    if flaw.value is not None:
        facts.append(f"given: {_shown(flaw.value)}")
    if flaw.allowed is not None:
        facts.append(f"allowed: {_listed(flaw.allowed)}")
    if flaw.nearest and f"did you mean {flaw.nearest}" not in flaw.detail:
        facts.append(f"did you mean {flaw.nearest}?")
    return lines + [fact if alone else f"  {fact}" for fact in facts]


def _shown(value: object) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."


def _listed(allowed: object) -> str:
    return ", ".join(map(str, allowed)) if isinstance(allowed, list | tuple) else printable(str(allowed))
