from collections.abc import AsyncIterator

import pytest

from noonday.drivers.sql.audit import AuditLog
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.sessions import SqliteSessions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.errors import Conflict
from noonday.model.receipt import Receipt
from tests.support.factories import NOW_MS, TENANT, audit

RECEIPT = Receipt(TENANT, "key", "fingerprint", NOW_MS, 200, b"body")


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield store
    await store.close()


async def actions(store: SqliteStore) -> list[str]:
    found = await store.settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10)
    return [entry.action for _, entry in found]


async def test_entry_and_receipt_are_added_together(store: SqliteStore) -> None:
    sessions = SqliteSessions(store.database)
    await sessions.write(lambda session: AuditLog(sessions).add(session, audit("pool.put"), RECEIPT))
    assert await actions(store) == ["pool.put"]
    assert await store.jobs.find_receipt(TENANT, "key") == RECEIPT


async def test_receipt_with_a_taken_key_undoes_the_entry(store: SqliteStore) -> None:
    sessions = SqliteSessions(store.database)
    await store.jobs.keep_receipt(RECEIPT)
    with pytest.raises(Conflict, match="Idempotency-Key"):
        await sessions.write(lambda session: AuditLog(sessions).add(session, audit("pool.put"), RECEIPT))
    assert await actions(store) == []
