"""Those who call the API, in a process of their own: raw HTTP/1.1 over kept connections, as cheap as a client can be."""

import asyncio
import time
from urllib.parse import urlsplit

import msgspec

from bench import BenchFailed
from bench.creation import AHEAD_MS
from bench.figures import Lateness, lateness
from bench.machine import own_cpu_sec
from bench.measure import TELL_EVERY_SEC, Tell
from noonday.model.job import text_of
from noonday.runtime.clock import SystemClock

_LONGEST_ANSWER = 64 * 1024 * 1024


class Calls(msgspec.Struct, frozen=True, tag="calls"):
    """So many calls in all, by callers that each wait for their answer before they call again."""

    url: str
    token: str
    pool: str
    handler: str
    calls: int
    callers: int
    batch: int = 0
    """Jobs in a call to /v1/jobs/batch; 0: one job a call to /v1/jobs."""


class Called(msgspec.Struct, frozen=True):
    jobs: int
    """Acknowledged."""
    took_sec: float
    call_ms: Lateness
    cpu: float
    """What share of a core the callers used."""


async def call_all(calls: Calls, tell: Tell) -> Called:
    """Raises BenchFailed if a call is refused."""
    request, recorders = _request(calls), _Crew(calls.calls)
    place = urlsplit(calls.url)
    connections = [
        await asyncio.open_connection(place.hostname, place.port, limit=_LONGEST_ANSWER) for _ in range(calls.callers)
    ]
    cpu_before, begun = own_cpu_sec(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        telling = group.create_task(_tell(recorders, calls.calls, tell))
        async with asyncio.TaskGroup() as callers:
            for reader, writer in connections:
                callers.create_task(recorders.call(reader, writer, request))
        took, cpu = time.perf_counter() - begun, own_cpu_sec() - cpu_before
        telling.cancel()
    for _, writer in connections:
        writer.close()
    return Called(recorders.acknowledged, took, lateness(recorders.took_ms), round(cpu / took, 2))


def _request(calls: Calls) -> bytes:
    due = text_of(SystemClock().now_ms() + AHEAD_MS)
    job = {"type": "ONE_TIME", "runAt": due, "target": {"pool": calls.pool, "handler": calls.handler}}
    body = msgspec.json.encode({"jobs": [job] * calls.batch} if calls.batch else job)
    head = (
        f"POST /v1/jobs{'/batch' if calls.batch else ''} HTTP/1.1\r\n"
        f"Host: {urlsplit(calls.url).netloc}\r\n"
        f"Authorization: Bearer {calls.token}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Crew:
    """Callers that share the calls to be made."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self.acknowledged = 0
        self.took_ms: list[float] = []

    async def call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
        while self._left > 0:
            self._left -= 1
            begun = time.perf_counter()
            writer.write(request)
            await writer.drain()
            answer = await _answer(reader)
            self.took_ms.append((time.perf_counter() - begun) * 1000)
            # Problems, in the places of jobs that were not stored, have no job id.
            self.acknowledged += answer.count(b'"jobId"')


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, found, rest = head.partition(b"content-length:")
    if not found:
        raise BenchFailed("the server's answer does not say how long it is")
    body = await reader.readexactly(int(rest.partition(b"\r\n")[0]))
    if head[9:10] != b"2":
        raise BenchFailed(f"the server refused a call: {head[9:12].decode()} {body[:300].decode(errors='replace')}")
    return body


async def _tell(recorders: _Crew, calls: int, tell: Tell) -> None:
    while True:
        tell("calling", len(recorders.took_ms), calls)
        await asyncio.sleep(TELL_EVERY_SEC)
