"""`noonday cron`: explain a cron expression. Needs no server."""

from datetime import datetime

import click
import msgspec
from rich.text import Text

from noonday.cli.choices import choice_option
from noonday.cli.group import Command
from noonday.cli.instants import instant, now, relative
from noonday.cli.screen import json_option, show, show_json
from noonday.cli.tables import ListTable, facts
from noonday.model import zones
from noonday.model.cron_parsing import explain, parse
from noonday.model.errors import InvalidInput
from noonday.model.job import instant_of, ms_of
from noonday.model.offset_changes import Gap, Repeat
from noonday.model.schedule import CronRule, DstMark, describe
from noonday.model.view import Preview, PreviewTime

NAMES = ("second", "minute", "hour", "day of month", "month", "day of week")

MARKS = {
    DstMark.GAP_SHIFTED: "shifted: the clocks skip this time",
    DstMark.REPEATED_FIRST: "first of two: the clocks repeat this time",
    DstMark.REPEATED_SECOND: "second of two: the clocks repeat this time",
}

EXAMPLES = """
An expression has five fields: minute, hour, day of month, month, day of week. With six fields, the first is the second.
Quote the expression.

Examples:
  noonday cron '30 2 * * *' --tz Europe/Berlin
  noonday cron '0 9 * * MON#1' --count 3            09:00 on the first Monday of the month
  noonday cron '0 0 18 LW * *'                      with seconds: 18:00:00 on the last working day of the month
  noonday cron @hourly --from 2026-03-29
"""


@click.command(cls=Command, epilog=EXAMPLES, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="EXPR")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="Time zone, such as Europe/Berlin.")
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="Number of times to show.")
@click.option("--from", "from_", type=instant, help="Show times after this one. [default: now]")
@choice_option("--gap", Gap, default="SHIFT", help="Policy for a local time that the clocks skip. [default: SHIFT]")
@choice_option("--repeat", Repeat, default="FIRST", help="Policy for a local time that occurs twice. [default: FIRST]")
@json_option
def cron(
    words: tuple[str, ...], tz: str, count: int, from_: datetime | None, gap: str, repeat: str, as_json: bool
) -> None:
    """Explain a cron expression. Needs no server.

    Shows the next times in the given zone and in UTC, and the effect of daylight saving changes.
    """
    expression = " ".join(words)
    try:
        parse(expression)
        zones.zone(tz)
    except InvalidInput as bad:
        raise pointed(bad, expression, len(words)) from bad
    preview = _preview(CronRule(expression, tz, Gap(gap), Repeat(repeat)), from_ or now(), count)
    if as_json:
        return show_json(preview)
    show(facts([("expression", expression), ("means", preview.description), ("zone", tz)]), "")
    return _show_times(preview)


def pointed(bad: InvalidInput, expression: str, words: int) -> InvalidInput:
    """Return the same error with the expression below it and marks under the invalid fields."""
    spans = [span for span in (_span_of(flaw.detail, expression) for flaw in bad.flaws) if span]
    detail = bad.detail if len(bad.flaws) == 1 else f"{len(bad.flaws)} invalid fields"
    if spans:
        marks = "".join("^" if any(a <= i < b for a, b in spans) else " " for i in range(len(expression)))
        detail += f"\n  {expression}\n  {marks.rstrip()}"
    if words > 6:
        detail += "\n  the shell may have replaced * with file names: put the expression in quotes"
    return InvalidInput(detail, [msgspec.structs.replace(flaw, pointer="") for flaw in bad.flaws])


def _span_of(complaint: str, expression: str) -> tuple[int, int] | None:
    """Return the position in the expression of the field that the complaint begins with."""
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
        return show("The expression does not fire within the next 50 years.")
    grid = ListTable("LOCAL", "UTC", "WHEN", "CLOCKS", cut=("CLOCKS",), spare=("WHEN",))
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
