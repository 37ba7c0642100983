"""PostgreSQL."""

import hashlib
import os
import pwd
import shutil
import signal
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from servers import answers
from servers.answers import Address
from servers.certificates import Certificate
from servers.errors import CannotInstall, ServerFailed
from servers.ports import HOST
from servers.process import Command
from servers.server import Server
from servers.versions import pins

SUPERUSER = "postgres"
ELSEWHERE = Path("/var/tmp")
MARK = "noonday.conf"  # our settings; written when initdb is through, so it tells whole data from half

ALWAYS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "jit": "off",
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
LASTING = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min"}
THROWAWAY = {"shared_buffers": "64MB", "max_wal_size": "512MB"}


class Postgres(Server):
    """A PostgreSQL cluster with one database, all durability on.

    With a `password` the superuser has to show it (SCRAM); with a `certificate` only TLS connections are let in.
    `settings` are lines of postgresql.conf that win over ours. PostgreSQL refuses to run as root: then it runs as the user
    `postgres`, and where that user cannot reach `base`, the data are in a folder of its own below /var/tmp.
    """

    name = "postgres"
    ports_per_node = 1
    stop_signal = signal.SIGINT  # "fast": connections are ended, not waited for
    quit_signal = signal.SIGQUIT  # "immediate", but gives its shared memory back

    def __init__(
        self,
        base: Path,
        port: int,
        *,
        database: str = "noonday",
        password: str = "",
        certificate: Certificate | None = None,
        settings: Mapping[str, str] | None = None,
        throwaway: bool = False,
    ) -> None:
        super().__init__(base, [port], 1)
        self.port = port
        self.database = database
        self.password = password
        self.certificate = certificate
        self.settings = dict(settings or {})
        self.throwaway = throwaway
        self.user = SUPERUSER if os.geteuid() == 0 else None

    @property
    def url(self) -> str:
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        wanted = f"?sslmode=verify-full&sslrootcert={self.certificate.authority}" if self.certificate else ""
        return f"postgresql://{SUPERUSER}{secret}@{HOST}:{self.port}/{self.database}{wanted}"

    @property
    def data(self) -> Path:
        """Where PostgreSQL keeps its files."""
        return self._elsewhere if self._out_of_reach() else self.base / "data"

    @property
    def folders(self) -> list[Path]:
        return [self.base, self._elsewhere]

    def answers(self, node: int) -> bool:
        return answers.postgres(Address(HOST, self.port))

    def run_sql(self, statement: str, database: str = "postgres") -> str:
        """What `psql` prints for a statement, one row a line."""
        words = [str(tool("psql")), "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", HOST, "-p", str(self.port), "-U", SUPERUSER]
        return Command([*words, "-d", database, "-c", statement], env={"PGPASSWORD": self.password}).run()

    def _prepare(self, node: int) -> Command:
        if not (self.data / MARK).exists():
            self._create()
        self._configure()
        return self._as_user("postgres", "-D", str(self.data), "-p", str(self.port))

    def _settle(self) -> None:
        wanted = self.database.replace("'", "''")
        if not self.run_sql(f"select 1 from pg_database where datname = '{wanted}'").strip():
            quoted = self.database.replace('"', '""')
            self.run_sql(f'create database "{quoted}"')

    def _create(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)  # an initdb that was interrupted
        self._make_folder()
        words = ["-D", str(self.data), "-U", SUPERUSER, "--encoding=UTF8", "--locale=C", "--no-instructions"]
        words += ["--no-sync"] if self.throwaway else []
        if self.password:
            secret = self._write("password", self.password)
            self._as_user("initdb", *words, "--auth=scram-sha-256", f"--pwfile={secret}").run()
            secret.unlink()
        else:
            self._as_user("initdb", *words, "--auth=trust").run()
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(f"include_if_exists '{MARK}'\n")

    def _configure(self) -> None:
        settings = {**ALWAYS, **(THROWAWAY if self.throwaway else LASTING), **self._compression(), **self.settings}
        if self.certificate:
            settings |= {"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
            self._place("server.crt", self.certificate.certificate.read_text())
            self._place("server.key", self.certificate.key.read_text())
            method = "scram-sha-256" if self.password else "trust"
            self._place("pg_hba.conf", f"hostssl all all {HOST}/32 {method}\n")
        lines = [f"{key} = '{value}'\n" for key, value in settings.items()]
        self._place(MARK, "".join(lines))

    def _compression(self) -> dict[str, str]:
        """lz4 where this PostgreSQL was built with it."""
        try:
            self._as_user("postgres", "-D", str(self.data), "-C", "wal_compression", "-c", "wal_compression=lz4").run()
        except ServerFailed:
            return {"wal_compression": "on"}
        return {"wal_compression": "lz4"}

    def _as_user(self, program: str, *words: str) -> Command:
        return Command([str(tool(program)), *words], user=self.user)

    def _make_folder(self) -> None:
        if self.data == self._elsewhere:
            self.data.mkdir(mode=0o700, exist_ok=True)
        else:
            self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = self.data.lstat().st_uid
        if self.data.is_symlink() or owner not in (os.geteuid(), self._uid()):
            raise ServerFailed(f"{self.data} belongs to somebody else")
        os.chown(self.data, self._uid(), -1)

    def _write(self, name: str, text: str) -> Path:
        """A file beside the data that the server's user alone can read."""
        path = self.data.with_name(f"{self.data.name}.{name}")
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.chown(path, self._uid(), -1)
        return path

    def _place(self, name: str, text: str) -> None:
        self._write(name, text).replace(self.data / name)

    def _uid(self) -> int:
        return pwd.getpwnam(self.user).pw_uid if self.user else os.geteuid()

    def _out_of_reach(self) -> bool:
        """Whether the server's user may not enter `base`, or a folder above it."""
        if self.user is None:
            return False
        above = [folder for folder in (self.base, *self.base.parents) if folder.exists()]
        return not all(_may_enter(folder, self.user) for folder in above)

    @property
    def _elsewhere(self) -> Path:
        return ELSEWHERE / f"noonday-{hashlib.sha256(str(self.base).encode()).hexdigest()[:16]}"


def _may_enter(folder: Path, user: str) -> bool:
    person, found = pwd.getpwnam(user), folder.stat()
    if found.st_uid == person.pw_uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid in os.getgrouplist(user, person.pw_gid):
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def tool(name: str) -> Path:
    """A program of PostgreSQL. Debian keeps them off the PATH, a folder for each version."""
    packaged = Path(f"/usr/lib/postgresql/{pins()['postgres'].version}/bin") / name
    if packaged.exists():
        return packaged
    if found := shutil.which(name):
        return Path(found)
    raise CannotInstall(f"{name} of PostgreSQL {pins()['postgres'].version} is not installed: scripts/servers install")
