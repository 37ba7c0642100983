"""Turn a store by hand."""

import json
from collections.abc import Sequence
from itertools import pairwise

from noonday.model.batch import FireRequest, FireResult, Owner
from noonday.model.change import Change, ChangeResult, NewJob
from noonday.model.execution import TRANSITIONS, Execution, State
from noonday.model.firing import Entry, Fire, plan_fire
from noonday.model.ids import PARTITIONS, ExecutionId, InstanceId, JobId
from noonday.model.job import Job, rule_of, spread_ms
from noonday.model.message import Beat, Bye, Dispatch, Hello, Report
from noonday.model.recording import Checkpoint, SettleResult
from noonday.ports.jobs import Decide
from tests.support.drivers import Store
from tests.support.factories import NOW_MS

INSTANCE = InstanceId("i-1")
GENERATION = "generation-1"


class Crank:
    """The calls of intake, scheduler and recorder to a store, one at a time, by a clock that the test sets."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now_ms = NOW_MS
        self.owner = Owner(INSTANCE, {})
        self.place: Checkpoint | None = None

    async def own(self, instance: InstanceId = INSTANCE) -> Owner:
        """Become the owner of all partitions."""
        taken = await self.store.firing.take_over(instance, range(PARTITIONS))
        self.owner = Owner(instance, {p: each.epoch for p, each in taken.items()})
        return self.owner

    async def add(self, *jobs: Job) -> None:
        """Store jobs that wait for their first time, which may be this very instant."""
        new = [NewJob(job, first_fire(job, self.now_ms)) for job in jobs]
        await self.store.jobs.add(new, upsert=_no_upsert, audit=None, seal=None)

    async def change(self, job: Job, change: Change | Decide, *, show: Sequence[ExecutionId] = ()) -> ChangeResult:
        decide = (lambda before: change) if isinstance(change, Change) else change
        return await self.store.jobs.edit(job.tenant, job.id, decide, show=show)

    async def due(self) -> list[Entry]:
        return await self.store.firing.walk(range(PARTITIONS), None, self.now_ms, 10_000)

    async def timeline(self) -> list[Entry]:
        """All rows that have a time."""
        return await self.store.firing.walk(range(PARTITIONS), None, 2**60, 10_000)

    async def fire(self, entries: Sequence[Entry] | None = None, *, at_ms: int | None = None) -> FireResult:
        """Plan and fire some entries; by default, all that are due."""
        self.now_ms = at_ms or self.now_ms
        chosen = await self.due() if entries is None else entries
        requests = await self.plan(chosen)
        return await self.store.firing.fire(self.owner, requests, self.now_ms)

    async def plan(self, entries: Sequence[Entry]) -> list[FireRequest]:
        jobs = await self.store.firing.plans([entry for entry in entries if entry.recurring])
        requests = []
        for entry in entries:
            at_ms = max(self.now_ms, entry.due_ms)
            known = jobs.get((JobId(entry.key), entry.number)) if entry.recurring else None
            plan = plan_fire(known.job, entry.nominal_ms, at_ms, known.runs_left) if known else None
            requests.append(FireRequest(entry, plan, known.runs_left if known else None))
        return requests

    async def fire_one(self, *, at_ms: int | None = None) -> Dispatch:
        """Fire the due entries, which must make a single dispatch."""
        (dispatch,) = (await self.fire(at_ms=at_ms)).dispatches
        return dispatch

    async def settle(self, *reports: Report, signs: Sequence[Hello | Beat | Bye] = ()) -> SettleResult:
        """Apply a batch of the log. The clock is at least at the times in the batch."""
        self.now_ms = max([self.now_ms, *(report.ended_ms for report in reports)])
        was = self.place
        self.place = Checkpoint(0, GENERATION, (was.offset if was else 0) + len(reports) + len(signs), 0)
        return await self.store.executions.settle(reports, signs, was=was, now=self.place, now_ms=self.now_ms)

    async def look(self, of: Dispatch | Execution | ExecutionId) -> Execution:
        """Return an execution as it is now."""
        name = of if isinstance(of, str) else of.execution_id if isinstance(of, Dispatch) else of.id
        for tenant in ("acme", "other"):
            found = await self.store.query_store.find_execution(tenant, name)  # type: ignore[arg-type]
            if found:
                return found
        raise AssertionError(f"there is no execution {name}")

    async def all_of(self, job: Job) -> list[Execution]:
        """The executions of a job, oldest first."""
        found = await self.store.query_store.list_executions(job.tenant, job.id, state=None, after=None, limit=10_000)
        return found[::-1]

    async def states_of(self, job: Job) -> list[str]:
        return [each.state.name for each in await self.all_of(job)]

    async def fire_row(self, job: Job) -> Fire | None:
        row = await self.store.query_store.find_job(job.tenant, job.id)
        assert row is not None
        return row.fire


def first_fire(job: Job, now_ms: int) -> Fire:
    nominal_ms = job.anchor_ms if job.spec.one_shot else rule_of(job.spec, job.anchor_ms).next_after(now_ms - 1)
    assert nominal_ms is not None
    return Fire(nominal_ms, nominal_ms + spread_ms(job.spec, job.id), job.spec.max_runs)


def states_through(execution: Execution) -> list[State]:
    """The states of an execution, in order."""
    return [State(transition[0]) for transition in json.loads(f"[{execution.transitions}]")]


def is_path(states: Sequence[State]) -> bool:
    """Whether each state legally follows the one before it."""
    return all(after in TRANSITIONS[before] for before, after in pairwise(states))


def _no_upsert(before: object, wanted: object) -> Change:
    raise AssertionError("the unique key is taken")
