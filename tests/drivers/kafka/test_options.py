from dataclasses import replace
from pathlib import Path

import pytest

from noonday.drivers.kafka.options import KafkaOptions
from noonday.model.errors import BadSettings, BusUnavailable
from noonday.model.ids import WorkerId
from servers import Authority
from tests.drivers.kafka.conftest import NewBus, own_broker
from tests.support.factories import POOL, dispatch
from tests.support.kafka import options_for_a_test

PLAIN = KafkaOptions("127.0.0.1:1")


def test_security_is_what_is_asked_for() -> None:
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


async def test_a_broker_that_demands_tls_and_a_password_gets_both(tmp_path: Path, new_bus: NewBus) -> None:
    authority = Authority(tmp_path / "authority")
    demanding = own_broker(tmp_path / "kafka", password="good", certificate=authority.issue("broker"))
    said = {"username": "noonday", "mechanism": "PLAIN", "ca_file": str(authority.certificate)}
    with demanding as broker:
        async with options_for_a_test(servers=broker.url, password="good", **said) as options:
            bus = new_bus(options)
            await bus.join(WorkerId("w-1"), {POOL: 1})
            sent = dispatch()
            await bus.publish([sent])
            assert await bus.take(WorkerId("w-1"), {POOL: 1}, 10) == [sent]
            await bus.close()
            hasty = replace(options, answer_within_sec=1.0)
            for wrong in (replace(hasty, password="bad"), replace(hasty, username=None), replace(hasty, ca_file=None)):
                with pytest.raises(BusUnavailable):
                    await new_bus(wrong).era(0)
