import msgspec

from noonday.intake.idempotency import Idempotency


def test_view_of_a_result_is_stored_instead_of_the_result() -> None:
    key = Idempotency("k1", "fingerprint", lambda answer: 201, msgspec.json.encode)
    storing = key.storing(lambda result: {"shown": result})
    assert storing.encode(7) == b'{"shown":7}'
    assert (storing.key, storing.fingerprint, storing.status_of(7)) == ("k1", "fingerprint", 201)
