"""`noonday cron`: what an expression means. Needs no server."""

from datetime import datetime

import click
import msgspec
from rich.text import Text

from noonday.cli.choices import choice, names_of
from noonday.cli.group import Command
from noonday.cli.instants import instant, now, relative
from noonday.cli.screen import json_option, show, show_json
from noonday.cli.tables import Listing, facts
from noonday.model import schedule
from noonday.model.cron import explain, parse
from noonday.model.errors import InvalidInput
from noonday.model.job import instant_of, ms_of
from noonday.model.schedule import CronRule, DstMark, Gap, Repeat, describe
from noonday.model.view import Preview, PreviewTime

NAMES = ("second", "minute", "hour", "day of month", "month", "day of week")

MARKS = {
    DstMark.GAP_SHIFTED: "the clocks skip its time",
    DstMark.REPEATED_FIRST: "the clocks show this time twice: first",
    DstMark.REPEATED_SECOND: "the clocks show this time twice: second",
}

EXAMPLES = """
Five fields: minute, hour, day of month, month, day of week; or six with the second first. Quote the expression.

Examples:
  noonday cron '30 2 * * *' --tz Europe/Berlin
  noonday cron '0 9 * * MON#1' --count 3            nine o'clock on the first Monday of the month
  noonday cron '0 0 18 LW * *'                      with seconds: six in the evening on the last working day
  noonday cron @hourly --from 2026-03-29
"""


@click.command(cls=Command, epilog=EXAMPLES, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="EXPR")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="Such as Europe/Berlin.")
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--from", "from_", type=instant, help="Times after this one. [default: now]")
@click.option("--gap", type=choice(Gap), metavar=names_of(Gap), default="SHIFT", help="A time that the clocks skip.")
@click.option("--repeat", type=choice(Repeat), metavar=names_of(Repeat), default="FIRST", help="A time shown twice.")
@json_option
def cron(
    words: tuple[str, ...], tz: str, count: int, from_: datetime | None, gap: str, repeat: str, as_json: bool
) -> None:
    """Explain a cron expression. Needs no server.

    Shows when it fires next, in its zone and in UTC, and what it does when the clocks are moved.
    """
    expression = " ".join(words)
    try:
        parse(expression)
        schedule.zone(tz)
    except InvalidInput as bad:
        raise pointed(bad, expression, len(words)) from bad
    preview = _preview(CronRule(expression, tz, Gap(gap), Repeat(repeat)), from_ or now(), count)
    if as_json:
        return show_json(preview)
    show(facts([("expression", expression), ("means", preview.description), ("zone", tz)]), "")
    return _show_times(preview)


def pointed(bad: InvalidInput, expression: str, words: int) -> InvalidInput:
    """The same with the expression below, and marks under the fields that are wrong."""
    spans = [span for span in (_span_of(flaw.detail, expression) for flaw in bad.flaws) if span]
    detail = bad.detail if len(bad.flaws) == 1 else f"{len(bad.flaws)} fields are wrong"
    if spans:
        marks = "".join("^" if any(a <= i < b for a, b in spans) else " " for i in range(len(expression)))
        detail += f"\n  {expression}\n  {marks.rstrip()}"
    if words > 6:
        detail += "\n  the shell may have replaced * by names of files: put the expression in quotes"
    return InvalidInput(detail, [msgspec.structs.replace(flaw, pointer="") for flaw in bad.flaws])


def _span_of(complaint: str, expression: str) -> tuple[int, int] | None:
    """Where the field stands that the complaint begins with."""
    fields = expression.split()
    names = NAMES[-len(fields) :] if len(fields) in (5, 6) else ()
    at = 0
    for name, text in zip(names, fields, strict=False):
        at = expression.index(text, at)
        if complaint.startswith(f'{name} "'):
            return at, at + len(text)
        at += len(text)
    return None


def _preview(rule: CronRule, after: datetime, count: int) -> Preview:
    marked = [describe(at_ms, rule) for at_ms in rule.take(ms_of(after), count)]
    times = tuple(PreviewTime(utc=instant_of(one.at_ms), local=one.local, dst=one.dst) for one in marked)
    return Preview(description=explain(rule.expression), timezone=rule.timezone, times=times)


def _show_times(preview: Preview) -> None:
    if not preview.times:
        return show("It does not fire within the next 50 years.")
    grid = Listing("LOCAL", "UTC", "WHEN", "CLOCKS", cut=("CLOCKS",), spare=("WHEN",))
    for one in preview.times:
        local = datetime.fromisoformat(one.local)
        mark = MARKS[DstMark(one.dst)] if one.dst else ""
        grid.add(
            f"{local:%a} {local.isoformat(' ')}",
            f"{one.utc:%Y-%m-%d %H:%M:%SZ}",
            relative(one.utc),
            Text(mark, "yellow"),
        )
    return show(grid)
