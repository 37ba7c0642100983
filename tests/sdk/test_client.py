import asyncio
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest
from aiohttp import web

from noonday.model.errors import (
    Conflict,
    ExecutionFailed,
    Forbidden,
    IdempotencyInProgress,
    InvalidInput,
    NoondayError,
    NotFound,
    QuotaExceeded,
    VersionMismatch,
)
from noonday.model.execution import Failure
from noonday.model.filters import DeadFilter
from noonday.model.ids import JobId, execution_id, new_job_id
from noonday.model.job import JobSpec, JobType, Overlap, Target
from noonday.model.view import (
    AuditView,
    BackfillView,
    BulkView,
    DayUsedView,
    DeadLetterView,
    ExecutionLogsView,
    ExecutionView,
    JobView,
    OccurrencePage,
    OccurrenceView,
    PoolSettings,
    PoolView,
    Preview,
    PreviewTime,
    TenantSettings,
    TenantView,
    UsageView,
    UsedView,
    WorkerView,
)
from noonday.sdk import jobs as jobs_module
from noonday.sdk.client import Client, ResultTimeout
from noonday.sdk.executions import result_timeout
from noonday.sdk.problems import ClientClosed, Problem, ServerUnreachable, UnexpectedAnswer
from noonday.sdk.registry import Registry
from noonday.sdk.sync import SyncClient
from noonday.sdk.transport import RETRY_WAITS_SEC

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
SPEC = JobSpec(type=JobType.ONE_TIME, target=Target("mail", "send"))
BREAK = object()
"""An answer that breaks the connection."""
SILENCE = object()
"""An answer that never comes."""


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: Any
    body: Any


@dataclass
class Wire:
    """A server that gives prepared answers, in order, and keeps its requests."""

    url: str = ""
    answers: deque[Any] = field(default_factory=deque)
    rule: Callable[[Asked], Any] | None = None
    asked: list[Asked] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def will(self, *answers: Any) -> None:
        self.answers += answers

    def answer_by(self, rule: Callable[[Asked], Any]) -> None:
        """Give the answer of a rule to each request that has no prepared answer."""
        self.rule = rule

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.asked.append(
            Asked(
                request.method,
                request.rel_url.raw_path,
                dict(request.query),
                request.headers,
                msgspec.json.decode(raw) if raw else None,
            )
        )
        answer = self.rule(self.asked[-1]) if self.rule and not self.answers else self.answers.popleft()
        if answer is SILENCE:
            self.silent.set()
            await self.closing.wait()
        if answer in (BREAK, SILENCE):
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if isinstance(answer, web.Response):
            return answer
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


@asynccontextmanager
async def listening(wire):
    runner = web.AppRunner(handler_app(wire))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    wire.url = f"http://{host}:{port}"
    yield wire
    wire.closing.set()
    await runner.cleanup()


def handler_app(wire):
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", wire.serve)
    return app


@pytest.fixture
async def wire():
    async with listening(Wire()) as served:
        yield served


@pytest.fixture
async def client(wire):
    async with Client(wire.url, "a-token", sleep=wire.sleep) as opened:
        yield opened


def job(**fields):
    defaults = {
        "type": JobType.ONE_TIME,
        "target": Target("mail", "send"),
        "job_id": new_job_id(),
        "tenant": "t",
        "state": "ACTIVE",
        "version": 1,
        "created_at": NOON,
        "updated_at": NOON,
        "next_fire_at": None,
        "next_fire_at_local": None,
    }
    return JobView(**(defaults | fields))


def execution(state="SUCCEEDED", **fields):
    defaults = {
        "execution_id": execution_id(JobId("j"), 0),
        "job_id": "j",
        "job_name": None,
        "attempt": 1,
        "dispatch": 1,
        "cause": "SCHEDULE",
        "pool": "mail",
        "handler": "send",
        "scheduled_at": NOON,
        "due_at": NOON,
        "version": 1,
    }
    absent = dict.fromkeys(
        [
            "next_attempt_at",
            "started_at",
            "finished_at",
            "worker_id",
            "error",
            "progress",
            "result",
            "trace_id",
            "logs_url",
            "cancel_requested",
            "retry_of",
            "waiting_for",
        ]
    )
    return ExecutionView(**(absent | defaults | {"state": state} | fields))


