"""All works, as large as they are defined, with what each figure should be. `make bench` runs this.

    make bench                          everything; the cluster's works need the servers (make servers)
    make bench ARGS="burst create"      some of it
    make bench ARGS="cluster"           all of the cluster

Each work is measured by `python -m bench`, which can be run alone. The documents it prints are kept in bench/results.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from noonday.cli.screen import console, show
from noonday.cli.tables import ListTable

RESULTS = Path(__file__).parent / "results"
Document = dict[str, Any]


@dataclass(frozen=True)
class Aim:
    """A figure, and how large it may be at least (`least`) or at most (`most`)."""

    text: str
    find: Callable[[Document], float | None]
    least: float | None = None
    most: float | None = None

    def wanted(self) -> str:
        if self.least is not None:
            return f"at least {self.least:,g}"
        return "" if self.most is None else f"at most {self.most:,g}"

    def verdict(self, value: float | None) -> Text:
        if value is None:
            return Text("not measured", style="yellow")
        if not self.wanted():
            return Text("")
        reached = value >= self.least if self.least is not None else value <= (self.most or 0)
        return Text("reached", style="green") if reached else Text("missed", style="red")


@dataclass(frozen=True)
class Work:
    name: str
    arguments: tuple[str, ...]
    aims: tuple[Aim, ...]


def late(percentile: str) -> Callable[[Document], float | None]:
    def find(document: Document) -> float | None:
        value: float | None = document["lateness_ms"][percentile]
        return value

    return find


p95, p99 = late("p95"), late("p99")


def recorded(document: Document) -> float:
    return float(document["recorded_per_s"])


def peak_of_worker(document: Document) -> float | None:
    peak: float | None = document["rss_peak_mb_by"]["worker"]
    return peak


def fired_percent(document: Document) -> float:
    return 100 * float(document["fired"]) / float(document["expected"])


def way(name: str, callers: int | None = None) -> Callable[[Document], float | None]:
    """The fastest of the ways that are called so."""

    def find(document: Document) -> float | None:
        ways = [each for each in document["ways"] if each["way"].startswith(name)]
        return max((each["created_per_s"] for each in ways if callers in (None, each["callers"])), default=None)

    return find


def stream_change(rate: float) -> Callable[[Document], float | None]:
    def find(document: Document) -> float | None:
        changes = document["change_percent"]["streams_p99_ms"]
        return next((each["change"] for each in changes if each["rate"] == rate), None)

    return find


def later(tenant: str) -> Callable[[Document], float | None]:
    return lambda document: float(document["later_p95_ms"][tenant])


def off_weight_percent(document: Document) -> float:
    """The largest difference between a tenant's share and its weight."""
    shares: dict[str, float] = {name: got["share"] for name, got in document["tenants"].items()}
    wanted = {name: weight / sum(WEIGHTS.values()) for name, weight in WEIGHTS.items()}
    return max(abs(shares[name] / share - 1) * 100 for name, share in wanted.items())


WEIGHTS = {"one": 1, "two": 2, "four": 4}
NEIGHBOURS = ("tenants", "--due", "big=200000", "--due", "small=200", "--alone", "small")
BY_WEIGHT = (
    "tenants",
    *(word for name in WEIGHTS for word in ("--due", f"{name}=40000")),
    *(word for name, weight in WEIGHTS.items() for word in ("--weight", f"{name}={weight}")),
)
LIMITED = ("tenants", "--due", "one=100000", "--compare", "--rounds", "3")


