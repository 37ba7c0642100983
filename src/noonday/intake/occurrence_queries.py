"""Queries of occurrences: why each ran or did not run, and which are to come."""

from collections.abc import Mapping, Sequence

import msgspec

from noonday.intake.blockers import Blocker, BlockerFinder, DueEntry
from noonday.intake.edits import gives_up_paused
from noonday.intake.lookup import get_job_row
from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput
from noonday.model.execution import Execution
from noonday.model.firing import Decision, Fire
from noonday.model.job import Job, JobState, JobType, instant_of, spread_ms, text_of
from noonday.model.left_out import LeftOut, left_out_from, moves_in_force, schedule_of
from noonday.model.move import Move
from noonday.model.rows import JobRow
from noonday.model.view import OccurrencePage, OccurrenceView
from noonday.model.zones import local_text
from noonday.ports.clock import Clock
from noonday.ports.offload import Offload
from noonday.ports.queries import QueryStore


class OccurrenceQueries:
    """Queries of the occurrences of a job."""

    def __init__(self, *, query_store: QueryStore, blockers: BlockerFinder, offload: Offload, clock: Clock) -> None:
        """`offload` computes fire times off the event loop."""
        self._query_store = query_store
        self._blockers = blockers
        self._offload = offload
        self._clock = clock

    async def list_occurrences(
        self, caller: Caller, job_id: str, *, from_ms: int, to_ms: int, limit: int = 500
    ) -> OccurrencePage:
        """List all occurrences of a job between two instants: fired, decided against, due, or planned."""
        if to_ms < from_ms:
            raise InvalidInput.of("/to", "`to` is before `from`", to_ms)
        row = await get_job_row(self._query_store, caller, job_id)
        job = row.job
        fired = await self._query_store.executions_between(job.id, from_ms, to_ms, limit + 1)
        decided = await self._query_store.decisions_between(job.id, from_ms, to_ms, limit + 1)
        views = [_fired(job, e) for e in fired] + [_decided(job, d) for d in decided]
        to_come, is_least = await self._to_come(row, from_ms, to_ms, limit)
        views += to_come
        views.sort(key=lambda view: view.scheduled_at)
        views = _with_moves(job, views[:limit])
        return OccurrencePage(occurrences=tuple(views), next=None, is_least=is_least)

    async def _to_come(self, row: JobRow, from_ms: int, to_ms: int, limit: int) -> tuple[list[OccurrenceView], bool]:
        """Return the due and planned occurrences from the fire row on, and whether there may be more of them."""
        job, fire = row.job, row.fire
        if fire is None or job.state is JobState.CANCELLED:
            return [], False
        if fire.due_ms is None and job.state is not JobState.PAUSED:
            return [], False
        schedule = schedule_of(job)
        now_ms = self._clock.now_ms()
        first = max(fire.nominal_ms, from_ms)
        left_out = {each.nominal_ms: each for each in left_out_from(job, first)}
        # An occurrence that is left out uses up no run.
        most = limit if fire.runs_left is None else min(limit, fire.runs_left + len(left_out))
        times, is_least = await self._offload.run(lambda may: schedule.take_while(first - 1, most, to_ms, may))
        if fire.runs_left is not None:
            runs = iter(range(fire.runs_left))
            times = [time for time in times if time in left_out or next(runs, None) is not None]
        if job.state is JobState.PAUSED:
            paused = [_paused(job, time, now_ms) for time in times if time not in left_out]
            return [*paused, *_not_firing(job, times, left_out)], is_least
        spread = spread_ms(job.spec, job.id)
        is_due = any(time + spread <= now_ms and time not in left_out for time in times)
        blocker = await self._blockers.find(_due_entry(job, fire)) if is_due else None
        views = [
            _due(job, time, blocker) if blocker and time + spread <= now_ms else _planned(job, time, spread)
            for time in times
            if time not in left_out
        ]
        return [*views, *_not_firing(job, times, left_out)], is_least


def _due_entry(job: Job, fire: Fire) -> DueEntry:
    due_ms = fire.nominal_ms if fire.due_ms is None else fire.due_ms
    return DueEntry(job.tenant, job.spec.target.pool, job.id, (due_ms, job.id), job.spec.concurrency)


def _fired(job: Job, execution: Execution) -> OccurrenceView:
    at = instant_of(execution.nominal_ms)
    return OccurrenceView(
        outcome="FIRED",
        scheduled_at=at,
        until=at,
        count=1,
        reason=f"execution {execution.state.name}",
        execution_id=execution.id,
        state=execution.state.name,
        local=_local(job, execution.nominal_ms),
    )


def _decided(job: Job, decision: Decision) -> OccurrenceView:
    return OccurrenceView(
        outcome=decision.outcome,
        scheduled_at=instant_of(decision.from_ms),
        until=instant_of(decision.to_ms),
        count=decision.count,
        reason=decision.reason,
        local=_local(job, decision.from_ms),
    )


def _paused(job: Job, ms: int, now_ms: int) -> OccurrenceView:
    """Show an occurrence of a paused job. Those before the end of the pause are given up when it has come."""
    until_ms = job.paused_until_ms
    if until_ms is None:
        return _view(job, "PAUSED" if ms <= now_ms else "PLANNED", ms, "the job is paused")
    reason = f"the job is paused until {text_of(until_ms)}"
    if ms <= (until_ms if gives_up_paused(job) else now_ms):
        return _view(job, "PAUSED", ms, reason)
    return _view(job, "PLANNED", ms, f"planned; {reason}")


def _not_firing(job: Job, times: Sequence[int], left_out: Mapping[int, LeftOut]) -> list[OccurrenceView]:
    return [
        _view(job, "MOVED" if isinstance(left_out[time], Move) else "SKIPPED", time, left_out[time].text)
        for time in times
        if time in left_out
    ]


def _with_moves(job: Job, views: Sequence[OccurrenceView]) -> list[OccurrenceView]:
    """Add to the reasons of moved occurrences, at their new times, where they come from."""
    moved = {instant_of(each.to_ms): each.text_at_new_time for each in moves_in_force(job)}
    return [
        msgspec.structs.replace(view, reason=f"{view.reason}; {moved[view.scheduled_at]}")
        if view.count == 1 and view.scheduled_at in moved
        else view
        for view in views
    ]


def _due(job: Job, ms: int, blocker: Blocker) -> OccurrenceView:
    return msgspec.structs.replace(
        _view(job, "DUE", ms, blocker.reason),
        blocked_by=blocker.by,
        position=blocker.position,
        position_is_least=blocker.position_is_least,
        expected_at=instant_of(blocker.expected_ms),
    )


def _planned(job: Job, ms: int, spread: int) -> OccurrenceView:
    reason = "planned" if not spread else f"planned; starts {spread / 1000:g} s later (spread)"
    return _view(job, "PLANNED", ms, reason)


def _view(job: Job, outcome: str, ms: int, reason: str) -> OccurrenceView:
    at = instant_of(ms)
    return OccurrenceView(outcome=outcome, scheduled_at=at, until=at, count=1, reason=reason, local=_local(job, ms))


def _local(job: Job, ms: int) -> str | None:
    return local_text(ms, job.spec.timezone or "UTC") if job.spec.type is JobType.CRON else None
