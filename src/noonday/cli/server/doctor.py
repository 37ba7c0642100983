"""Examination of an installation, printed finding by finding."""

from collections.abc import Iterator

from rich.text import Text

from noonday.cli.instants import printable
from noonday.cli.screen import console, patience, show_json
from noonday.cli.server.checks import CheckContext, Finding, Level, examine

COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def report(context: CheckContext, *, clustered: bool, as_json: bool) -> bool:
    """Print the findings. Returns whether no check failed."""
    findings = []
    with patience("examining the servers" if clustered else f"examining {context.path}"):
        for finding in _examine_cluster(context) if clustered else examine(context):
            findings.append(finding)
            if not as_json:
                _print(finding)
    if as_json:
        show_json(findings)
    return all(finding.level is not Level.FAIL for finding in findings)


def _examine_cluster(context: CheckContext) -> Iterator[Finding]:
    """Check the servers. Imported here, because embedded mode does not need the clients of the servers."""
    try:
        from noonday.cli.server.cluster_checks import examine_cluster
    except ModuleNotFoundError as missing:
        fix = "pip install 'noonday[cluster]'; or unset postgres.url, if this is no cluster"
        yield Finding(Level.FAIL, "packages", f"{missing.name} is not installed", fix)
    else:
        yield from examine_cluster(context)


def _print(finding: Finding) -> None:
    out = console()
    mark = (f"{finding.level.value:<4}", COLOURS[finding.level])
    out.print(Text.assemble(mark, f"  {finding.about:<12} ", printable(finding.detail)), soft_wrap=True)
    if finding.fix:
        out.print(Text(f"      {'':<12} -> {finding.fix}"), soft_wrap=True)
