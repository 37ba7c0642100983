"""A Redis server."""

import shutil
from pathlib import Path
from urllib.parse import quote

from servers import answers
from servers.answers import Address
from servers.certificates import Certificate
from servers.errors import CannotInstall
from servers.ports import HOST
from servers.process import Command
from servers.server import Server

DURABLE = {"save": '""', "appendonly": "yes", "appendfsync": "everysec"}


class Redis(Server):
    """A Redis server that syncs its append-only file every second. With a `certificate`, it accepts only TLS."""

    name = "redis"
    ports_per_node = 1

    def __init__(
        self,
        base: Path,
        port: int,
        *,
        password: str = "",
        certificate: Certificate | None = None,
        settings: dict[str, str] | None = None,
        throwaway: bool = False,
    ) -> None:
        super().__init__(base, [port], 1)
        self.port = port
        self.password = password
        self.certificate = certificate
        self.settings = dict(settings or {})

    @property
    def url(self) -> str:
        secret = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"{'rediss' if self.certificate else 'redis'}://{secret}{HOST}:{self.port}/0"

    def answers(self, node: int) -> bool:
        return answers.redis(Address(HOST, self.port, bool(self.certificate), password=self.password))

    def _prepare(self, node: int) -> Command:
        program = shutil.which("redis-server")
        if program is None:
            raise CannotInstall("redis-server is not installed: run scripts/servers install")
        data = self.base / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = {"bind": HOST, "dir": str(data), "daemonize": "no", **DURABLE, **self._security(), **self.settings}
        conf = self.base / "redis.conf"
        conf.touch(mode=0o600)
        conf.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        return Command([program, str(conf)])

    def _security(self) -> dict[str, str]:
        password = {"requirepass": f'"{self.password}"'} if self.password else {}
        if self.certificate is None:
            return {"port": str(self.port), **password}
        return {
            "port": "0",
            "tls-port": str(self.port),
            "tls-cert-file": str(self.certificate.certificate),
            "tls-key-file": str(self.certificate.key),
            "tls-ca-cert-file": str(self.certificate.authority),
            "tls-auth-clients": "no",
            **password,
        }