def problem(status, code, detail="no", **more):
    body = {"type": f"https://noonday.dev/problems/{code}", "title": code, "status": status, "detail": detail, **more}
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/problem+json")


async def test_job_is_created_with_the_given_spec(client, wire):
    made = job(name="x", overlap=Overlap.SKIP)
    wire.will(made)

    assert await client.create(SPEC) == made

    [asked] = wire.asked
    assert (asked.method, asked.path) == ("POST", "/v1/jobs")
    assert asked.body == {"type": "ONE_TIME", "target": {"pool": "mail", "handler": "send"}}
    assert asked.headers["Authorization"] == "Bearer a-token"
    assert asked.headers["Content-Type"] == "application/json"


async def test_a_job_can_be_created_from_fields(client, wire):
    wire.will(job())

    await client.create(type="CRON", target=Target("mail", "send"), schedule="@daily", overlap=Overlap.SKIP)

    assert wire.asked[0].body == {
        "type": "CRON",
        "target": {"pool": "mail", "handler": "send"},
        "schedule": "@daily",
        "overlap": "SKIP",
    }


async def test_job_is_given_as_a_spec_or_in_fields_but_not_both(client):
    with pytest.raises(InvalidInput, match="either a whole JobSpec or its fields"):
        await client.create(SPEC, name="x")


async def test_fields_of_an_answer_that_this_version_does_not_know_are_ignored(client, wire):
    wire.will({**msgspec.to_builtins(job(name="x")), "invented": 1})

    assert (await client.get_job("a")).name == "x"


async def test_every_change_has_an_idempotency_key_of_its_own(client, wire):
    wire.will(job(), job(), job(), execution())

    await client.create(SPEC)
    await client.pause("a")
    await client.delete("a")
    await client.trigger("a", idempotency_key='my "own" key')

    *made, given = [asked.headers["Idempotency-Key"] for asked in wire.asked]
    assert len(set(made)) == 3
    assert all(key.startswith('"') and key.endswith('"') for key in made)
    assert given == r'"my \"own\" key"'


async def test_pause_with_an_end_and_move_send_their_instants(client, wire):
    until, at, to = (datetime(2030, 1, day, tzinfo=UTC) for day in (1, 2, 3))
    wire.will(job(), job(), job())

    await client.pause("a")
    await client.pause("a", until=until)
    await client.move("a", at, to, reason="a window")

    assert [asked.path for asked in wire.asked] == ["/v1/jobs/a/pause", "/v1/jobs/a/pause", "/v1/jobs/a/move"]
    assert [asked.body for asked in wire.asked] == [
        None,
        {"until": "2030-01-01T00:00:00Z"},
        {"at": "2030-01-02T00:00:00Z", "to": "2030-01-03T00:00:00Z", "reason": "a window"},
    ]


async def test_a_key_that_no_header_can_carry_is_refused(client):
    with pytest.raises(InvalidInput, match="printable ASCII"):
        await client.create(SPEC, idempotency_key="a\nb")


async def test_a_broken_connection_is_tried_again_with_the_same_key(client, wire):
    wire.will(BREAK, BREAK, job(name="third"))

    assert (await client.create(SPEC)).name == "third"

    assert len({asked.headers["Idempotency-Key"] for asked in wire.asked}) == 1
    assert len(wire.asked) == 3
    assert wire.slept == list(RETRY_WAITS_SEC[:2])


async def test_a_retry_waits_for_the_first_try_that_is_still_in_progress(client, wire):
    wire.will(BREAK, problem(409, "idempotency-in-progress"), job(name="done"))

    assert (await client.create(SPEC)).name == "done"


async def test_request_that_stays_in_progress_raises_in_the_end(client, wire):
    wire.will(*[problem(409, "idempotency-in-progress") for _ in range(len(RETRY_WAITS_SEC) + 1)])

    with pytest.raises(IdempotencyInProgress):
        await client.create(SPEC)


async def test_unreachable_server_is_an_error_with_the_start_command(wire):
    async with listening(Wire()) as gone:
        url = gone.url

    async with Client(url, sleep=wire.sleep) as client:
        with pytest.raises(ServerUnreachable, match="noonday up") as caught:
            await client.get_job("a")

    assert caught.value.context == {"url": url}
    assert caught.value.code == "server-unreachable"
    assert wire.slept == list(RETRY_WAITS_SEC)


