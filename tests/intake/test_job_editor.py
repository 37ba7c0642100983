"""Decisions on one job: applied once per key, and known to workers before the response."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.intake import edits
from noonday.intake.change_sender import ChangeSender
from noonday.intake.idempotency import AlreadyAnswered, Idempotency
from noonday.intake.job_editor import JobEditor
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.change import Change, ChangeResult, NewJob
from noonday.model.errors import Conflict, NotFound
from noonday.model.ids import JobId
from noonday.model.job import Job
from noonday.model.snapshot import Snapshot
from tests.support.clock import ManualClock
from tests.support.factories import MINUTE, NOW_MS, TENANT, audit, every, job, job_id

ANN = Caller(TENANT, "ann", frozenset({"write"}))


class Fences(MemorySignals):
    """Records fences, and fails while there is trouble."""

    def __init__(self) -> None:
        super().__init__()
        self.fenced: list[str] = []
        self.trouble: Exception | None = None

    async def fence(self, pool: str, job: JobId, until_ms: int) -> None:
        if self.trouble:
            raise self.trouble
        self.fenced.append(job)


class Editing:
    """An editor over a store in memory with one job."""

    def __init__(self, store: SqliteStore, stored: Job) -> None:
        self.job, self.signals, self.decided = stored, Fences(), 0
        clock = ManualClock()
        sender = ChangeSender(index=MemoryHotIndex(0), signals=self.signals, clock=clock, hint_ahead_ms=0)
        self._editor = JobEditor(store.jobs, Receipts(store.jobs, Keyring.generate(), clock), sender)

    async def pause(self, idem: Idempotency | None = None, of: str | None = None) -> str:
        return await self._editor.edit(ANN, of or self.job.id, self._decide, _state, NOW_MS, idem)

    def _decide(self, before: Snapshot) -> Change:
        self.decided += 1
        return edits.pause(before, NOW_MS + 1, audit("job.pause"))


def _state(applied: ChangeResult) -> str:
    return applied.after.job.state.name


def key(name: str = "k1") -> Idempotency:
    return Idempotency(name, "fingerprint", lambda answer: 200, msgspec.json.encode)


@pytest.fixture
async def editing() -> AsyncIterator[Editing]:
    store, stored = open_store(MEMORY, FileOptions(), lead_ms=0), job(every(60))
    fire = edits.first_fire(stored, NOW_MS - MINUTE)
    await store.jobs.add([NewJob(stored, fire)], upsert=_never, audit=None, seal=None)
    yield Editing(store, stored)
    await store.close()


def _never(before: Snapshot, new: Job) -> Change:
    raise AssertionError("no key is taken")


async def test_edit_returns_the_view_of_its_result(editing: Editing) -> None:
    assert await editing.pause() == "PAUSED"


async def test_edit_of_an_unknown_job_is_refused(editing: Editing) -> None:
    with pytest.raises(NotFound):
        await editing.pause(of=job_id())


async def test_repeated_key_gets_the_stored_view_and_decides_nothing(editing: Editing) -> None:
    await editing.pause(key())
    decided = editing.decided
    with pytest.raises(AlreadyAnswered) as answered:
        await editing.pause(key())
    assert (answered.value.body, editing.decided) == (b'"PAUSED"', decided)


async def test_stored_view_is_repeated_only_after_the_job_is_fenced(editing: Editing) -> None:
    """The first request stored its change, and did not reach the signals."""
    await editing.pause(key())
    editing.signals.fenced.clear()
    editing.signals.trouble = Conflict("signals are away")
    with pytest.raises(Conflict, match="signals are away"):
        await editing.pause(key())
    editing.signals.trouble = None
    with pytest.raises(AlreadyAnswered):
        await editing.pause(key())
    assert editing.signals.fenced == [editing.job.id]
