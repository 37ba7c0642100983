"""The parts that services of intake are made of, over a store in memory and a clock that the test owns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.memory.tokens import MemoryTokens
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.intake.blockers import BlockerFinder
from noonday.intake.catalogue import Catalogue
from noonday.intake.change_sender import ChangeSender
from noonday.intake.drafts import Drafter
from noonday.intake.idempotency import Idempotency
from noonday.intake.job_editor import JobEditor
from noonday.intake.payloads import Payloads
from noonday.intake.presenters import Presenter
from noonday.intake.quotas import Quotas
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.job import Job, JobSpec
from noonday.model.limits import Sizes
from noonday.model.message import Dispatch
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import TENANT, failure, hello, job, job_id, report

ANN = Caller(TENANT, "ann", frozenset({"write"}))
OLGA = Caller(TENANT, "olga", frozenset({"operator"}))
STRANGER = Caller(TenantId("globex"), "bob", frozenset({"write"}))


class Parts:
    """Parts of intake. `crank` does what scheduler and recorder would do to the store."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.crank = Crank(store)  # type: ignore[arg-type]
        self.clock = ManualClock()
        self.keyring = Keyring.generate()
        self.index, self.signals, self.tokens = MemoryHotIndex(0), MemorySignals(), MemoryTokens()
        self.presenter = Presenter(self.keyring, None)
        self.receipts = Receipts(store.jobs, self.keyring, self.clock)
        self.sender = ChangeSender(index=self.index, signals=self.signals, clock=self.clock, hint_ahead_ms=60_000)
        self.editor = JobEditor(store.jobs, self.receipts, self.sender)
        self.catalogue = Catalogue(store.settings_store, self.clock)
        self.quotas = Quotas(store.query_store, store.settings_store, self.clock)
        self.blockers = BlockerFinder(store.query_store, store.settings_store, store.workload, self.tokens, self.clock)
        self.drafter = Drafter(
            catalogue=self.catalogue,
            quotas=self.quotas,
            payloads=Payloads(self.keyring, Sizes()),
            presenter=self.presenter,
            new_id=job_id,
        )

    async def add(self, of: JobSpec | None = None, payload: object = None, **said: Any) -> Job:
        """Store a job whose payload is readable."""
        made = job(of, **said)
        made = msgspec.structs.replace(made, payload=self.sealed(payload, made))
        await self.crank.add(made)
        return made

    def sealed(self, value: object, of: Job) -> bytes:
        return self.keyring.seal(msgspec.json.encode(value), context_of(of.tenant, of.id))

    async def fire(self, of: Job) -> Dispatch:
        """Fire what is due of a job."""
        (dispatch,) = (
            await self.crank.fire([entry for entry in await self.crank.due() if entry.key == of.id])
        ).dispatches
        return dispatch

    async def bury(self, of: Job, **said: Any) -> Dispatch:
        """Fire a job, whose run fails for good: it becomes a dead letter."""
        dispatch = await self.fire(of)
        failed = failure(retryable=False, **said)
        await self.crank.settle(report(dispatch, Outcome.FAILED, failure=failed, tenant=of.tenant))
        return dispatch

    async def add_worker(self) -> None:
        """Let a worker say hello, with four slots in the pool of most jobs."""
        await self.crank.settle(signs=[hello()])


def key(name: str = "k1") -> Idempotency:
    """Return an Idempotency-Key of a request that is always the same."""
    return Idempotency(name, "fingerprint", lambda answer: 200, msgspec.json.encode)


@asynccontextmanager
async def parts_in_memory() -> AsyncIterator[Parts]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    parts = Parts(store)
    await parts.crank.own()
    yield parts
    await store.close()
