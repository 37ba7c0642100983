"""Errors of the server about a command's input, located at the command's flags."""

from collections.abc import Callable

from click import Command, Option
from msgspec.structs import replace

from noonday.model.errors import InvalidInput, dotted, sentence_on


def at_flags(refused: InvalidInput, flag_of: Callable[[str], str]) -> InvalidInput:
    """Return the same error, with `flag_of(pointer)` instead of the pointer of each flaw."""
    flaws = [replace(flaw, pointer=flag_of(flaw.pointer)) for flaw in refused.flaws]
    detail = refused.detail
    if len(flaws) == 1:
        old, new = refused.flaws[0].pointer, flaws[0].pointer
        detail = sentence_on(new, detail) if new else detail
        for name in (old, dotted(old)):
            if name and (detail == name or detail.startswith((f"{name} ", f"{name}:"))):
                detail = new + detail[len(name) :]
    return InvalidInput(detail, flaws, **refused.context)


def in_own_flags(refused: InvalidInput, command: Command) -> InvalidInput:
    """Return the same error with the command's own flag instead of each pointer that is named like it."""
    flags = {option.opts[0].lstrip("-") for option in command.params if isinstance(option, Option)}
    return at_flags(refused, lambda pointer: f"--{kebab(pointer)}" if kebab(pointer) in flags else pointer)


def kebab(pointer: str) -> str:
    """Return the pointer of a field in the spelling of a flag: `maxRunning` becomes `max-running`."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in pointer.lstrip("/"))
