"""The work `create`: how fast jobs are stored, in each way there is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from noonday.bench.callers import Calls
from noonday.bench.creation import Bulk, Way, stored
from noonday.bench.figures import Created
from noonday.bench.machine import cpu_sec, memory_mb
from noonday.bench.served import serving
from noonday.bench.workshop import Workshop

BATCH = 1000
BATCH_CALLERS = (1, 4)
SINGLE_CALLERS = (1, 16)


@dataclass(frozen=True)
class CreateSize:
    jobs: int
    """In bulk: through the SDK, and over HTTP in batches."""
    calls: int
    """Over HTTP one by one, by sixteen callers. One alone makes an eighth of them."""


def measure_create(size: CreateSize, workshop: Workshop) -> Iterator[Created]:
    """Each way on a data file, and for HTTP with a server, of its own."""
    for way in get_args(Way):
        yield workshop.create(Bulk(way, size.jobs))
    batches, batch = max(1, size.jobs // BATCH), min(BATCH, size.jobs)
    for callers in BATCH_CALLERS:
        yield _over_http(f"HTTP, batches of {batch}", batches, callers, batch, workshop)
    for callers in SINGLE_CALLERS:
        calls = size.calls if callers > 1 else max(1, size.calls // 8)
        yield _over_http("HTTP, one by one", calls, callers, 0, workshop)


def _over_http(way: str, calls: int, callers: int, batch: int, workshop: Workshop) -> Created:
    data = workshop.new_file()
    workshop.heading = f"{way}, {callers} at once"
    workshop.tell("starting a server", 0, 0)
    with serving(data) as server:
        cpu_before = cpu_sec(server.pid)
        called = workshop.call(Calls(server.url, server.token, calls, callers, batch))
        cpu, (rss_mb, _) = cpu_sec(server.pid) - cpu_before, memory_mb(server.pid)
    return stored(
        data,
        way=way,
        jobs=called.jobs,
        took=called.took_sec,
        cpu=cpu,
        rss_mb=rss_mb,
        callers=callers,
        call_ms=called.call_ms,
        callers_cpu=called.cpu,
    )
