"""`client.operations`, against a server with prepared answers."""

import inspect
from datetime import UTC, datetime

import pytest

from noonday.model.errors import InvalidInput
from noonday.model.operation import OperationFilter, OperationKind
from noonday.model.operation_view import AffectedView, OperationPage, OperationPreview, OperationView
from noonday.sdk.client import Client
from noonday.sdk.operations import OperationsClient
from noonday.sdk.sync import SyncOperations
from tests.sdk.test_client import Wire, listening

AT = datetime(2030, 1, 1, tzinfo=UTC)
PREVIEW = OperationPreview(
    kind="PAUSE_JOBS", filter={}, until=AT, affected=AffectedView(count=3, is_least=False), samples=()
)
VIEW = OperationView(
    id="o", kind="PAUSE_JOBS", filter={}, until=AT, state="RUNNING", total=3, total_is_least=False, done=0, skipped=0,
    failed=0, left=3, runs_ended=0, runs_failed=0, sample_size=0, rate_per_sec=50, stop_above_percent=20,
    stopped_because=None, errors=(), by="ann", created_at=AT, ended_at=None,
)  # fmt: skip


@pytest.fixture
async def wire():
    async with listening(Wire()) as served:
        yield served


@pytest.fixture
async def client(wire):
    async with Client(wire.url, "a-token", sleep=wire.sleep) as opened:
        yield opened


async def test_an_operation_has_conditions_and_settings(client, wire):
    wire.will(PREVIEW, VIEW)
    assert await client.operations.preview("pause_jobs", tag="etl") == PREVIEW
    await client.operations.start(OperationKind.PAUSE_JOBS, tag="etl", before=AT, rate_per_sec=10, idempotency_key="k")
    assert [(asked.method, asked.path) for asked in wire.asked] == [
        ("POST", "/v1/operations/preview"),
        ("POST", "/v1/operations"),
    ]
    assert wire.asked[0].body == {"kind": "PAUSE_JOBS", "filter": {"tag": "etl"}}
    assert wire.asked[1].body == {
        "kind": "PAUSE_JOBS", "filter": {"tag": "etl"}, "until": "2030-01-01T00:00:00Z", "ratePerSec": 10.0,
    }  # fmt: skip
    assert wire.asked[1].headers["Idempotency-Key"] == '"k"'


async def test_a_whole_filter_is_sent_and_unknown_conditions_are_refused(client, wire):
    wire.will(VIEW)
    await client.operations.start("CANCEL_JOBS", OperationFilter(pool="mail"))
    assert wire.asked[0].body["filter"] == {"pool": "mail"}
    with pytest.raises(InvalidInput, match="did you mean pool"):
        await client.operations.start("CANCEL_JOBS", pol="mail")


async def test_operations_are_read_listed_and_stopped(client, wire):
    wire.will(VIEW, OperationPage(operations=(VIEW,)), VIEW)
    await client.operations.get("o")
    assert (await client.operations.list(limit=5)).operations == (VIEW,)
    await client.operations.stop("o")
    assert [(asked.method, asked.path) for asked in wire.asked] == [
        ("GET", "/v1/operations/o"),
        ("GET", "/v1/operations"),
        ("DELETE", "/v1/operations/o"),
    ]


def test_both_clients_have_the_same_methods():
    def methods(of):
        return {name for name, _ in inspect.getmembers(of) if not name.startswith("_")} - {"client", "portal"}

    assert methods(OperationsClient) == methods(SyncOperations)