async def test_a_server_that_does_not_answer_in_time_is_unreachable(wire):
    wire.will(SILENCE)

    async with Client(wire.url, timeout=0.05) as client:
        with pytest.raises(ServerUnreachable, match=r"has not answered GET /v1/jobs/a in 0\.05 s"):
            await client.get_job("a")

    assert len(wire.asked) <= 1  # on a busy machine, the time may be over before the request leaves


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("not-found", NotFound),
        ("conflict", Conflict),
        ("forbidden", Forbidden),
        ("version-mismatch", VersionMismatch),
    ],
)
async def test_a_problem_is_raised_as_the_error_that_has_its_code(client, wire, code, kind):
    wire.will(problem(400, code, "the detail", required="write", held=["read"]))

    with pytest.raises(kind, match="the detail") as caught:
        await client.get_job("a")

    assert type(caught.value) is kind
    assert caught.value.context == {"required": "write", "held": ["read"]}


async def test_a_quota_that_is_full_is_raised_with_its_figures(client, wire):
    figures = {"limit": 10, "used": 10, "requested": 1, "retryAfterSec": 37, "violated-policies": ["max-jobs"]}
    wire.will(problem(429, "quota-exceeded", "no room", **figures))

    with pytest.raises(QuotaExceeded, match="no room") as caught:
        await client.create(SPEC)

    full = caught.value
    assert (full.limit, full.used, full.requested, full.retry_after_sec) == (10, 10, 1, 37)


async def test_flaws_arrive_as_they_were_found(client, wire):
    flaw = {"pointer": "/schedule", "detail": "minute 61", "value": "61 * * * *", "nearest": "1 * * * *"}
    wire.will(problem(422, "invalid-input", errors=[flaw]))

    with pytest.raises(InvalidInput) as caught:
        await client.create(SPEC)

    assert [msgspec.to_builtins(found) for found in caught.value.flaws] == [flaw]


async def test_a_problem_of_an_unknown_kind_keeps_its_code(client, wire):
    wire.will(problem(418, "teapot", "short and stout"))

    with pytest.raises(NoondayError, match="short and stout") as caught:
        await client.get_job("a")

    assert caught.value.code == "teapot"
    assert NoondayError.code == "error"


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=502, text="<h1>Bad gateway</h1>"),
        web.Response(status=302, headers={"Location": "https://login.example"}),
        web.Response(text="hello"),
        web.Response(body=b'{"jobId": 1}', content_type="application/json"),
    ],
    ids=["proxy", "redirect", "text", "other-json"],
)
async def test_answer_of_another_kind_of_server_raises_unexpected_answer(wire, answer):
    # A response can be sent once, and the parameters outlive a test.
    wire.will(web.Response(status=answer.status, body=answer.body, headers=answer.headers))

    async with Client(wire.url) as client:
        with pytest.raises(UnexpectedAnswer, match=r"/v1/jobs/a"):
            await client.get_job("a")


async def test_a_client_without_a_token_sends_none(wire):
    wire.will({"status": "ok"})

    async with Client(wire.url + "/") as client:
        assert await client.health() == {"status": "ok"}

    assert "Authorization" not in wire.asked[0].headers
    assert wire.asked[0].path == "/healthz"


async def test_closed_client_raises(wire):
    async with Client(wire.url) as client:
        pass

    with pytest.raises(ClientClosed):
        await client.get_job("a")


def test_a_url_needs_its_scheme():
    with pytest.raises(InvalidInput, match="http://"):
        Client("localhost:8080")


async def test_an_application_hands_out_clients(wire):
    wire.will(job(name="x"))

    async with Registry.client(wire.url, "t") as client:
        assert (await client.get_job("a")).name == "x"


async def test_a_batch_is_answered_in_order_with_jobs_and_problems(client, wire):
    made = job(name="first")
    refused = {"type": "https://noonday.dev/problems/invalid-input", "status": 422, "detail": "bad", "errors": []}
    wire.will({"jobs": [made, refused]})

    first, second = await client.create_many([SPEC, SPEC])

    assert first == made
    assert second == Problem("invalid-input", "bad", 422)
    assert isinstance(second.error(), InvalidInput)
    assert (wire.asked[0].path, len(wire.asked[0].body["jobs"])) == ("/v1/jobs/batch", 2)


