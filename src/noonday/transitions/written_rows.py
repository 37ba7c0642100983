"""The rows that one transition writes, by kind, as the drivers store them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from noonday.model.execution import Execution
from noonday.model.firing import Decision, Entry, Fire, fire_entry
from noonday.model.ids import ExecutionId, JobId, partition_of
from noonday.model.job import Job
from noonday.model.message import Report
from noonday.model.slots import SlotKey
from noonday.transitions.rows import (
    NewChildren,
    NewExecutionRow,
    NewIncident,
    Redispatch,
    ReturnedRuns,
    RevokedRow,
    SlotChange,
    TimelineRow,
    TouchedJob,
    timeline_row,
)


class WrittenRows:
    """Rows to insert, change and delete in one transaction, and the results that are passed on after it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """Entries of the timeline that belong on the hot index."""
        self.revocations: list[tuple[str, ExecutionId, int, str]] = []
        """(pool, execution, dispatch, reason) to signal to workers."""
        self.closed_by_state: Counter[str] = Counter()
        """Number of executions that reached each state beyond RUNNING."""
        self.new: dict[ExecutionId, NewExecutionRow] = {}
        self._settled: dict[ExecutionId, Execution] = {}
        self.timeline: dict[str, TimelineRow] = {}
        """Timeline rows to insert or replace, by key."""
        self._runs_returned: Counter[JobId] = Counter()
        """Number of runs returned to the `maxRuns` of each job, for fired executions that ended before they started."""
        self.dropped: list[str] = []
        """Keys of timeline rows to delete."""
        self.decisions: list[Decision] = []
        self.dead_letters: list[str] = []
        """Executions that became dead letters."""
        self.incidents: list[NewIncident] = []
        self.children: list[NewChildren] = []
        self.revoked: list[RevokedRow] = []
        self.redispatched: list[Redispatch] = []
        self.slots: Counter[SlotKey] = Counter()
        """Change of the number of used slots, by slot."""
        self.freed: set[SlotKey] = set()
        """Slots of which at least one was freed."""
        self.repeated_successes: list[Report] = []
        """Reports of successes that were settled before: the handler recorded them itself, or they were delivered twice."""
        self.touched: set[tuple[str, JobId]] = set()
        """(tenant, job) of watched jobs whose open executions changed. Decisions made from the former ones become stale."""

    @property
    def settled(self) -> list[Execution]:
        """Changed executions, each once. Their `transitions` are the text to append to the stored ones."""
        return list(self._settled.values())

    @property
    def returned_runs(self) -> list[ReturnedRuns]:
        return [ReturnedRuns(job, count) for job, count in self._runs_returned.items()]

    @property
    def touched_jobs(self) -> list[TouchedJob]:
        return [TouchedJob(tenant, job) for tenant, job in self.touched]

    def slot_changes(self, limits: Mapping[SlotKey, int]) -> list[SlotChange]:
        """Return the changes of slots. `limits` has the limits of the concurrency keys among them."""
        return [SlotChange(tenant, key, more, limits.get((tenant, key))) for (tenant, key), more in self.slots.items()]

    def add_execution(
        self,
        execution: ExecutionId,
        tenant: str,
        job_id: JobId,
        nominal_ms: int,
        due_ms: int,
        *,
        cause: int = 0,
        fired_ms: int | None = None,
        buffered: int = 0,
        retry_of: ExecutionId | None = None,
        slots: tuple[str, ...] = (),
    ) -> None:
        self.new[execution] = NewExecutionRow(
            id=execution,
            tenant=tenant,
            job_id=job_id,
            nominal_ms=nominal_ms,
            due_ms=due_ms,
            cause=cause,
            fired_ms=fired_ms,
            buffered=buffered,
            retry_of=retry_of,
            slots=slots or None,
        )

    def add_dead_letter(self, execution: ExecutionId) -> None:
        self.dead_letters.append(execution)

    def put(
        self, entry: Entry, due_ms: int | None, runs_left: int | None = None, ordering_key: str | None = None
    ) -> None:
        self.timeline[entry.key] = timeline_row(entry, due_ms, runs_left, ordering_key)
        if due_ms is not None:
            self.entries.append(entry)

    def put_fire(self, job: Job, fire: Fire) -> None:
        entry = fire_entry(job, fire.nominal_ms, partition_of(job.id))
        self.put(entry, fire.due_ms, fire.runs_left, job.spec.ordering_key)

    def drop(self, keys: Iterable[str]) -> None:
        self.dropped.extend(keys)

    def decide(self, decisions: Sequence[Decision]) -> None:
        self.decisions.extend(decisions)
