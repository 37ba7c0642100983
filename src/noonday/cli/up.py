"""`noonday up`: the whole system in one process."""

from pathlib import Path
from typing import Any

import click

from noonday.cli.client import config_option, log_level_option
from noonday.cli.group import Command
from noonday.cli.needs import needs
from noonday.extras import Extra

EXAMPLES = """
Examples:
  noonday up                          run only the demo: demo.echo, demo.sleep and demo.fail in pool demo
  noonday up shop.jobs:app            also run the handlers and jobs of `app` in shop/jobs.py
  noonday up --port 9000 --data /var/lib/noonday/noonday.db

`noonday settings` lists all other settings.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option("--port", type=int, help="Port of the API; 0 picks a free port. [default: 8080]")
@click.option("--host", help="Address the API listens on. [default: 127.0.0.1]")
@click.option(
    "--allow-shell",
    "shell_allow",
    is_flag=True,
    default=None,
    help="Run commands of the operating system as jobs (handler shell.run), as the user that starts the server.",
)
@click.option("--data", metavar="FILE", help="SQLite file; created if it does not exist. [default: noonday.db]")
@config_option
@log_level_option
@needs(Extra.SERVER)
def up(app: str | None, config: Path | None, **flags: Any) -> None:
    """Run everything in one process.

    Runs the scheduler, the API, the handlers of your application, and a demo.

    APP is a Noonday() object in a module that is importable from the current directory. The first Ctrl-C lets running
    handlers finish; the second one ends them at once.
    """
    from noonday.cli.server.local import read_settings
    from noonday.cli.server.up import run_embedded

    run_embedded(read_settings(config, **flags), app)