@pytest.mark.slow
async def test_more_than_a_batch_goes_in_several(client, wire):
    wire.will({"jobs": [job()] * 10_000}, {"jobs": [job()]})

    answers = await client.create_many(SPEC for _ in range(10_001))

    assert len(answers) == 10_001
    assert [len(asked.body["jobs"]) for asked in wire.asked] == [10_000, 1]
    assert len({asked.headers["Idempotency-Key"] for asked in wire.asked}) == 2


async def test_batches_are_kept_below_the_request_size(client, wire, monkeypatch):
    monkeypatch.setattr(jobs_module, "BATCH_BYTES", 200)
    heavy = msgspec.structs.replace(SPEC, payload="x" * 80)
    wire.will(*[{"jobs": [job()]}] * 3)

    await client.create_many([heavy] * 3)

    assert [len(asked.body["jobs"]) for asked in wire.asked] == [1, 1, 1]


async def test_no_jobs_ask_nothing(client, wire):
    assert await client.create_many([]) == []
    assert not wire.asked


async def test_failure_of_a_later_batch_has_the_jobs_stored_before(client, wire, monkeypatch):
    monkeypatch.setattr(jobs_module, "BATCH_JOBS", 1)
    wire.will({"jobs": [job(name="first")]}, problem(403, "forbidden"))

    with pytest.raises(Forbidden) as caught:
        await client.create_many([SPEC, SPEC])

    assert [made.name for made in caught.value.context["answered"]] == ["first"]


async def test_atomic_batch_is_one_request_with_its_flag(client, wire):
    wire.will({"jobs": [job()]})

    await client.create_many([SPEC], atomic=True)

    assert wire.asked[0].query == {"atomic": "true"}
    with pytest.raises(InvalidInput, match="send at most 10000"):
        await client.create_many([SPEC] * 10_001, atomic=True)


async def test_a_list_is_fetched_page_by_page(client, wire):
    wire.will({"jobs": [job(name="a"), job(name="b")], "next": "c1"}, {"jobs": [job(name="c")], "next": None})

    pages = [page async for page in client.list_jobs(pool="p q", type=JobType.CRON, unique_key="k", limit=2)]

    assert [[one.name for one in page.jobs] for page in pages] == [["a", "b"], ["c"]]
    first, second = [asked.query for asked in wire.asked]
    assert first == {"pool": "p q", "type": "CRON", "uniqueKey": "k", "limit": "2"}
    assert second == {**first, "cursor": "c1"}


async def test_the_items_of_a_list_come_without_their_pages(client, wire):
    wire.will({"jobs": [job(name="a")], "next": "c1"}, {"jobs": [job(name="b")]})

    assert [one.name async for one in client.list_jobs().items()] == ["a", "b"]


async def test_ids_are_quoted_in_paths(client, wire):
    wire.will(job())

    await client.get_job("a/b?c")

    assert wire.asked[0].path == "/v1/jobs/a%2Fb%3Fc"


async def test_a_replacement_names_the_version_it_is_meant_for(client, wire):
    wire.will(job(), job())

    await client.replace("a", SPEC, if_version=3)
    await client.replace("a", SPEC)

    assert wire.asked[0].method == "PUT"
    assert wire.asked[0].headers["If-Match"] == '"3"'
    assert "If-Match" not in wire.asked[1].headers


