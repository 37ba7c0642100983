"""`noonday doctor`: check the installation and suggest fixes."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.text import Text

from noonday.cli.asking import read_settings, settings_options
from noonday.cli.checks import CheckContext, Finding, Level, examine
from noonday.cli.exits import FAILED
from noonday.cli.group import Command
from noonday.cli.instants import now, printable
from noonday.cli.screen import console, json_option, patience, show_json
from noonday.model.job import ms_of

COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}

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
def doctor(ctx: click.Context, thorough: bool, as_json: bool, data: str | None, config: Path | None) -> None:
    """Check the installation and suggest fixes.

    Checks the machine, the data file and the files next to it. If a cluster is configured, checks PostgreSQL, Redis,
    Kafka and etcd instead of the files.
    """
    context = CheckContext(read_settings(config, data=data), ms_of(now()), thorough)
    clustered = context.settings.postgres.url is not None and data is None
    findings = []
    with patience("examining the servers" if clustered else f"examining {context.path}"):
        for finding in _examine_cluster(context) if clustered else examine(context):
            findings.append(finding)
            if not as_json:
                _tell(finding)
    if as_json:
        show_json(findings)
    if any(finding.level is Level.FAIL for finding in findings):
        ctx.exit(FAILED)


def _examine_cluster(context: CheckContext) -> Iterator[Finding]:
    """Check the servers. Imported here, because embedded mode does not need the clients of the servers."""
    try:
        from noonday.cli.cluster_checks import examine_cluster
    except ModuleNotFoundError as missing:
        fix = "pip install 'noonday[cluster]'; or unset postgres.url, if this is no cluster"
        yield Finding(Level.FAIL, "packages", f"{missing.name} is not installed", fix)
    else:
        yield from examine_cluster(context)


def _tell(finding: Finding) -> None:
    out = console()
    mark = (f"{finding.level.value:<4}", COLOURS[finding.level])
    out.print(Text.assemble(mark, f"  {finding.about:<12} ", printable(finding.detail)), soft_wrap=True)
    if finding.fix:
        out.print(Text(f"      {'':<12} -> {finding.fix}"), soft_wrap=True)
