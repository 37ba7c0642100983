"""Traces reach a real OTLP receiver, and lead from the creation to the run."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from noonday import Context, Noonday
from noonday.model.caller import Caller
from noonday.model.ids import TenantId
from noonday.wiring.embedded import Embedded
from noonday.wiring.settings import load_settings

USER = Caller(TenantId("default"), "user", frozenset({"admin"}))


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

    server = web.Application()
    server.router.add_post("/v1/traces", receiver.take)
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    flags = {"data": str(tmp_path / "n.db"), "telemetry.otlp_endpoint": f"http://127.0.0.1:{port}"}
    embedded = await Embedded.open(load_settings(flags, {}, None), app.handlers)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    job = await embedded.engine.desk.create(USER, app.spec_for("note"), traceparent=parent)
    async with asyncio.timeout(30):
        while not seen:
            await asyncio.sleep(0.01)
        await embedded.close()
        await asyncio.to_thread(embedded.engine.tracing.flush)
        while len(receiver.spans) < 3:
            await asyncio.sleep(0.01)
    await runner.cleanup()

    create, dispatch, process = (receiver.spans[name] for name in ("create", "dispatch", "process"))
    assert create.trace_id.hex() == parent.split("-")[1]
    assert process.parent_span_id == dispatch.span_id
    assert process.trace_id == dispatch.trace_id
    for span in (dispatch, process):
        assert [link.span_id for link in span.links] == [create.span_id]
    assert seen[0].split("-")[1:3] == [dispatch.trace_id.hex(), dispatch.span_id.hex()]
    assert {a.key: a.value.string_value for a in process.attributes}["noonday.job.id"] == job.job_id
