"""`noonday settings`: list settings with their values and sources."""

from pathlib import Path

import click

from noonday.cli.client import config_option
from noonday.cli.group import Command
from noonday.cli.screen import json_option

EXAMPLES = """
A value comes from a flag, else from the environment, else from noonday.toml, else from the default. In the file, a
setting with a dot belongs to a section:

  port = 9000
  [worker]
  concurrency = 50

Examples:
  noonday settings
  noonday settings worker                    list settings with `worker` in their name
  NOONDAY_WORKER_CONCURRENCY=50 noonday up
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("part", required=False)
@config_option
@json_option
def settings(part: str | None, config: Path | None, as_json: bool) -> None:
    """List all settings.

    Shows the value, source and meaning of each setting. PART selects settings by name.
    """
    from noonday.cli.server.settings import list_settings

    list_settings(part, config, as_json=as_json)
