"""Tests for `invoices.py` with a simulated clock. Run them with `pytest test_invoices.py`."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime

import invoices
import pytest
import pytest_asyncio
from invoices import DateRange, app

from noonday import testing

NEW_YEAR = date(2030, 1, 1)


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[testing.Testing]:
    async with testing.engine(app, start=datetime(2030, 1, 1, tzinfo=UTC)) as engine:
        yield engine


async def test_invoices_are_written_at_three_in_the_morning(engine: testing.Testing) -> None:
    await engine.advance_to(datetime(2030, 1, 1, 10, 59, tzinfo=UTC))
    assert engine.executions("daily-invoice-gen") == []
    await engine.advance(minutes=1)
    (execution,) = engine.executions("daily-invoice-gen")
    assert execution.result == {"pages": 3}


async def test_invoices_are_written_every_night(engine: testing.Testing) -> None:
    await engine.advance(days=31)
    assert len(engine.executions("daily-invoice-gen")) == 31


async def test_a_second_order_of_the_same_days_creates_no_job(engine: testing.Testing) -> None:
    await invoices.order_invoices(NEW_YEAR, NEW_YEAR)
    await invoices.order_invoices(NEW_YEAR, NEW_YEAR)
    engine.assert_enqueued("generate_invoices", DateRange(NEW_YEAR, NEW_YEAR), count=1)


async def test_a_retry_continues_at_the_failed_page(engine: testing.Testing, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    async def write_page(days: DateRange, page: int, key: str) -> None:
        written.append(page)
        if written == [0, 1]:
            raise ConnectionError("printer offline")

    monkeypatch.setattr(invoices, "write_page", write_page)
    await invoices.order_invoices(NEW_YEAR, NEW_YEAR)
    await engine.advance(minutes=1)
    (execution,) = engine.executions("generate_invoices")
    assert (execution.state, execution.attempt) == ("SUCCEEDED", 2)
    assert written == [0, 1, 1, 2]
