"""Command groups that import commands on demand and suggest the nearest name for an unknown one."""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import click

from noonday.cli.suggestions import suggestion


class Command(click.Command):
    """Command whose help prints its examples verbatim."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_as_it_stands(self.epilog, formatter)


class Group(click.Group):
    """Command group that suggests the nearest name for an unknown command and prints its examples verbatim."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"unknown command {name!r}{self._hint(ctx, name)}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of their definition, the most used first."""
        return list(self.commands)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_as_it_stands(self.epilog, formatter)

    def _hint(self, ctx: click.Context, name: str) -> str:
        guess = suggestion(name, self.list_commands(ctx), partial(self._has, ctx), self._inside_groups(ctx, name))
        return f"; did you mean `{ctx.command_path} {guess}`?" if guess else ""

    def _has(self, ctx: click.Context, path: str) -> bool:
        """Return whether the group has a command, such as `job create`, or an option, such as `--version`."""
        name, _, rest = path.partition(" ")
        if name.startswith("--"):
            return any(name in parameter.opts for parameter in self.get_params(ctx))
        command = self.get_command(ctx, name)
        return command is not None and (not rest or (isinstance(command, Group) and command._has(ctx, rest)))

    def _inside_groups(self, ctx: click.Context, name: str) -> str | None:
        for own in self.list_commands(ctx):
            command = self.get_command(ctx, own)
            if isinstance(command, click.Group) and name in command.list_commands(ctx):
                return f"{own} {name}"
        return None


class LazyGroup(Group):
    """Command group that imports a command's module when the command is used."""

    def __init__(self, *args: Any, places: Mapping[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name].partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        return found


def write_as_it_stands(text: str | None, formatter: click.HelpFormatter) -> None:
    if text:
        formatter.write_paragraph()
        for line in text.strip("\n").splitlines():
            formatter.write(f"{line}\n")
