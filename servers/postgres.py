"""A PostgreSQL server."""

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
FALLBACK_FOLDER = Path("/var/tmp")
MARK = "noonday.conf"  # our settings; written after initdb, so it also marks complete data

COMMON = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "jit": "off",
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
PERMANENT = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min"}
THROWAWAY = {"shared_buffers": "64MB", "max_wal_size": "512MB"}


class Postgres(Server):
    """A PostgreSQL server with one database and full durability.

    With a `password`, the superuser must log in with it (SCRAM). With a `certificate`, only TLS connections are accepted.
    `settings` are lines of postgresql.conf that override ours. PostgreSQL refuses to run as root, so root runs it as the user
    `postgres`. If that user cannot enter `base`, the data are in a folder below /var/tmp.
    """

    name = "postgres"
    ports_per_node = 1
    stop_signal = signal.SIGINT  # "fast" shutdown: closes connections without waiting for them
    quit_signal = signal.SIGQUIT  # "immediate" shutdown, which still frees shared memory

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
        options = f"?sslmode=verify-full&sslrootcert={self.certificate.authority}" if self.certificate else ""
        return f"postgresql://{SUPERUSER}{secret}@{HOST}:{self.port}/{self.database}{options}"

    @property
    def data(self) -> Path:
        """Data folder of PostgreSQL."""
        return self._fallback_data if self._is_unreachable() else self.base / "data"

    @property
    def folders(self) -> list[Path]:
        return [self.base, self._fallback_data]

    def answers(self, node: int) -> bool:
        return answers.postgres(Address(HOST, self.port))

    def run_sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement with `psql` and return its output, one row per line."""
        arguments = [
            str(tool("psql")),
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            HOST,
            "-p",
            str(self.port),
            "-U",
            SUPERUSER,
        ]
        return Command([*arguments, "-d", database, "-c", statement], env={"PGPASSWORD": self.password}).run()

    def _prepare(self, node: int) -> Command:
        if not (self.data / MARK).exists():
            self._create()
        self._configure()
        return self._as_user("postgres", "-D", str(self.data), "-p", str(self.port))

    def _settle(self) -> None:
        literal = self.database.replace("'", "''")
        if not self.run_sql(f"select 1 from pg_database where datname = '{literal}'").strip():
            identifier = self.database.replace('"', '""')
            self.run_sql(f'create database "{identifier}"')

    def _create(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)  # left by an interrupted initdb
        self._make_folder()
        arguments = ["-D", str(self.data), "-U", SUPERUSER, "--encoding=UTF8", "--locale=C", "--no-instructions"]
        arguments += ["--no-sync"] if self.throwaway else []
        if self.password:
            secret = self._write("password", self.password)
            self._as_user("initdb", *arguments, "--auth=scram-sha-256", f"--pwfile={secret}").run()
            secret.unlink()
        else:
            self._as_user("initdb", *arguments, "--auth=trust").run()
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(f"include_if_exists '{MARK}'\n")

    def _configure(self) -> None:
        settings = {**COMMON, **(THROWAWAY if self.throwaway else PERMANENT), **self._compression(), **self.settings}
        if self.certificate:
            settings |= {"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
            self._place("server.crt", self.certificate.certificate.read_text())
            self._place("server.key", self.certificate.key.read_text())
            method = "scram-sha-256" if self.password else "trust"
            self._place("pg_hba.conf", f"hostssl all all {HOST}/32 {method}\n")
        lines = [f"{key} = '{value}'\n" for key, value in settings.items()]
        self._place(MARK, "".join(lines))

    def _compression(self) -> dict[str, str]:
        """Use lz4 if this PostgreSQL was built with it."""
        try:
            self._as_user("postgres", "-D", str(self.data), "-C", "wal_compression", "-c", "wal_compression=lz4").run()
        except ServerFailed:
            return {"wal_compression": "on"}
        return {"wal_compression": "lz4"}

    def _as_user(self, program: str, *arguments: str) -> Command:
        return Command([str(tool(program)), *arguments], user=self.user)

    def _make_folder(self) -> None:
        if self.data == self._fallback_data:
            self.data.mkdir(mode=0o700, exist_ok=True)
        else:
            self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = self.data.lstat().st_uid
        if self.data.is_symlink() or owner not in (os.geteuid(), self._uid()):
            raise ServerFailed(f"{self.data} belongs to another user: remove it")
        os.chown(self.data, self._uid(), -1)

    def _write(self, name: str, text: str) -> Path:
        """Write a file next to the data folder that only the server's user can read."""
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

    def _is_unreachable(self) -> bool:
        """Return whether the server's user cannot enter `base` or a folder above it."""
        if self.user is None:
            return False
        above = [folder for folder in (self.base, *self.base.parents) if folder.exists()]
        return not all(_may_enter(folder, self.user) for folder in above)

    @property
    def _fallback_data(self) -> Path:
        return FALLBACK_FOLDER / f"noonday-{hashlib.sha256(str(self.base).encode()).hexdigest()[:16]}"


def _may_enter(folder: Path, user: str) -> bool:
    account, found = pwd.getpwnam(user), folder.stat()
    if found.st_uid == account.pw_uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid in os.getgrouplist(user, account.pw_gid):
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def tool(name: str) -> Path:
    """Return the path of a PostgreSQL program. Debian installs them outside of PATH, in one folder per version."""
    packaged = Path(f"/usr/lib/postgresql/{pins()['postgres'].version}/bin") / name
    if packaged.exists():
        return packaged
    if found := shutil.which(name):
        return Path(found)
    raise CannotInstall(
        f"{name} of PostgreSQL {pins()['postgres'].version} is not installed: run scripts/servers install"
    )
