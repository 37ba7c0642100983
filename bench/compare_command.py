"""The command line of `python -m bench compare`."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from bench.compare import WORKS, Compared, compare
from bench.ended import ended_by_signals
from bench.engine import EMBEDDED
from bench.fleet import CLUSTER
from bench.peers.markdown import number
from bench.peers.spread import Spread
from noonday.cli.screen import console, json_option, show, show_json
from noonday.cli.tables import ListTable

TITLES = {"recorded_per_s": "recorded/s", "cpu_us_per_job": "CPU us/job", "p99_ms": "p99 ms"}


@click.command("compare", context_settings={"ignore_unknown_options": True})
@click.argument("revision", metavar="REV")
@click.option("--work", type=click.Choice(WORKS), default="burst", show_default=True)
@click.option("--mode", type=click.Choice([EMBEDDED, CLUSTER]), default=EMBEDDED, show_default=True)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Repetitions of either revision."
)
@click.option(
    "--json-file", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write all to this file."
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS]")
@json_option
def compare_command(
    revision: str,
    work: str,
    mode: str,
    rounds: int,
    json_file: Path | None,
    options: Sequence[str],
    as_json: bool,
) -> None:
    """Measure a work on revision REV and on the present tree, in turn.

    REV is checked out into a temporary worktree with an environment of its own. OPTIONS are those of the work, such as
    `-- --jobs 20000`. A ratio is that of the present tree to REV.
    """
    with ended_by_signals():
        found = compare(
            revision,
            work,
            mode,
            rounds,
            options,
            lambda text: console(err=True).print(text, markup=False, soft_wrap=True),
        )
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    if as_json:
        show_json(msgspec.to_builtins(found))
    else:
        show(_table(found))


def _table(found: Compared) -> ListTable:
    right = (found.base[:12], "PRESENT", "RATIO")
    grid = ListTable("FIGURE", *right, right=right)
    for name, figure in found.figures.items():
        grid.add(TITLES[name], *map(_text, (figure.base, figure.present, figure.ratio)))
    return grid


def _text(found: Spread) -> str:
    return f"{number(found.median)} ({number(found.least)} to {number(found.most)})"
