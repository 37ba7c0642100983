"""Checks of `noonday doctor` for one data file. Each check only reads, and suggests a fix for each finding."""

import errno
import fcntl
import os
import platform
import shutil
import socket
import sqlite3
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.request import urlopen

from noonday.cli.instants import exact, length
from noonday.cli.server.keys import keyring_of
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.crypto.tokens import secret_file
from noonday.drivers.sqlite.migrations import all_migrations, checksum_of
from noonday.model.errors import BadKey, NoondayError
from noonday.model.job import instant_of
from noonday.model.zones import tzdata_version
from noonday.wiring.settings import Settings

OLDEST_SQLITE = (3, 38)
LITTLE_SPACE = 1024**3
TOO_LITTLE_SPACE = 64 * 1024**2
SAMPLE = 200
BEFORE_NOONDAY_MS = 1_735_689_600_000
"""Start of 2025 in milliseconds. An earlier clock has never been set."""


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    level: Level
    about: str
    detail: str
    fix: str | None = None


@dataclass(frozen=True)
class CheckContext:
    """Settings and time that the checks of `noonday doctor` use."""

    settings: Settings
    now_ms: int
    thorough: bool = False
    """True to read every page and index of the file."""

    @property
    def path(self) -> Path:
        return Path(self.settings.data)


Check = Callable[[CheckContext], Iterator[Finding]]


def examine(context: CheckContext) -> Iterator[Finding]:
    """Run all checks in order. A check that raises an error becomes a finding."""
    for about, check in CHECKS.items():
        try:
            yield from check(context)
        except sqlite3.Error as error:
            yield Finding(Level.FAIL, about, f"{context.path}: {error}", _fix_for(error, context.path))
        except (NoondayError, OSError) as error:
            yield Finding(Level.FAIL, about, error.detail if isinstance(error, NoondayError) else str(error))


def _fix_for(error: sqlite3.Error, path: Path) -> str:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return f"restore a backup; or save what can be read: sqlite3 {path} .recover | sqlite3 recovered.db"
    return "check the permissions of the file and its folder, and the disk"


def check_versions(context: CheckContext) -> Iterator[Finding]:
    yield Finding(Level.OK, "python", f"{platform.python_version()} at {sys.executable}")
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        fix = "use a Python that comes with a newer SQLite"
        yield Finding(Level.FAIL, "sqlite", f"{sqlite3.sqlite_version} is too old: 3.38 or later is needed", fix)
    else:
        yield Finding(Level.OK, "sqlite", sqlite3.sqlite_version)


def check_folder(context: CheckContext) -> Iterator[Finding]:
    folder = context.path.absolute().parent
    if not folder.is_dir():
        yield Finding(Level.FAIL, "folder", f"{folder} does not exist", f"mkdir -p {folder}")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(Level.FAIL, "folder", f"{folder} is not writable", f"chown or chmod {folder}")
    free = shutil.disk_usage(folder).free
    level = Level.FAIL if free < TOO_LITTLE_SPACE else Level.WARN if free < LITTLE_SPACE else Level.OK
    fix = None if level is Level.OK else "free some space: if the disk is full, nothing can be stored"
    yield Finding(level, "disk", f"{free / 1024**3:.1f} GB free in {folder}", fix)


def check_file(context: CheckContext) -> Iterator[Finding]:
    path = context.path
    if not path.exists():
        fix = f"`noonday up --data {path}` creates it; if it exists elsewhere, use --data"
        yield Finding(Level.WARN, "file", f"{path.absolute()} does not exist yet", fix)
    elif not os.access(path, os.R_OK | os.W_OK):
        yield Finding(Level.FAIL, "file", f"{path} is not readable and writable", f"chmod u+rw {path}, as its owner")
    elif path.stat().st_mode & 0o077:
        mode = f"{path.stat().st_mode & 0o777:04o}"
        yield Finding(Level.WARN, "file", f"{path} is accessible to other users (mode {mode})", f"chmod 600 {path}*")
    else:
        yield Finding(Level.OK, "file", f"{path.absolute()}, {path.stat().st_size / 1024**2:.1f} MB")


