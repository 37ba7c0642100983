from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from noonday.crypto.keyring import Keyring
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.codec import ignore
from noonday.drivers.kafka.options import KafkaOptions
from noonday.runtime.clock import SystemClock
from servers import Authority, Kafka, free_ports
from tests.support.kafka import options_for_a_test

NewBus = Callable[..., KafkaBus]


@pytest.fixture
async def options() -> AsyncIterator[KafkaOptions]:
    async with options_for_a_test() as made:
        yield made


@pytest.fixture(scope="session")
def keyring() -> Keyring:
    return Keyring.generate()


@pytest.fixture
async def new_bus(options: KafkaOptions, keyring: Keyring) -> AsyncIterator[NewBus]:
    """Open a bus. Each call makes the bus of one more process."""
    made: list[KafkaBus] = []

    def one_more(
        options: KafkaOptions = options, keyring: Keyring = keyring, on_refused: Callable[[str], None] = ignore
    ) -> KafkaBus:
        made.append(KafkaBus(options, keyring, SystemClock(), on_refused))
        return made[-1]

    yield one_more
    for bus in made:
        await bus.close()


@pytest.fixture
async def bus(new_bus: NewBus) -> KafkaBus:
    return new_bus()


@pytest.fixture
async def hasty_options(broker: Kafka) -> AsyncIterator[KafkaOptions]:
    """Options for a broker that is harmed, with short timeouts."""
    assert broker.certificate is not None
    async with options_for_a_test(
        servers=broker.url,
        username="noonday",
        password=broker.password,
        mechanism="PLAIN",
        ca_file=str(broker.certificate.authority),
        answer_within_sec=1.0,
        send_within_sec=2.0,
        lost_after_sec=1.5,
    ) as made:
        yield made


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that a test may harm, with TLS and a password."""
    folder = tmp_path_factory.mktemp("kafka")
    certificate = Authority(folder / "authority").issue("broker")
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "group.min.session.timeout.ms": "1000",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.client.scram-sha-256.sasl.jaas.config": login,
        "listener.name.client.scram-sha-512.sasl.jaas.config": login,
    }
    with Kafka(
        folder / "data", free_ports(2), 1, password="good", certificate=certificate, settings=settings, throwaway=True
    ) as made:
        yield made
