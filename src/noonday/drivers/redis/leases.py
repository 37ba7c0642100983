"""Leases in Redis, for installations without etcd: a hash of members and when their leases lapse, by the clock of Redis."""

import asyncio
import secrets
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from noonday.model.errors import AlreadyRunning, LeasesUnavailable
from noonday.model.ids import InstanceId
from noonday.ports.clock import Clock
from noonday.ports.leases import Leases
from noonday.runtime.clock import SystemClock

T = TypeVar("T")

_SCRIPT = (Path(__file__).parent / "lua" / "leases.lua").read_text()
_REREAD_SEC = 2.0
"""Seconds until the members are read again without a message: the server may be frozen or cut off."""
_RETRY_SEC = 0.2


@dataclass(frozen=True)
class _Membership:
    instance: InstanceId
    lease: str


class RedisLeases(Leases):
    """Leases in Redis. One object is one instance in one group, such as the schedulers.

    `close` it when it is no longer used; the caller closes the client. A flush or a failover of Redis may end every lease at
    once. Then all instances join again, and the epochs in the store ensure that nothing is fired twice.
    """

    def __init__(
        self,
        client: Redis,
        group: str,
        prefix: str = "noonday",
        ttl_sec: float = 3.0,
        timeout_sec: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._group = group
        self._key = f"{prefix}:{{leases:{group}}}"
        self._ttl_sec = ttl_sec
        self._timeout_sec = timeout_sec
        self._clock = clock or SystemClock()
        self._script = client.register_script(_SCRIPT)
        self._subscription: PubSub | None = None
        self._membership: _Membership | None = None
        self._requested: _Membership | None = None
        """The membership that Redis may have granted, whether or not its answer arrived."""
        self._last_read: Mapping[InstanceId, tuple[str, float]] | None = None
        """The lease and weight of each member, as `members` last read them."""

    @property
    def ttl_sec(self) -> float:
        return self._ttl_sec

    async def join(self, instance: InstanceId, weight: float) -> None:
        await self.leave()
        requested = self._requested = _Membership(instance, secrets.token_hex(8))
        if not await self._run("join", instance, requested.lease, repr(weight), self._ttl_ms()):
            self._requested = None
            raise AlreadyRunning(
                f"{instance} is already a member of {self._group}: stop it, wait {self._ttl_sec:g} s, or use another name"
            )
        self._membership = requested

    async def renew(self, weight: float | None = None) -> bool:
        membership = self._membership
        if membership is None:
            return False
        new_weight = "" if weight is None else repr(weight)
        kept = bool(await self._run("renew", membership.instance, membership.lease, new_weight, self._ttl_ms()))
        if not kept and self._membership is membership:
            self._membership = None
        return kept

    async def members(self) -> Mapping[InstanceId, float]:
        members = await self._read_members()
        self._last_read = _identities(members)
        return {instance: member.weight for instance, member in members.items()}

    async def changed(self, timeout_sec: float) -> bool:
        try:
            async with asyncio.timeout(timeout_sec):
                return await self._wait_for_change()
        except TimeoutError:
            return False

    async def leave(self) -> None:
        self._membership = None
        if self._requested is not None:
            await self._run("leave", self._requested.instance, self._requested.lease)
            self._requested = None

    async def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.aclose()  # type: ignore[no-untyped-call]

    async def _wait_for_change(self) -> bool:
        while True:
            try:
                subscription = await self._subscribe()
                members = await self._read_members()
                if _identities(members) != self._last_read:
                    return True
                first_lapse_sec = min((member.remains_ms / 1000 for member in members.values()), default=_REREAD_SEC)
                await self._wait_for_message(subscription, min(_REREAD_SEC, first_lapse_sec))
            except (RedisError, OSError, LeasesUnavailable):
                await self.close()
                await self._clock.sleep(_RETRY_SEC)

    async def _subscribe(self) -> PubSub:
        """Return a subscription. Earlier changes are not delivered, so subscribe before the members are read."""
        if self._subscription is not None:
            return self._subscription
        subscription = self._client.pubsub()
        try:
            async with asyncio.timeout(self._timeout_sec):
                await _keep_cancellation(subscription.subscribe(self._key))
                await _keep_cancellation(subscription.get_message(timeout=self._timeout_sec))
            self._subscription = subscription
        finally:
            if self._subscription is not subscription:
                await subscription.aclose()  # type: ignore[no-untyped-call]
        return subscription

    async def _wait_for_message(self, subscription: PubSub, seconds: float) -> None:
        async with asyncio.timeout(seconds + self._timeout_sec):
            await _keep_cancellation(subscription.get_message(timeout=seconds))

    async def _read_members(self) -> "dict[InstanceId, _Member]":
        return msgspec.json.decode(await self._run("members"), type=dict[InstanceId, _Member], strict=False)

    async def _run(self, verb: str, *arguments: str | int) -> Any:
        try:
            async with asyncio.timeout(self._timeout_sec):
                return await _keep_cancellation(self._script([self._key], [verb, *arguments]))
        except TimeoutError:
            raise LeasesUnavailable(f"Redis: no answer within {self._timeout_sec:g} s") from None
        except (RedisError, OSError) as error:
            raise LeasesUnavailable(f"Redis: {error}") from error

    def _ttl_ms(self) -> int:
        return round(self._ttl_sec * 1000)


class _Member(msgspec.Struct, array_like=True):
    lease: str
    weight: float
    remains_ms: float


def _identities(members: Mapping[InstanceId, _Member]) -> dict[InstanceId, tuple[str, float]]:
    return {instance: (member.lease, member.weight) for instance, member in members.items()}


async def _keep_cancellation(work: Awaitable[T]) -> T:
    """Await, and raise a cancellation that redis-py lost.

    It may send with `asyncio.wait_for`, which up to Python 3.11 loses a cancellation that comes when it is done.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    result = await work
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return result
