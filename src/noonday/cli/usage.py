"""`noonday tenant usage`: daily usage of a tenant."""

import csv
from collections.abc import Iterator
from datetime import date
from io import StringIO

import click

from noonday.cli.client import with_client
from noonday.cli.group import Command
from noonday.cli.screen import json_option, show, show_json
from noonday.cli.tables import ListTable
from noonday.model.view import UsageView, UsedView
from noonday.sdk.sync import SyncClient

EXAMPLES = """
Examples:
  noonday tenant usage acme                                       show the last 30 days
  noonday tenant usage acme --from 2030-01-01 --to 2030-01-31
  noonday tenant usage acme --csv > acme.csv
"""


def day(text: str) -> date:
    """Option type of a day."""
    try:
        return date.fromisoformat(text)
    except ValueError as bad:
        raise click.BadParameter(f"{text!r} is not a day; write YYYY-MM-DD, such as 2030-01-31") from bad


@click.command("usage", cls=Command, epilog=EXAMPLES)
@click.argument("name", metavar="TENANT")
@click.option("--from", "from_", type=day, metavar="DAY", help="First day (UTC). [default: 29 days before the last]")
@click.option("--to", type=day, metavar="DAY", help="Last day (UTC). [default: today]")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV without the total, for spreadsheets.")
@json_option
@with_client("operator")
def usage(client: SyncClient, name: str, from_: date | None, to: date | None, as_csv: bool, as_json: bool) -> None:
    """Show the daily usage of a tenant."""
    if as_csv and as_json:
        raise click.UsageError("--json and --csv are mutually exclusive: use one")
    view = client.usage(name, from_, to)
    if as_json:
        return show_json(view)
    return click.echo(_csv(view), nl=False) if as_csv else show(_table(view))


def _csv(view: UsageView) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("tenant", "day", "runs", "succeeded", "failed", "runSeconds", "payloadBytes"))
    writer.writerows((view.tenant, *row) for row in _rows(view))
    return text.getvalue()


def _table(view: UsageView) -> ListTable:
    numbers = ("RUNS", "SUCCEEDED", "FAILED", "RUN SECONDS", "PAYLOAD BYTES")
    grid = ListTable("DAY", *numbers, right=numbers)
    for row in (*_rows(view), ("total", *_counts(view.total))):
        grid.add(*row)
    return grid


def _rows(view: UsageView) -> Iterator[tuple[str, ...]]:
    return ((each.day.isoformat(), *_counts(each)) for each in view.days)


def _counts(used: UsedView) -> tuple[str, ...]:
    return (
        str(used.runs),
        str(used.succeeded),
        str(used.failed),
        f"{used.run_seconds:.3f}",
        str(used.payload_bytes),
    )
