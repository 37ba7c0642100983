"""Leases in etcd: one key for each member, under its own lease."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from noonday.drivers.etcd.gateway import FAILED_PRECONDITION, NOT_FOUND, EtcdOptions, EtcdRefused, Gateway
from noonday.model.errors import AlreadyRunning, LeasesUnavailable
from noonday.model.ids import InstanceId
from noonday.ports.clock import Clock
from noonday.ports.leases import Leases
from noonday.runtime.clock import SystemClock

_REREAD_SEC = 2.0
"""Seconds until the members are read again without a change: the watched server may be frozen or cut off from the others."""
_RETRY_SEC = 0.2


@dataclass(frozen=True)
class _Membership:
    instance: InstanceId
    key: bytes
    lease: int


class EtcdLeases(Leases):
    """Leases in etcd. One object is one instance in one group, such as the schedulers. `close` it when it is no longer used.

    etcd grants no lease shorter than one and a half election timeouts (2 s with its default settings).
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
        self._membership: _Membership | None = None
        self._requested_lease = 0
        """The lease that etcd may have granted, whether or not its answer arrived. 0: none."""
        self._weight: float | None = None
        """The weight in our key, if it is known to be written."""
        self._last_read: Mapping[bytes, tuple[int, bytes]] | None = None
        """The lease and value of each key, as `members` last read them."""

    @property
    def ttl_sec(self) -> float:
        return self._ttl_sec

    async def join(self, instance: InstanceId, weight: float) -> None:
        await self.leave()
        membership = _Membership(instance, self._folder + instance.encode(), secrets.randbits(62) + 1)
        self._requested_lease = membership.lease
        await self._grant(membership.lease)
        if not await self._put_first(membership, weight):
            await self.leave()
            raise AlreadyRunning(
                f"{instance} is already a member of {self._group}: stop it, wait {self._ttl_sec} s, or use another name"
            )
        self._membership, self._weight = membership, weight

    async def renew(self, weight: float | None = None) -> bool:
        membership = self._membership
        if membership is None:
            return False
        kept = await self._keep_alive(membership.lease)
        if kept and weight is not None and weight != self._weight:
            kept = await self._put_again(membership, weight)
        if not kept:
            self._forget(membership)
        return kept

    async def members(self) -> Mapping[InstanceId, float]:
        membership = self._membership
        range_ = await self._read_range()
        self._last_read = range_.written()
        if membership is not None and range_.lease_of(membership.key) != membership.lease:
            # Someone deleted our key: without it the lease is worth nothing.
            self._forget(membership)
        names = ((kv.key.removeprefix(self._folder), _weight(kv.value)) for kv in range_.kvs)
        return {InstanceId(name.decode()): weight for name, weight in names if weight is not None}

    async def changed(self, timeout_sec: float) -> bool:
        try:
            async with asyncio.timeout(timeout_sec):
                return await self._wait_for_change()
        except TimeoutError:
            return False

    async def leave(self) -> None:
        self._membership = None
        if self._requested_lease:
            await self._revoke(self._requested_lease)
            self._requested_lease = 0

    async def close(self) -> None:
        await self._gateway.close()

    async def _wait_for_change(self) -> bool:
        while True:
            try:
                range_ = await self._read_range()
                if range_.written() != self._last_read:
                    return True
                async with asyncio.timeout(_REREAD_SEC):
                    await self._gateway.wait_for_change(self._folder, _end_of(self._folder), range_.header.revision + 1)
            except TimeoutError:
                continue
            except LeasesUnavailable:
                await self._clock.sleep(_RETRY_SEC)

    async def _read_range(self) -> "_Range":
        keys = {"key": self._folder, "range_end": _end_of(self._folder)}
        return await self._gateway.call("kv/range", keys, _Range)

    async def _grant(self, lease: int) -> None:
        try:
            await self._gateway.call("lease/grant", {"ID": str(lease), "TTL": str(self._ttl_sec)}, _Header)
        except EtcdRefused as refusal:
            if refusal.reason != FAILED_PRECONDITION:  # the lease exists, because the request arrived twice
                raise

    async def _keep_alive(self, lease: int) -> bool:
        return (await self._gateway.call("lease/keepalive", {"ID": str(lease)}, _KeepAlive)).result.TTL > 0

    async def _revoke(self, lease: int) -> None:
        try:
            await self._gateway.call("lease/revoke", {"ID": str(lease)}, _Header)
        except EtcdRefused as refusal:
            if refusal.reason != NOT_FOUND:
                raise

    async def _put_first(self, membership: _Membership, weight: float) -> bool:
        """Write our key. Returns False if another lease has the name. If the request arrived twice, the name is ours."""
        free = {"key": membership.key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        request = {
            "compare": [free],
            "success": [_put(membership, weight)],
            "failure": [{"request_range": {"key": membership.key}}],
        }
        answer = await self._gateway.call("kv/txn", request, _Transaction)
        return answer.succeeded or answer.found().lease_of(membership.key) == membership.lease

    async def _put_again(self, membership: _Membership, weight: float) -> bool:
        ours = {"key": membership.key, "target": "LEASE", "result": "EQUAL", "lease": str(membership.lease)}
        request = {"compare": [ours], "success": [_put(membership, weight)]}
        self._weight = None
        try:
            kept = (await self._gateway.call("kv/txn", request, _Transaction)).succeeded
        except EtcdRefused as refusal:
            if refusal.reason != NOT_FOUND:
                raise
            return False
        self._weight = weight
        return kept

    def _forget(self, membership: _Membership) -> None:
        if self._membership is membership:
            self._membership = None


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


class _LeaseTtl(msgspec.Struct):
    TTL: int = 0


class _KeepAlive(msgspec.Struct):
    result: _LeaseTtl


def _put(membership: _Membership, weight: float) -> Mapping[str, object]:
    value = msgspec.json.encode(_Member(weight))
    return {"request_put": {"key": membership.key, "value": value, "lease": str(membership.lease)}}


def _weight(value: bytes) -> float | None:
    """Return the weight in a key, or None if no member wrote it: such a key must not stop all members."""
    try:
        return msgspec.json.decode(value, type=_Member).weight
    except msgspec.DecodeError:
        return None


def _end_of(folder: bytes) -> bytes:
    """Return the first key after all keys in a folder."""
    return folder[:-1] + bytes([folder[-1] + 1])