def of_tenants(about: str, *where: str) -> tuple[Work, ...]:
    """What tenants get beside each other, and what limits that hold nothing up cost."""
    name = f"{about.replace(': ', '-')}tenants"
    cost = (
        Aim(
            f"{about}100,000 counted against a cap: recorded/s, change %",
            lambda d: d["change_percent"]["recorded_per_s"],
            least=-10,
        ),
    )
    return (
        Work(
            name,
            (*NEIGHBOURS, *where),
            (Aim(f"{about}200 beside another tenant's 200,000: p95 later by, ms", later("small"), most=250),),
        ),
        Work(
            f"{name}-weights",
            (*BY_WEIGHT, *where),
            (Aim(f"{about}weights 1:2:4, off by % at most", off_weight_percent, most=10),),
        ),
        Work(f"{name}-cap", (*LIMITED, "--max-running", "one=1000000", *where), cost),
        Work(
            f"{name}-rate",
            (*LIMITED, "--per-sec", "one=1000000", *where),
            (
                Aim(
                    f"{about}100,000 counted against a rate: recorded/s, change %",
                    lambda d: d["change_percent"]["recorded_per_s"],
                    least=-10,
                ),
            ),
        ),
    )


EMBEDDED = (
    Work(
        "burst",
        ("burst", "--jobs", "100000", "--rounds", "3"),
        (Aim("100,000 at one instant, recorded/s", recorded, least=20_000),),
    ),
    Work(
        "stream-200",
        ("stream", "--rate", "200", "--rounds", "3"),
        (Aim("200/s, lateness p99 ms", p99, most=10),),
    ),
    Work(
        "stream-2000",
        ("stream", "--rate", "2000", "--rounds", "3"),
        (Aim("2,000/s, lateness p99 ms", p99, most=50),),
    ),
    Work(
        "crons-10000",
        ("crons", "--crons", "10000", "--every", "10"),
        (Aim("10,000 every 10 s, fired %", fired_percent, least=100), Aim("  lateness p99 ms", p99)),
    ),
    Work(
        "crons-100000",
        ("crons", "--crons", "100000", "--every", "60", "--seconds", "60"),
        (Aim("100,000 every minute, fired %", fired_percent, least=100), Aim("  lateness p99 ms", p99)),
    ),
    Work(
        "create",
        ("create",),
        (
            Aim("create in bulk with the SDK, jobs/s", way("enqueue_many"), least=60_000),
            Aim("create over HTTP in batches, jobs/s", way("HTTP, batches"), least=20_000),
            Aim("create over HTTP, 16 callers, jobs/s", way("HTTP, one by one", 16), least=3_000),
        ),
    ),
    Work(
        "rest",
        ("rest", "--at-rest", "1000000", "--crons", "100000"),
        (
            Aim("1,100,000 at rest: burst, change %", lambda d: d["change_percent"]["recorded_per_s"], least=-10),
            Aim("  stream 200/s, change of p99 %", stream_change(200), most=10),
            Aim("  stream 2,000/s, change of p99 %", stream_change(2000), most=10),
            Aim("  memory when idle, MB", lambda d: d["idle_rss_mb"], most=300),
            Aim("  memory in the burst, MB", lambda d: d["rss_mb"], most=300),
            Aim("  start-up, s", lambda d: d["startup_sec"], most=3),
        ),
    ),
    Work(
        "webhooks",
        ("webhooks", "--calls", "20000", "--concurrency", "300"),
        (Aim("webhooks, called/s", recorded),),
    ),
    *of_tenants(""),
)

