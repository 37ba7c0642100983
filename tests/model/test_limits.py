import msgspec

from noonday.crypto.keyring import Keyring
from noonday.model.limits import FRAMING_BYTES, MESSAGE_BYTES, SEALED_BYTES, Sizes


def test_the_usual_limits_fit_into_a_message() -> None:
    assert list(Sizes().misfits()) == []


def test_payload_and_progress_that_do_not_fit_together_are_named_with_the_needed_size() -> None:
    sizes = Sizes(payload_bytes=600_000, progress_bytes=600_000)
    assert dict(sizes.misfits())["dispatch"] == sizes.dispatch_bytes + FRAMING_BYTES > MESSAGE_BYTES


def test_a_result_that_does_not_fit_is_named() -> None:
    assert list(dict(Sizes(result_bytes=MESSAGE_BYTES).misfits())) == ["report"]


def test_a_larger_message_makes_room() -> None:
    tight = Sizes(payload_bytes=MESSAGE_BYTES)
    needed = dict(tight.misfits())["dispatch"]
    assert list(Sizes(payload_bytes=MESSAGE_BYTES, message_bytes=needed).misfits()) == []


def test_encryption_adds_no_more_than_its_allowance() -> None:
    keys = Keyring.from_env_value(f"{'k' * 32}:{'A' * 43}=")
    assert len(keys.seal(b"x" * 100, b"context")) <= 100 + SEALED_BYTES


def test_a_body_has_room_for_a_payload_that_is_written_with_escapes() -> None:
    text = "\u00e9" * 100_000
    stored = len(msgspec.json.encode(text))
    assert Sizes(payload_bytes=stored).body_bytes >= len("\\u00e9") * 100_000
