"""Child jobs: each dispatch that succeeded or snoozed has created what its handler enqueued, once; no other dispatch has."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from noonday.model.execution import Cause, Outcome, State
from noonday.worker.context import Context
from tests.simulation.history import Enqueued, History
from tests.simulation.rows import Rows, StoredExecution, StoredTransition

TAG = "child"


def enqueue_children(ctx: Context, count: int, history: History, *, named: bool) -> None:
    """Enqueue some jobs. The first one may have a name: every dispatch of the execution means the same job by it, while it is
    kept."""
    for number in range(count):
        name = "first" if named and number == 0 else None
        child = ctx.enqueue("act", {"v": 1, "child": number}, pool="p", name=name, tags=(TAG,))
        assert child.job_id is not None
        history.enqueued.append(Enqueued(ctx.execution_id, ctx._dispatch.number, child.job_id, name is not None))


def check_children(rows: Rows, history: History) -> Iterator[str]:
    """Check which child jobs exist, whose they are, and that each has run once."""
    enqueued: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for each in history.enqueued:
        enqueued[each.job].add((each.execution, each.dispatch))
        if not each.is_named and len(enqueued[each.job]) > 1:
            yield f"children: {sorted(enqueued[each.job])} mean the same job {each.job} without a name"
    for job, sources in enqueued.items():
        kept = [source for source in sources if _creates(rows, *source)]
        if kept and job not in rows.jobs:
            yield f"children: job {job} does not exist, which dispatch {kept[0]} has enqueued"
        elif not kept and job in rows.jobs:
            yield f"children: job {job} exists, and no dispatch of {sorted(sources)} has succeeded or snoozed"
        elif kept:
            yield from _run_once(rows, job, rows.executions[kept[0][0]])
    for stored in rows.jobs.values():
        if TAG in stored.spec.tags and stored.id not in enqueued:
            yield f"children: job {stored.id} exists, and no handler has enqueued it"


def _run_once(rows: Rows, job: str, parent: StoredExecution) -> Iterator[str]:
    if rows.jobs[job].tenant != parent.tenant:
        yield f"children: job {job} belongs to {rows.jobs[job].tenant!r}, its execution to {parent.tenant!r}"
    executions = [each for each in rows.executions_of.get(job, ()) if each.cause == Cause.SCHEDULE]
    if len(executions) != 1:
        yield f"children: job {job} has {len(executions)} executions by its schedule instead of one"


def _creates(rows: Rows, execution: str, dispatch: int) -> bool:
    """Return whether a dispatch ended in a way that creates what its handler enqueued."""
    found = rows.executions.get(execution)
    if found is None:
        return False
    dispatches = _by_dispatch(found.transitions)
    if dispatch > len(dispatches):
        return False
    if dispatch == len(dispatches):
        return found.state is State.SUCCEEDED
    following = dispatches[dispatch][0]
    return dispatches[dispatch - 1][-1].state is State.RUNNING and following.reason == Outcome.SNOOZED.name


def _by_dispatch(transitions: Sequence[StoredTransition]) -> list[list[StoredTransition]]:
    """Split the transitions of an execution: a dispatch begins with PENDING."""
    dispatches: list[list[StoredTransition]] = []
    for each in transitions:
        if each.state is State.PENDING:
            dispatches.append([])
        dispatches[-1].append(each)
    return dispatches
