"""`client.tasks` and `client.secrets`, against a server with prepared answers."""

from datetime import UTC, datetime

import msgspec
import pytest
from aiohttp import web

from noonday.model.errors import Conflict, InvalidInput, NotFound
from noonday.model.secret import MadeSecret, NewSecret, SecretKind, SecretView
from noonday.model.tasks.wire import (
    Pagination,
    ResendList,
    ResendResult,
    ResentView,
    TaskCallPage,
    TaskDeadFilter,
    TaskDeadLetterPage,
    TaskDeadLetterView,
    TaskExchangesView,
    TaskExchangeView,
    TaskExecutionList,
    TaskExecutionView,
    TaskList,
    TaskPatch,
    TaskPayload,
    TaskRetry,
    TaskSpec,
    TaskStatus,
    TaskType,
    TaskView,
)
from noonday.model.view import BulkView
from noonday.sdk.client import Client
from noonday.sdk.problems import UnexpectedAnswer
from noonday.sdk.secrets import SecretsClient
from noonday.sdk.sync import SyncClient, SyncSecrets, SyncTasks
from noonday.sdk.tasks import TasksClient
from tests.sdk.test_client import BREAK, Wire, listening, problem, served_from_a_thread

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
CALL = TaskPayload(webhook_url="https://api.example.com/")
SPEC = TaskSpec(type=TaskType.ONE_TIME, payload=CALL, scheduled_at=NOON)
EXECUTION = TaskExecutionView(
    id="e",
    task_id="t",
    status="COMPLETED",
    scheduled_at=NOON,
    started_at=NOON,
    completed_at=NOON,
    attempt_number=1,
    next_attempt_at=None,
    error_message=None,
)
CALLS = TaskExchangesView(
    execution=EXECUTION,
    exchanges=(
        TaskExchangeView(attempt_number=1, started_at=NOON, completed_at=NOON, request={}, timings={"total_ms": 3.5}),
    ),
)
RESENT = ResentView(**msgspec.structs.asdict(EXECUTION), with_present_payload=False)
RESULTS = ResendList(results=(ResendResult(id="e", resent_as="n"), ResendResult(id="f", problem="it was deleted")))
BULK = BulkView(changed=1, more=False)
DEAD = TaskDeadLetterView(
    id="e",
    task_id="t",
    task_name=None,
    webhook_url="https://api.example.com/",
    error_type="TIMEOUT",
    error_message="nothing came",
    attempts=5,
    failed_at=NOON,
    resolved_at=None,
    resolved_by=None,
    retried_as=None,
)
SECRET = SecretView("secret-1", SecretKind.HMAC, NOON)
MADE = MadeSecret("secret-1", SecretKind.HMAC, NOON, "whsec_x")


def task(**fields):
    unsaid = dict.fromkeys(["name", "cron_expression", "interval", "timezone", "end_date", "next_execution"])
    defaults = {
        "id": "t",
        "type": TaskType.ONE_TIME,
        "status": TaskStatus.SCHEDULED,
        "payload": {"webhook_url": "https://api.example.com/"},
        "scheduled_at": NOON,
        "retry": TaskRetry(max_attempts=5),
        "timeout_seconds": 30.0,
        "created_at": NOON,
        "updated_at": NOON,
    }
    return TaskView(**(unsaid | defaults | fields))


@pytest.fixture
async def wire():
    async with listening(Wire()) as served:
        yield served


@pytest.fixture
async def client(wire):
    async with Client(wire.url, "a-token", sleep=wire.sleep) as opened:
        yield opened


def nothing():
    return web.Response(status=204)


async def test_task_is_created_with_the_given_spec(client, wire):
    wire.will(task(name="x"))

    assert (await client.tasks.create(SPEC)).name == "x"

    [asked] = wire.asked
    assert (asked.method, asked.path) == ("POST", "/v1/tasks")
    assert asked.body == {
        "type": "ONE_TIME",
        "payload": {"webhook_url": "https://api.example.com/"},
        "scheduled_at": "2030-01-31T12:00:00Z",
    }