def check_integrity(context: CheckContext) -> Iterator[Finding]:
    pragma = "integrity_check" if context.thorough else "quick_check"
    for conn in _open_file(context):
        problems = [row[0] for row in conn.execute(f"PRAGMA {pragma}(10)")]
        if problems == ["ok"]:
            yield Finding(Level.OK, "integrity", f"{pragma} found no problem")
        else:
            fix = f"restore a backup; or save what can be read: sqlite3 {context.path} .recover | sqlite3 recovered.db"
            yield Finding(Level.FAIL, "integrity", "; ".join(problems), fix)


def check_migrations(context: CheckContext) -> Iterator[Finding]:
    expected = {name: checksum_of(text) for name, text in all_migrations().items()}
    for conn in _open_file(context):
        applied = dict(conn.execute("SELECT name, checksum FROM migrations").fetchall())
        newer = sorted(set(applied) - set(expected))
        changed = sorted(name for name in set(applied) & set(expected) if applied[name] != expected[name])
        missing = sorted(set(expected) - set(applied))
        if newer:
            yield Finding(
                Level.FAIL, "migrations", f"applied by a newer Noonday ({', '.join(newer)})", "upgrade Noonday"
            )
        elif changed:
            fix = "use the release of Noonday that created the file"
            yield Finding(Level.FAIL, "migrations", f"{', '.join(changed)} differs from the applied version", fix)
        elif missing:
            fix = "the next `noonday up` applies them; copy the file first"
            yield Finding(Level.WARN, "migrations", f"{len(missing)} not applied: {', '.join(missing)}", fix)
        else:
            yield Finding(Level.OK, "migrations", f"up to date ({len(expected)})")


def check_private_files(context: CheckContext) -> Iterator[Finding]:
    settings = context.settings
    configured = {
        "secret": settings.auth.secret or settings.auth.algorithm != "HS256",
        "keys": settings.encryption.keys,
    }
    for about, path in (("secret", secret_file(settings.data)), ("keys", Path(f"{settings.data}.keys"))):
        if configured[about]:
            yield Finding(Level.OK, about, "comes from the settings")
        elif not path.exists():
            yield from _missing_private(about, path, context)
        elif path.stat().st_mode & 0o077:
            mode = f"{path.stat().st_mode & 0o777:04o}"
            yield Finding(Level.FAIL, about, f"{path} is accessible to other users (mode {mode})", f"chmod 600 {path}")
        else:
            yield Finding(Level.OK, about, f"{path}, only its owner can read it")


def _missing_private(about: str, path: Path, context: CheckContext) -> Iterator[Finding]:
    if about == "keys" and context.path.exists():
        fix = "put the file back: a new one cannot decrypt the stored data"
        yield Finding(Level.FAIL, about, f"{path} is missing", fix)
    else:
        yield Finding(Level.OK, about, f"{path} will be created by `noonday up`")


def check_payloads(context: CheckContext) -> Iterator[Finding]:
    for conn in _open_file(context):
        if not (context.settings.encryption.keys or Path(f"{context.settings.data}.keys").exists()):
            return
        ring, errors = keyring_of(context.settings), list[str]()
        samples = set(_samples(conn))
        for tenant, job_id, sealed in samples:
            try:
                ring.open(b64decode(sealed), context_of(tenant, job_id))
            except (BadKey, ValueError) as bad:
                errors.append(bad.detail if isinstance(bad, BadKey) else str(bad))
        yield payload_finding(ring, len(samples), errors)


def _samples(conn: sqlite3.Connection) -> Iterator[tuple[str, str, str]]:
    for order in ("ASC", "DESC"):
        yield from conn.execute(
            f"SELECT tenant, id, payload FROM jobs WHERE payload IS NOT NULL ORDER BY tenant, id {order} LIMIT {SAMPLE}"
        )
        yield from conn.execute(
            f"SELECT tenant, job_id, result FROM executions WHERE result IS NOT NULL ORDER BY id {order} LIMIT {SAMPLE}"
        )


