"""Errors of the server about a command's input, located at the command's flags."""

from collections.abc import Callable

from msgspec.structs import replace

from noonday.model.errors import InvalidInput


def at_flags(refused: InvalidInput, flag_of: Callable[[str], str]) -> InvalidInput:
    """Return the same error, with `flag_of(pointer)` instead of the pointer of each flaw."""
    flaws = [replace(flaw, pointer=flag_of(flaw.pointer)) for flaw in refused.flaws]
    return InvalidInput(refused.detail, flaws, **refused.context)
