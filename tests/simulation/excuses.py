"""Find the fault that explains a second run: the process or server that it met, and the time.

A run is in flight from the moment in which its worker takes the dispatch until the log has acknowledged the first report of
it. A fault excuses later runs only if the run met it: if the run was in flight when the fault began or while it lasted. A run
that overlaps another one may have met its fault later, because no process can end the runs of a process that is frozen or cut
off.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.history import Effect, History
from tests.simulation.kernel import Fault, FaultKind, World

OF_WORKERS = ("redis", "kafka")
"""The servers that a worker talks to. A cut from any other server explains nothing."""
SET_AGAIN_MS = 12_000
"""Recorders restore all revocations every ten seconds, also in a copy of Redis that they do not know to be old."""
UNMARKED_MS = 3_000
"""A worker marks the claim of a report within this time after the log has acknowledged the report."""
TAKES_OVER_MS = 10_000
"""Time in which a recorder that can get a lease takes a partition over, and marks the claims of silent workers."""


def harm(world: World) -> Iterator[Fault]:
    """Faults that stop a process. A clock step does not."""
    return (fault for fault in world.fault_log if fault.kind is not FaultKind.CLOCK_STEP)


def excuse_for(before: Effect, after: Effect, history: History, world: World, *, again: bool = False) -> str | None:
    """Return the fault of the earlier of two runs that explains the later one.

    `again`: one dispatch ran twice, one after the other.
    """
    by_ms = after.start_ms
    abandoned_ms = history.abandoned_ms(before)
    if abandoned_ms is not None and abandoned_ms <= by_ms and not again:
        return f"the earlier run was abandoned on {before.process} at {abandoned_ms}"
    if again:
        by_ms = min(by_ms, history.acks.get((before.execution, before.dispatch, before.process), by_ms))
    return (
        _fault_of(before, by_ms, history, world)
        or _lost_memory(before, after, history)
        or (_never_marked(before, after, history, world) if again else None)
    )


def unharmed(history: History, world: World) -> list[Effect]:
    """Runs that met no fault, and are not the repetition of a run that did."""
    harmed: dict[str, int] = defaultdict(int)
    found = []
    for effect in history.effects:
        end_ms = sys.maxsize if effect.end_ms is None else effect.end_ms
        if history.abandoned_ms(effect) is not None:
            continue  # other runs need not wait for its true end
        if _fault_of(effect, end_ms, history, world) is not None:
            harmed[effect.execution] = max(harmed[effect.execution], effect.dispatch)
        elif effect.dispatch > harmed[effect.execution]:
            found.append(effect)
    return found


def _fault_of(run: Effect, by_ms: int, history: History, world: World) -> str | None:
    """Return the fault that a run met between the moment in which it was taken and an instant."""
    since_ms = history.taken.get((run.execution, run.dispatch), {}).get(run.process, run.start_ms)
    for fault in harm(world):
        if fault.process == run.process and since_ms <= fault.now_ms <= by_ms:
            return f"{fault.kind} of {fault.process} at {fault.now_ms}"
    for who, server, from_ms, until_ms in history.cuts:
        met = since_ms <= until_ms and from_ms <= by_ms
        if met and server in OF_WORKERS and who in ("*", run.process.split("#")[0]):
            return f"{run.process} was cut off from {server} from {from_ms} to {until_ms}"
    return None


def _never_marked(before: Effect, after: Effect, history: History, world: World) -> str | None:
    """Explain why the claim of a reported run lapsed: its worker stopped before it marked the claim, and no recorder could do so,
    because the last one was killed or frozen while no lease could be won."""
    acked_ms = history.acks.get((before.execution, before.dispatch, before.process), sys.maxsize)
    worker = next(
        (f for f in harm(world) if f.process == before.process and acked_ms <= f.now_ms <= acked_ms + UNMARKED_MS), None
    )
    for who, server, from_ms, until_ms in history.cuts if worker is not None else ():
        if server != "etcd" or who != "*" or until_ms < after.start_ms - TAKES_OVER_MS:
            continue
        for fault in harm(world):
            if fault.process.startswith("recorder") and from_ms <= fault.now_ms <= acked_ms + UNMARKED_MS:
                return (
                    f"{worker.kind} of {worker.process} at {worker.now_ms}, {fault.kind} of {fault.process}, no leases"
                )
    return None


def _lost_memory(before: Effect, after: Effect, history: History) -> str | None:
    for at_ms in history.flushes:
        if before.start_ms <= at_ms <= after.start_ms:
            return f"Redis lost its memory at {at_ms}"
    acked_ms = history.acks.get((before.execution, before.dispatch, before.process), sys.maxsize)
    for copy in history.old_copies:
        # A claim that was acknowledged before the copy was made is in the copy.
        if before.start_ms <= copy.at_ms <= after.start_ms and acked_ms > copy.copied_ms - 1_000:
            return f"Redis was at {copy.at_ms} what it had been at {copy.copied_ms}"
    return None


def forgotten(history: History, acked_ms: int, checked_ms: int) -> str | None:
    """Explain why a pre-start check did not find an acknowledged revocation: Redis was an older copy, and no recorder knew
    it yet."""
    for copy in history.old_copies:
        until_ms = copy.at_ms + SET_AGAIN_MS if copy.found_ms is None else copy.found_ms
        if copy.copied_ms <= acked_ms <= copy.at_ms <= checked_ms <= until_ms:
            return f"Redis was at {copy.at_ms} what it had been at {copy.copied_ms}, and lacked what came at {acked_ms}"
    return None