DEAD = DeadLetterView(execution=execution("DEAD"), died_at=NOON, archived=False, retried_as=None)
POOL = PoolView(
    name="p", settings=PoolSettings(timeout_sec=3), handlers=(), workers=0, capacity=0, queued=0, running=0, due=0
)
WORKER = WorkerView(worker_id="w", host="h", pid=1, pools={}, started_at=NOON, last_seen_at=NOON, state="ALIVE")
TENANT = TenantView(tenant="t", settings=TenantSettings(weight=2), updated_at=None)
USED = {"runs": 1, "succeeded": 1, "failed": 0, "run_seconds": 0.5, "payload_bytes": 3}
USAGE = UsageView(
    tenant="t",
    from_=date(2030, 1, 1),
    to=date(2030, 1, 31),
    days=(DayUsedView(day=date(2030, 1, 7), **USED),),
    total=UsedView(**USED),
)
BACKFILL = BackfillView(
    backfill_id="b", job_id="a", from_=NOON, to=NOON, total=1, created=1, first=(NOON,), preview=False
)
PREVIEW = Preview(description="d", timezone="UTC", times=(PreviewTime(utc=NOON, local="x"),))
OCCURRENCES = OccurrencePage(
    occurrences=(OccurrenceView(outcome="FIRED", scheduled_at=NOON, until=NOON, count=1, reason=""),)
)
BULK = BulkView(changed=3, more=False)
NOON_TEXT = "2030-01-31T12:00:00Z"
CALLS = {
    "resume": (lambda c: c.resume("a"), job(job_id="a"), ("POST", "/v1/jobs/a/resume", {}, None)),
    "occurrences": (
        lambda c: c.occurrences("a", NOON, limit=5),
        OCCURRENCES,
        ("GET", "/v1/jobs/a/occurrences", {"from": NOON_TEXT, "limit": "5"}, None),
    ),
    "preview": (
        lambda c: c.preview(schedule="@daily", from_=NOON, count=3),
        PREVIEW,
        ("POST", "/v1/schedules/preview", {}, {"schedule": "@daily", "from": NOON_TEXT, "count": 3}),
    ),
    "backfill": (
        lambda c: c.backfill("a", NOON, NOON, backfill_id="b"),
        BACKFILL,
        (
            "POST",
            "/v1/jobs/a/backfill",
            {},
            {"from": NOON_TEXT, "to": NOON_TEXT, "backfillId": "b", "preview": False},
        ),
    ),
    "get_execution": (lambda c: c.get_execution("e"), execution(), ("GET", "/v1/executions/e", {}, None)),
    "get_execution_logs": (
        lambda c: c.get_execution_logs("e"),
        ExecutionLogsView(execution_id="e", attempts=()),
        ("GET", "/v1/executions/e/logs", {}, None),
    ),
    "cancel": (lambda c: c.cancel("e"), execution(), ("POST", "/v1/executions/e/cancel", {}, None)),
    "retry_dead": (lambda c: c.retry_dead("e"), execution(), ("POST", "/v1/dead-letters/e/retry", {}, None)),
    "archive_dead": (lambda c: c.archive_dead("e"), DEAD, ("POST", "/v1/dead-letters/e/archive", {}, None)),
    "retry_dead_where": (
        lambda c: c.retry_dead_where(pool="p", since=NOON),
        BULK,
        ("POST", "/v1/dead-letters/retry", {}, {"pool": "p", "since": NOON_TEXT}),
    ),
    "archive_dead_where": (
        lambda c: c.archive_dead_where(DeadFilter(job_id="a")),
        BULK,
        ("POST", "/v1/dead-letters/archive", {}, {"jobId": "a"}),
    ),
    "get_job": (
        lambda c: c.get_job("a", executions=3),
        job(job_id="a"),
        ("GET", "/v1/jobs/a", {"executions": "3"}, None),
    ),
    "get_pool": (lambda c: c.get_pool("p"), POOL, ("GET", "/v1/pools/p", {}, None)),
    "put_pool": (
        lambda c: c.put_pool("p", PoolSettings(timeout_sec=3)),
        POOL,
        ("PUT", "/v1/pools/p", {}, {"timeoutSec": 3.0}),
    ),
    "get_tenant": (lambda c: c.get_tenant("t"), TENANT, ("GET", "/v1/tenants/t", {}, None)),
    "put_tenant": (
        lambda c: c.put_tenant("t", TenantSettings(weight=2)),
        TENANT,
        ("PUT", "/v1/tenants/t", {}, {"weight": 2}),
    ),
    "usage": (
        lambda c: c.usage("t", date(2030, 1, 1), date(2030, 1, 31)),
        USAGE,
        ("GET", "/v1/tenants/t/usage", {"from": "2030-01-01", "to": "2030-01-31"}, None),
    ),
    "overview": (lambda c: c.overview(), {"due": 3}, ("GET", "/v1/overview", {}, None)),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_asks_its_route_and_reads_its_answer(client, wire, name):
    call, answer, expected = CALLS[name]
    wire.will(answer)

    got = await call(client)

    assert got == answer
    [asked] = wire.asked
    assert (asked.method, asked.path, asked.query, asked.body) == expected


async def test_pools_and_workers_come_as_lists(client, wire):
    wire.will({"pools": [POOL]}, {"workers": [WORKER]})

    assert await client.pools() == [POOL]
    assert await client.workers() == [WORKER]


AUDIT = AuditView(at=NOON, subject="s", action="create", target="a", detail={})
LISTS = {
    "executions": (lambda c: c.list_executions("a", state="DEAD"), "executions", execution(), {"state": "DEAD"}),
    "dead_letters": (
        lambda c: c.dead_letters(job_id="a", archived=True),
        "deadLetters",
        DEAD,
        {"jobId": "a", "archived": "true"},
    ),
    "audit": (lambda c: c.audit(subject="s"), "entries", AUDIT, {"subject": "s"}),
}


@pytest.mark.parametrize("name", LISTS)
async def test_every_list_has_its_items(client, wire, name):
    call, member, item, query = LISTS[name]
    wire.will({member: [item]})

    assert [one async for one in call(client).items()] == [item]
    assert wire.asked[0].query == query


async def test_a_result_is_awaited_with_growing_pauses(client, wire):
    wire.will(*[execution("PENDING")] * 4, *[execution("RUNNING")] * 3, execution(result={"pages": 3}))

    assert await client.result("e") == {"pages": 3}
    assert wire.slept == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert [asked.query for asked in wire.asked] == [{}] + [{"wait": "15.0"}] * 7


async def test_a_result_is_polled_while_too_many_requests_wait(client, wire):
    wire.will(execution("RUNNING"), problem(503, "busy"), execution("RUNNING"), execution(result=7))

    assert await client.result("e") == 7
    assert [asked.query for asked in wire.asked] == [{}, {"wait": "15.0"}, {}, {"wait": "15.0"}]


class Pages(msgspec.Struct):
    pages: int


async def test_a_result_comes_as_the_type_that_is_asked_for(client, wire):
    wire.will(execution(result={"pages": 3}), execution(result={"pages": "x"}))

    assert await client.result(execution(), type=Pages) == Pages(3)
    with pytest.raises(InvalidInput, match="the result is not a valid Pages") as caught:
        await client.result(execution(), type=Pages)
    assert caught.value.flaws[0].pointer == "/result/pages"


@pytest.mark.parametrize("by_id", [False, True])
async def test_the_result_of_a_job_is_that_of_its_latest_execution(client, wire, by_id):
    made = job()
    latest = execution("RUNNING", execution_id="latest")
    wire.will(made, msgspec.structs.replace(made, executions=(latest, execution())), execution(result=7))

    assert await client.result(made.job_id if by_id else made) == 7
    assert [asked.path for asked in wire.asked] == [f"/v1/jobs/{made.job_id}"] * 2 + ["/v1/executions/latest"]


async def test_a_job_that_ended_without_an_execution_has_no_result(client, wire):
    wire.will(job(state="CANCELLED"))

    with pytest.raises(ExecutionFailed, match="is CANCELLED without an execution"):
        await client.result(job())


@pytest.mark.parametrize("state", ["DEAD", "CANCELLED", "EXPIRED"])
async def test_execution_that_did_not_succeed_raises_its_failure(client, wire, state):
    wire.will(execution(state, attempt=5, error=Failure("ValueError", "boom")))

    with pytest.raises(ExecutionFailed, match=f"is {state} after attempt 5: ValueError: boom") as caught:
        await client.result("e")

    assert caught.value.context["error"] == {"type": "ValueError", "message": "boom"}


async def test_a_result_that_takes_too_long_is_given_up(wire):
    wire.will(*[execution("RUNNING")] * 1000)

    async with Client(wire.url) as client:
        with pytest.raises(ResultTimeout, match=r"execution e .* after 0.02 s"):
            await client.result("e", timeout=0.02)


def test_a_result_that_takes_too_long_says_what_the_execution_does():
    running = execution("RUNNING")
    assert str(result_timeout("e", running, 3)) == "execution e is RUNNING (attempt 1) after 3 s; it continues"
    assert str(result_timeout("e", None, 3)) == "the server has not answered about execution e after 3 s"
    job_id = "01a1e539-0000-7000-8000-000000000000"
    assert str(result_timeout(job_id, None, 3)) == f"job {job_id} has no execution yet after 3 s"


@contextmanager
def served_from_a_thread():
    """The wire served by a loop in another thread, so that the test itself may block."""
    wire, ready = Wire(), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve():
        async with listening(wire):
            ready.set()
            await stop.wait()
        for _ in range(3):  # transports that were just closed have callbacks left
            await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(60)
    yield wire
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_the_synchronous_client_waits_for_its_answers():
    with served_from_a_thread() as wire, SyncClient(wire.url, "a-token") as client:
        wire.will(job(name="x"), execution(result=7), problem(404, "not-found"))

        assert client.create(SPEC).name == "x"
        assert client.result("e", timeout=60) == 7
        with pytest.raises(NotFound):
            client.get_job("a")


def test_the_synchronous_client_iterates_over_lists():
    with served_from_a_thread() as wire, SyncClient(wire.url) as client:
        pages = [{"jobs": [job(name="a")], "next": "c1"}, {"jobs": [job(name="b")]}]
        wire.will(*pages, *pages)

        assert [[one.name for one in page.jobs] for page in client.list_jobs()] == [["a"], ["b"]]
        assert [one.name for one in client.list_jobs(pool="p").items()] == ["a", "b"]


@pytest.mark.slow
def test_the_synchronous_client_is_shared_by_threads():
    with served_from_a_thread() as wire, SyncClient(wire.url) as client, ThreadPoolExecutor(8) as threads:
        wire.will(*[job(name=str(number)) for number in range(64)])

        names = {made.name for made in threads.map(lambda _: client.get_job("a"), range(64))}

    assert names == {str(number) for number in range(64)}


def test_closing_the_synchronous_client_ends_waiting_calls():
    with served_from_a_thread() as wire, ThreadPoolExecutor(1) as threads:
        client = SyncClient(wire.url)
        wire.will(SILENCE)
        waiting = threads.submit(client.get_job, "a")
        assert wire.silent.wait(60)

        client.close()
        client.close()

        with pytest.raises(ClientClosed):
            waiting.result(10)
        with pytest.raises(ClientClosed):
            client.get_job("a")


def test_closing_the_synchronous_client_ends_its_thread():
    with served_from_a_thread() as wire, SyncClient(wire.url) as client:
        others = set(threading.enumerate())
        wire.will(job())
        client.get_job("a")
        (own,) = set(threading.enumerate()) - others

    assert not own.is_alive()


def test_a_synchronous_client_that_is_not_used_has_no_thread():
    before = threading.active_count()
    with SyncClient("http://127.0.0.1:1"):
        assert threading.active_count() == before


USES_A_CLIENT_ON_BOTH_SIDES_OF_A_FORK = """
import os, sys, time
from noonday.sdk.sync import SyncClient

client = SyncClient(sys.argv[1], timeout=60)
print("parent", client.get_job("a").name, flush=True)
child = os.fork()
if child == 0:
    print("child", client.get_job("b").name, flush=True)
    client.close()
    os._exit(0)
deadline = time.monotonic() + 60
while True:
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        break
    if time.monotonic() > deadline:
        os.kill(child, 9)
        sys.exit("the child hangs")
    time.sleep(0.01)
print("parent", client.get_job("c").name, status, flush=True)
"""


@pytest.mark.slow
def test_a_synchronous_client_made_before_a_fork_works_on_both_sides_of_it():
    with served_from_a_thread() as wire:
        wire.will(job(name="a"), job(name="b"), job(name="c"))
        script = [sys.executable, "-W", "error", "-c", USES_A_CLIENT_ON_BOTH_SIDES_OF_A_FORK, wire.url]
        ran = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)

    assert (ran.stdout.split("\n"), ran.stderr) == (["parent a", "child b", "parent c 0", ""], "")


def test_the_synchronous_client_has_every_method_of_the_asynchronous_one():
    def public(kind):
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(SyncClient) == public(Client)
    assert SyncClient.create.__doc__ == Client.create.__doc__
