"""`python -m bench peers`: Noonday beside its peers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec
from rich.markup import escape

from bench.ended import ended_by_signals
from bench.peers.catalog import NOONDAY, Peer, chosen, load_peers
from bench.peers.chart import svg
from bench.peers.markdown import TITLES, markdown
from bench.peers.repetition import Limits
from bench.peers.results import Document
from bench.peers.run import Run
from bench.peers.works import WORKS, chosen_works
from noonday.cli.screen import console, show
from noonday.cli.tables import ListTable

_file = click.Path(dir_okay=False, writable=True, path_type=Path)
_positive = click.IntRange(min=1)
_minutes = click.FloatRange(min=0, min_open=True)


@click.command()
@click.option("--peer", "peer_names", multiple=True, metavar="NAME", help="Beside Noonday. [default: all]")
@click.option("--work", "work_names", multiple=True, metavar="NAME", help="Or the beginning of names. [default: all]")
@click.option(
    "--noonday",
    "modes",
    type=click.Choice(["embedded", "cluster", "none"]),
    multiple=True,
    default=("embedded", "cluster"),
    show_default=True,
    help="Modes to measure; none: the peers alone.",
)
@click.option("--minutes", type=_minutes, default=20.0, show_default=True, help="No repetition begins afterwards.")
@click.option("--rounds", type=_positive, default=3, show_default=True, help="Repetitions of each work, at most.")
@click.option(
    "--jobs", type=_positive, help="At most so many in a repetition. [default: as many as 30 s have room for]"
)
@click.option("--at-rest", type=_positive, help="Jobs at rest for `at-rest`. [default: 1000000]")
@click.option(
    "--kill-wait", type=_minutes, default=60.0, show_default=True, help="Seconds until what is missing is lost."
)
@click.option("--idle-seconds", type=_minutes, default=20.0, show_default=True, help="How long `idle` is observed.")
@click.option("--most-rate", type=_minutes, default=64_000.0, show_default=True, help="Where `stream-max` stops.")
@click.option("--json", "json_file", type=_file, help="Write everything that was measured to this file.")
@click.option("--markdown", "markdown_file", type=_file, help="Write the tables to this file. [default: the screen]")
@click.option("--svg", "svg_file", type=_file, help="Draw a chart into this file.")
@click.option(
    "--dir", "directory", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The disk to use."
)
@click.option("--list", "only_list", is_flag=True, help="List peers and works, and measure nothing.")
def peers(
    peer_names: Sequence[str],
    work_names: Sequence[str],
    modes: Sequence[str],
    minutes: float,
    rounds: int,
    jobs: int | None,
    at_rest: int | None,
    kill_wait: float,
    idle_seconds: float,
    most_rate: float,
    json_file: Path | None,
    markdown_file: Path | None,
    svg_file: Path | None,
    directory: Path | None,
    only_list: bool,
) -> None:
    """Measure Noonday beside other schedulers, in turn, on the same works.

    Peers are installed into var/peers from their registries. They use databases of their own on the PostgreSQL of
    NOONDAY_POSTGRES_URL, or a Redis that is started for them. The cluster needs all servers (`make servers`).
    """
    known = load_peers()
    if only_list:
        _list(known)
        return
    noonday = [known[name] for name in NOONDAY if name.removeprefix("noonday-") in modes]
    limits = Limits(jobs, at_rest, kill_wait, idle_sec=idle_seconds, most_rate=most_rate)
    screen = console(err=True)
    with ended_by_signals(), TemporaryDirectory(prefix="noonday-peers-", dir=directory) as own:
        run = Run(
            chosen(peer_names, known),
            noonday,
            Path(own),
            os.environ,
            limits,
            lambda text: screen.print(escape(text), soft_wrap=True, highlight=False),
        )
        document = run.measure(chosen_works(work_names), rounds, minutes * 60)
    _write(document, json_file, markdown_file, svg_file)


def _write(document: Document, json_file: Path | None, markdown_file: Path | None, svg_file: Path | None) -> None:
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    if svg_file:
        svg_file.write_text(svg(document))
    if markdown_file:
        markdown_file.write_text(markdown(document))
    else:
        click.echo(markdown(document))


def _list(known: Mapping[str, Peer]) -> None:
    peers_table = ListTable("PEER", "VERSION", "LANGUAGE", "ON", "NOTES")
    for peer in known.values():
        peers_table.add(peer.name, peer.version, peer.language, peer.store, ", ".join(peer.marks()))
    works_table = ListTable("WORK", "JOBS AT MOST", "FIGURE", right=("JOBS AT MOST",))
    for work in WORKS.values():
        works_table.add(work.name, f"{work.jobs:,}", TITLES[work.figure])
    show(peers_table, "", works_table)
