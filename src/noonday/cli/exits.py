"""Exit codes, and the error report on stderr."""

import sys
from functools import partial
from typing import Any

import msgspec
from click import (
    Abort,
    BadParameter,
    ClickException,
    Context,
    Group,
    MissingParameter,
    NoSuchOption,
    UsageError,
    echo,
    style,
)

from noonday.cli.instants import printable, typed_as
from noonday.model.errors import (
    AlreadyRunning,
    BadSettings,
    Flaw,
    InvalidInput,
    MissingExtra,
    NoondayError,
    NotFound,
    Unavailable,
    nearest,
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

    def main(self, args: Any = None, *more: Any, standalone_mode: bool = True, **named: Any) -> Any:
        """Run a command, and print an invalid command line in the form of all errors."""
        run = partial(super().main, args, *more, standalone_mode=False, **named)
        if not standalone_mode:
            return run()
        try:
            sys.exit(run())
        except ClickException as invalid:
            print_usage_error(invalid)
            sys.exit(invalid.exit_code)
        except Abort:  # a question was answered with no
            print_line("error:", "aborted: nothing was done")
            sys.exit(FAILED)

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


def print_usage_error(error: ClickException) -> None:
    """Print what is wrong with a command line, and the command that explains it."""
    text = error.message
    if isinstance(error, BadParameter):
        text = _about_parameter(error)
    elif isinstance(error, NoSuchOption):
        guess = nearest(error.option_name, error.possibilities or ())
        text = f"unknown option {error.option_name}" + (f"; did you mean {guess}?" if guess else "")
    elif isinstance(error, UsageError):
        text = error.format_message().removesuffix(".")
    begins_with_a_name = text[1:2].isupper() or text[:1] == "-"
    print_line("error:", printable(text if begins_with_a_name else text[:1].lower() + text[1:]))
    context = error.ctx if isinstance(error, UsageError) else None
    if context is not None:
        echo(f"  help: {context.command_path} --help", err=True)


def _about_parameter(error: BadParameter) -> str:
    """Return a sentence about the value of an option or argument, such as `--count: 'x' is not a valid integer`."""
    hint = error.param_hint or (error.param.get_error_hint(error.ctx) if error.param and error.ctx else "")
    name = (hint if isinstance(hint, str) else " / ".join(hint)).replace("'", "")
    if isinstance(error, MissingParameter):
        return f"{name} is required" if name else error.format_message()
    message = error.message.removesuffix(".")
    return message if not name or message.startswith(name) else f"{name}: {message}"


def print_line(label: str, text: str) -> None:
    echo(f"{style(label, fg='red', bold=True)} {text}", err=True)


def print_error(error: NoondayError) -> None:
    """Print an error with every flaw: its location, the given value, the allowed values and the nearest match."""
    print_line("error:", printable(error.detail or error.code))
    flaws = error.flaws if isinstance(error, InvalidInput) else ()
    for flaw in flaws:
        for line in _lines_of(flaw, error.detail, alone=len(flaws) == 1 and flaw.detail in error.detail):
            echo(f"  {line}", err=True)


def _lines_of(flaw: Flaw, headline: str, *, alone: bool) -> list[str]:
    lines = []
    if alone and flaw.pointer and not headline.startswith(flaw.pointer):
        lines.append(f"at: {flaw.pointer}")
    if not alone:
        lines.append(printable(f"{flaw.pointer}: {flaw.detail}" if flaw.pointer else flaw.detail))
    facts = []
    if flaw.value is not None:
        facts.append(f"given: {typed_as(flaw.value) or _shown(flaw.value)}")
    if flaw.allowed is not None:
        facts.append(f"allowed: {_listed(flaw.allowed)}")
    if flaw.nearest and f"did you mean {flaw.nearest}" not in headline:
        facts.append(f"did you mean {flaw.nearest}?")
    return lines + [fact if alone else f"  {fact}" for fact in facts]


def _shown(value: object) -> str:
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    text = msgspec.json.encode(whole, enc_hook=str).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."


def _listed(allowed: object) -> str:
    return ", ".join(map(str, allowed)) if isinstance(allowed, list | tuple) else printable(str(allowed))
