"""Name clashes: warnings about jobs that have the same name."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from noonday.model.caller import Caller
from noonday.model.change import NewJob
from noonday.model.ids import JobId
from noonday.ports.queries import QueryStore


class NameClashes:
    """Finds jobs that share a name. A name need not be unique, but commands refuse one that several jobs have."""

    def __init__(self, query_store: QueryStore) -> None:
        self._query_store = query_store

    async def among(self, caller: Caller, names: Iterable[str | None]) -> "KnownNames":
        """Look up which jobs have these names now."""
        asked = sorted({name for name in names if name is not None})
        return KnownNames(await self._query_store.jobs_named(caller.tenant, asked) if asked else {})


class KnownNames(msgspec.Struct, frozen=True):
    """The first two jobs of each name, oldest first."""

    jobs: Mapping[str, Sequence[JobId]] = {}

    def with_new(self, new: Iterable[NewJob]) -> "KnownNames":
        """Return the names after a batch of jobs is stored. A job with a unique key may update another, so it is left out."""
        jobs = dict(self.jobs)
        for each in new:
            name = each.job.spec.name
            if name is not None and each.job.spec.unique_key is None:
                jobs[name] = (*jobs.get(name, ()), each.job.id)[:2]
        return KnownNames(jobs)

    def warnings(self, job_id: JobId | str, name: str | None) -> tuple[str, ...]:
        """Return a warning that names the first other job of this name, if there is one."""
        other = next((each for each in self.jobs.get(name or "", ()) if each != job_id), None)
        if other is None:
            return ()
        return (f"job {other} is also named {name!r}: commands need an id to tell the two apart",)
