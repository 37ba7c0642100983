"""An engine with a manual clock that calls a counting receiver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from noonday.model.endpoint import endpoint_id
from noonday.model.endpoint_view import EndpointView
from noonday.model.tasks.wire import Method, TaskPayload, TaskRetry, TaskSpec, TaskType, TaskView
from noonday.tasks.endpoints import EndpointService
from noonday.testing import ManualClock, Testing
from noonday.wiring.application import Noonday
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_queries import OWNER
from noonday.wiring.settings.loading import load_settings

TURNS = 200
"""How long a call takes, in turns of the loop."""


class Counting:
    """Answers with a status, and notes the number of concurrent calls and the time of each."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.status = 200
        self.came_ms: list[int] = []
        self.most = 0
        self._here = 0

    async def __aenter__(self) -> "Counting":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.id = endpoint_id(self.endpoint)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self._here += 1
            self.most = max(self.most, self._here)
            self.came_ms.append(self._clock.now_ms())
            for _ in range(TURNS):
                await asyncio.sleep(0)
            self._here -= 1
            writer.write(f"HTTP/1.1 {self.status} -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        finally:
            writer.close()
            await writer.wait_closed()


class Calls:
    def __init__(self, embedded: Embedded, clock: ManualClock, receiver: Counting) -> None:
        self.engine = embedded.engine
        self.store = embedded.store
        self.receiver = receiver
        self.testing = Testing(Noonday(), embedded, clock)
        self.clock = clock

    @property
    def endpoints(self) -> EndpointService:
        return self.engine.tasks.endpoints

    async def once(self, count: int = 1) -> list[TaskView]:
        """Create tasks that are due now, without a body: GET."""
        return [await self._create(type=TaskType.ONE_TIME, scheduled_at=self.testing.now) for _ in range(count)]

    async def every(self, interval: str, attempts: int = 1) -> TaskView:
        return await self._create(
            type=TaskType.RECURRING, interval=f"every {interval}", retry=TaskRetry(max_attempts=attempts)
        )

    async def advance(self, step: timedelta, to: timedelta) -> None:
        """Advance the clock in steps, with a round of the endpoint disabler at each."""
        passed = timedelta()
        while passed < to:
            await self.testing.advance(step)
            await self.look_after()
            passed += step

    async def look_after(self) -> int:
        return await self.engine.loops["endpoint-disabler"].service.run_once(self.clock.now_ms())

    async def status_of(self, task: TaskView) -> str:
        return (await self.engine.tasks.get(OWNER, task.id)).status

    async def endpoint(self) -> EndpointView:
        return await self.endpoints.get(OWNER, self.receiver.id)

    async def _create(self, **fields: object) -> TaskView:
        payload = TaskPayload(webhook_url=f"{self.receiver.endpoint}/x", method=Method.GET)
        return await self.engine.tasks.create(OWNER, TaskSpec(payload=payload, **fields))  # type: ignore[arg-type]


@asynccontextmanager
async def calls_to_a_receiver() -> AsyncIterator[Calls]:
    clock = ManualClock()
    flags = {"data": ":memory:", "webhooks_allow_networks": "127.0.0.0/8", "scheduler_lead_ms": "0"}
    async with Counting(clock) as receiver:
        embedded = await Embedded.open(load_settings(flags, {}, None), {}, clock=clock, run=False)
        try:
            yield Calls(embedded, clock, receiver)
        finally:
            await embedded.abandon()
