"""Traces reach a real OTLP receiver, and lead from the creation to the run."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from noonday import Context, Noonday
from noonday.crypto.tokens import mint
from noonday.model.caller import Caller
from noonday.model.ids import TenantId
from noonday.wiring.embedded import Embedded
from noonday.wiring.settings.loading import load_settings
from tests.cli.serving import Up
from tests.support.eventually import eventually
from tests.webhooks import receiver as webhooks

SECRET = "a secret of this test, which nobody else has"
USER = Caller(TenantId("default"), "user", frozenset({"operator"}))


class Receiver:
    """Keeps the spans it is sent, by the first word of their name."""

    def __init__(self) -> None:
        self.spans: dict[str, object] = {}

    async def take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for resource in sent.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans[span.name.split()[0]] = span
        return web.Response()


@pytest.mark.slow
async def test_a_trace_leads_from_the_creation_to_the_run(tmp_path: Path) -> None:
    receiver, app, seen = Receiver(), Noonday(), []

    @app.handler("note", pool="p")
    async def note(ctx: Context) -> None:
        seen.append(ctx.traceparent)

    async with serving(receiver) as port:
        flags = {"data": str(tmp_path / "n.db"), "telemetry.otlp_endpoint": f"http://127.0.0.1:{port}"}
        embedded = await Embedded.open(load_settings(flags, {}, None), app.handlers)
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        job = await embedded.engine.services.jobs.create(USER, app.spec_for("note"), traceparent=parent)
        await eventually(lambda: seen, within_sec=30)
        await embedded.close()
        await asyncio.to_thread(embedded.engine.tracing.flush)
        await eventually(lambda: len(receiver.spans) >= 3, within_sec=30)

    create, dispatch, process = (receiver.spans[name] for name in ("create", "dispatch", "process"))
    assert create.trace_id.hex() == parent.split("-")[1]
    assert process.parent_span_id == dispatch.span_id
    assert process.trace_id == dispatch.trace_id
    for span in (dispatch, process):
        assert [link.span_id for link in span.links] == [create.span_id]
    assert seen[0].split("-")[1:3] == [dispatch.trace_id.hex(), dispatch.span_id.hex()]
    assert {a.key: a.value.string_value for a in process.attributes}["noonday.job.id"] == job.job_id


@pytest.mark.slow
async def test_trace_leads_from_the_request_to_the_called_endpoint(tmp_path: Path) -> None:
    spans, parent = Receiver(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with serving(spans) as port, webhooks.Receiver() as called:
        environ = {
            "NOONDAY_TELEMETRY_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "NOONDAY_WEBHOOKS_ALLOW_NETWORKS": "127.0.0.0/8",
            "NOONDAY_AUTH_SECRET": SECRET,
        }
        up = await asyncio.to_thread(partial(Up, tmp_path, "--port", "0", environ=environ))
        with up:
            await create_task(up.url, called.url("/status/200"), parent)
            await eventually(lambda: called.heads, within_sec=30)
            await asyncio.to_thread(up.end, signal.SIGTERM)
        await eventually(lambda: {"create", "dispatch", "process", "settle"} <= set(spans.spans), within_sec=30)

    create, dispatch, process, settle = (spans.spans[name] for name in ("create", "dispatch", "process", "settle"))
    assert (create.trace_id.hex(), create.parent_span_id.hex()) == tuple(parent.split("-")[1:3])
    assert [link.span_id for link in process.links] == [create.span_id]
    assert process.parent_span_id == dispatch.span_id
    assert settle.parent_span_id == process.span_id
    # The called endpoint continues the trace below the run.
    assert called.header("traceparent").split("-")[1:3] == [process.trace_id.hex(), process.span_id.hex()]
    assert called.header("webhook-id").replace("-", "") == process.trace_id.hex()
    about = {a.key: a.value.string_value or a.value.int_value for a in process.attributes}
    assert (about["http.request.method"], about["http.response.status_code"]) == ("POST", 200)


async def create_task(url: str, webhook: str, traceparent: str) -> None:
    token = mint(SECRET, tenant="default", subject="t", scopes=["write"], ttl_seconds=86_400, now=time.time())
    at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    body = {"type": "ONE_TIME", "scheduled_at": at, "payload": {"webhook_url": webhook}}
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "one", "traceparent": traceparent}
    async with ClientSession() as session, session.post(f"{url}/v1/tasks", json=body, headers=headers) as answer:
        assert answer.status == 201, await answer.text()


@asynccontextmanager
async def serving(receiver: Receiver) -> AsyncIterator[int]:
    """Start a receiver. Yields its port."""
    server = web.Application()
    server.router.add_post("/v1/traces", receiver.take)
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