def payload_finding(ring: Keyring, samples: int, errors: list[str]) -> Finding:
    if errors:
        fix = "put back the keys that encrypted them (`noonday keys list` shows the present ones)"
        return Finding(Level.FAIL, "payloads", f"{len(errors)} of {samples} cannot be decrypted: {errors[0]}", fix)
    return Finding(Level.OK, "payloads", f"{samples} sampled, all can be decrypted (keys: {', '.join(ring.key_ids)})")


def check_process(context: CheckContext) -> Iterator[Finding]:
    lock = Path(f"{context.settings.data}.lock")
    holder = _holder(lock) if lock.exists() else None
    if holder is None:
        yield Finding(Level.OK, "process", "no Noonday process uses this file")
    else:
        yield Finding(Level.OK, "process", f"a Noonday process uses this file (process {holder or 'unknown'})")


def _holder(lock: Path) -> str | None:
    """Return the process id of the lock's holder, or None if the lock is free."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return file.read(32).strip()
    return None


def check_clock(context: CheckContext) -> Iterator[Finding]:
    if context.now_ms < BEFORE_NOONDAY_MS:
        yield Finding(
            Level.FAIL, "clock", f"this machine's time is {exact(instant_of(context.now_ms))}", "set the clock"
        )
        return
    latest = max([0, *(_latest_ms(conn) for conn in _open_file(context))])
    ahead_ms = latest - context.now_ms
    if ahead_ms > 2_000:
        detail = f"the file was used {length(ahead_ms / 1000)} in the future: the clock was set back, or was wrong at that time"
        yield Finding(
            Level.WARN, "clock", detail, "set the clock by NTP; jobs that are due by the present clock fire as usual"
        )
    else:
        use = ", after the last use of the file" if latest else ""
        yield Finding(Level.OK, "clock", f"it is {exact(instant_of(context.now_ms))}{use}")


def _latest_ms(conn: sqlite3.Connection) -> int:
    ticks, workers = "SELECT max(tick_ms) FROM checkpoints", "SELECT max(seen_ms) FROM workers"
    return max(int(conn.execute(query).fetchone()[0] or 0) for query in (ticks, workers))


def check_zones(context: CheckContext) -> Iterator[Finding]:
    version, stored = tzdata_version(), None
    for conn in _open_file(context):
        row = conn.execute("SELECT value FROM meta WHERE key = 'zone_data'").fetchone()
        stored = row[0] if row else None
    if stored and stored != version:
        detail = f"{version}; the schedules in the file were computed with {stored}"
        yield Finding(Level.WARN, "time zones", detail, "`noonday up` computes them again while it runs")
    else:
        yield Finding(Level.OK, "time zones", f"data version {version}")


def check_port(context: CheckContext) -> Iterator[Finding]:
    host, port = context.settings.host, context.settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            yield Finding(Level.OK, "port", f"{port} on {host} is free")
    except OSError as error:
        if error.errno == errno.EADDRINUSE and _answers(host, port):
            yield Finding(Level.OK, "port", f"a Noonday server answers on {host} port {port}")
        elif error.errno == errno.EADDRINUSE:
            fix = f"choose another port: noonday up --port {port + 1}"
            yield Finding(Level.WARN, "port", f"{port} on {host} is in use by another program", fix)
        else:
            yield Finding(
                Level.FAIL,
                "port",
                f"cannot listen on {host} port {port}: {error.strerror}",
                "choose another address with --host and --port",
            )


def _answers(host: str, port: int) -> bool:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{reachable}]" if ":" in reachable else reachable
    try:
        with urlopen(f"http://{shown}:{port}/healthz", timeout=2) as answer:
            return b'"UP"' in answer.read(200)
    except (OSError, ValueError):
        return False


def _open_file(context: CheckContext) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection to the data file, or nothing if the file does not exist."""
    if context.path.exists():
        with closing(sqlite3.connect(f"{context.path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as conn:
            yield conn


CHECKS: dict[str, Check] = {
    "versions": check_versions,
    "folder": check_folder,
    "file": check_file,
    "integrity": check_integrity,
    "migrations": check_migrations,
    "private files": check_private_files,
    "payloads": check_payloads,
    "process": check_process,
    "clock": check_clock,
    "time zones": check_zones,
    "port": check_port,
}