async def test_a_task_can_be_created_from_fields(client, wire):
    wire.will(task())

    await client.tasks.create(type="RECURRING", payload=CALL, interval="daily at 08:00", retry={"max_attempts": 2})

    assert wire.asked[0].body == {
        "type": "RECURRING",
        "payload": {"webhook_url": "https://api.example.com/"},
        "interval": "daily at 08:00",
        "retry": {"max_attempts": 2},
    }


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"type": "ONCE", "payload": CALL}, "type must be one of ONE_TIME, RECURRING, not 'ONCE'"),
        ({"type": "ONE_TIME", "payload": CALL, "shceduled_at": NOON}, "did you mean scheduled_at?"),
        ({"type": "ONE_TIME", "payload": CALL, "a": 1, "b": 2}, "2 fields are unknown"),
    ],
)
async def test_fields_that_make_no_task_are_refused_before_anything_is_sent(client, wire, fields, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        await client.tasks.create(**fields)
    assert wire.asked == []


async def test_task_is_given_whole_or_in_fields_but_not_both(client):
    with pytest.raises(InvalidInput, match="either a whole TaskSpec or its fields"):
        await client.tasks.create(SPEC, name="x")


async def test_patch_has_only_the_changed_fields(client, wire):
    wire.will(task(), task(), task(), task())

    await client.tasks.change("t", TaskPatch(name=None))
    await client.tasks.change("t", end_date=NOON)
    await client.tasks.pause("t")
    await client.tasks.resume("t")

    assert {(asked.method, asked.path) for asked in wire.asked} == {("PATCH", "/v1/tasks/t")}
    assert [asked.body for asked in wire.asked] == [
        {"name": None},
        {"end_date": "2030-01-31T12:00:00Z"},
        {"status": "PAUSED"},
        {"status": "SCHEDULED"},
    ]


async def test_a_deleted_task_is_answered_with_nothing(client, wire):
    wire.will(nothing(), problem(404, "not-found"))

    assert await client.tasks.delete("a/b") is None
    with pytest.raises(NotFound):
        await client.tasks.delete("t")
    assert (wire.asked[0].method, wire.asked[0].path) == ("DELETE", "/v1/tasks/a%2Fb")


async def test_nothing_where_something_was_expected_is_no_answer(client, wire):
    wire.will(nothing())

    with pytest.raises(UnexpectedAnswer):
        await client.tasks.get("t")


READS = {
    "get": (lambda c: c.tasks.get("t"), task(executions=(EXECUTION,)), "/v1/tasks/t", {}),
    "list": (
        lambda c: c.tasks.list(status=TaskStatus.FAILED, page=2, limit=5),
        TaskList(tasks=(task(),), pagination=Pagination(page=2, limit=5, total=6, pages=2)),
        "/v1/tasks",
        {"status": "FAILED", "page": "2", "limit": "5"},
    ),
    "executions": (
        lambda c: c.tasks.executions("t", status="PENDING", limit=1),
        TaskExecutionList(executions=(EXECUTION,)),
        "/v1/tasks/t/executions",
        {"status": "PENDING", "limit": "1"},
    ),
    "calls": (lambda c: c.tasks.calls("t", "e"), CALLS, "/v1/tasks/t/executions/e", {}),
    "find_executions": (
        lambda c: c.tasks.find_executions(
            status="FAILED", endpoint="https://a.example", since=NOON, cursor="c", limit=2
        ),
        TaskCallPage(executions=(), next="e"),
        "/v1/task-executions",
        {
            "status": "FAILED",
            "endpoint": "https://a.example",
            "since": "2030-01-31T12:00:00Z",
            "cursor": "c",
            "limit": "2",
        },
    ),
    "dead_letters": (
        lambda c: c.tasks.dead_letters(error="TIMEOUT", until=NOON, archived=True, limit=5),
        TaskDeadLetterPage(dead_letters=(DEAD,), next=None),
        "/v1/task-dlq",
        {"error": "TIMEOUT", "until": "2030-01-31T12:00:00Z", "archived": "true", "limit": "5"},
    ),
    "dead_letter": (lambda c: c.tasks.dead_letter("e"), DEAD, "/v1/task-dlq/e", {}),
}


@pytest.mark.parametrize("name", READS)
async def test_answers_about_tasks_are_typed(client, wire, name):
    call, answer, path, query = READS[name]
    wire.will(answer)

    assert await call(client) == answer
    assert (wire.asked[0].method, wire.asked[0].path, wire.asked[0].query) == ("GET", path, query)


async def test_calls_are_asked_for_once_more_by_their_ids(client, wire):
    wire.will(RESENT, RESULTS, BULK)

    assert await client.tasks.resend("t", "e") == RESENT
    assert await client.tasks.resend_many(iter(["e", "f"]), replay_id="r") == RESULTS
    assert await client.tasks.retry_dead_where(TaskDeadFilter(task_id="t", since=NOON)) == BULK

    assert [asked.path for asked in wire.asked] == [
        "/v1/tasks/t/executions/e/resend",
        "/v1/task-executions/resend",
        "/v1/task-dlq/retry",
    ]
    assert wire.asked[1].body == {"ids": ["e", "f"], "replay_id": "r"}
    assert wire.asked[2].body == {"task_id": "t", "since": "2030-01-31T12:00:00Z"}


async def test_a_secret_is_made_listed_and_ended(client, wire):
    wire.will(MADE, {"secrets": [SECRET]}, nothing(), problem(409, "conflict"))

    assert await client.secrets.make(NewSecret("https://a.example", overlap_seconds=5)) == MADE
    assert list(await client.secrets.list()) == [SECRET]
    await client.secrets.end("secret-1")
    with pytest.raises(Conflict):
        await client.secrets.end("secret-1")

    assert [(asked.method, asked.path) for asked in wire.asked[:3]] == [
        ("POST", "/v1/webhook-secrets"),
        ("GET", "/v1/webhook-secrets"),
        ("DELETE", "/v1/webhook-secrets/secret-1"),
    ]
    assert wire.asked[0].body == {"endpoint": "https://a.example", "kind": "HMAC", "overlap_seconds": 5}


CHANGES = {
    "create": (lambda c: c.tasks.create(SPEC), task()),
    "change": (lambda c: c.tasks.change("t", name="x"), task()),
    "pause": (lambda c: c.tasks.pause("t"), task()),
    "resume": (lambda c: c.tasks.resume("t"), task()),
    "delete": (lambda c: c.tasks.delete("t"), msgspec.UNSET),
    "resend": (lambda c: c.tasks.resend("t", "e"), RESENT),
    "resend_many": (lambda c: c.tasks.resend_many(["e"], replay_id="r"), RESULTS),
    "retry_dead": (lambda c: c.tasks.retry_dead("e"), EXECUTION),
    "archive_dead": (lambda c: c.tasks.archive_dead("e"), DEAD),
    "retry_dead_where": (lambda c: c.tasks.retry_dead_where(task_id="t"), BULK),
    "archive_dead_where": (lambda c: c.tasks.archive_dead_where(), BULK),
    "make": (lambda c: c.secrets.make(kind="ED25519"), MADE),
    "end": (lambda c: c.secrets.end("s"), msgspec.UNSET),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_whose_answer_was_lost_is_asked_for_again_with_its_key(client, wire, name):
    call, answer = CHANGES[name]
    answers = [nothing() if answer is msgspec.UNSET else answer for _ in range(2)]
    wire.will(BREAK, *answers)

    await call(client)
    await call(client)

    lost, again, fresh = (asked.headers["Idempotency-Key"] for asked in wire.asked)
    assert lost == again != fresh


def test_the_synchronous_client_has_tasks_and_secrets():
    with served_from_a_thread() as wire, SyncClient(wire.url) as client:
        wire.will(task(name="x"), nothing(), {"secrets": [SECRET]})

        assert client.tasks.create(SPEC).name == "x"
        client.tasks.delete("t")
        assert list(client.secrets.list()) == [SECRET]


@pytest.mark.parametrize(("waiting", "asked"), [(SyncTasks, TasksClient), (SyncSecrets, SecretsClient)])
def test_the_synchronous_parts_have_every_method(waiting, asked):
    def public(kind):
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(waiting) == public(asked)
