"""Payloads: their limits, and their encryption for a tenant and a job."""

import pytest

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.payloads import Payloads
from noonday.model.errors import BadKey, InvalidInput, PayloadTooLarge
from noonday.model.limits import Sizes
from noonday.model.nesting import MOST_LEVELS

KEYRING = Keyring.generate()
PAYLOADS = Payloads(KEYRING, Sizes(payload_bytes=20))


def test_payload_within_the_limit_is_encoded() -> None:
    assert PAYLOADS.encode({"hello": 1}, "acme") == b'{"hello":1}'


def test_job_without_payload_stores_none() -> None:
    assert PAYLOADS.encode(None, "acme") is None
    assert PAYLOADS.seal(None, "acme", "job") is None


def test_payload_above_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(PayloadTooLarge) as refused:
        PAYLOADS.encode("x" * 19, "acme")
    assert (refused.value.context["size"], refused.value.context["limit"]) == (21, 20)


def test_lower_limit_of_the_tenant_applies_and_is_named() -> None:
    with pytest.raises(PayloadTooLarge, match="of tenant 'acme' \\(maxPayloadBytes\\) of 5"):
        PAYLOADS.encode("x" * 10, "acme", 5)


def test_higher_limit_of_the_tenant_does_not_raise_the_limit() -> None:
    with pytest.raises(PayloadTooLarge):
        PAYLOADS.encode("x" * 30, "acme", 100)


def test_payload_that_is_nested_too_deeply_is_refused() -> None:
    payload: list[object] = []
    for _ in range(MOST_LEVELS + 1):
        payload = [payload]
    with pytest.raises(InvalidInput, match="levels deep"):
        Payloads(KEYRING, Sizes()).encode(payload, "acme")


def test_payload_is_encrypted_for_one_job() -> None:
    sealed = PAYLOADS.seal(b"1", "acme", "job")
    assert sealed is not None
    assert KEYRING.open(sealed, context_of("acme", "job")) == b"1"
    with pytest.raises(BadKey):
        KEYRING.open(sealed, context_of("acme", "another"))
