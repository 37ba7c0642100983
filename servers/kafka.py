"""A Kafka cluster in KRaft mode, with one or three nodes that are broker and controller."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from servers import answers, jars
from servers.answers import Address
from servers.certificates import Certificate
from servers.errors import CannotInstall, ServerFailed
from servers.ports import HOST
from servers.process import Command, eventually
from servers.server import PATIENCE, Server

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
USER = "noonday"

LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class Kafka(Server):
    """A Kafka cluster. Each node has two ports: one for clients and brokers, one for controllers.

    With a `password`, clients log in as the user `noonday` (SASL/PLAIN). With a `certificate`, clients must use TLS.
    `throwaway` creates a small cluster: little heap, a jit start, slow under load, and a broker session timeout of 4 s.
    """

    name = "kafka"
    ports_per_node = 2

    def __init__(
        self,
        base: Path,
        ports: Sequence[int],
        nodes: int = 3,
        *,
        password: str = "",
        certificate: Certificate | None = None,
        settings: Mapping[str, str] | None = None,
        heap: str = "",
        throwaway: bool = False,
    ) -> None:
        super().__init__(base, ports, nodes)
        self.password = password
        self.certificate = certificate
        self.settings = dict(settings or {})
        self.heap = heap or ("320m" if throwaway else "1g")
        self.throwaway = throwaway

    @property
    def url(self) -> str:
        """The brokers, as in `bootstrap.servers` of clients."""
        return ",".join(f"{HOST}:{client}" for client, _ in self.ports)

    @property
    def protocol(self) -> Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]:
        """The protocol, as in `security.protocol` of clients."""
        if self.password:
            return "SASL_SSL" if self.certificate else "SASL_PLAINTEXT"
        return "SSL" if self.certificate else "PLAINTEXT"

    def answers(self, node: int) -> bool:
        running = sum(daemon.pid is not None for daemon in self.daemons)  # a test may have stopped some
        return answers.kafka(self._address(node), brokers=running)

    def _settle(self) -> None:
        """Wait for the coordinators. Kafka loads them at the first request, and refuses requests for some seconds."""
        node = next(index for index, daemon in enumerate(self.daemons) if daemon.pid is not None)
        if not eventually(lambda: answers.kafka_coordinates(self._address(node)), PATIENCE):
            raise ServerFailed(self._complaint(node, "has no coordinators"))

    def _address(self, node: int) -> Address:
        return Address(HOST, self.ports[node][0], bool(self.certificate), USER, self.password)

    def _prepare(self, node: int) -> Command:
        folder = self.daemons[node].folder
        properties, logging = folder / "server.properties", folder / "log4j2.properties"
        properties.touch(mode=0o600)
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties(node).items()))
        logging.write_text(LOGGING)
        if not (folder / "data" / "meta.properties").exists():
            arguments = [
                "kafka.tools.StorageTool",
                "format",
                "--ignore-formatted",
                "-t",
                CLUSTER,
                "-c",
                str(properties),
            ]
            self._java(["-Xmx128m", "-XX:TieredStopAtLevel=1"], logging, arguments).run()
        heap = [f"-Xms{self.heap}", f"-Xmx{self.heap}"]
        jit = ["-XX:TieredStopAtLevel=1"] if self.throwaway else []
        return self._java([*heap, *jit, "-XX:MaxDirectMemorySize=256m"], logging, ["kafka.Kafka", str(properties)])

    def _java(self, options: list[str], logging: Path, arguments: list[str]) -> Command:
        program = shutil.which("java")
        if program is None:
            raise CannotInstall("java is not installed: run scripts/servers install")
        common = ["-XX:+UseSerialGC", "-XX:-UsePerfData", f"-Dlog4j2.configurationFile={logging}"]
        return Command([program, *options, *common, "-cp", f"{jars.get()}/*", *arguments])

    def _properties(self, node: int) -> dict[str, str]:
        client, controller = self.ports[node]
        replicas, min_in_sync = (3, 2) if len(self.daemons) == 3 else (1, 1)
        return {
            "process.roles": "broker,controller",
            "node.id": str(node + 1),
            "controller.quorum.voters": ",".join(f"{i + 1}@{HOST}:{port}" for i, (_, port) in enumerate(self.ports)),
            "listeners": f"CLIENT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"CLIENT://{HOST}:{client}",
            "listener.security.protocol.map": f"CLIENT:{self.protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.daemons[node].folder / "data"),
            "num.partitions": "4",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(min_in_sync),
            "offsets.topic.replication.factor": str(replicas),
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(min_in_sync),
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": str(replicas),
            "share.coordinator.state.topic.min.isr": str(min_in_sync),
            "share.coordinator.state.topic.num.partitions": "4",
            "broker.session.timeout.ms": "4000" if self.throwaway else "6000",  # until a dead broker is removed
            "broker.heartbeat.interval.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            **self._sasl(),
            **self._tls(),
            **self.settings,
        }

    def _sasl(self) -> dict[str, str]:
        if not self.password:
            return {}
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        login = f'username="{USER}" password="{self.password}" user_{USER}="{self.password}"'
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": f"{module} {login};",
        }

    def _tls(self) -> dict[str, str]:
        if self.certificate is None:
            return {}
        identity = self.base / "identity.pem"
        identity.touch(mode=0o600)
        identity.write_text(self.certificate.key.read_text() + self.certificate.certificate.read_text())
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(identity),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate.authority),
        }
