"""The log lines of attempts: kept once, of the last dispatches, and no longer than their execution."""

import msgspec
import pytest

from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.limits import LOGGED_DISPATCHES
from noonday.model.message import Dispatch, Report
from noonday.model.retention import Retention
from noonday.ports.executions import Executions
from noonday.ports.queries import QueryStore
from tests.support.crank import Crank
from tests.support.drivers import read_value
from tests.support.factories import HOUR, NOW_MS, TENANT, dispatch, job, report

OTHER = TenantId("other")


def logged(of: Dispatch, number: int, text: bytes, outcome: Outcome = Outcome.FAILED) -> Report:
    made = report(of, outcome, started_ms=NOW_MS + number, ended_ms=NOW_MS + number + 1, attempt=number, logs=text)
    return msgspec.structs.replace(made, dispatch=number)


async def stored_lines(crank: Crank) -> int:
    count: int = await read_value(crank.store, "SELECT count(*) FROM attempt_logs")
    return count


async def test_log_lines_are_kept_once_and_in_order(
    crank: Crank, executions: Executions, query_store: QueryStore
) -> None:
    await crank.add(job())
    of = await crank.fire_one()
    first, second = logged(of, 1, b"one"), logged(of, 2, b"\x00two\xff", Outcome.SUCCEEDED)
    await executions.keep_logs([second])
    await executions.keep_logs([first, second])
    kept = await query_store.attempt_logs(TENANT, of.execution_id)
    assert [
        (each.dispatch, each.attempt, each.outcome, each.started_ms, each.ended_ms, each.logs) for each in kept
    ] == [
        (1, 1, Outcome.FAILED, NOW_MS + 1, NOW_MS + 2, b"one"),
        (2, 2, Outcome.SUCCEEDED, NOW_MS + 2, NOW_MS + 3, b"\x00two\xff"),
    ]


async def test_log_lines_belong_to_a_tenant(crank: Crank, executions: Executions, query_store: QueryStore) -> None:
    await crank.add(job())
    of = await crank.fire_one()
    await executions.keep_logs([logged(of, 1, b"one")])
    assert await query_store.attempt_logs(OTHER, of.execution_id) == []
    assert await query_store.attempt_logs(TENANT, "no such thing") == []  # type: ignore[arg-type]


async def test_the_last_dispatches_of_an_execution_keep_their_lines(
    crank: Crank, executions: Executions, query_store: QueryStore
) -> None:
    await crank.add(job())
    of = await crank.fire_one()
    last = LOGGED_DISPATCHES + 5
    for number in range(1, last + 1):
        await executions.keep_logs([logged(of, number, b"snoozed", Outcome.SNOOZED)])
    kept = await query_store.attempt_logs(TENANT, of.execution_id)
    assert [each.dispatch for each in kept] == list(range(6, last + 1))


async def test_lines_of_an_execution_that_is_gone_are_not_kept(
    crank: Crank, executions: Executions, query_store: QueryStore
) -> None:
    of = dispatch()
    await executions.keep_logs([logged(of, 1, b"late")])
    await crank.add(job())
    assert await query_store.attempt_logs(TENANT, of.execution_id) == []
    assert await stored_lines(crank) == 0


@pytest.mark.parametrize("tenants", [{}, {TENANT: HOUR}], ids=["of all", "of the tenant"])
async def test_log_lines_are_deleted_with_their_execution(
    crank: Crank, executions: Executions, tenants: dict[TenantId, int]
) -> None:
    await crank.add(job())
    of = await crank.fire_one()
    await executions.keep_logs([logged(of, 1, b"one", Outcome.SUCCEEDED)])
    await crank.settle(report(of))
    assert await stored_lines(crank) == 1
    policy = Retention(*[100 * HOUR if tenants else HOUR] * 8, tenants=tenants)
    while await executions.prune(policy, NOW_MS + 2 * HOUR, 100):
        pass
    assert await stored_lines(crank) == 0
