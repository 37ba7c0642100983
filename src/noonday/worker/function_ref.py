"""References to functions, by which another process finds them."""

import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from noonday.model.errors import InvalidInput


class FunctionRef(msgspec.Struct, frozen=True, array_like=True):
    """The import path of a function, for another process."""

    module: str
    name: str
    argv: tuple[str, ...] | None = None
    """The arguments of the program, if the function is in its main module."""
    script: str | None = None
    """The file of the program, if its main module has no importable name."""


def reference_to(function: Callable[..., Any]) -> FunctionRef:
    module, name = function.__module__, function.__qualname__
    if getattr(sys.modules.get(module), name, None) is not function:
        raise InvalidInput(
            f"{module}.{name} cannot run in a process of its own: another process would not find it there; expected a "
            "function at the top level of its module, not wrapped by a decorator above the one that registers it"
        )
    return FunctionRef(module, name) if module != "__main__" else _reference_in_program(name)


def _reference_in_program(name: str) -> FunctionRef:
    main = sys.modules["__main__"]
    argv = tuple(sys.argv)
    if main.__spec__ is not None and main.__spec__.name != "__main__":
        return FunctionRef(main.__spec__.name, name, argv)
    script = getattr(main, "__file__", None) or ""
    if not os.path.isfile(script):
        raise InvalidInput(
            f"{name} cannot run in a process of its own: its program is not a file; move the function to a module"
        )
    return FunctionRef("__main__", name, argv, script)
