"""Where a cluster keeps what belongs to it, and the settings that all its processes share."""

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

from noonday.api.auth import load_or_create_secret
from noonday.crypto.keyring import new_env_value
from noonday.crypto.private_file import read_or_create_private

FOLDER = ROOT / "var" / "cluster"
SCRIPT = ROOT / "scripts" / "cluster"

Sections = Mapping[str, Mapping[str, str | int]]


class AlreadyRuns(Exception):
    """A cluster is being run from this folder."""


@dataclass(frozen=True)
class Place:
    """A folder that only its owner can look into."""

    folder: Path

    @property
    def config(self) -> Path:
        """What every process reads, and what makes the command line find the cluster (NOONDAY_CONFIG)."""
        return self.folder / "noonday.toml"

    def prepare(self, name: str, port: int, urls: Mapping[str, str]) -> None:
        """Write the settings. Keys and secret are made at the first start, and stay."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        keys = read_or_create_private(self.folder / "keys", new_env_value).strip()
        sections: Sections = {
            "": {"port": port, "log_level": "INFO"},
            "auth": {"secret": load_or_create_secret(self.folder / "secret")},
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
        """For a process of this cluster. What the file says is not to be overruled by what our own environment says."""
        named = [f"{section}_{key}" if section else key for section, key in _keys(self.settings())]
        unset = {f"NOONDAY_{name.upper()}": "" for name in [*named, "keys"]}
        return {**unset, "NOONDAY_CONFIG": str(self.config)}

    @contextmanager
    def held(self) -> Iterator[None]:
        """For as long as we run the cluster. Raises AlreadyRuns if another process does."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRuns(f"a cluster runs from {self.folder} already (process {self.holder()})") from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def holder(self) -> int | None:
        """The process that runs the cluster, if one does."""
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
        return self.folder / "lock"

    def _write(self, sections: Sections) -> None:
        lines = ["# Written by scripts/cluster at each start. It has secrets in it: keep it to yourself."]
        for section, values in sections.items():
            lines += ["", f"[{section}]"] if section else []
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        written = self.config.with_suffix(".new")
        written.unlink(missing_ok=True)
        written.touch(mode=0o600)
        written.write_text("\n".join(lines) + "\n")
        written.replace(self.config)


def _keys(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from ((name, key) for key in value)
        else:
            yield "", name
