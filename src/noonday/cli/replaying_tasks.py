"""Finds calls of tasks, and has them made once more: a first sample, then the rest at a rate, and with a brake."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from noonday.cli.braking import LOOKED_AT, Brake, Pace, has_failed
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.view import ExecutionView
from noonday.runtime.clock import SystemClock
from noonday.sdk.client import Client
from noonday.tasks.wire import TaskCallView
from noonday.webhooks.urls import read_url

PAGE = 500
EXAMPLES = 5
LOOK_SEC, PATIENCE_SEC = 0.2, 60.0
"""How often it is looked what became of a sample, and for how long."""
OPEN = ("PENDING", "RUNNING")


class WantedCalls(msgspec.Struct, frozen=True):
    """Which calls are to be made once more, and under which name."""

    replay_id: str
    status: str | None
    """FAILED or COMPLETED; None: all that ended."""
    endpoint: str | None = None
    task_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class FoundCalls(msgspec.Struct):
    """What a replay would send again, oldest first."""

    ids: list[str] = []
    tasks: Counter[str] = msgspec.field(default_factory=Counter)
    endpoints: Counter[str] = msgspec.field(default_factory=Counter)
    dealt_with: int = 0
    """They failed, and were sent again or archived since: left alone."""
    oldest: list[TaskCallView] = []
    newest: TaskCallView | None = None

    def add(self, call: TaskCallView) -> None:
        """The next older one."""
        if call.status in OPEN:
            return
        if call.resolved_by is not None:
            self.dealt_with += 1
            return
        self.ids.append(call.id)
        self.tasks[call.task_name or call.task_id] += 1
        self.endpoints[_endpoint_of(call.webhook_url)] += 1
        self.newest = self.newest or call
        self.oldest = [call, *self.oldest[: EXAMPLES - 1]]

    def members(self) -> dict[str, Any]:
        return {
            "calls": len(self.ids),
            "dealt_with": self.dealt_with,
            "tasks": dict(self.tasks.most_common()),
            "endpoints": dict(self.endpoints.most_common()),
            "first": self.oldest[0].scheduled_at if self.oldest else None,
            "last": self.newest.scheduled_at if self.newest else None,
            "examples": self.oldest,
        }


class SentAgain(msgspec.Struct):
    """How far a replay has come."""

    resent: int = 0
    there_already: int = 0
    """Sent by an earlier replay of the same id."""
    failed: int = 0
    with_present_payload: int = 0
    not_sent: dict[str, str] = {}
    """By execution, why."""

    @property
    def asked_for(self) -> int:
        return self.resent + self.there_already + len(self.not_sent)

    def __str__(self) -> str:
        said = f"sent {self.resent} again, of which {self.failed} were seen to fail"
        said += f"; {self.there_already} had been sent before" if self.there_already else ""
        said += f"; {self.with_present_payload} as their tasks are now" if self.with_present_payload else ""
        return said + (f"; {len(self.not_sent)} could not be sent" if self.not_sent else "")

    def members(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


async def find_calls(client: Client, wanted: WantedCalls) -> FoundCalls:
    found = FoundCalls()
    async for call in _calls(client, wanted):
        found.add(call)
    found.ids.reverse()
    return found


async def _calls(client: Client, wanted: WantedCalls) -> AsyncIterator[TaskCallView]:
    cursor = None
    while True:
        page = await client.tasks.find_executions(
            status=wanted.status,
            endpoint=wanted.endpoint,
            task_id=wanted.task_id,
            since=wanted.since,
            until=wanted.until,
            cursor=cursor,
            limit=PAGE,
        )
        for call in page.executions:
            yield call
        cursor = page.next
        if cursor is None:
            return


class CallReplay:
    """Has calls made once more through the API. Each is sent again once under one id, however often it is asked for."""

    def __init__(self, client: Client, replay_id: str, rate: float, most_failures: int) -> None:
        self._client = client
        self._replay_id = replay_id
        self._rate = rate
        self._brake = Brake(client.get_execution, most_failures)
        self._clock = SystemClock()
        self.made = SentAgain()

    async def try_out(self, ids: Sequence[str]) -> list[ExecutionView]:
        """Send some again, and wait until it is known what became of them; of some it may not be after a minute."""
        new = await self._send(ids)
        until = self._clock.monotonic() + PATIENCE_SEC
        while True:
            seen = await asyncio.gather(*map(self._client.get_execution, new))
            if all(_is_known(one) for one in seen) or self._clock.monotonic() > until:
                break
            await self._clock.sleep(LOOK_SEC)
        for _ in range(0, len(new), LOOKED_AT):
            await self._brake.look()
        self.made.failed = self._brake.failed
        return seen

    def refuse_if_stopped(self) -> None:
        """Raises Conflict if more have failed than may."""
        if self._brake.is_on:
            detail = f"stopped: {self.made}. What was sent stays; the same replay goes on with the rest"
            raise Conflict(detail, **self.made.members())

    async def run(self, ids: Sequence[str], progress: Callable[[int, int], object]) -> SentAgain:
        """Raises Conflict if it was stopped by its brake."""
        pace, before = Pace(self._rate, self._clock), self.made.asked_for
        for first in range(0, len(ids), pace.batch_size):
            await self._send(ids[first : first + pace.batch_size])
            if self._brake.is_due(self._clock.monotonic()):
                await self._brake.look()
            self.made.failed = self._brake.failed
            progress(self.made.asked_for, self.made.failed)
            self.refuse_if_stopped()
            await pace.keep(self.made.asked_for - before)
        await self._brake.look()
        self.made.failed = self._brake.failed
        return self.made

    async def _send(self, ids: Sequence[str]) -> list[str]:
        """The new executions of those that were not sent before."""
        new = []
        for result in (await self._client.tasks.resend_many(ids, replay_id=self._replay_id)).results:
            if result.resent_as is None:
                self.made.not_sent[result.id] = result.problem or ""
            elif result.there_already:
                self.made.there_already += 1
            else:
                self.made.resent += 1
                self.made.with_present_payload += result.with_present_payload
                self._brake.watch(result.resent_as)
                new.append(result.resent_as)
        return new


def _is_known(execution: ExecutionView) -> bool:
    return execution.state not in OPEN or has_failed(execution)


def _endpoint_of(url: str | None) -> str:
    try:
        return str(read_url(url or ""))
    except InvalidInput:
        return "unknown"
