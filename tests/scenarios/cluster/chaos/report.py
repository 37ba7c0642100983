"""The report of a run: its faults, its results, every second run with its fault, and every broken promise."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from noonday.model.execution import State
from tests.scenarios.cluster.chaos.attempts import (
    Deploy,
    DispatchRecord,
    check_attempts,
    losses_in,
    settled_by,
    under_way_at_deploys,
    was_hindered,
)
from tests.scenarios.cluster.chaos.faults import Done
from tests.scenarios.cluster.chaos.seats import Ended
from tests.scenarios.cluster.chaos.users import BALLAST_MARGIN, PAYLOAD_BYTES, RESULT_BYTES
from tests.scenarios.cluster.history import EVERYONE, Duplicate, Fault, duplicates_in
from tests.scenarios.server_run import effects_of
from tests.simulation.history import Answer, Effect

SHOWN = 60
"""The number of second runs that are listed; the rest are in the folder."""


@dataclass(frozen=True)
class RunRecord:
    """All data of a run, from the first process to the last."""

    seed: int
    seconds: float
    kinds: Mapping[str, int]
    began_ms: int
    faults: Sequence[Done]
    left_out: int
    harm: Sequence[Fault]
    """The faults that could explain a second run."""
    names: Mapping[str, str]
    """Names of processes, by their ids."""
    ended: Sequence[Ended]
    answers: list[Answer]
    statuses: Counter[str]
    lines: list[dict[str, Any]]
    checks: int
    """How often the store was checked during the run."""
    quiet_sec: float
    problems: Sequence[str]
    """Problems that were seen during the run."""
    lateness_ms: Sequence[int]
    """The lateness of first runs that only a fault could delay, in ms."""
    states: Mapping[str, int]
    """The number of executions in each state."""
    load: Mapping[str, int]
    """The number of executions of each kind that the load must contain."""
    deploys: Sequence[Deploy]
    dispatches: Sequence[DispatchRecord]


class Report:
    def __init__(self, record: RunRecord, problems: Sequence[str]) -> None:
        self._record = record
        attempts = check_attempts(record.dispatches, record.lines, record.harm, record.deploys)
        self.broken = [*problems, *attempts, *self._deaths()]

    @cached_property
    def text(self) -> str:
        parts = (self._head, self._faults, self._work, self._deploys, self._second_runs, self._promises)
        return "\n".join(line for part in parts for line in part())

    def _head(self) -> Iterator[str]:
        record = self._record
        who = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in record.kinds.items())
        yield f"seed {record.seed}: {record.seconds / 60:.1f} minutes of load on {who}"

    def _faults(self) -> Iterator[str]:
        record = self._record
        yield f"\n{len(record.faults)} faults ({record.left_out} more met no process: a seat was empty, a server already harmed)"
        counted = Counter(done.step.kind for done in record.faults)
        yield from (f"  {count:5}  {kind}" for kind, count in sorted(counted.items()))
        yield f"{len(record.names)} processes were started in all; {len(record.ended)} ended by themselves:"
        endings = Counter((ended.begun, ended.code, ended.last_words[:150]) for ended in record.ended)
        for (begun, code, words), count in endings.most_common():
            yield f"  {count:5}  {'while at work' if begun else 'while starting'}, exit code {code}: {words}"

    def _work(self) -> Iterator[str]:
        record = self._record
        asked = Counter(answer.action for answer in record.answers if not answer.action.endswith("?"))
        yield f"\n{asked['create']} jobs were created; " + ", ".join(
            f"{count} x {action}" for action, count in asked.most_common() if action != "create"
        )
        yield "  answers: " + ", ".join(f"{status}: {count}" for status, count in sorted(record.statuses.items()))
        yield f"{sum(record.states.values())} executions: " + ", ".join(
            f"{count} {state}" for state, count in record.states.items()
        )
        yield "  among them: " + ", ".join(f"{count} {kind}" for kind, count in record.load.items())
        yield f"{len(self._effects)} runs of handlers, {len(self._duplicates)} of them duplicates"
        late = sorted(record.lateness_ms)
        yield (
            f"lateness of first runs: p50 {_share(late, 0.5):.3f} s, p95 {_share(late, 0.95):.3f} s, "
            f"p99 {_share(late, 0.99):.3f} s, max {_share(late, 1):.3f} s (of {len(late)} that no limit, request or turn delayed)"
        )
        yield f"quiet {record.quiet_sec:.1f} s after the last fault was healed"

    def _deploys(self) -> Iterator[str]:
        """The runs of workers that were stopped, and the attempts that ended with their workers."""
        record = self._record
        workers = [deploy for deploy in record.deploys if self._name(deploy.process).startswith("worker")]
        found = under_way_at_deploys(record.dispatches, workers)
        yield (
            f"\n{len(record.deploys)} processes were stopped and replaced, {len(workers)} of them workers; "
            f"{sum(found.values())} executions were in flight on these"
        )
        yield from (f"  {count:5}  {outcome}" for outcome, count in found.most_common())
        losses = list(losses_in(record.dispatches, record.harm, record.deploys))
        yield f"{len(losses)} attempts ended with a lost worker" + (", explained by" if losses else "")
        why = Counter(self._reason(loss.fault).split(" at ")[0] for loss in losses)
        yield from (f"  {count:5}  {reason}" for reason, count in why.most_common())

    def _second_runs(self) -> Iterator[str]:
        why = Counter(
            self._reason(duplicate.fault).split(" at ")[0] for duplicate in self._duplicates if duplicate.fault
        )
        yield f"\n{len(self._duplicates)} duplicate runs" + (", explained by" if why else "")
        yield from (f"  {count:5}  {reason}" for reason, count in why.most_common())
        for duplicate in self._duplicates[:SHOWN]:
            yield f"  {self._describe(duplicate)}"
        if len(self._duplicates) > SHOWN:
            yield f"  and {len(self._duplicates) - SHOWN} more"

    def _promises(self) -> Iterator[str]:
        if not self.broken:
            yield f"\nno promise was broken ({self._record.checks} checks of the store during the run, and one at the end)"
            return
        yield f"\n{len(self.broken)} PROMISES WERE BROKEN"
        yield from (f"  {problem}" for problem in self.broken)

    def _deaths(self) -> list[str]:
        """Deaths of processes that nothing explains.

        A process may find no servers when it starts. After it has begun its work, it stays until it is stopped. A stopped
        process may reach its stop deadline if a fault kept it from a server, or from running, meanwhile.
        """
        return [
            f"{ended.name} ended by itself at {self._at(ended.at_ms)}, exit code {ended.code}: {ended.last_words}"
            for ended in self._record.ended
            if ended.begun and not (ended.at_deadline and self._was_hindered(ended))
        ]

    def _was_hindered(self, ended: Ended) -> bool:
        deploys = [deploy for deploy in self._record.deploys if deploy.process == ended.process]
        return any(was_hindered(deploy, ended.at_ms, self._record.harm, self._record.names) for deploy in deploys)

    @cached_property
    def _effects(self) -> list[Effect]:
        return effects_of(self._record.lines)

    @cached_property
    def _duplicates(self) -> list[Duplicate]:
        found = duplicates_in(self._effects, self._record.harm, settled_by(self._record.dispatches))
        return sorted(found, key=lambda duplicate: duplicate.second.start_ms)

    def _describe(self, duplicate: Duplicate) -> str:
        first, second = duplicate.first, duplicate.second
        again = "again" if first.dispatch == second.dispatch else f"beside it (dispatch {second.dispatch})"
        return (
            f"{first.execution} dispatch {first.dispatch}: {self._name(first.process)} at {self._at(first.start_ms)}, {again} "
            f"{self._name(second.process)} at {self._at(second.start_ms)}: {self._reason(duplicate.fault)}"
        )

    def _reason(self, fault: Fault | None) -> str:
        if fault is None:
            return "NO FAULT EXPLAINS IT"
        kind = self._name(fault.victim).split("-")[0]
        whom = "" if fault.victim == EVERYONE else f"{kind} "
        lasted = f" for {(fault.until_ms - fault.at_ms) / 1000:.1f} s" if fault.until_ms else ""
        return f"{whom}{fault.kind} at {self._at(fault.at_ms)}{lasted}"

    def _name(self, process: str) -> str:
        return self._record.names.get(process, process)

    def _at(self, at_ms: int) -> str:
        minutes, ms = divmod(at_ms - self._record.began_ms, 60_000)
        return f"{minutes}:{ms / 1000:06.3f}"


def read_lateness(copy: sqlite3.Connection, effects: Sequence[Effect], answers: Sequence[Answer]) -> list[int]:
    """The lateness of each first run in ms, if neither a limit, nor an overlap, nor a pause could delay it."""
    paused = {answer.target for answer in answers if answer.action.rstrip("?") == "pause"}
    free = {
        execution
        for execution, job in copy.execute("SELECT id, job_id FROM executions WHERE watch = 0")
        if job not in paused
    }
    firsts: dict[str, int] = {}
    for effect in effects:
        if effect.dispatch == 1 and effect.execution in free:
            firsts.setdefault(effect.execution, effect.start_ms - effect.due_ms)
    return list(firsts.values())


def read_states(copy: sqlite3.Connection) -> dict[str, int]:
    """The number of executions in each state."""
    rows = copy.execute("SELECT state, count(*) FROM executions GROUP BY 1 ORDER BY 1")
    return {State(state).name: count for state, count in rows}


def read_load(copy: sqlite3.Connection) -> dict[str, int]:
    """The number of executions of each handler, of those under an ordering key, and of those with values near the largest
    size."""
    found = dict(copy.execute("SELECT handler, count(*) FROM executions GROUP BY 1 ORDER BY 1").fetchall())
    of_job = "SELECT count(*) FROM executions x JOIN jobs j ON j.tenant = x.tenant AND j.id = x.job_id WHERE"
    (found["in order"],) = copy.execute(f"{of_job} j.spec ->> '$.concurrency.ordered'").fetchone()
    (found["with a large payload"],) = copy.execute(
        f"{of_job} length(j.payload) >= ?", (PAYLOAD_BYTES - BALLAST_MARGIN,)
    ).fetchone()
    (found["with a large result"],) = copy.execute(
        "SELECT count(*) FROM executions WHERE length(result) >= ?", (RESULT_BYTES - BALLAST_MARGIN,)
    ).fetchone()
    return found


def _share(ordered: Sequence[int], share: float) -> float:
    """A percentile, in seconds."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000 if ordered else 0.0
