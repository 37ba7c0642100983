"""The spans that a cluster sends to an OTLP receiver: each process sends its own, and together they are one trace."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from noonday.crypto.tokens import mint
from noonday.model.execution import Outcome
from noonday.model.ids import JobId, execution_id
from noonday.runtime.tracing import Tracing
from noonday.wiring.settings.loading import load_settings
from noonday.wiring.telemetry import tracing_of
from tests.scenarios.cluster.cluster import Cluster, Job, Servers, cluster_on
from tests.scenarios.process import SECRET, job_body, until
from tests.scenarios.server_run import now_ms
from tests.support.factories import NOW_MS, dispatch

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
CALLER, CALLING = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{CALLER}-{CALLING}-01"
ERROR = 2
SAMPLED = 1


@dataclass(frozen=True)
class Span:
    """A span as it was sent, with the process that sent it."""

    name: str
    trace: str
    id: str
    parent: str
    links: list[tuple[str, str]]
    about: dict[str, Any]
    events: str
    status: int
    why: str
    pid: int
    start: int
    end: int


@dataclass
class Receiver:
    """Takes OTLP over HTTP, and keeps what it is sent."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        for resource in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            pid = _values(resource.resource.attributes)["process.pid"]
            self.spans += [_span(span, pid) for scope in resource.scope_spans for span in scope.spans]
        return web.Response()

    def of(self, trace: str, operation: str = "") -> list[Span]:
        found = [span for span in self.spans if span.trace == trace and span.name.startswith(operation)]
        return sorted(found, key=lambda span: span.start)

    async def have(self, trace: str, **wanted: int) -> None:
        """Wait until a trace has so many spans of each operation: `process=2`."""
        await until(lambda: all(len(self.of(trace, operation)) >= count for operation, count in wanted.items()))


