"""The work `create`: how fast jobs are stored, in each way there is."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from bench import BenchFailed
from bench.callers import Calls
from bench.creation import Bulk, stored
from bench.figures import Created, used_between
from bench.workshop import Workshop

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
    """Each way in a place, and for HTTP with a server, of its own."""
    for way in workshop.ways:
        yield workshop.create(Bulk(way, size.jobs))
    batches, batch = max(1, size.jobs // BATCH), min(BATCH, size.jobs)
    for callers in BATCH_CALLERS:
        yield _over_http(f"HTTP, batches of {batch}", batches, callers, batch, workshop)
    for callers in SINGLE_CALLERS:
        calls = size.calls if callers > 1 else max(1, size.calls // 8)
        yield _over_http("HTTP, one by one", calls, callers, 0, workshop)


def _over_http(way: str, calls: int, callers: int, batch: int, workshop: Workshop) -> Created:
    workshop.heading = f"{way}, {callers} at once"
    workshop.tell("starting a server", 0, 0)
    with workshop.passing_place() as place:
        with workshop.up(place) as up:
            used_before = up.cpu_sec
            target = up.target
            called = workshop.call(Calls(up.url, up.token, target.pool, target.handler, calls, callers, batch))
            used, rss_mb = used_between(used_before, up.cpu_sec), up.rss_mb
        found = workshop.count_jobs(place)
    if called.jobs < calls * max(1, batch):
        raise BenchFailed(f"the server refused some of {calls * max(1, batch)} jobs: it took {called.jobs}")
    created = stored(found, way=way, jobs=called.jobs, took=called.took_sec, used=used, rss_mb=rss_mb)
    return msgspec.structs.replace(created, callers=callers, call_ms=called.call_ms, callers_cpu=called.cpu)
