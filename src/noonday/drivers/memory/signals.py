"""Claims and flags inside one process."""

import math
import threading
from collections.abc import Mapping, Sequence

from noonday.model.ids import ExecutionId, WorkerId
from noonday.model.message import Dispatch, Token
from noonday.ports.signals import Flag, Named, Signals, Taken

_KEEP_MS = 300_000


class MemorySignals(Signals):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[tuple[ExecutionId, int], int] = {}
        self._flags: dict[str, dict[tuple[ExecutionId, int], str]] = {}
        self._eras: set[str] = set()
        self._pruned_ms = 0

    @property
    def lapse_sec(self) -> float:
        return math.inf

    async def claim(self, worker: WorkerId, dispatches: Sequence[Dispatch], now_ms: int) -> list[Token | Taken]:
        with self._lock:
            self._prune(now_ms)
            return [self._claim(dispatch, now_ms) for dispatch in dispatches]

    async def told(self, names: Sequence[Named]) -> None:
        """A claim is kept long enough for that here."""

    async def look(self, pool: str, executions: Sequence[Named]) -> Mapping[ExecutionId, str] | None:
        with self._lock:
            if pool not in self._eras:
                return None
            flags = self._flags.get(pool)
            if not flags:
                return {}
            return {name[0]: flags[name] for name in executions if name in flags}

    async def raise_flags(self, pool: str, flags: Sequence[Flag]) -> None:
        with self._lock:
            raised = self._flags.setdefault(pool, {})
            for execution, dispatch, reason in flags:
                raised[execution, dispatch] = reason
            while len(raised) > 100_000:
                del raised[next(iter(raised))]

    async def wanted(self, pool: str, executions: Sequence[Named]) -> Mapping[ExecutionId, str]:
        with self._lock:
            flags = self._flags.get(pool)
            return {name[0]: flags[name] for name in executions if name in flags} if flags else {}

    async def has_era(self, pool: str) -> bool:
        return pool in self._eras

    async def begin_era(self, pool: str) -> None:
        with self._lock:
            self._eras.add(pool)

    def _claim(self, dispatch: Dispatch, now_ms: int) -> Token | Taken:
        name = (dispatch.execution_id, dispatch.number)
        if name in self._claims:
            return Taken.TOLD
        self._claims[name] = now_ms
        return Token(dispatch.number, now_ms)

    def _prune(self, now_ms: int) -> None:
        if now_ms - self._pruned_ms < _KEEP_MS:
            return
        self._pruned_ms = now_ms
        self._claims = {name: at for name, at in self._claims.items() if now_ms - at < _KEEP_MS}
