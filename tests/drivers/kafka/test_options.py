from dataclasses import replace

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from noonday.drivers.kafka.options import KafkaOptions, Mechanism
from noonday.model.errors import BadSettings, BusUnavailable
from noonday.model.ids import WorkerId
from tests.drivers.kafka.broker_side import admin, ask
from tests.drivers.kafka.conftest import NewBus
from tests.support.eventually import eventually
from tests.support.factories import POOL, dispatch

PLAIN = KafkaOptions("127.0.0.1:1")


def test_security_protocol_follows_the_options() -> None:
    assert PLAIN.client()["security.protocol"] == "PLAINTEXT"
    assert replace(PLAIN, tls=True).client()["security.protocol"] == "SSL"
    secured = replace(PLAIN, ca_file="ca.pem", username="ann", password="secret").client()
    assert secured["security.protocol"] == "SASL_SSL"
    assert (secured["ssl.ca.location"], secured["sasl.mechanism"]) == ("ca.pem", "SCRAM-SHA-512")
    assert (secured["sasl.username"], secured["sasl.password"]) == ("ann", "secret")


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(KafkaOptions("127.0.0.1:1", username="ann", password="secret"))


def test_a_user_without_a_password_is_refused() -> None:
    with pytest.raises(BadSettings, match="password"):
        KafkaOptions("127.0.0.1:1", username="ann")


async def test_settings_that_can_never_work_are_refused_at_once(new_bus: NewBus) -> None:
    with pytest.raises(BadSettings, match=r"ssl\.ca\.location"):
        new_bus(replace(PLAIN, ca_file="/no-such-file.pem"))


async def test_a_broker_that_demands_tls_and_a_password_gets_both(hasty_options: KafkaOptions, new_bus: NewBus) -> None:
    bus = new_bus(hasty_options)
    await bus.join(WorkerId("w-1"), {POOL: 1})
    sent = dispatch()
    await bus.publish([sent])
    assert await bus.take(WorkerId("w-1"), {POOL: 1}, 10) == [sent]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password_can_be_shown_without_being_sent(
    mechanism: Mechanism, hasty_options: KafkaOptions, new_bus: NewBus
) -> None:
    kind = ScramMechanism.SCRAM_SHA_256 if mechanism == "SCRAM-SHA-256" else ScramMechanism.SCRAM_SHA_512
    user = UserScramCredentialUpsertion("ann", ScramCredentialInfo(kind, 4096), b"hers")
    ask(admin(hasty_options).alter_user_scram_credentials([user]))
    hers = replace(hasty_options, username="ann", password="hers", mechanism=mechanism)

    async def is_let_in() -> bool:
        """Wait until the broker accepts a new user."""
        try:
            return bool(await new_bus(hers).generation(0))
        except BusUnavailable:
            return False

    await eventually(is_let_in)
    with pytest.raises(BusUnavailable):
        await new_bus(replace(hers, password="his")).generation(0)


@pytest.mark.parametrize("wrong", [{"password": "bad"}, {"username": None}, {"ca_file": None, "tls": True}], ids=str)
async def test_broker_with_unmet_security_demands_is_unavailable(
    wrong: dict[str, object], hasty_options: KafkaOptions, new_bus: NewBus
) -> None:
    with pytest.raises(BusUnavailable):
        await new_bus(replace(hasty_options, **wrong)).generation(0)  # type: ignore[arg-type]
