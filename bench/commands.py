"""`python -m bench`: how fast, how late and how heavy Noonday is on this machine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from bench.create import CreateSize, measure_create
from bench.ended import ended_by_signals
from bench.engine import EMBEDDED
from bench.figures import Created, Figures, Lateness, change_percent
from bench.fleet import CLUSTER, FleetSize
from bench.machine import IN_MEMORY, filesystem_of
from bench.report import Document, is_flawless, of_create, of_rest, of_rounds, of_tenants
from bench.rest import Compared, RestSize, measure_rest
from bench.works import AtRest, Burst, Crons, Party, Stream, Tenants, Waiting, Webhooks, Work
from bench.workshop import Workshop, open_workshop
from noonday.cli.exits import FAILED, ExitCodes
from noonday.cli.group import Group
from noonday.cli.screen import console, json_option, show, show_json
from noonday.cli.tables import ListTable
from noonday.model.view import TenantSettings
from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import set_up_logs

F = TypeVar("F", bound=Callable[..., None])

EXAMPLES = """
Each work runs the real engine in a process of its own, on a data file that is removed afterwards. NOONDAY_SCHEDULER_*,
NOONDAY_WORKER_* and NOONDAY_STORE_* variables count, noonday.toml does not. The exit code is 1 if anything was lost,
ran twice or started early.

With --mode cluster: schedulers, recorders and workers as processes, on the servers that NOONDAY_POSTGRES_URL,
NOONDAY_REDIS_URL, NOONDAY_KAFKA_SERVERS and NOONDAY_ETCD_URLS name, or in a clone on those of `make servers`. A schema,
topics and keys are made there and removed afterwards. NOONDAY_CLUSTER_* and NOONDAY_KAFKA_* count, too.

Examples:
  python -m bench burst
  python -m bench stream --rate 2000 --json
  python -m bench rest --at-rest 1000000 --crons 100000
  NOONDAY_SCHEDULER_BATCH=500 python -m bench burst --jobs 20000 --rounds 3
  python -m bench burst --mode cluster --schedulers 2 --workers 2
  python -m bench tenants --due big=200000 --due small=200 --alone small
  python -m bench tenants --due a=50000 --due b=50000 --weight b=4
  python -m bench webhooks --calls 10000 --seconds 20
