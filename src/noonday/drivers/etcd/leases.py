"""Leases in etcd: a key per member, under a lease of its own."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from noonday.drivers.etcd.gateway import FAILED_PRECONDITION, NOT_FOUND, EtcdOptions, Gateway, Refused
from noonday.model.errors import AlreadyRunning, LeasesUnavailable
from noonday.model.ids import InstanceId
from noonday.ports.clock import Clock
from noonday.ports.leases import Leases
from noonday.runtime.clock import SystemClock

_LOOK_AGAIN_SEC = 2.0
"""A watch may be deaf without knowing it: its server is frozen, or cut off from the others."""
_PAUSE_SEC = 0.2


@dataclass(frozen=True)
class _Held:
    instance: InstanceId
    key: bytes
    lease: int


class EtcdLeases(Leases):
    """One object is one instance in one group, such as the schedulers. `close` it when it is no longer used.

    etcd itself grants no lease shorter than one and a half election timeouts (2 s, if its own are not changed).
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        group: str,
        prefix: str = "noonday",
        ttl_sec: int = 3,
        options: EtcdOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._gateway = Gateway(endpoints, options or EtcdOptions())
        self._group = group
        self._folder = f"{prefix}/{group}/members/".encode()
        self._ttl_sec = ttl_sec
        self._clock = clock or SystemClock()
        self._held: _Held | None = None
        self._asked_for = 0
        """A lease that etcd may have granted us, whether it could say so or not."""
        self._weight: float | None = None
        """What our key says, if we know that it was written."""
        self._read: Mapping[bytes, tuple[int, bytes]] | None = None
        """What `members` saw last: each key, its lease and its value."""

    @property
    def ttl_sec(self) -> float:
        return self._ttl_sec

    async def join(self, instance: InstanceId, weight: float) -> None:
        await self.leave()
        held = _Held(instance, self._folder + instance.encode(), secrets.randbits(62) + 1)
        self._asked_for = held.lease
        await self._grant(held.lease)
        if not await self._put_first(held, weight):
            await self.leave()
            raise AlreadyRunning(
                f"{instance} is already a member of {self._group}: stop it, wait {self._ttl_sec} s, or take another name"
            )
        self._held, self._weight = held, weight

    async def renew(self, weight: float | None = None) -> bool:
        held = self._held
        if held is None:
            return False
        kept = await self._keep_alive(held.lease)
        if kept and weight is not None and weight != self._weight:
            kept = await self._put_again(held, weight)
        if not kept:
            self._forget(held)
        return kept

    async def members(self) -> Mapping[InstanceId, float]:
        held = self._held
        range_ = await self._look()
        self._read = range_.written()
        if held is not None and range_.lease_of(held.key) != held.lease:
            # Somebody took our key away: without it the lease is worth nothing.
            self._forget(held)
        names = ((kv.key.removeprefix(self._folder), _weight(kv.value)) for kv in range_.kvs)
        return {InstanceId(name.decode()): weight for name, weight in names if weight is not None}

    async def changed(self, timeout_sec: float) -> bool:
        try:
            async with asyncio.timeout(timeout_sec):
                return await self._change()
        except TimeoutError:
            return False

    async def leave(self) -> None:
        self._held = None
        if self._asked_for:
            await self._revoke(self._asked_for)
            self._asked_for = 0

    async def close(self) -> None:
        await self._gateway.close()

    async def _change(self) -> bool:
        while True:
            try:
                range_ = await self._look()
                if range_.written() != self._read:
                    return True
                async with asyncio.timeout(_LOOK_AGAIN_SEC):
                    await self._gateway.news(self._folder, _end_of(self._folder), range_.header.revision + 1)
            except TimeoutError:
                continue
            except LeasesUnavailable:
                await self._clock.sleep(_PAUSE_SEC)

    async def _look(self) -> "_Range":
        where = {"key": self._folder, "range_end": _end_of(self._folder)}
        return await self._gateway.call("kv/range", where, _Range)

    async def _grant(self, lease: int) -> None:
        try:
            await self._gateway.call("lease/grant", {"ID": str(lease), "TTL": str(self._ttl_sec)}, _Header)
        except Refused as refusal:
            if refusal.reason != FAILED_PRECONDITION:  # which says that it exists: we asked twice
                raise

    async def _keep_alive(self, lease: int) -> bool:
        return (await self._gateway.call("lease/keepalive", {"ID": str(lease)}, _Kept)).result.TTL > 0

    async def _revoke(self, lease: int) -> None:
        try:
            await self._gateway.call("lease/revoke", {"ID": str(lease)}, _Header)
        except Refused as refusal:
            if refusal.reason != NOT_FOUND:
                raise

    async def _put_first(self, held: _Held, weight: float) -> bool:
        """Whether the name was free, or is ours since we asked before."""
        free = {"key": held.key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        wish = {
            "compare": [free],
            "success": [_put(held, weight)],
            "failure": [{"request_range": {"key": held.key}}],
        }
        answer = await self._gateway.call("kv/txn", wish, _Transaction)
        return answer.succeeded or answer.found().lease_of(held.key) == held.lease

    async def _put_again(self, held: _Held, weight: float) -> bool:
        ours = {"key": held.key, "target": "LEASE", "result": "EQUAL", "lease": str(held.lease)}
        wish = {"compare": [ours], "success": [_put(held, weight)]}
        self._weight = None
        try:
            kept = (await self._gateway.call("kv/txn", wish, _Transaction)).succeeded
        except Refused as refusal:
            if refusal.reason != NOT_FOUND:
                raise
            return False
        self._weight = weight
        return kept

    def _forget(self, held: _Held) -> None:
        if self._held is held:
            self._held = None


class _Member(msgspec.Struct):
    weight: float


class _Header(msgspec.Struct):
    revision: int = 0


class _KeyValue(msgspec.Struct):
    key: bytes
    value: bytes
    lease: int = 0


class _Range(msgspec.Struct):
    header: _Header = msgspec.field(default_factory=_Header)
    kvs: list[_KeyValue] = []

    def written(self) -> dict[bytes, tuple[int, bytes]]:
        return {kv.key: (kv.lease, kv.value) for kv in self.kvs}

    def lease_of(self, key: bytes) -> int:
        return next((kv.lease for kv in self.kvs if kv.key == key), 0)


class _Response(msgspec.Struct):
    response_range: _Range = msgspec.field(default_factory=_Range)


class _Transaction(msgspec.Struct):
    succeeded: bool = False
    responses: list[_Response] = []

    def found(self) -> _Range:
        return self.responses[0].response_range


class _Life(msgspec.Struct):
    TTL: int = 0


class _Kept(msgspec.Struct):
    result: _Life


def _put(held: _Held, weight: float) -> Mapping[str, object]:
    value = msgspec.json.encode(_Member(weight))
    return {"request_put": {"key": held.key, "value": value, "lease": str(held.lease)}}


def _weight(value: bytes) -> float | None:
    """None of what no member wrote: one such key must not stop them all."""
    try:
        return msgspec.json.decode(value, type=_Member).weight
    except msgspec.DecodeError:
        return None


def _end_of(folder: bytes) -> bytes:
    """The first key behind all that begin so."""
    return folder[:-1] + bytes([folder[-1] + 1])
