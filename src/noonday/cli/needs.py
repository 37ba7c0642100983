"""Commands that need an extra."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import click

from noonday.extras import Extra, require

P = ParamSpec("P")


def needs(extra: Extra) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Mark a command that runs parts of a server, and set up their logs. Must be below all options.

    Without the extra, its help works, and the command raises MissingExtra.
    """

    def decorate(command: Callable[P, None]) -> Callable[P, None]:
        @wraps(command)
        def run(*args: P.args, **options: P.kwargs) -> None:
            require(extra, click.get_current_context().command_path)
            from noonday.cli.server.logs import set_up_default_logs

            set_up_default_logs()
            return command(*args, **options)

        return run

    return decorate
