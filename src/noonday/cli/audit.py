"""`noonday audit`: the audit log."""

import click

from noonday.cli.client import with_client
from noonday.cli.group import Command
from noonday.cli.instants import brief
from noonday.cli.lookup import find_job
from noonday.cli.paging import first_of, page_size
from noonday.cli.screen import cell_text, compact, json_option, show_json, show_list
from noonday.cli.tables import ListTable
from noonday.sdk.sync import SyncClient

EXAMPLES = """
Examples:
  noonday audit                         list the latest changes
  noonday audit --job nightly
  noonday audit --subject cli:anna --limit 500 --json
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--job", metavar="JOB", help="Only changes to this job: id, id prefix, or name.")
@click.option("--target", metavar="ID", help="Only changes to this job, execution, pool or tenant.")
@click.option("--subject", help="Only changes by this token subject (`sub`).")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of entries.")
@json_option
@with_client("admin")
def audit(
    client: SyncClient, job: str | None, target: str | None, subject: str | None, limit: int, as_json: bool
) -> None:
    """List the audit log, newest first. Needs a token with scope admin."""
    if job and target:
        raise click.UsageError("--job and --target are mutually exclusive: use one")
    meant = find_job(client, job) if job else target
    listing = client.audit(target=meant, subject=subject, limit=page_size(limit, False))
    entries, more = first_of(listing.items(), limit)
    if as_json:
        return show_json({"entries": entries, "more": more})
    grid = ListTable("TIME", "WHO", "DID", "TO", "DETAIL", cut=("DETAIL",), spare=("DETAIL",))
    for one in entries:
        detail = compact(one.detail) if one.detail else "-"
        grid.add(brief(one.at), cell_text(one.subject), one.action, cell_text(one.target), detail)
    return show_list(grid, "entries", more)
