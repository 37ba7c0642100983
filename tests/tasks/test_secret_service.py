"""Secrets that sign webhook calls."""

from collections.abc import AsyncIterator

import pytest

from noonday.crypto.envelope import context_of
from noonday.intake.idempotency import AlreadyAnswered
from noonday.model.errors import Conflict, NotFound
from noonday.model.secret import NewSecret, SecretKind, to_sign_with
from noonday.tasks.secrets import FIRST, SecretService
from noonday.webhooks.sending import SEALED_FOR
from tests.intake.parts import ANN, STRANGER, Parts, key, parts_in_memory
from tests.support.factories import HOUR, NOW_MS, TENANT, instant

ENDPOINT = "https://api.example.com:443"


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def secrets(parts: Parts) -> SecretService:
    return SecretService(parts.store.endpoints, parts.receipts, parts.keyring, parts.clock)


async def signers(parts: Parts) -> list[bytes]:
    """Return the values that sign a call to the endpoint now."""
    stored = await parts.store.endpoints.secrets(TENANT)
    sealed = to_sign_with(stored, [(TENANT, ENDPOINT)], parts.clock.now_ms())[TENANT, ENDPOINT]
    return [parts.keyring.open(each, context_of(TENANT, SEALED_FOR)) for each in sealed]


async def test_value_of_a_secret_is_shown_once_and_stored_as_ciphertext(parts: Parts, secrets: SecretService) -> None:
    made = await secrets.make(ANN, NewSecret(), None)
    assert made.secret.startswith("whsec_")
    assert await signers(parts) == [made.secret.encode()]
    (view,) = await secrets.list_secrets(ANN)
    assert (view.id, hasattr(view, "secret")) == (made.id, False)


async def test_only_the_public_key_of_a_key_pair_is_shown(secrets: SecretService) -> None:
    made = await secrets.make(ANN, NewSecret(kind=SecretKind.ED25519), None)
    assert made.secret.startswith("whpk_")


async def test_former_secret_signs_too_until_the_overlap_ends(parts: Parts, secrets: SecretService) -> None:
    first = await secrets.make(ANN, NewSecret(), None)
    parts.clock.advance(1)
    second = await secrets.make(ANN, NewSecret(overlap_seconds=3600), None)
    assert await signers(parts) == [second.secret.encode(), first.secret.encode()]
    parts.clock.advance(3600)
    assert await signers(parts) == [second.secret.encode()]
    ends = {view.id: view.expires_at for view in await secrets.list_secrets(ANN)}
    assert ends == {first.id: instant(NOW_MS + 1_000 + HOUR), second.id: None}


async def test_secret_of_an_endpoint_signs_in_place_of_that_of_the_tenant(parts: Parts, secrets: SecretService) -> None:
    await secrets.make(ANN, NewSecret(), None)
    own = await secrets.make(ANN, NewSecret(endpoint=f"{ENDPOINT}/any/path"), None)
    assert own.endpoint == ENDPOINT
    assert await signers(parts) == [own.secret.encode()]


async def test_tenant_without_a_secret_gets_a_first_one(parts: Parts, secrets: SecretService) -> None:
    await secrets.make_first(TENANT)
    await secrets.make_first(TENANT)
    assert [view.id for view in await secrets.list_secrets(ANN)] == [FIRST]


async def test_tenant_with_a_secret_gets_no_first_one(secrets: SecretService) -> None:
    made = await secrets.make(ANN, NewSecret(), None)
    await secrets.make_first(TENANT)
    assert [view.id for view in await secrets.list_secrets(ANN)] == [made.id]


async def test_ended_secret_signs_nothing_more(parts: Parts, secrets: SecretService) -> None:
    first = await secrets.make(ANN, NewSecret(), None)
    second = await secrets.make(ANN, NewSecret(), None)
    await secrets.end(ANN, first.id, None)
    assert await signers(parts) == [second.secret.encode()]


async def test_last_secret_for_all_endpoints_cannot_be_ended(secrets: SecretService) -> None:
    """Every call is signed."""
    made = await secrets.make(ANN, NewSecret(), None)
    with pytest.raises(Conflict, match="the last valid secret"):
        await secrets.end(ANN, made.id, None)


async def test_secret_of_another_tenant_is_not_found(secrets: SecretService) -> None:
    made = await secrets.make(ANN, NewSecret(), None)
    with pytest.raises(NotFound):
        await secrets.end(STRANGER, made.id, None)


async def test_repeated_request_makes_no_second_secret(secrets: SecretService) -> None:
    made = await secrets.make(ANN, NewSecret(), key())
    with pytest.raises(AlreadyAnswered) as answered:
        await secrets.make(ANN, NewSecret(), key())
    assert made.secret.encode() in answered.value.body
    assert len(await secrets.list_secrets(ANN)) == 1
