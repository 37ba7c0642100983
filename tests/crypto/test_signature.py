import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.crypto.keyring import Keyring
from noonday.crypto.signature import Signer

PLACE, VALUE = "noonday.pool.etl.HIGH/3", b"a pack of dispatches"
KEYS = {"old": bytes(range(32)), "new": bytes(range(32, 64))}


def test_signed_value_verifies() -> None:
    signer = Signer(Keyring.generate())
    assert signer.verify(PLACE, VALUE, signer.sign(PLACE, VALUE))


def test_a_signature_is_the_same_in_every_process() -> None:
    signature = Signer(Keyring("old", KEYS)).sign(PLACE, VALUE)
    assert signature.hex() == b"old:".hex() + "07785b9575c0286424d18ca4ba99d698526f8e9cb43e1e028eff823ac13bc21b"


def test_signature_is_for_its_location_and_its_bytes_alone() -> None:
    signer = Signer(Keyring.generate())
    signature = signer.sign(PLACE, VALUE)
    assert not signer.verify("noonday.pool.etl.HIGH/2", VALUE, signature)
    assert not signer.verify(PLACE, VALUE + b".", signature)
    assert not signer.verify(PLACE + "n", VALUE[1:], signature)


def test_signature_of_a_former_key_verifies_until_the_key_is_removed() -> None:
    signature = Signer(Keyring("old", KEYS)).sign(PLACE, VALUE)
    assert Signer(Keyring("new", KEYS)).verify(PLACE, VALUE, signature)
    assert not Signer(Keyring("new", {"new": KEYS["new"]})).verify(PLACE, VALUE, signature)


def test_another_key_of_the_same_id_does_not_verify() -> None:
    signature = Signer(Keyring("old", KEYS)).sign(PLACE, VALUE)
    assert not Signer(Keyring("old", {"old": KEYS["new"]})).verify(PLACE, VALUE, signature)


@pytest.mark.parametrize(
    "signature", [b"", b":", b"old", b"old:", b"old:short", b":" + bytes(32), bytes(32), bytes(100)]
)
def test_malformed_signature_does_not_verify(signature: bytes) -> None:
    assert not Signer(Keyring("old", KEYS)).verify(PLACE, VALUE, signature)


@pytest.mark.slow
@given(st.data())
def test_a_signature_with_one_bit_altered_does_not_verify(data: st.DataObject) -> None:
    signer = Signer(Keyring("old", KEYS))
    signature = bytearray(signer.sign(PLACE, VALUE))
    at = data.draw(st.integers(0, len(signature) * 8 - 1))
    signature[at // 8] ^= 1 << at % 8
    assert not signer.verify(PLACE, VALUE, bytes(signature))


def test_secrets_for_a_purpose_tell_nothing_about_keys_or_other_purposes() -> None:
    keyring = Keyring("old", KEYS)
    one, other = keyring.derive(b"one"), keyring.derive(b"other")
    assert set(one) == set(KEYS)
    assert len({*one.values(), *other.values(), *KEYS.values()}) == 6