ON_CLUSTER = ("--mode", "cluster")
CLUSTER = (
    Work(
        "cluster-burst",
        ("burst", *ON_CLUSTER, "--jobs", "100000", "--rounds", "3"),
        (
            Aim("cluster: 100,000 at one instant, recorded/s", recorded, least=16_700),
            Aim("  CPU us a job, roles and servers", lambda d: d["cpu_us_per_job"]),
        ),
    ),
    Work(
        "cluster-minute",
        ("stream", *ON_CLUSTER, "--rate", "16700", "--seconds", "60"),
        (
            Aim("cluster: 1,002,000 due within a minute, fired %", fired_percent, least=100),
            Aim("  lateness p95 ms", p95, most=1_000),
            Aim("  recorded after the last was due, s", lambda d: d["drain_sec"], most=1),
            Aim("  recorded/s", recorded),
        ),
    ),
    Work(
        "cluster-stream-200",
        ("stream", *ON_CLUSTER, "--rate", "200", "--rounds", "3"),
        (Aim("cluster: 200/s, lateness p99 ms", p99, most=10),),
    ),
    Work(
        "cluster-stream-2000",
        ("stream", *ON_CLUSTER, "--rate", "2000", "--rounds", "3"),
        (Aim("cluster: 2,000/s, lateness p99 ms", p99, most=100),),
    ),
    Work(
        "cluster-crons",
        ("crons", *ON_CLUSTER, "--crons", "10000", "--every", "10"),
        (Aim("cluster: 10,000 every 10 s, fired %", fired_percent, least=100), Aim("  lateness p99 ms", p99)),
    ),
    Work(
        "cluster-create",
        ("create", *ON_CLUSTER),
        (
            Aim("cluster: create in bulk, jobs/s", way("create_ids"), least=60_000),
            Aim("  over HTTP in batches, jobs/s", way("HTTP, batches")),
            Aim("  over HTTP, 16 callers, jobs/s", way("HTTP, one by one", 16)),
        ),
    ),
    Work(
        "cluster-waiting",
        ("waiting", *ON_CLUSTER, "--jobs", "10000"),
        (
            Aim("cluster: waiting at once in one worker", lambda d: d["at_once"], least=10_000),
            Aim("  its memory at its peak, MB", peak_of_worker, most=1_000),
        ),
    ),
    Work(
        "cluster-webhooks",
        ("webhooks", *ON_CLUSTER, "--calls", "20000", "--concurrency", "300", "--workers", "2"),
        (Aim("cluster: webhooks, two workers, called/s", recorded, least=3_000),),
    ),
    Work(
        "cluster-webhooks-slow",
        ("webhooks", *ON_CLUSTER, "--calls", "10000", "--seconds", "20"),
        (
            Aim("cluster: webhooks in flight at once in one worker", lambda d: d["at_once"], least=10_000),
            Aim("  its memory at its peak, MB", lambda d: d["rss_peak_mb_by"]["caller"], most=1_000),
        ),
    ),
    Work(
        "cluster-rest",
        ("rest", *ON_CLUSTER, "--at-rest", "10000000", "--crons", "100000"),
        (
            Aim(
                "cluster: 10,100,000 at rest: burst, change %",
                lambda d: d["change_percent"]["recorded_per_s"],
                least=-10,
            ),
            Aim("  stream 200/s, change of p99 %", stream_change(200), most=10),
            Aim("  stream 2,000/s, change of p99 %", stream_change(2000), most=10),
            Aim("  the schema on its disk, MB", lambda d: d["after"]["file_mb"]),
        ),
    ),
    *of_tenants("cluster: ", *ON_CLUSTER),
)
WORKS = EMBEDDED + CLUSTER


def main() -> None:
    chosen = _chosen(sys.argv[1:])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / ".gitignore").write_text("*\n")
    grid, wrong = ListTable("FIGURE", "MEASURED", "WANTED", "", right=("MEASURED",)), []
    for work in chosen:
        document = _measured(work)
        if document is None:
            wrong.append(work.name)
            continue
        for aim in work.aims:
            value = aim.find(document)
            grid.add(aim.text, "-" if value is None else f"{value:,.1f}", aim.wanted(), aim.verdict(value))
    show(grid)
    if wrong:
        sys.exit(f"could not be measured, or work was lost, done twice or early: {', '.join(wrong)}")


def _chosen(names: Sequence[str]) -> list[Work]:
    """The works of these names, or whose names begin with one of them; all, if there are no names."""
    for name in names:
        if not any(work.name.startswith(name) for work in WORKS):
            sys.exit(f"there is no work {name}: choose from {', '.join(work.name for work in WORKS)}")
    return [work for work in WORKS if not names or work.name.startswith(tuple(names))]


def _measured(work: Work) -> Document | None:
    console(err=True).print(f"python -m bench {' '.join(work.arguments)}", style="dim")
    command = [sys.executable, "-m", "bench", *work.arguments, "--json"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if ended.stdout:
        (RESULTS / f"{work.name}.json").write_bytes(ended.stdout)
    document: Document | None = json.loads(ended.stdout) if ended.returncode == 0 else None
    return document


if __name__ == "__main__":
    main()
