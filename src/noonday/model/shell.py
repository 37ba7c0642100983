"""The payload of `shell.run`, the built-in handler that runs commands."""

from typing import Annotated

import msgspec

POOL, HANDLER = "shell", "shell.run"
DEFAULT_SHELL = "/bin/sh"


class ShellCommand(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A command: either `argv`, a program with its arguments, or `script`, a text for a shell."""

    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    script: str | None = None
    shell: str = DEFAULT_SHELL
    """Program that runs the script."""
    env: dict[str, str] = {}
    """Environment variables, in addition to the defaults. The environment of the server is not inherited."""
    cwd: str | None = None
    """Working directory. Default: the home directory of the user that runs the worker."""

    @property
    def words(self) -> tuple[str, ...]:
        """The program and its arguments."""
        if self.argv is not None:
            return self.argv
        return (self.shell, "-c", self.script or "")
