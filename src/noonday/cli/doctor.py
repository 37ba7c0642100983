"""`noonday doctor`: check the installation and suggest fixes."""

from pathlib import Path

import click

from noonday.cli.client import settings_options
from noonday.cli.exits import FAILED
from noonday.cli.group import Command
from noonday.cli.instants import now
from noonday.cli.needs import needs
from noonday.cli.screen import json_option
from noonday.extras import Extra
from noonday.model.job import ms_of

EXAMPLES = """
It is safe while servers run, and it leaves nothing behind. The exit code is 1 if a check fails.

Examples:
  noonday doctor                                             check the servers if postgres.url is set, else the data file
  noonday doctor --data /var/lib/noonday/noonday.db --thorough
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--thorough", is_flag=True, help="Compare every index with its table. This takes longer.")
@json_option
@settings_options
@click.pass_context
@needs(Extra.SERVER)
def doctor(ctx: click.Context, thorough: bool, as_json: bool, data: str | None, config: Path | None) -> None:
    """Check the installation and suggest fixes.

    Checks the machine, the data file and the files next to it. If a cluster is configured, checks PostgreSQL, Redis,
    Kafka and etcd instead of the files.
    """
    from noonday.cli.server.checks import CheckContext
    from noonday.cli.server.doctor import report
    from noonday.cli.server.local import read_settings

    context = CheckContext(read_settings(config, data=data), ms_of(now()), thorough)
    clustered = context.settings.postgres.url is not None and data is None
    if not report(context, clustered=clustered, as_json=as_json):
        ctx.exit(FAILED)
