"""Leases in Redis, for those who have no etcd: a hash of members with their ends, by Redis' own clock."""

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
_LOOK_AGAIN_SEC = 2.0
"""A subscription may be deaf without knowing it: the server is frozen, or cut off."""
_PAUSE_SEC = 0.2


@dataclass(frozen=True)
class _Held:
    instance: InstanceId
    lease: str


class RedisLeases(Leases):
    """One object is one instance in one group, such as the schedulers. `close` it when it is no longer used; the client is
    the caller's to close.

    Redis forgets: a flush or a failover may end every lease at once. Then all join again, and the store's epochs see to it
    that nothing is fired twice.
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
        self._news: PubSub | None = None
        self._held: _Held | None = None
        self._asked_for: _Held | None = None
        """What Redis may have given us, whether it could say so or not."""
        self._read: Mapping[InstanceId, tuple[str, float]] | None = None
        """What `members` saw last."""

    @property
    def ttl_sec(self) -> float:
        return self._ttl_sec

    async def join(self, instance: InstanceId, weight: float) -> None:
        await self.leave()
        held = self._asked_for = _Held(instance, secrets.token_hex(8))
        if not await self._run("join", instance, held.lease, repr(weight), self._ttl_ms()):
            self._asked_for = None
            raise AlreadyRunning(
                f"{instance} is already a member of {self._group}: stop it, wait {self._ttl_sec:g} s, or take another name"
            )
        self._held = held

    async def renew(self, weight: float | None = None) -> bool:
        held = self._held
        if held is None:
            return False
        said = "" if weight is None else repr(weight)
        kept = bool(await self._run("renew", held.instance, held.lease, said, self._ttl_ms()))
        if not kept and self._held is held:
            self._held = None
        return kept

    async def members(self) -> Mapping[InstanceId, float]:
        seen = await self._look()
        self._read = _identities(seen)
        return {instance: member.weight for instance, member in seen.items()}

    async def changed(self, timeout_sec: float) -> bool:
        try:
            async with asyncio.timeout(timeout_sec):
                return await self._change()
        except TimeoutError:
            return False

    async def leave(self) -> None:
        self._held = None
        if self._asked_for is not None:
            await self._run("leave", self._asked_for.instance, self._asked_for.lease)
            self._asked_for = None

    async def close(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            await news.aclose()  # type: ignore[no-untyped-call]

    async def _change(self) -> bool:
        while True:
            try:
                news = await self._subscribed()
                seen = await self._look()
                if _identities(seen) != self._read:
                    return True
                first_end_sec = min((member.remains_ms / 1000 for member in seen.values()), default=_LOOK_AGAIN_SEC)
                await self._listen(news, min(_LOOK_AGAIN_SEC, first_end_sec))
            except (RedisError, OSError, LeasesUnavailable):
                await self.close()
                await self._clock.sleep(_PAUSE_SEC)

    async def _subscribed(self) -> PubSub:
        """Only what is told after this is heard, so it comes before the look."""
        if self._news is not None:
            return self._news
        news = self._client.pubsub()
        try:
            async with asyncio.timeout(self._timeout_sec):
                await _heeding_cancellation(news.subscribe(self._key))
                await _heeding_cancellation(news.get_message(timeout=self._timeout_sec))
            self._news = news
        finally:
            if self._news is not news:
                await news.aclose()  # type: ignore[no-untyped-call]
        return news

    async def _listen(self, news: PubSub, seconds: float) -> None:
        async with asyncio.timeout(seconds + self._timeout_sec):
            await _heeding_cancellation(news.get_message(timeout=seconds))

    async def _look(self) -> "dict[InstanceId, _Member]":
        return msgspec.json.decode(await self._run("members"), type=dict[InstanceId, _Member], strict=False)

    async def _run(self, verb: str, *arguments: str | int) -> Any:
        try:
            async with asyncio.timeout(self._timeout_sec):
                return await _heeding_cancellation(self._script([self._key], [verb, *arguments]))
        except TimeoutError:
            raise LeasesUnavailable(f"Redis gave no answer within {self._timeout_sec:g} s") from None
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


async def _heeding_cancellation(work: Awaitable[T]) -> T:
    """redis-py may send by `asyncio.wait_for`, which up to Python 3.11 loses a cancellation that comes when it is done."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    result = await work
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return result