@pytest.fixture(scope="module")
def promptly() -> Iterator[pytest.MonkeyPatch]:
    """Send spans at once, instead of every five seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield patch


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def receiver() -> AsyncIterator[Receiver]:
    receiver, server = Receiver(), web.Application()
    server.router.add_post("/v1/traces", receiver.take)
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield receiver
    await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path, receiver: Receiver, promptly: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    async with cluster_on(folder, Servers.shared(), telemetry_otlp_endpoint=receiver.url) as cluster:
        await cluster.have(api=1, scheduler=1, recorder=1, worker=1)
        yield cluster


async def test_one_trace_leads_through_all_four_roles(cluster: Cluster, receiver: Receiver) -> None:
    job = await _create(cluster, job_body("act"))
    execution = await _succeeded(cluster, job)
    await receiver.have(CALLER, create=1)
    await receiver.have(execution["traceId"], dispatch=1, process=1, settle=1)

    (create,) = receiver.of(CALLER)
    sent, run, settle = receiver.of(execution["traceId"])
    assert [span.name for span in (create, sent, run, settle)] == [
        "create jobs",
        "dispatch p",
        "process act",
        "settle p",
    ]
    assert [create.parent, sent.parent, run.parent, settle.parent] == [CALLING, "", sent.id, run.id]
    assert sent.links == run.links == [(CALLER, create.id)]
    makers = [cluster.one(kind).pid for kind in ("api", "scheduler", "worker", "recorder")]
    assert [create.pid, sent.pid, run.pid, settle.pid] == makers
    assert [span.about["noonday.job.id"] for span in (create, sent, run, settle)] == [job["jobId"]] * 4


async def test_every_attempt_of_an_execution_is_in_its_trace(cluster: Cluster, receiver: Receiver) -> None:
    job = await _create(cluster, job_body("act", {"failures": 2}))
    trace = (await _succeeded(cluster, job))["traceId"]
    await receiver.have(trace, dispatch=3, process=3, settle=3)

    sent, runs, settled = (receiver.of(trace, operation) for operation in ("dispatch", "process", "settle"))
    assert [span.about["noonday.attempt"] for span in runs] == [1, 2, 3]
    assert [span.parent for span in runs] == [span.id for span in sent]
    assert [span.parent for span in settled] == [span.id for span in runs]
    assert [span.status == ERROR for span in runs] == [True, True, False]
    assert [span.about.get("error.type") for span in runs] == ["ValueError", "ValueError", None]
    assert [span.about["noonday.outcome"] for span in settled] == ["FAILED", "FAILED", "SUCCEEDED"]


async def test_a_creation_lasts_until_the_job_is_stored(cluster: Cluster, receiver: Receiver) -> None:
    async with _jobs_locked(cluster) as until_somebody_waits:
        creating = asyncio.create_task(_create(cluster, job_body("act"), f"00-{CALLER[::-1]}-{CALLING}-01"))
        await until_somebody_waits
        not_stored_at = time.time_ns()
    await creating

    await receiver.have(CALLER[::-1], create=1)
    assert receiver.of(CALLER[::-1])[0].end > not_stored_at


@asynccontextmanager
async def _jobs_locked(cluster: Cluster) -> AsyncIterator[Awaitable[None]]:
    """Block the storage of jobs. A dispatch waits until a request tries to store one."""
    session = await asyncpg.connect(cluster.servers.postgres)
    jobs = f"{cluster.store.schema}.jobs"
    waiting = f"SELECT 1 FROM pg_locks WHERE NOT granted AND relation = '{jobs}'::regclass"
    try:
        async with session.transaction():
            await session.execute(f"LOCK TABLE {jobs} IN SHARE ROW EXCLUSIVE MODE")
            yield until(lambda: session.fetch(waiting))
    finally:
        await session.close()


async def test_stopping_process_sends_its_remaining_spans(
    cluster: Cluster, receiver: Receiver, promptly: pytest.MonkeyPatch
) -> None:
    with promptly.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
        leaving = cluster.work("processes")
    await cluster.ready(leaving)
    await cluster.known(leaving)
    job = await _create(cluster, job_body("mule", {"sec": 0}, pool="processes"))
    trace = (await _succeeded(cluster, job))["traceId"]
    assert not receiver.of(trace, "process")

    leaving.stop()
    assert await leaving.exit_code() == 0, leaving.output

    await receiver.have(trace, process=1)


async def test_dispatch_of_an_untraced_scheduler_is_in_the_trace_of_its_execution(receiver: Receiver) -> None:
    untraced = dispatch(trace=TRACEPARENT)

    async with _tracing(receiver) as tracing:
        tracing.end(tracing.begin(untraced), Outcome.SUCCEEDED, None)

    trace = untraced.execution_id.replace("-", "")
    await receiver.have(trace, process=1)
    assert receiver.of(trace)[0].links == [(CALLER, CALLING)]


async def test_span_of_a_creation_is_a_child_of_the_callers_span(receiver: Receiver) -> None:
    async with _tracing(receiver) as tracing:
        with tracing.creating(1, f"00-{'c' * 32}-{CALLING}-01"), tracing.creating(1, None):
            pass

    await receiver.have("c" * 32, create=2)
    doing, created = receiver.of("c" * 32)
    assert [doing.parent, created.parent] == [CALLING, doing.id]


async def test_span_of_a_refused_creation_has_the_error_but_no_payload(cluster: Cluster, receiver: Receiver) -> None:
    with pytest.raises(AssertionError, match="secret"):
        await _create(cluster, job_body("act", timezone="secret"), f"00-{'d' * 32}-{CALLING}-01")

    await receiver.have("d" * 32, create=1)
    (create,) = receiver.of("d" * 32)
    assert (create.status, create.about["error.type"]) == (ERROR, "InvalidInput")
    assert "secret" not in str(create)


async def test_a_share_of_all_executions_can_be_traced(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    names = [execution_id(JobId(f"job-{number}"), NOW_MS) for number in range(1000)]

    async with _tracing(receiver) as tracing:
        with tracing.dispatching([dispatch(name) for name in names]) as sent:
            kept = sum(int(str(each.trace)[-2:], 16) & SAMPLED for each in sent)

    assert 200 < kept < 300


@asynccontextmanager
async def _tracing(receiver: Receiver) -> AsyncIterator[Tracing]:
    """Tracing in this process, as another process has it."""
    tracing = tracing_of(load_settings({"telemetry.otlp_endpoint": receiver.url}, {}, None))
    yield tracing
    await asyncio.to_thread(tracing.flush)


async def _create(cluster: Cluster, body: Job, traceparent: str = TRACEPARENT) -> Job:
    token = mint(SECRET, tenant="default", subject="tracer", scopes=["write"], ttl_seconds=86_400, now=now_ms() // 1000)
    headers = {"Authorization": f"Bearer {token}", "traceparent": traceparent}
    async with (
        ClientSession() as session,
        session.post(f"{cluster.one('api').url}/v1/jobs", json=body, headers=headers) as answer,
    ):
        assert answer.status == 201, await answer.text()
        return await answer.json()  # type: ignore[no-any-return]


async def _succeeded(cluster: Cluster, job: Job) -> dict[str, Any]:
    """Return the successful execution of a job, as the API shows it."""
    row = await cluster.execution(job, "SUCCEEDED")
    return await cluster.get(f"/v1/executions/{row['id']}")  # type: ignore[no-any-return]


def _span(span: Any, pid: int) -> Span:
    return Span(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        about=_values(span.attributes),
        events=str(span.events),
        status=span.status.code,
        why=span.status.message,
        pid=pid,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
