import base64
import time
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from noonday.model.errors import InvalidInput, Unauthorized
from noonday.webhooks.signing import KeyPair, new_key_pair, new_secret, public_key_of, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PRIVATE = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
SEED = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1614265330
BODY = b'{"test": 2432232314}'
V1 = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
V1A = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="

secrets = st.binary(min_size=24, max_size=64).map(lambda key: "whsec_" + base64.b64encode(key).decode())
message_ids = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="."), min_size=1)


def headers(signature: str, message_id: str = MESSAGE, at: str = str(AT)) -> dict[str, str]:
    return {"webhook-id": message_id, "webhook-timestamp": at, "webhook-signature": signature}


class TestSigning:
    @pytest.mark.parametrize(("secret", "signature"), [(SECRET, V1), (PRIVATE, V1A), (SEED, V1A)])
    def test_signatures_match_the_published_vectors(self, secret: str, signature: str) -> None:
        assert sign([secret], MESSAGE, AT, BODY) == headers(signature)

    @pytest.mark.slow
    @given(secrets, message_ids, st.integers(0, 4_000_000_000), st.text())
    def test_signatures_match_the_reference_library(self, secret: str, message_id: str, at: int, text: str) -> None:
        body = text.encode()
        theirs = Webhook(secret).sign(message_id, datetime.fromtimestamp(at, UTC), text)
        assert sign([secret], message_id, at, body)["webhook-signature"] == theirs

    def test_reference_library_verifies_either_secret_of_a_rotation(self) -> None:
        old, new = new_secret(), new_secret()
        ours = sign([old, new], MESSAGE, int(time.time()), BODY)
        for secret in (old, new):
            assert Webhook(secret).verify(BODY, ours) == {"test": 2432232314}

    def test_reference_library_ignores_ed25519_beside_a_shared_secret(self) -> None:
        secret = new_secret()
        ours = sign([new_key_pair().private, secret], MESSAGE, int(time.time()), BODY)
        assert Webhook(secret).verify(BODY, ours) == {"test": 2432232314}

    @pytest.mark.slow
    @given(st.binary())
    def test_cryptography_verifies_an_ed25519_signature(self, body: bytes) -> None:
        pair = new_key_pair()
        signature = sign([pair.private], MESSAGE, AT, body)["webhook-signature"].removeprefix("v1a,")
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(pair.public.removeprefix("whpk_")))
        key.verify(base64.b64decode(signature), f"{MESSAGE}.{AT}.".encode() + body)

    def test_each_secret_signs_once_in_order(self) -> None:
        assert sign([PRIVATE, SECRET], MESSAGE, AT, BODY)["webhook-signature"] == f"{V1A} {V1}"

    @pytest.mark.parametrize("message_id", ["", "a.b", "a b", "a\r\nX: y", "ü", "x" * 257])
    def test_ambiguous_message_id_is_refused(self, message_id: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            sign([SECRET], message_id, AT, BODY)
        assert refused.value.flaws[0].pointer == "/message_id"

    def test_time_before_1970_is_refused(self) -> None:
        with pytest.raises(InvalidInput):
            sign([SECRET], MESSAGE, -1, BODY)

    def test_sign_without_a_secret_is_refused(self) -> None:
        with pytest.raises(InvalidInput):
            sign([], MESSAGE, AT, BODY)

    def test_public_key_cannot_sign(self) -> None:
        with pytest.raises(InvalidInput) as refused:
            sign([PUBLIC], MESSAGE, AT, BODY)
        assert "whsec_ or whsk_" in refused.value.detail


class TestSecrets:
    def test_new_secret_has_32_random_bytes(self) -> None:
        assert len(base64.b64decode(new_secret().removeprefix("whsec_"))) == 32
        assert new_secret() != new_secret()

    def test_new_key_pair_matches(self) -> None:
        pair = new_key_pair()
        assert public_key_of(pair.private) == pair.public
        seed = base64.b64decode(pair.private.removeprefix("whsk_"))[:32]
        theirs = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        assert pair.public == "whpk_" + base64.b64encode(theirs).decode()

    def test_repr_hides_the_private_key(self) -> None:
        assert "whsk_" not in repr(KeyPair(PRIVATE, PUBLIC))

    @pytest.mark.parametrize("private", [PRIVATE, SEED])
    def test_public_key_is_derived_from_the_private_key(self, private: str) -> None:
        assert public_key_of(private) == PUBLIC

    @pytest.mark.parametrize("size", [0, 23, 65])
    def test_shared_secret_has_24_to_64_bytes(self, size: int) -> None:
        with pytest.raises(InvalidInput):
            sign(["whsec_" + base64.b64encode(b"k" * size).decode()], MESSAGE, AT, BODY)

    def test_base64_padding_is_optional(self) -> None:
        secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
        assert secret.endswith("=")
        assert sign([secret.rstrip("=")], MESSAGE, AT, BODY) == sign([secret], MESSAGE, AT, BODY)

    @pytest.mark.parametrize(
        "secret",
        [
            SECRET.removeprefix("whsec_"),
            "whsec_not base64 at all, not at all, not at all",
            "whsec_" + "ü" * 40,
            "whsk_" + base64.b64encode(b"k" * 31).decode(),
            PRIVATE[:-8] + "AAAAAA==",
            "whpk_AAAA",
            "",
        ],
    )
    def test_invalid_secret_is_refused_and_not_repeated(self, secret: str) -> None:
        for ask in (lambda: sign([secret], MESSAGE, AT, BODY), lambda: verify([secret], headers(V1), BODY, AT)):
            with pytest.raises(InvalidInput) as refused:
                ask()
            flaw = refused.value.flaws[0]
            assert (flaw.pointer, flaw.value) == ("/secret", None)
            assert not secret or secret not in refused.value.detail

    def test_shared_secret_has_no_public_key(self) -> None:
        with pytest.raises(InvalidInput):
            public_key_of(SECRET)


class TestVerifying:
    @pytest.mark.parametrize(
        ("secret", "signature"), [(SECRET, V1), (PUBLIC, V1A), (PRIVATE, V1A), (SECRET, f"{V1A} v2,AAAA {V1}")]
    )
    def test_verify_returns_the_message_id(self, secret: str, signature: str) -> None:
        assert verify([secret], headers(signature), BODY, AT) == MESSAGE

    @pytest.mark.slow
    @given(st.lists(secrets | st.just(PRIVATE), min_size=1, max_size=4), message_ids, st.binary(), st.data())
    def test_signed_message_verifies_with_any_of_its_secrets(
        self, signers: list[str], message_id: str, body: bytes, data: st.DataObject
    ) -> None:
        signed = sign(signers, message_id, AT, body)
        assert verify([data.draw(st.sampled_from(signers))], signed, body, AT) == message_id

    @pytest.mark.slow
    @given(secrets)
    def test_signature_of_the_reference_library_verifies(self, secret: str) -> None:
        theirs = Webhook(secret).sign(MESSAGE, datetime.fromtimestamp(AT, UTC), BODY.decode())
        assert verify([secret], headers(theirs), BODY, AT) == MESSAGE

    def test_one_of_several_secrets_is_enough(self) -> None:
        assert verify([new_secret(), PUBLIC, SECRET], headers(V1), BODY, AT) == MESSAGE

    def test_header_names_are_case_insensitive(self) -> None:
        shouted = {name.upper(): value for name, value in headers(V1).items()}
        assert verify([SECRET], shouted, BODY, AT) == MESSAGE

    @pytest.mark.parametrize("signed", [headers(V1, at="1614265331"), headers(V1, message_id="msg_other")])
    def test_changed_time_or_id_does_not_verify(self, signed: dict[str, str]) -> None:
        with pytest.raises(Unauthorized):
            verify([SECRET], signed, BODY, AT)

    @pytest.mark.slow
    @given(st.integers(0, len(BODY) * 8 - 1), st.sampled_from([(SECRET, V1), (PUBLIC, V1A)]))
    def test_changed_body_does_not_verify(self, bit: int, pair: tuple[str, str]) -> None:
        changed = bytearray(BODY)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Unauthorized):
            verify([pair[0]], headers(pair[1]), bytes(changed), AT)

    @pytest.mark.parametrize(("secret", "signature"), [(PUBLIC, V1), (SECRET, V1A), (SECRET, V1.replace("v1", "v2"))])
    def test_signature_of_another_version_does_not_verify(self, secret: str, signature: str) -> None:
        with pytest.raises(Unauthorized):
            verify([secret], headers(signature), BODY, AT)

    def test_public_key_used_as_a_shared_secret_does_not_verify(self) -> None:
        known_to_all = "whsec_" + PUBLIC.removeprefix("whpk_")
        forged = sign([known_to_all], MESSAGE, AT, BODY)
        with pytest.raises(Unauthorized):
            verify([PUBLIC], forged, BODY, AT)

    @pytest.mark.parametrize("away", [-300, 300])
    def test_times_within_five_minutes_are_accepted(self, away: int) -> None:
        assert verify([SECRET], headers(V1), BODY, AT + away) == MESSAGE

    @pytest.mark.parametrize(("away", "side"), [(-301, "after"), (300.5, "before")])
    def test_times_beyond_five_minutes_are_refused(self, away: float, side: str) -> None:
        with pytest.raises(Unauthorized, match=f"300 s {side} now"):
            verify([SECRET], headers(V1), BODY, AT + away)

    @pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
    def test_error_names_the_missing_header(self, name: str) -> None:
        signed = headers(V1)
        del signed[name]
        with pytest.raises(Unauthorized, match=name):
            verify([SECRET], signed, BODY, AT)

    @pytest.mark.parametrize(
        "at", ["", "soon", "1614265330.0", "-1614265330", "１６１４２６５３３０", "9" * 400, "nan"]
    )
    def test_timestamp_must_be_whole_seconds(self, at: str) -> None:
        with pytest.raises(Unauthorized, match="webhook-timestamp"):
            verify([SECRET], headers(V1, at=at), BODY, AT)

    def test_too_many_signatures_are_refused(self) -> None:
        with pytest.raises(Unauthorized, match="more than 32"):
            verify([PUBLIC], headers(" ".join([V1A] * 33)), BODY, AT)

    @pytest.mark.slow
    @given(st.text())
    def test_any_text_as_signature_is_refused(self, text: str) -> None:
        with pytest.raises(Unauthorized):
            verify([SECRET, PUBLIC], headers(text), BODY, AT)

    def test_verify_without_secrets_is_refused(self) -> None:
        with pytest.raises(Unauthorized):
            verify([], headers(V1), BODY, AT)
