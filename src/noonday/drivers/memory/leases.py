"""The lease of a single instance: a lock on a file beside the data, until the process ends."""

import contextlib
import fcntl
import math
import os
from collections.abc import Mapping
from pathlib import Path

from noonday.model.errors import AlreadyRunning, StoreUnavailable
from noonday.model.ids import InstanceId
from noonday.ports.clock import Clock
from noonday.ports.leases import Leases


class LocalLeases(Leases):
    """A lease by a file lock, which keeps other processes out. Without a path (data in memory), there is no lock."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._clock = clock
        self._path = path
        self._handle: int | None = None
        self._instance: InstanceId | None = None
        self._weight = 1.0

    @property
    def ttl_sec(self) -> float:
        return math.inf

    async def join(self, instance: InstanceId, weight: float) -> None:
        if self._path is not None and self._handle is None:
            self._handle = _lock(self._path)
        self._instance, self._weight = instance, weight

    async def renew(self, weight: float | None = None) -> bool:
        self._weight = self._weight if weight is None else weight
        return self._instance is not None

    async def members(self) -> Mapping[InstanceId, float]:
        return {self._instance: self._weight} if self._instance else {}

    async def changed(self, timeout_sec: float) -> bool:
        """Wait until the time is up. There are no other members."""
        await self._clock.sleep(timeout_sec)
        return False

    async def leave(self) -> None:
        self._instance = None
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _lock(path: Path) -> int:
    if not path.parent.is_dir():
        raise StoreUnavailable(f"the folder {path.parent} does not exist: create it, or name another file with --data")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"cannot open the lock {path}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(handle, 32).decode("ascii", "replace").strip()
        os.close(handle)
        process = f" (process {holder})" if holder.isdigit() else ""
        data = str(path).removesuffix(".lock")
        raise AlreadyRunning(
            f"another Noonday{process} is using {data}: stop it, or give this one its own --data",
            data=data,
            process=int(holder) if holder.isdigit() else None,
        ) from None
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle
