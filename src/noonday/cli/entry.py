"""Entry point of `noonday`. Imports the command line only for commands that run in this process."""

import subprocess
import sys


def main() -> None:
    """Run a command. `noonday worker` becomes the small parent of the process that runs the handlers."""
    if sys.argv[1:2] == ["worker"] and not {"-h", "--help"} & set(sys.argv):
        from noonday.worker.parent import Parent

        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        command = [sys.executable, *flags, "-m", "noonday.cli.worker_process"]
        sys.exit(Parent(command, sys.argv[1:]).run())
    from noonday.cli.main import main

    main()
