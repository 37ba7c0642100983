"""Copies of stored changes, as workers and the hot index receive them."""

from collections.abc import Sequence

from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.signals import MemorySignals
from noonday.intake.change_sender import ChangeSender
from noonday.intake.edits import first_fire
from noonday.model.change import ChangeResult, NewJob
from noonday.model.claim import Revocation
from noonday.model.firing import Entry
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.snapshot import Snapshot
from tests.support.clock import ManualClock
from tests.support.factories import MINUTE, NOW_MS, POOL, SECOND, entry, instant, job, spec

AHEAD_MS = MINUTE


class Wire(MemorySignals, MemoryHotIndex):
    """Notes the sent changes, in order."""

    def __init__(self) -> None:
        MemorySignals.__init__(self)
        MemoryHotIndex.__init__(self, 0)
        self.sent: list[object] = []
        self.sender = ChangeSender(
            index=self,
            signals=self,
            clock=ManualClock(),
            hint_ahead_ms=AHEAD_MS,
            on_placed=lambda: self.sent.append("placed"),
        )

    async def hint(self, entries: Sequence[Entry]) -> None:
        self.sent.append([entry.due_ms for entry in entries])

    async def revoke(self, pool: str, revocations: Sequence[Revocation]) -> None:
        self.sent.append((pool, *revocations))

    async def fence(self, pool: str, job: JobId, until_ms: int) -> None:
        self.sent.append((pool, job, until_ms))


def new_job(due_ms: int) -> NewJob:
    new = job(spec(run_at=instant(due_ms)))
    return NewJob(new, first_fire(new, NOW_MS))


def applied(of: Job, *due_ms: int, revoked: str = "", fenced: tuple[str, ...] = ()) -> ChangeResult:
    revocations = ((POOL, ExecutionId(revoked), 1, "PAUSED"),) if revoked else ()
    return ChangeResult(Snapshot(of, None), tuple(entry(due_ms=each) for each in due_ms), revocations, fenced)


async def test_new_job_that_is_due_soon_is_hinted() -> None:
    wire = Wire()
    await wire.sender.send_new([new_job(NOW_MS + SECOND)], NOW_MS)
    assert wire.sent == [[NOW_MS + SECOND], "placed"]


async def test_new_job_that_is_due_later_is_not_hinted() -> None:
    wire = Wire()
    await wire.sender.send_new([new_job(NOW_MS + AHEAD_MS + 1)], NOW_MS)
    assert wire.sent == []


async def test_new_jobs_are_hinted_together() -> None:
    wire = Wire()
    await wire.sender.send_new([new_job(NOW_MS + SECOND), new_job(NOW_MS + 2 * SECOND)], NOW_MS)
    assert wire.sent == [[NOW_MS + SECOND, NOW_MS + 2 * SECOND], "placed"]


async def test_workers_learn_of_a_change_before_the_hot_index() -> None:
    wire, changed = Wire(), job()
    await wire.sender.send(applied(changed, NOW_MS, revoked="e1", fenced=(POOL,)))
    assert wire.sent == [(POOL, ("e1", 1, "PAUSED")), (POOL, changed.id, NOW_MS), [NOW_MS], "placed"]


async def test_entries_of_a_change_that_are_due_later_are_not_hinted() -> None:
    wire = Wire()
    await wire.sender.send(applied(job(), NOW_MS + AHEAD_MS + 1))
    assert wire.sent == []
