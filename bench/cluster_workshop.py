"""Where measurements of a cluster are made."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.child import Ground
from bench.creation import DESK_WAYS
from bench.fleet import CLUSTER, Fleet, FleetSize, Running, by_role, fleet
from bench.measure import Tell
from bench.served import Up, token_for
from bench.servers import find_servers, processes_of
from bench.site import Site
from bench.works import TARGET
from bench.workshop import Workshop


class ClusterWorkshop(Workshop):
    """A place is a schema and a prefix on the servers. Each part has processes of its own."""

    mode = CLUSTER
    ways = DESK_WAYS
    slowest_create_per_s = 5_000

    def __init__(self, directory: Path, tell: Tell, environ: Mapping[str, str], size: FleetSize) -> None:
        super().__init__(directory, tell)
        named = find_servers(environ)
        self._environ = {**environ, **named}
        self._servers = processes_of(named)
        self._size = size
        self._sites: dict[str, Site] = {}

    def __enter__(self) -> "ClusterWorkshop":
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as clearing:
            for place in list(self._sites):
                clearing.callback(self.drop, place)

    def new_place(self) -> str:
        site = Site(self._environ)
        self._sites[site.name] = site
        return site.name

    def drop(self, place: str) -> None:
        self.tell("clearing up", 0, 0)
        self._sites[place].clear()
        del self._sites[place]

    @contextmanager
    def up(self, place: str) -> Iterator[Up]:
        with self._fleet(place, api=True) as started:
            token = token_for(self._sites[place].secret)
            roles = by_role(started.members)
            yield Up(roles, self._servers, started.startup_sec, started.url, token, TARGET)

    def count_jobs(self, place: str) -> int:
        return self._sites[place].count_jobs()

    def size_mb(self, place: str) -> float:
        return self._sites[place].size_mb()

    def circumstances(self) -> dict[str, Any]:
        site = next(iter(self._sites.values()), None) or Site(self._environ)
        return self._size.counts() | site.circumstances()

    @contextmanager
    def _ground(self, place: str, *, calls: bool = False) -> Iterator[Ground]:
        with self._fleet(place, calls=calls) as started:
            yield Running(started.members, self._servers)

    @contextmanager
    def _fleet(self, place: str, *, api: bool = False, calls: bool = False) -> Iterator[Fleet]:
        """When it does its work."""
        site = self._sites[place]
        epochs = site.prepare()
        with fleet(self._size.roles(api=api, calls=calls), self.directory, site.environment) as started:
            site.await_settled(epochs, started.members)
            yield started

    def _environment(self, place: str | None) -> Mapping[str, str]:
        return self._environ if place is None else self._sites[place].environment
