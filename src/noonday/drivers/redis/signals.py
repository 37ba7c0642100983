"""Claims, revocations and fences in Redis, where every worker of a pool reads them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from noonday.drivers.redis.connection import Connection, Script
from noonday.model.claim import FENCED, ClaimRefused, DispatchRef, Revocation
from noonday.model.errors import SignalsUnavailable
from noonday.model.fence import ACKED_FOR_MS, CLAIM_MS
from noonday.model.ids import ExecutionId, JobId, WorkerId
from noonday.model.message import Dispatch, Token
from noonday.ports.signals import Signals

_CLAIM, _RENEW, _ACK, _REVOKE, _REVOCATIONS, _BEAT = map(
    Script, ("claim", "renew", "ack", "revoke", "revocations", "beat")
)
_CHUNK = 1_000
"""Most names of one command inside a script."""
_FEW = 64
"""Maximum number of revocations that are answered whole, without sending the names in question: mostly there are none."""

_ACKED = -1
"""Answer of a script for a dispatch that is acked: its start or end is on the log."""

_Indexes = dict[str, dict[str, list[int]]]
"""The indexes of dispatches in a batch, by slot and by hash."""


class RedisSignals(Signals):
    """Signals in Redis. Each dispatch is a field of a hash: claimed, with the instant when that lapses, or acked.

    A hash expires when nothing in it has changed for longer than claims and acks count.
    """

    def __init__(self, connection: Connection, prefix: str = "noonday", lapse_ms: int = CLAIM_MS) -> None:
        self._connection = connection
        self._prefix = prefix
        self._lapse_ms = lapse_ms
        self._keep_ms = ACKED_FOR_MS + lapse_ms

    @property
    def lapse_sec(self) -> float:
        return self._lapse_ms / 1000

    async def claim(self, worker: WorkerId, dispatches: Sequence[Dispatch], now_ms: int) -> list[Token | ClaimRefused]:
        names = [(dispatch.execution_id, dispatch.number) for dispatch in dispatches]
        slots = _by_slot(names)
        commands = [
            _CLAIM(f"{self._prefix}:{{c:{slot}}}", now_ms, self._lapse_ms, self._keep_ms, *_fields(hashes, names))
            for slot, hashes in slots.items()
        ]
        tokens: list[Token | ClaimRefused] = [ClaimRefused.CLAIMED] * len(dispatches)
        for at, claimed_ms in _indexed(slots, await self._run(commands)):
            if claimed_ms > 0:
                tokens[at] = Token(dispatches[at].number, claimed_ms)
            elif claimed_ms:
                taken_over = claimed_ms != _ACKED
                tokens[at] = Token(dispatches[at].number, -claimed_ms, taken_over) if taken_over else ClaimRefused.ACKED
        return tokens

    async def renew(self, claims: Sequence[tuple[Dispatch, Token]]) -> list[Token | ClaimRefused]:
        names = [(dispatch.execution_id, dispatch.number) for dispatch, _ in claims]
        slots = _by_slot(names)
        commands = [
            _RENEW(
                f"{self._prefix}:{{c:{slot}}}", self._lapse_ms, self._keep_ms, *_claimed_fields(hashes, names, claims)
            )
            for slot, hashes in slots.items()
        ]
        answers: list[Token | ClaimRefused] = [ClaimRefused.CLAIMED] * len(claims)
        for at, answer in _indexed(slots, await self._run(commands)):
            if answer:
                answers[at] = claims[at][1] if answer != _ACKED else ClaimRefused.ACKED
        return answers

    async def ack(self, names: Sequence[DispatchRef]) -> None:
        await self._run(
            [
                _ACK(f"{self._prefix}:{{c:{slot}}}", self._keep_ms, *_fields(hashes, names))
                for slot, hashes in _by_slot(names).items()
            ]
        )

    async def pre_start_check(self, pool: str, dispatches: Sequence[Dispatch]) -> Mapping[ExecutionId, str] | None:
        names = [f"{d.execution_id}:{d.number}" for d in dispatches]
        generation, found = await self._revocations(pool, [*names, *{d.job_id for d in dispatches}])
        if generation is None:
            return None
        reasons = {}
        for dispatch, name in zip(dispatches, names, strict=True):
            if name in found:
                reasons[dispatch.execution_id] = found[name]
            elif dispatch.fired_ms <= max(generation, int(found.get(dispatch.job_id, 0))):
                reasons[dispatch.execution_id] = FENCED
        return reasons

    async def revoke(self, pool: str, revocations: Sequence[Revocation]) -> None:
        chunks = [revocations[start : start + _CHUNK] for start in range(0, len(revocations), _CHUNK)]
        await self._run([_REVOKE(self._key(pool), *_revocation_fields(chunk)) for chunk in chunks])

    async def fence(self, pool: str, job: JobId, until_ms: int) -> None:
        await self._run([_REVOKE(self._key(pool), job, until_ms)])

    async def revoked(self, pool: str, executions: Sequence[DispatchRef]) -> Mapping[ExecutionId, str]:
        if not executions:
            return {}
        names = {f"{execution}:{number}": execution for execution, number in executions}
        _, found = await self._revocations(pool, list(names))
        return {names[name]: reason for name, reason in found.items() if name in names}

    async def has_generation(self, pool: str) -> bool:
        return bool(await self._ask("EXISTS", f"{self._key(pool)}:generation"))

    async def beat(self, pool: str, now_ms: int, seen_ms: int) -> int | None:
        (latest,) = await self._run([_BEAT(self._key(pool), now_ms, seen_ms)])
        return None if latest is None else int(latest)

    async def begin_generation(self, pool: str, fenced_before_ms: int = 0) -> None:
        await self._ask("SET", f"{self._key(pool)}:generation", fenced_before_ms)

    def _key(self, pool: str) -> str:
        return f"{self._prefix}:{{f:{pool}}}"

    async def _revocations(self, pool: str, names: Sequence[str]) -> tuple[int | None, Mapping[str, str]]:
        """Return the instant up to which the present generation fences everything (None without one), and the revocations and
        fences of these names, all as of one moment. The answer may have other names too."""
        most = max(_FEW, len(names))
        (generation, complete, *pairs), = await self._run([_REVOCATIONS(self._key(pool), most)])  # fmt: skip
        if not complete:
            (generation, _, *pairs), = await self._run([_REVOCATIONS(self._key(pool), 0, *names)])  # fmt: skip
        found = {name.decode(): reason.decode() for name, reason in zip(pairs[::2], pairs[1::2], strict=True)}
        return None if generation is None else int(generation), found

    async def _run(self, commands: Sequence[Any]) -> list[Any]:
        return await self._connection.run(commands, SignalsUnavailable)

    async def _ask(self, *command: str | int) -> Any:
        return await self._connection.ask(*command, failing=SignalsUnavailable)


def _by_slot(names: Sequence[DispatchRef]) -> _Indexes:
    """Group dispatches by slot and hash.

    An execution's id begins with its time and ends with random digits. The last digit chooses the slot, and the first ten, which
    change every 4 s, choose the hash in it. So hashes are neither many nor large, and expire whole.
    """
    slots: _Indexes = {}
    for at, (execution, _) in enumerate(names):
        hashes = slots.get(execution[-1])
        if hashes is None:
            hashes = slots[execution[-1]] = {}
        indexes = hashes.get(execution[:10])
        if indexes is None:
            hashes[execution[:10]] = [at]
        else:
            indexes.append(at)
    return slots


def _indexed(slots: _Indexes, answers: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield the index of each dispatch in its batch, and the script's answer for it."""
    for hashes, answered in zip(slots.values(), answers, strict=True):
        yield from zip((at for indexes in hashes.values() for at in indexes), answered, strict=True)


def _fields(hashes: Mapping[str, Sequence[int]], names: Sequence[DispatchRef]) -> Iterator[str | int]:
    for time, chunk in _chunks(hashes):
        yield time
        yield len(chunk)
        for at in chunk:
            yield f"{names[at][0]}:{names[at][1]}"


def _claimed_fields(
    hashes: Mapping[str, Sequence[int]], names: Sequence[DispatchRef], claims: Sequence[tuple[Dispatch, Token]]
) -> Iterator[str | int]:
    """Yield the fields of dispatches, then the time of each claim."""
    for time, chunk in _chunks(hashes):
        yield from _fields({time: chunk}, names)
        for at in chunk:
            yield claims[at][1].claimed_ms


def _chunks(hashes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, Sequence[int]]]:
    for time, indexes in hashes.items():
        for start in range(0, len(indexes), _CHUNK):
            yield time, indexes[start : start + _CHUNK]


def _revocation_fields(revocations: Sequence[Revocation]) -> Iterator[str]:
    for execution, dispatch, reason in revocations:
        yield f"{execution}:{dispatch}"
        yield reason
