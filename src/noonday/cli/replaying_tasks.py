"""Search and replay of task calls: a first sample, then the rest with a rate limit and a failure limit."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from noonday.cli.replaying import LOOKED_AT, ReplayLimits, ReportProgress, has_failed
from noonday.model.errors import InvalidInput
from noonday.model.tasks.wire import TaskCallView
from noonday.model.url import read_url
from noonday.model.view import ExecutionView
from noonday.runtime.clock import SystemClock
from noonday.sdk.client import Client

PAGE = 500
EXAMPLES = 5
LOOK_SEC, PATIENCE_SEC = 0.2, 60.0
"""Interval and maximum duration, in seconds, of polling for the results of a sample."""
OPEN = ("PENDING", "RUNNING")


class CallReplayRequest(msgspec.Struct, frozen=True):
    """Filters and name of a replay of calls."""

    replay_id: str
    status: str | None
    """FAILED or COMPLETED; None selects all finished calls."""
    endpoint: str | None = None
    task_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class FoundCalls(msgspec.Struct):
    """Calls that a replay resends, oldest first."""

    ids: list[str] = []
    tasks: Counter[str] = msgspec.field(default_factory=Counter)
    endpoints: Counter[str] = msgspec.field(default_factory=Counter)
    dealt_with: int = 0
    """Number of excluded calls: they failed, and were resent or archived since."""
    oldest: list[TaskCallView] = []
    newest: TaskCallView | None = None

    def add(self, call: TaskCallView) -> None:
        """Add a call. Calls must be added from the newest to the oldest."""
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


class CallReplayProgress(msgspec.Struct):
    """Progress of a replay of calls."""

    resent: int = 0
    there_already: int = 0
    """Calls resent by an earlier replay with the same id."""
    failed: int = 0
    with_present_payload: int = 0
    not_sent: dict[str, str] = {}
    """Reason for each execution that could not be resent."""

    @property
    def asked_for(self) -> int:
        return self.resent + self.there_already + len(self.not_sent)

    def __str__(self) -> str:
        text = f"resent {self.resent}, of which {self.failed} failed so far"
        text += f"; {self.there_already} resent before" if self.there_already else ""
        text += (
            f"; {self.with_present_payload} with the present request of their task" if self.with_present_payload else ""
        )
        return text + (f"; {len(self.not_sent)} could not be resent" if self.not_sent else "")

    def members(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


async def find_calls(client: Client, wanted: CallReplayRequest) -> FoundCalls:
    found = FoundCalls()
    async for call in _calls(client, wanted):
        found.add(call)
    found.ids.reverse()
    return found


async def _calls(client: Client, wanted: CallReplayRequest) -> AsyncIterator[TaskCallView]:
    cursor, filters = None, msgspec.structs.asdict(wanted)
    del filters["replay_id"]
    while True:
        page = await client.tasks.find_executions(**filters, cursor=cursor, limit=PAGE)
        for call in page.executions:
            yield call
        cursor = page.next
        if cursor is None:
            return


class CallReplay:
    """Resends calls through the API, each once per replay id."""

    def __init__(self, client: Client, replay_id: str, rate: float, most_failures: int) -> None:
        self._client = client
        self._replay_id = replay_id
        self.made = CallReplayProgress()
        self._clock = SystemClock()
        self.limits = ReplayLimits(
            self.made,
            client.get_execution,
            rate=rate,
            most_failures=most_failures,
            remaining="Resent calls",
            clock=self._clock,
        )

    async def try_out(self, ids: Sequence[str]) -> list[ExecutionView]:
        """Resend some calls, and wait up to a minute for their results. Returns the new executions."""
        new = await self._send(ids)
        until = self._clock.monotonic() + PATIENCE_SEC
        while True:
            seen = await asyncio.gather(*map(self._client.get_execution, new))
            if all(_is_known(one) for one in seen) or self._clock.monotonic() > until:
                break
            await self._clock.sleep(LOOK_SEC)
        await self.limits.look(-(-len(new) // LOOKED_AT))
        return seen

    async def run(self, ids: Sequence[str], progress: ReportProgress) -> CallReplayProgress:
        """Resend the calls. Raises Conflict if too many fail."""
        self.limits.begin()
        for first in range(0, len(ids), self.limits.batch_size):
            await self._send(ids[first : first + self.limits.batch_size])
            await self.limits.after_batch(progress)
        await self.limits.look()
        return self.made

    async def _send(self, ids: Sequence[str]) -> list[str]:
        """Resend calls. Returns the new executions, without those of calls that were resent before."""
        new = []
        for result in (await self._client.tasks.resend_many(ids, replay_id=self._replay_id)).results:
            if result.resent_as is None:
                self.made.not_sent[result.id] = result.problem or ""
            elif result.there_already:
                self.made.there_already += 1
            else:
                self.made.resent += 1
                self.made.with_present_payload += result.with_present_payload
                self.limits.watch(result.resent_as)
                new.append(result.resent_as)
        return new


def _is_known(execution: ExecutionView) -> bool:
    return execution.state not in OPEN or has_failed(execution)


def _endpoint_of(url: str | None) -> str:
    try:
        return str(read_url(url or ""))
    except InvalidInput:
        return "unknown"
