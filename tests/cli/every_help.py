"""Run every help screen in one process, and print as JSON which commands exist and which failed.

    python every_help.py [HIDDEN,MODULES]

The hidden modules are not found, as if they were not installed. The program imports nothing of the tests, so that any
environment can run it.
"""

import json
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


class Hiding:
    """The usual finder of modules, without some of them."""

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parts = name.split(".")
        if any(".".join(parts[:end]) in self._hidden for end in range(1, len(parts) + 1)):
            return None
        return PathFinder.find_spec(name, path, target)


def main() -> None:
    hidden = frozenset(sys.argv[1].split(",")) if len(sys.argv) > 1 else frozenset[str]()
    sys.meta_path[:] = [Hiding(hidden) if finder is PathFinder else finder for finder in sys.meta_path]
    import click
    from click.testing import CliRunner

    from noonday.cli.main import main as noonday

    def paths(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            yield (*path, name)
            if isinstance(command, click.Group):
                yield from paths(command, *path, name)

    commands = [(), *paths(noonday)]
    helps = {path: CliRunner().invoke(noonday, [*path, "--help"]) for path in commands}
    failed = [" ".join(path) for path, result in helps.items() if not result.stdout.startswith("Usage: ")]
    wrong = [CliRunner().invoke(noonday, [*path[:-1], f"{path[-1]}x"], prog_name="noonday") for path in commands[1:]]
    ours = sorted(name for name in sys.modules if name.startswith("noonday."))
    print(
        json.dumps(
            {
                "commands": [" ".join(path) for path in commands],
                "failed": failed,
                "suggestions": sum("did you mean `noonday " in result.stderr for result in wrong),
                "codes": sorted({result.exit_code for result in wrong}),
                "imported": ours,
            }
        )
    )


if __name__ == "__main__":
    main()
