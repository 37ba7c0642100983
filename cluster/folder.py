"""The folder of a cluster: its settings, secrets, logs and lock."""

import fcntl
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers.project import ROOT

from noonday.crypto.keyring import new_env_value
from noonday.crypto.private_file import read_or_create_private
from noonday.crypto.tokens import load_or_create_secret

FOLDER = ROOT / "var" / "cluster"
SCRIPT = ROOT / "scripts" / "cluster"

Sections = Mapping[str, Mapping[str, str | int]]


class AlreadyRuns(Exception):
    """Another process runs a cluster from this folder."""


@dataclass(frozen=True)
class ClusterFolder:
    """The private folder of a cluster."""

    path: Path

    @property
    def config(self) -> Path:
        """Path of the settings file, which all processes and the command line (NOONDAY_CONFIG) read."""
        return self.path / "noonday.toml"

    def prepare(self, name: str, port: int, urls: Mapping[str, str]) -> None:
        """Write the settings file. Keys and secret are created at the first start and kept."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        keys = read_or_create_private(self.path / "keys", new_env_value).strip()
        sections: Sections = {
            "": {"port": port, "log_level": "INFO"},
            "auth": {"secret": load_or_create_secret(self.path / "secret")},
            "encryption": {"keys": keys},
            "postgres": {"url": urls["NOONDAY_POSTGRES_URL"], "schema": name.replace("-", "_")},
            "redis": {"url": urls["NOONDAY_REDIS_URL"]},
            "kafka": {"servers": urls["NOONDAY_KAFKA_SERVERS"]},
            "etcd": {"urls": urls["NOONDAY_ETCD_URLS"]},
            "cluster": {"name": name},
        }
        self._write(sections)

    def settings(self) -> dict[str, Any]:
        return tomllib.loads(self.config.read_text())

    def environment(self) -> dict[str, str]:
        """Return environment variables for a process of this cluster. Our own variables must not override the settings file."""
        named = [f"{section}_{key}" if section else key for section, key in _keys(self.settings())]
        unset = {f"NOONDAY_{name.upper()}": "" for name in [*named, "keys"]}
        return {**unset, "NOONDAY_CONFIG": str(self.config)}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder until the block ends. Raises AlreadyRuns if another process has the lock."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRuns(
                    f"a cluster already runs from {self.path} (process {self.holder()}): stop it first"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def holder(self) -> int | None:
        """Return the id of the process that runs the cluster, or None."""
        if not self._lock.exists():
            return None
        with self._lock.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or 0) or None
        return None

    @property
    def _lock(self) -> Path:
        return self.path / "lock"

    def _write(self, sections: Sections) -> None:
        lines = ["# scripts/cluster writes this file at each start. It contains secrets: do not share it."]
        for section, values in sections.items():
            lines += ["", f"[{section}]"] if section else []
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        new = self.config.with_suffix(".new")
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.config)


def _keys(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from ((name, key) for key in value)
        else:
            yield "", name
