"""An etcd cluster with one or three nodes."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from servers import answers
from servers.answers import Address
from servers.certificates import Certificate
from servers.errors import CannotInstall
from servers.ports import HOST
from servers.process import Command
from servers.server import Server


class Etcd(Server):
    """An etcd cluster. Each node has two ports, for clients and for peers.

    With a `password`, clients log in as the user `root`. With a `certificate`, clients must use TLS (peers do not).
    """

    name = "etcd"
    ports_per_node = 2
    stop_patience = 1.0  # a leader without a successor would wait 7 s; everything acknowledged is on disk

    def __init__(
        self,
        base: Path,
        ports: Sequence[int],
        nodes: int = 3,
        *,
        password: str = "",
        certificate: Certificate | None = None,
        throwaway: bool = False,
    ) -> None:
        super().__init__(base, ports, nodes)
        self.password = password
        self.certificate = certificate

    @property
    def url(self) -> str:
        """The client URLs of all nodes, separated by commas."""
        return ",".join(self._url(client) for client, _ in self.ports)

    def answers(self, node: int) -> bool:
        return answers.etcd(Address(HOST, self.ports[node][0], bool(self.certificate)))

    def _prepare(self, node: int) -> Command:
        program = shutil.which("etcd")
        if program is None:
            raise CannotInstall("etcd is not installed: run scripts/servers install")
        client, peer = self.ports[node]
        options = {
            "name": f"node{node}",
            "data-dir": str(self.daemons[node].folder / "data"),
            "listen-client-urls": self._url(client),
            "advertise-client-urls": self._url(client),
            "listen-peer-urls": f"http://{HOST}:{peer}",
            "initial-advertise-peer-urls": f"http://{HOST}:{peer}",
            "initial-cluster": ",".join(f"node{i}=http://{HOST}:{peer}" for i, (_, peer) in enumerate(self.ports)),
            "initial-cluster-state": "new",
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": "1h",
            **self._tls(),
        }
        arguments = [argument for key, value in options.items() for argument in (f"--{key}", value)]
        return Command([program, *arguments, "--logger", "zap", "--log-level", "warn"])

    def _tls(self) -> dict[str, str]:
        if self.certificate is None:
            return {}
        return {"cert-file": str(self.certificate.certificate), "key-file": str(self.certificate.key)}

    def _settle(self) -> None:
        done = self.base / "password-is-set"
        if not self.password or done.exists():
            return
        self._post("user/add", name="root", password=self.password)
        self._post("role/add", name="root")
        self._post("user/grant", user="root", role="root")
        self._post("auth/enable")
        done.touch()

    def _post(self, path: str, **body: str) -> dict[str, str]:
        url = f"{self._url(self.ports[0][0])}/v3/auth/{path.removeprefix('auth/')}"
        return dict(json.loads(answers.fetch(url, body)))

    def _url(self, port: int) -> str:
        return f"{'https' if self.certificate else 'http'}://{HOST}:{port}"
