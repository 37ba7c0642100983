"""The jobs that an attempt enqueues, until they travel with its report."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.child_job import ChildJob, decode_children
from noonday.model.errors import Conflict, InvalidInput, PayloadTooLarge
from noonday.model.execution import Outcome
from noonday.model.ids import JobId, execution_id, is_id
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.message import Oversized
from noonday.model.pool import WEBHOOKS_POOL
from noonday.sdk.registry import Registry
from noonday.worker.context import Context, Snooze
from noonday.worker.enqueueing import Children, EnqueuedChild, Enqueueing
from noonday.worker.outbox import cut
from noonday.worker.run import Run
from tests.support.factories import NOW_MS, WORKER, dispatch
from tests.worker.runs import new_run

KEYRING = Keyring.generate()
EXECUTION = execution_id(JobId("job"), NOW_MS)
registry = Registry()


@registry.handler(pool="mail")
def send(ctx: Context, to: str) -> None: ...


def parent(ctx: Context) -> None: ...


def children_of(number: int = 1, execution: str = EXECUTION, **limits: int) -> Children:
    enqueueing = Enqueueing(registry.spec_for, lambda: NOW_MS, registry.handlers, **limits)
    return Children(dispatch(execution, number), enqueueing)


def read(children: Children) -> list[ChildJob]:
    encoded = children.encoded()
    assert encoded is not None
    return decode_children(encoded)


def test_a_job_is_enqueued_by_function_or_by_name_with_the_arguments_of_the_application() -> None:
    children = children_of()
    first = children.enqueue(send, "ada", {"delay": timedelta(minutes=1), "tags": ("a",)})
    children.enqueue("send", "bob", {"name": "second"})
    children.enqueue("elsewhere", {"n": 1}, {"pool": "other"})
    found = read(children)
    assert [(each.spec.target, each.spec.payload, each.spec.type) for each in found] == [
        (Target("mail", "send"), "ada", JobType.DELAYED),
        (Target("mail", "send"), "bob", JobType.ONE_TIME),
        (Target("other", "elsewhere"), {"n": 1}, JobType.ONE_TIME),
    ]
    assert first.job_id == found[0].job_id
    assert is_id(found[0].job_id)
    assert {each.enqueued_ms for each in found} == {NOW_MS}


async def test_the_answer_of_enqueue_may_be_awaited() -> None:
    child = children_of().enqueue(send, "ada", {"name": "first"})
    awaited: EnqueuedChild = await child
    assert awaited is child
    assert awaited.name == "first"


def test_a_name_means_one_job_of_the_execution() -> None:
    first, second = children_of(1), children_of(2)
    ids = {each.enqueue(send, "ada", {"name": "n"}).job_id for each in (first, first, second)}
    assert len(ids) == 1
    assert len(read(first)) == 1
    other = children_of(1, execution_id(JobId("another"), NOW_MS)).enqueue(send, "ada", {"name": "n"})
    assert other.job_id not in ids


def test_jobs_without_a_name_are_different_jobs_in_each_dispatch() -> None:
    ids = [children_of(number).enqueue(send, "ada", {}).job_id for number in (1, 2)]
    twice = children_of(3)
    ids += [twice.enqueue(send, "ada", {}).job_id for _ in range(2)]
    assert len(set(ids)) == 4


def test_a_name_for_two_jobs_is_refused() -> None:
    children = children_of()
    children.enqueue(send, "ada", {"name": "n"})
    with pytest.raises(Conflict, match=r"another job named 'n'.*give each job its own name"):
        children.enqueue(send, "bob", {"name": "n"})
    assert len(read(children)) == 1


def test_a_job_of_a_traced_run_continues_its_trace() -> None:
    children = children_of()
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("run") as span:
        children.enqueue(send, "ada", {})
    children.enqueue(send, "bob", {})
    traced, untraced = read(children)
    assert traced.trace is not None
    assert f"{span.get_span_context().trace_id:032x}" in traced.trace
    assert untraced.trace is None


def test_a_job_with_a_unique_key_has_no_id_yet() -> None:
    assert children_of().enqueue(send, "ada", {"unique_key": "k"}).job_id is None


@pytest.mark.parametrize(
    ("handler", "payload", "fields", "why"),
    [
        ("sent", "ada", {}, "unknown handler sent; did you mean send"),
        (parent, None, {}, "is not a handler of this application"),
        (send, 1, {}, "payload"),
        (send, "ada", {"delay": -1}, "delay must be"),
        (send, "ada", {"tags": ["a"] * 51}, "at most 50 tags"),
        (send, "ada", {"connection": object()}, "connection"),
        ("noonday.http", None, {"pool": WEBHOOKS_POOL}, "is built in and takes no jobs"),
    ],
)
def test_an_invalid_job_is_refused_at_once(handler: Any, payload: Any, fields: dict[str, Any], why: str) -> None:
    children = children_of()
    with pytest.raises(InvalidInput, match=why):
        children.enqueue(handler, payload, fields)
    assert not children
    assert children.encoded() is None


def test_an_attempt_enqueues_a_bounded_number_of_jobs() -> None:
    children = children_of(most_jobs=2)
    for _ in range(2):
        children.enqueue(send, "ada", {})
    with pytest.raises(InvalidInput, match=r"has enqueued 2 jobs.*limits\.enqueued_jobs"):
        children.enqueue(send, "ada", {})
    assert len(read(children)) == 2


def test_the_jobs_of_an_attempt_have_a_bounded_size() -> None:
    children = children_of(most_bytes=1_000)
    children.enqueue(send, "x" * 500, {})
    with pytest.raises(PayloadTooLarge, match=r"bytes, more than 1000 .*limits\.enqueued_bytes"):
        children.enqueue(send, "x" * 500, {})
    children.enqueue(send, "x", {})
    encoded = children.encoded()
    assert encoded is not None
    assert len(encoded) <= 1_000


def test_a_deeply_nested_payload_is_refused() -> None:
    nested: Any = []
    for _ in range(200):
        nested = [nested]
    with pytest.raises(InvalidInput, match="nested more than 100 levels"):
        children_of().enqueue("deep", nested, {"pool": "p"})


def test_nothing_is_enqueued_after_the_attempt() -> None:
    children = children_of()
    children.close("the attempt has ended")
    with pytest.raises(Conflict, match="the attempt has ended"):
        children.enqueue(send, "ada", {})


def begun(**limits: int) -> Run:
    run = new_run(parent, KEYRING)
    run.open_payload(KEYRING, enqueueing=Enqueueing(registry.spec_for, lambda: NOW_MS, registry.handlers, **limits))
    assert run.context is not None
    run.context.enqueue(send, "ada")
    return run


def test_a_report_of_a_success_has_the_jobs_encrypted_for_its_own_job() -> None:
    run = begun()
    run.succeed(None, 1_000)
    report = run.report(WORKER, KEYRING)
    assert report.children is not None
    assert report.children_count == 1
    assert b"ada" not in report.children
    opened = KEYRING.open(report.children, context_of(run.dispatch.tenant, run.dispatch.job_id))
    assert [each.spec.payload for each in decode_children(opened)] == ["ada"]


def test_a_snooze_reports_the_jobs_and_a_failure_does_not() -> None:
    snoozed, failed, cancelled = begun(), begun(), begun()
    snoozed.fail(Snooze(1))
    failed.fail(ValueError("no"))
    cancelled.outcome = Outcome.CANCELLED
    assert [run.report(WORKER, KEYRING).children is not None for run in (snoozed, failed, cancelled)] == [
        True,
        False,
        False,
    ]


def test_a_report_that_is_too_large_for_the_log_fails_rather_than_loses_jobs() -> None:
    run = begun()
    run.succeed(None, 1_000)
    small = cut(Oversized(run.report(WORKER, KEYRING), 2_000, 1_000))
    assert isinstance(small, msgspec.Struct)
    assert (small.outcome, small.children) == (Outcome.FAILED, None)  # type: ignore[union-attr]
    assert "enqueue fewer jobs" in small.failure.message  # type: ignore[union-attr]


def test_a_thread_that_outlives_its_attempt_enqueues_nothing() -> None:
    run = new_run(parent, KEYRING)
    run.open_payload(KEYRING, enqueueing=Enqueueing(registry.spec_for, lambda: NOW_MS, registry.handlers))
    assert run.context is not None
    run.context._close_children("the attempt has ended")
    with pytest.raises(Conflict, match="the attempt has ended"):
        run.context.enqueue(send, "ada")
    assert run.report(WORKER, KEYRING).children is None


def test_a_context_without_a_worker_says_where_enqueue_works() -> None:
    run = new_run(parent, KEYRING)
    assert run.context is not None
    with pytest.raises(Conflict, match=r"noonday\.testing\.context"):
        run.context.enqueue(send, "ada")


async def test_a_handler_that_completes_itself_cannot_enqueue() -> None:
    run = begun()
    assert run.context is not None
    run.context._completing = object()  # type: ignore[assignment]
    with pytest.raises(Conflict, match=r"app\.enqueue\(\.\.\., connection=connection\)"):
        await run.context.complete(None)


def test_fields_of_a_later_version_are_ignored() -> None:
    child = msgspec.to_builtins(
        ChildJob(job_id="j", spec=JobSpec(type=JobType.ONE_TIME, target=Target("p", "h")), enqueued_ms=1)
    )  # type: ignore[arg-type]
    newer = {**child, "newField": 1, "spec": {**child["spec"], "newField": 2}}
    assert [each.job_id for each in decode_children(msgspec.json.encode([newer]))] == ["j"]
