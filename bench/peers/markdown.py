"""The document as Markdown, for people."""

from bench.peers.catalog import Peer
from bench.peers.results import Document, Row, Table, unsupported
from bench.peers.speed import Speed
from bench.peers.spread import Spread

TITLES = {
    "per_s": "jobs/s",
    "rate": "highest rate with p95 below 1 s, jobs/s",
    "p50_ms": "p50 ms",
    "p95_ms": "p95 ms",
    "p99_ms": "p99 ms",
    "flows_sec": "flows again after s",
    "again": "started again",
    "again_sec": "last started again after s",
    "cpu_percent": "CPU, % of a core",
    "with_servers_percent": "with servers, %",
    "rss_mb": "memory MB",
    "cpu_us": "CPU us a job",
    "fired_percent": "fired %",
    "load_sec": "load s",
}
_SHOWN = ("per_s", "p50_ms", "p95_ms", "p99_ms", "fired_percent", "flows_sec", "again", "again_sec", "load_sec",
          "cpu_percent", "with_servers_percent", "cpu_us", "rss_mb")  # fmt: skip
_DIGITS_FROM = ((100, 0), (10, 1), (0, 2))


def markdown(document: Document) -> str:
    parts = [_about(document)]
    parts += [_table(table, document) for table in document.tables]
    parts.append(_settings(document))
    return "\n\n".join(parts) + "\n"


def _about(document: Document) -> str:
    machine, after = document.machine, document.machine_after
    lines = [
        "# Noonday and its peers",
        "",
        f"{document.rounds} complete rounds in {document.took_sec / 60:.0f} minutes, repetitions in turn; medians, with the "
        "least and the most. A ratio is Noonday's figure divided by the peer's, of neighbours in the run.",
        "",
        f"The machine: {machine.cores} cores, {machine.filesystem}, Python {machine.python}. {_speed('before', machine)}; "
        f"{_speed('after', after)}.",
    ]
    if document.missing:
        lines += ["", "Not measured here:", ""]
        lines += [f"- {name}: {_cell(reason)}" for name, reason in document.missing.items()]
    return "\n".join(lines)


def _speed(when: str, speed: Speed) -> str:
    return (
        f"{when}: 5,000,000 turns of a Python loop in {speed.loop_sec:.2f} s, {speed.fsyncs_per_s:,.0f} fsyncs a second, "
        f"load {speed.load:.1f}"
    )


def _table(table: Table, document: Document) -> str:
    shown = [table.figure, *(name for name in _SHOWN if name != table.figure)]
    shown = [name for name in shown if any(name in row.figures for row in table.rows)]
    titles = {peer.name: peer.title for peer in document.peers}
    heads = ["peer", "jobs", *(TITLES[name] for name in shown), "embedded : peer", "cluster : peer", "CPU, embedded : peer",
             "CPU, cluster : peer", "lost, duplicated, early", "notes"]  # fmt: skip
    lines = [
        f"## {table.work}",
        "",
        f"{'More' if table.more_is_better else 'Less'} {TITLES[table.figure]} is better.",
        "",
        _line(heads),
        _line(["---"] * len(heads)),
        *(_line(_cells(row, shown, titles, table)) for row in table.rows),
    ]
    left_out = unsupported(document.peers, [table]).get(table.work, {})
    if left_out:
        lines += ["", *(f"- {titles[name]} is left out: {reason}." for name, reason in left_out.items())]
    return "\n".join(lines)


def _cells(row: Row, shown: list[str], titles: dict[str, str], table: Table) -> list[str]:
    notes = [*row.marks, *(f"failed: {text}" for text in row.failed)]
    compared = [
        _spread(by.get(name))
        for by in (row.noonday, row.noonday_cpu)
        for name in ("noonday-embedded", "noonday-cluster")
    ]
    return [
        titles[row.peer],
        f"{row.jobs:,}" if row.jobs else "",
        *(_spread(row.figures.get(name)) for name in shown),
        *compared,
        f"{row.lost}, {row.duplicated}, {row.early}" if row.figures else "",
        _cell("; ".join(notes)),
    ]


def _settings(document: Document) -> str:
    lines = ["## Settings", "", _line(["peer", "version", "on", "settings"]), _line(["---"] * 4)]
    return "\n".join([*lines, *(_line(_setting(peer)) for peer in document.peers)])


def _setting(peer: Peer) -> list[str]:
    return [peer.title, peer.version, peer.store, _cell("; ".join([peer.settings, *peer.marks()]))]


def _spread(found: Spread | None) -> str:
    if found is None:
        return ""
    text = number(found.median)
    return text if found.count == 1 else f"{text} ({number(found.least)} to {number(found.most)})"


def number(value: float) -> str:
    return f"{value:,.{next(digits for least, digits in _DIGITS_FROM if abs(value) >= least)}f}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
