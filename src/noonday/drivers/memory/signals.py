"""Claims, revocations and fences in the memory of one process."""

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from noonday.model.claim import FENCED, ClaimRefused, DispatchRef, Revocation
from noonday.model.fence import CLAIMS_KEPT_MS
from noonday.model.ids import ExecutionId, JobId, WorkerId
from noonday.model.message import Dispatch, Token
from noonday.ports.signals import Signals

_MAX_KEPT = 100_000
"""Most revocations, and most fences, that are kept for a pool. The oldest are dropped first."""


class MemorySignals(Signals):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[tuple[ExecutionId, int], int] = {}
        self._revocations: dict[str, dict[tuple[ExecutionId, int], str]] = {}
        self._fences: dict[str, dict[JobId, int]] = {}
        self._generations: set[str] = set()
        self._pruned_ms = 0

    @property
    def lapse_sec(self) -> float:
        return math.inf

    async def claim(self, worker: WorkerId, dispatches: Sequence[Dispatch], now_ms: int) -> list[Token | ClaimRefused]:
        with self._lock:
            self._prune(now_ms)
            return [self._claim(dispatch, now_ms) for dispatch in dispatches]

    async def renew(self, claims: Sequence[tuple[Dispatch, Token]]) -> list[Token | ClaimRefused]:
        with self._lock:
            return [self._renew(dispatch, token) for dispatch, token in claims]

    async def ack(self, dispatches: Sequence[DispatchRef]) -> None:
        """Do nothing: a claim is kept long enough to refuse duplicates."""

    async def pre_start_check(self, pool: str, dispatches: Sequence[Dispatch]) -> Mapping[ExecutionId, str] | None:
        with self._lock:
            if pool not in self._generations:
                return None
            found = {}
            if fences := self._fences.get(pool):
                found = {d.execution_id: FENCED for d in dispatches if d.fired_ms <= fences.get(d.job_id, -1)}
            if revocations := self._revocations.get(pool):
                found |= _reasons(revocations, [(d.execution_id, d.number) for d in dispatches])
            return found

    async def revoke(self, pool: str, revocations: Sequence[Revocation]) -> None:
        with self._lock:
            kept = self._revocations.setdefault(pool, {})
            for execution, dispatch, reason in revocations:
                kept[execution, dispatch] = reason
            _forget_oldest(kept)

    async def fence(self, pool: str, job: JobId, until_ms: int) -> None:
        with self._lock:
            fences = self._fences.setdefault(pool, {})
            fences[job] = max(until_ms, fences.pop(job, 0))
            _forget_oldest(fences)

    async def revoked(self, pool: str, executions: Sequence[DispatchRef]) -> Mapping[ExecutionId, str]:
        with self._lock:
            return _reasons(self._revocations.get(pool, {}), executions)

    async def has_generation(self, pool: str) -> bool:
        return pool in self._generations

    async def beat(self, pool: str, now_ms: int, seen_ms: int) -> int | None:
        """Return this beat: the memory of a process has no old copies."""
        return now_ms if pool in self._generations else None

    async def begin_generation(self, pool: str, fenced_before_ms: int = 0) -> None:
        with self._lock:
            self._generations.add(pool)

    def _claim(self, dispatch: Dispatch, now_ms: int) -> Token | ClaimRefused:
        ref = (dispatch.execution_id, dispatch.number)
        if ref in self._claims:
            return ClaimRefused.ACKED
        self._claims[ref] = now_ms
        return Token(dispatch.number, now_ms)

    def _renew(self, dispatch: Dispatch, token: Token) -> Token | ClaimRefused:
        claimed_ms = self._claims.setdefault((dispatch.execution_id, dispatch.number), token.claimed_ms)
        return token if claimed_ms == token.claimed_ms else ClaimRefused.ACKED

    def _prune(self, now_ms: int) -> None:
        if now_ms - self._pruned_ms < CLAIMS_KEPT_MS:
            return
        self._pruned_ms = now_ms
        self._claims = {ref: at_ms for ref, at_ms in self._claims.items() if now_ms - at_ms < CLAIMS_KEPT_MS}


def _reasons(revocations: Mapping[DispatchRef, str], dispatches: Sequence[DispatchRef]) -> dict[ExecutionId, str]:
    return {ref[0]: revocations[ref] for ref in dispatches if ref in revocations} if revocations else {}


def _forget_oldest(kept: dict[Any, Any]) -> None:
    while len(kept) > _MAX_KEPT:
        del kept[next(iter(kept))]
