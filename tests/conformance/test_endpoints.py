import msgspec
import pytest

from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.receipt import Receipt
from noonday.model.secret import OF_TENANT, Secret, SecretKind
from noonday.ports.endpoints import Endpoints
from noonday.ports.executions import Executions
from noonday.ports.jobs import Jobs
from tests.support.crank import Crank
from tests.support.drivers import Store
from tests.support.factories import HOUR, NOW_MS, TENANT, audit, every, job, report

THERE, ELSEWHERE = "https://a.example:443", "https://b.example:443"
OTHER = TenantId("other")


@pytest.fixture
def endpoints(store: Store) -> Endpoints:
    return store.endpoints


def secret(name: str, endpoint: str = OF_TENANT, *, at_ms: int = NOW_MS, tenant: TenantId = TENANT) -> Secret:
    return Secret(tenant, name, endpoint, SecretKind.HMAC, f"sealed {name}".encode(), at_ms)


async def sealed(endpoints: Endpoints, endpoint: str = THERE, now_ms: int = NOW_MS) -> list[str]:
    found = await endpoints.sealed_for([(TENANT, endpoint)], now_ms)
    return [each.decode().removeprefix("sealed ") for each in found[TENANT, endpoint]]


async def test_without_secrets_nothing_can_be_signed(endpoints: Endpoints) -> None:
    assert await endpoints.sealed_for([(TENANT, THERE)], NOW_MS) == {(TENANT, THERE): ()}
    assert await endpoints.sealed_for([], NOW_MS) == {}
    assert await endpoints.secrets(TENANT) == []


async def test_an_endpoint_has_its_own_secret_or_that_of_its_tenant(endpoints: Endpoints) -> None:
    await endpoints.add_secret(secret("all"), NOW_MS, None)
    await endpoints.add_secret(secret("one", THERE), NOW_MS, None)
    await endpoints.add_secret(secret("foreign", THERE, tenant=OTHER), NOW_MS, None)
    whom = [(TENANT, THERE), (TENANT, ELSEWHERE), (OTHER, THERE), (OTHER, ELSEWHERE)]
    assert await endpoints.sealed_for(whom, NOW_MS) == {
        (TENANT, THERE): (b"sealed one",),
        (TENANT, ELSEWHERE): (b"sealed all",),
        (OTHER, THERE): (b"sealed foreign",),
        (OTHER, ELSEWHERE): (),
    }


async def test_two_are_valid_while_receivers_change_and_no_more(endpoints: Endpoints) -> None:
    await endpoints.add_secret(secret("first"), NOW_MS, None)
    await endpoints.add_secret(secret("second", at_ms=NOW_MS + 1), NOW_MS + HOUR, None)
    assert await sealed(endpoints, now_ms=NOW_MS + 1) == ["second", "first"]
    assert await sealed(endpoints, now_ms=NOW_MS + HOUR) == ["second"]
    await endpoints.add_secret(secret("third", at_ms=NOW_MS + 2), NOW_MS + HOUR, None)
    assert await sealed(endpoints, now_ms=NOW_MS + 2) == ["third", "second"]
    assert [(each.id, each.expires_ms) for each in await endpoints.secrets(TENANT)] == [
        ("third", None),
        ("second", NOW_MS + HOUR),
        ("first", NOW_MS + 2),
    ]


async def test_the_secret_of_one_endpoint_ends_that_of_no_other(endpoints: Endpoints) -> None:
    await endpoints.add_secret(secret("all"), NOW_MS, None)
    await endpoints.add_secret(secret("one", THERE), NOW_MS, None)
    await endpoints.add_secret(secret("new", THERE, at_ms=NOW_MS + 1), NOW_MS + 1, None)
    assert await sealed(endpoints, THERE, NOW_MS + 1) == ["new"]
    assert await sealed(endpoints, ELSEWHERE, NOW_MS + 1) == ["all"]


async def test_an_id_is_used_once(endpoints: Endpoints) -> None:
    assert await endpoints.add_secret(secret("x"), NOW_MS, None)
    assert not await endpoints.add_secret(secret("x", THERE, at_ms=NOW_MS + 1), NOW_MS, None)
    assert await endpoints.secrets(TENANT) == [secret("x")]
    assert await endpoints.add_secret(secret("x", tenant=OTHER), NOW_MS, None)


async def test_ended_secret_signs_nothing(endpoints: Endpoints) -> None:
    await endpoints.add_secret(secret("x"), NOW_MS, None)
    entry = audit("secret.end", NOW_MS + 5)
    assert await endpoints.end_secret(OTHER, "x", NOW_MS + 5, entry) is None
    ended = await endpoints.end_secret(TENANT, "x", NOW_MS + 5, entry)
    assert ended == msgspec.structs.replace(secret("x"), expires_ms=NOW_MS + 5)
    assert await endpoints.end_secret(TENANT, "x", NOW_MS + 6, entry) is None
    assert await sealed(endpoints, now_ms=NOW_MS + 5) == []


async def test_secrets_that_ended_long_ago_are_pruned(endpoints: Endpoints) -> None:
    await endpoints.add_secret(secret("old"), NOW_MS, None)
    await endpoints.end_secret(TENANT, "old", NOW_MS + 1, audit("secret.end", NOW_MS + 1))
    await endpoints.add_secret(secret("new", at_ms=NOW_MS + 40 * 24 * HOUR), 0, None)
    assert [each.id for each in await endpoints.secrets(TENANT)] == ["new"]


async def test_the_answer_is_kept_with_the_secret(endpoints: Endpoints, jobs: Jobs) -> None:
    receipt = Receipt(TENANT, "key", "fingerprint", NOW_MS, 201, b"answer")
    await endpoints.add_secret(secret("x"), NOW_MS, audit("secret.add", NOW_MS), receipt)
    assert await jobs.find_receipt(TENANT, "key") == receipt


# Attempt records


async def test_attempt_records_are_listed_once_and_in_order(crank: Crank, executions: Executions) -> None:
    await crank.add(job(every()))
    dispatch = await crank.fire_one()
    second = report(dispatch, Outcome.SUCCEEDED, started_ms=NOW_MS + 9, details=b"fine", attempt=2)
    second = msgspec.structs.replace(second, dispatch=2)
    first = report(dispatch, Outcome.FAILED, started_ms=NOW_MS, details=b"not so fine", attempt=1)
    silent = report(dispatch, Outcome.SNOOZED, started_ms=NOW_MS + 5)
    await executions.keep_attempts([second, silent])
    await executions.keep_attempts([first, second])
    kept = await executions.attempt_records(dispatch.execution_id)
    assert [(each.dispatch, each.attempt, each.outcome, each.started_ms, each.details) for each in kept] == [
        (1, 1, Outcome.FAILED, NOW_MS, b"not so fine"),
        (2, 2, Outcome.SUCCEEDED, NOW_MS + 9, b"fine"),
    ]