"""

_positive = click.IntRange(min=1)
_not_negative = click.IntRange(min=0)
_some = click.FloatRange(min=0, min_open=True)


def common_options(command: F) -> F:
    for option in (
        json_option,
        click.option("--mode", type=click.Choice([EMBEDDED, CLUSTER]), default=EMBEDDED, show_default=True),
        click.option("--schedulers", type=_positive, help="Processes of this role on a cluster. [default: 1]"),
        click.option("--recorders", type=_positive, help="Likewise. [default: 1]"),
        click.option("--workers", type=_positive, help="Likewise. [default: 1]"),
        click.option("--concurrency", type=_positive, help="How many handlers run at once in a worker."),
        click.option(
            "--dir",
            "directory",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Where the data files are made: the disk that is measured. [default: for temporary files]",
        ),
    ):
        command = option(command)
    return command


def measuring_options(command: F) -> F:
    for option in (
        click.option("--rounds", type=_positive, default=1, show_default=True, help="The median of so many is told."),
        _head_start_option,
    ):
        command = option(command)
    return common_options(command)


_head_start_option = click.option(
    "--head-start",
    type=_some,
    metavar="SECONDS",
    help="How long creating the jobs may take before the first is due. [default: 2, and 1 for each 8000 jobs, on a "
    "cluster for each 5000]",
)


_Named = Sequence[tuple[str, Any]]


def _named(read: Callable[[str], Any]) -> Callable[[str], tuple[str, Any]]:
    def convert(text: str) -> tuple[str, Any]:
        name, _, value = text.rpartition("=")
        with suppress(ValueError):
            if name:
                return name, read(value)
        raise click.BadParameter(f"{text!r} is not TENANT=N, such as acme=200")

    convert.__name__ = "TENANT=N"
    return convert


class Bench(ExitCodes, Group):
    """Every work."""


@click.group(
    cls=Bench, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
def bench() -> None:
    """Measure how fast, how late and how heavy Noonday is on this machine."""
    set_up_logs(Settings())


@bench.command()
@click.option("--jobs", type=_positive, default=100_000, show_default=True)
@measuring_options
def burst(jobs: int, **options: Any) -> None:
    """One-shots that are all due at one instant."""
    _measure(Burst(jobs), **options)


@bench.command()
@click.option("--rate", type=_some, default=200.0, show_default=True, help="Jobs that fall due in a second.")
@click.option("--seconds", type=_some, default=20.0, show_default=True)
@measuring_options
def stream(rate: float, seconds: float, **options: Any) -> None:
    """One-shots whose times are spread evenly."""
    _measure(Stream(rate, seconds), asked={"rate": rate, "seconds": seconds}, **options)


@bench.command()
@click.option("--crons", "--jobs", "jobs", type=_positive, default=10_000, show_default=True, help="Periodic jobs.")
@click.option("--every", type=_positive, default=10, show_default=True, help="The seconds between two runs of a job.")
@click.option("--seconds", type=_some, default=30.0, show_default=True, help="For how long they fire.")
@click.option("--bunched", is_flag=True, help="All at the same instants, instead of spread evenly over the period.")
@click.option("--by-cron", is_flag=True, help="Cron expressions instead of intervals; --every divides 60 then.")
@measuring_options
def crons(jobs: int, every: int, seconds: float, bunched: bool, by_cron: bool, **options: Any) -> None:
    """Periodic jobs."""
    if by_cron and 60 % every:
        raise click.BadParameter(f"{every} does not divide 60, as --by-cron needs", param_hint="--every")
    if seconds < every:
        raise click.BadParameter(f"{seconds:g} is less than --every: some jobs would not fire", param_hint="--seconds")
    work = Crons(jobs, every, seconds, bunched, by_cron)
    asked = {"every": every, "seconds": seconds, "bunched": bunched, "by_cron": by_cron}
    _measure(work, asked=asked, **options)


@bench.command()
@click.option("--jobs", type=_positive, default=10_000, show_default=True)
@click.option("--seconds", type=_some, default=30.0, show_default=True, help="How long each of them waits.")
@measuring_options
def waiting(jobs: int, seconds: float, concurrency: int | None, **options: Any) -> None:
    """One-shots whose handlers wait for something, all at once.

    Until --concurrency says otherwise, a worker runs as many at once as there are jobs. How many really were, and what
    memory that took, is told.
    """
    _measure(Waiting(jobs, seconds), asked={"seconds": seconds}, concurrency=concurrency or jobs, **options)


@bench.command()
@click.option("--calls", "--jobs", "jobs", type=_positive, default=20_000, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0), default=0, help="How long the receiver takes to answer.")
@measuring_options
def webhooks(jobs: int, seconds: float, concurrency: int | None, **options: Any) -> None:
    """Tasks that are all due at one instant, and call a receiver here.

    It is a process of its own, which notes who called and when. With --seconds all calls are in flight at once, unless
    --concurrency says otherwise: how many really were, and what memory that took, is told.
    """
    room = concurrency or (jobs if seconds else None)
    _measure(Webhooks(jobs, seconds), asked={"seconds": seconds}, concurrency=room, **options)


@bench.command()
@click.option(
    "--due", type=_named(int), multiple=True, required=True, metavar="TENANT=N", help="So many of its jobs, at once."
)
@click.option("--weight", type=_named(int), multiple=True, metavar="TENANT=N")
@click.option("--max-running", type=_named(int), multiple=True, metavar="TENANT=N")
@click.option("--per-sec", type=_named(float), multiple=True, metavar="TENANT=N", help="The rate it may not exceed.")
@click.option("--alone", help="Measure this tenant alone, too, and say how much later it is beside the others.")
@click.option("--compare", is_flag=True, help="Measure the same without limits, too, and say what they cost.")
@measuring_options
def tenants(
    due: _Named,
    weight: _Named,
    max_running: _Named,
    per_sec: _Named,
    alone: str | None,
    compare: bool,
    **options: Any,
) -> None:
    """One-shots of several tenants that are all due at one instant.

    What each of them gets: how late its jobs start, and its share while all of them have some waiting.
    """
    said = {"weight": dict(weight), "max_running": dict(max_running), "rate_per_sec": dict(per_sec)}
    _check_tenants(dict(due), said, alone)
    parties = tuple(
        Party(name, jobs, TenantSettings(**{field: by[name] for field, by in said.items() if name in by}))
        for name, jobs in due
    )
    beside = {}
    if alone:
        beside["alone"] = Tenants(tuple(party for party in parties if party.tenant == alone))
    if compare:
        beside["without"] = Tenants(tuple(Party(name, jobs) for name, jobs in due))
    _measure_tenants(Tenants(parties), beside, **options)


def _check_tenants(due: dict[str, float], said: dict[str, dict[str, float]], alone: str | None) -> None:
    for name in {name for by in said.values() for name in by} | ({alone} if alone else set()):
        if name not in due:
            raise click.UsageError(f"no jobs of tenant {name} are due: say --due {name}=N")


@bench.command()
@click.option("--at-rest", type=_positive, default=1_000_000, show_default=True, help="One-shots due in months.")
@click.option("--crons", type=_not_negative, default=100_000, show_default=True, help="Cron jobs due in days.")
@click.option("--jobs", type=_positive, default=100_000, show_default=True, help="Jobs in a burst.")
@click.option("--rate", "rates", type=_some, multiple=True, default=(200.0, 2000.0), show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0), default=20.0, show_default=True, help="0: no streams.")
@click.option("--rounds", type=_positive, default=3, show_default=True, help="Bursts on either store.")
@_head_start_option
@common_options
def rest(
    at_rest: int,
    crons: int,
    jobs: int,
    rates: Sequence[float],
    seconds: float,
    rounds: int,
    head_start: float | None,
    as_json: bool,
    **where: Any,
) -> None:
    """The burst and the streams again, with jobs at rest.

    Measured in turn on a store with jobs at rest and on one without, and how long the engine takes to start on either
    and what memory it has then.
    """
    streams = tuple(Stream(rate, seconds) for rate in rates) if seconds else ()
    size = RestSize(AtRest(at_rest, crons), Burst(jobs), streams, rounds, head_start)
    with _workshop(**where) as workshop:
        compared = measure_rest(size, workshop)
    document = of_rest(size, compared)
    conclude(document, as_json, _compared(size, compared))


@bench.command()
@click.option("--jobs", type=_positive, default=100_000, show_default=True, help="In bulk and in batches.")
@click.option("--calls", type=_positive, default=20_000, show_default=True, help="One by one, over HTTP.")
@common_options
def create(jobs: int, calls: int, as_json: bool, **where: Any) -> None:
    """How fast jobs are stored, in each way there is.

    Through the SDK in bulk; over HTTP in batches and one by one, by callers in a process of their own that speak raw
    HTTP/1.1 over connections they keep.
    """
    with _workshop(**where) as workshop:
        created = list(measure_create(CreateSize(jobs, calls), workshop))
        document = of_create(created, workshop.mode, workshop.circumstances())
    conclude(document, as_json, _ways(created))


def _measure_tenants(
    work: Tenants, beside: dict[str, Tenants], *, rounds: int, head_start: float | None, as_json: bool, **where: Any
) -> None:
    measured: dict[str, list[Figures]] = {name: [] for name in ("", *beside)}
    with _workshop(**where) as workshop:
        for _ in range(rounds):
            for name, each in {**beside, "": work}.items():
                measured[name].append(workshop.measure(each, head_start=head_start))
    document = of_tenants(measured.pop(""), **measured)
    conclude(document, as_json, _tenants(document))


def _tenants(document: Document) -> ListTable:
    right = ("JOBS", "P50 MS", "P95 MS", "P99 MS", "MAX MS", "SHARE %", "RECORDED/S", "CPU US/JOB")
    grid = ListTable("TENANT", *right, right=right)
    for about, found in (("", document), (", alone", document["alone"]), (", without limits", document["without"])):
        for name, got in (found or {"tenants": {}})["tenants"].items():
            share = None if got["share"] is None else got["share"] * 100
            late = (_number(got["lateness_ms"][at], 1) for at in ("p50", "p95", "p99", "max"))
            whole = (_rate(found["recorded_per_s"]), f"{found['cpu_us_per_job']:.0f}")
            grid.add(f"{name}{about}", f"{got['jobs']:,}", *late, _number(share, 1), *whole)
    return grid


def _measure(
    work: Work,
    *,
    rounds: int,
    head_start: float | None,
    as_json: bool,
    asked: dict[str, Any] | None = None,
    **where: Any,
) -> None:
    with _workshop(**where) as workshop:
        measured = [workshop.measure(work, head_start=head_start) for _ in range(rounds)]
    conclude(of_rounds(measured, **(asked or {})), as_json, _rounds(measured))


def conclude(document: Document, as_json: bool, table: ListTable) -> None:
    """Print what was measured, and under which circumstances. The exit code says whether anything went wrong."""
    if as_json:
        show_json(document)
    else:
        circumstances = ", ".join(f"{name} {value}" for name, value in document["settings"].items())
        show(table, "", *_details(document), Text(circumstances, style="dim"))
    if not is_flawless(document):
        wrong = ", ".join(f"{document[name]} {name}" for name in ("lost", "duplicated", "early") if document[name])
        console(err=True).print(f"wrong: {wrong}", style="bold red")
        click.get_current_context().exit(FAILED)


@contextmanager
def _workshop(
    *, mode: str, directory: Path | None, concurrency: int | None, **counts: int | None
) -> Iterator[Workshop]:
    said = {name: count for name, count in counts.items() if count is not None}
    if mode == EMBEDDED:
        _check_embedded(directory, said)
    size = FleetSize(**said) if mode == CLUSTER else None
    with (
        ended_by_signals(),
        _Shown() as shown,
        open_workshop(directory, shown.tell, size, concurrency) as workshop,
    ):
        yield workshop


def _check_embedded(directory: Path | None, counts: dict[str, int]) -> None:
    for name in counts:
        raise click.UsageError(f"--{name} is for --mode {CLUSTER}: one process does everything on {EMBEDDED}")
    place = directory or Path(gettempdir())
    if filesystem_of(place) in IN_MEMORY:
        text = f"{place} is in memory, where syncing costs nothing: name a directory on a disk with --dir"
        console(err=True).print(f"warning: {text}", style="yellow")


class _Shown:
    """How far it is, on a terminal."""

    def __init__(self) -> None:
        screen = console(err=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
        self._task = self._progress.add_task("starting", total=None)
        self._stage = ("", 0)

    def __enter__(self) -> "_Shown":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, stage: str, done: int, of: int) -> None:
        if (stage, of) != self._stage:
            self._stage = (stage, of)
            self._progress.remove_task(self._task)
            self._task = self._progress.add_task(stage, total=of or None)
        self._progress.update(self._task, completed=done)


def _rounds(rounds: Sequence[Figures]) -> ListTable:
    right = ("JOBS", "FIRED", "RECORDED/S", "P50 MS", "P95 MS", "P99 MS", "MAX MS", "CPU US/JOB", "RSS MB")
    grid = ListTable("WORK", *right, right=right, spare=("MAX MS", "P95 MS", "RSS MB"))
    for each in rounds:
        grid.add(
            each.work,
            f"{each.jobs:,}",
            f"{each.fired:,}",
            _rate(each.recorded_per_s),
            *_percentiles(each.lateness_ms),
            f"{each.cpu_us_per_job:.0f}",
            _number(each.rss_mb, 0),
        )
    return grid


def _details(document: Document) -> list[Text]:
    """What is not in the table: who used the CPU and the memory, the most first, if it was not one alone."""
    lines = [
        f"{about}: " + ", ".join(f"{name} {used:.1f}" for name, used in _ranked(document[key]))
        for about, key in (("CPU us/job", "cpu_us_per_job_by"), ("peak MB", "rss_peak_mb_by"))
        if len(document.get(key, ())) > 1
    ]
    if document.get("at_once") is not None:
        lines.append(f"at once: {document['at_once']:,}")
    return [Text(line) for line in (*lines, "")] if lines else []


def _ranked(by: dict[str, float | None]) -> list[tuple[str, float]]:
    known = [(name, value) for name, value in by.items() if value is not None]
    return sorted(known, key=lambda share: -share[1])


def _ways(created: Sequence[Created]) -> ListTable:
    right = ("JOBS", "CREATED/S", "P50 MS", "P95 MS", "P99 MS", "MAX MS", "CPU US/JOB", "RSS MB")
    grid = ListTable("WAY", "CALLERS", *right, right=("CALLERS", *right), spare=("P95 MS", "MAX MS", "RSS MB", "JOBS"))
    for each in created:
        grid.add(
            each.way,
            str(each.callers or "-"),
            f"{each.jobs:,}",
            _rate(each.created_per_s),
            *_percentiles(each.call_ms or Lateness()),
            f"{each.cpu_us_per_job:.0f}",
            _number(each.rss_mb, 0),
        )
    return grid


def _compared(size: RestSize, compared: Compared) -> ListTable:
    grid = ListTable("", "NOTHING AT REST", f"{size.at_rest.jobs:,} AT REST", "CHANGE %", right=("CHANGE %",))
    before, after = compared.before, compared.after

    def add(name: str, was: float | None, now: float | None, digits: int) -> None:
        grid.add(name, _number(was, digits), _number(now, digits), _number(change_percent(was, now), 1))

    add("burst, recorded/s", before.burst.recorded_per_s, after.burst.recorded_per_s, 0)
    add("burst, p99 ms", before.burst.lateness_ms.p99, after.burst.lateness_ms.p99, 1)
    add("burst, CPU us/job", before.burst.cpu_us_per_job, after.burst.cpu_us_per_job, 0)
    add("burst, memory MB", before.burst.rss_mb, after.burst.rss_mb, 0)
    for stream, was, now in zip(size.streams, before.lateness_of_streams, after.lateness_of_streams, strict=True):
        add(f"stream {stream.rate:g}/s, p50 ms", was.p50, now.p50, 1)
        add(f"stream {stream.rate:g}/s, p99 ms", was.p99, now.p99, 1)
    add("idle, start-up s", before.idle.startup_sec, after.idle.startup_sec, 2)
    add("idle, memory MB", before.idle.rss_mb, after.idle.rss_mb, 0)
    add("store MB", before.file_mb, after.file_mb, 0)
    return grid


def _percentiles(late: Lateness) -> list[str]:
    return [_number(value, 1) for value in (late.p50, late.p95, late.p99, late.max)]


def _rate(value: float) -> str:
    return f"{value:,.0f}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
