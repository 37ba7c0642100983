from typing import Any

import msgspec
import pytest

from noonday.model.errors import InvalidInput
from noonday.model.tasks.wire import TaskSpec
from noonday.tasks.phrases import ALLOWED
from noonday.tasks.translating import to_job_spec
from tests.api.asgi import Client
from tests.api.test_openapi import COMPONENTS, DOCUMENT, validator_of

SPEC, PATCH = validator_of("TaskSpec"), validator_of("TaskPatch")
CALL = {"webhook_url": "https://example.com/x"}
LEAST: dict[str, dict[str, Any]] = {
    "OneTimeTask": {"type": "ONE_TIME", "payload": CALL, "scheduled_at": "2040-01-01T00:00:00Z"},
    "CronTask": {"type": "RECURRING", "payload": CALL, "cron_expression": "0 3 * * *"},
    "IntervalTask": {"type": "RECURRING", "payload": CALL, "interval": "daily"},
}
VALUES: dict[str, tuple[Any, ...]] = {
    "type": ("ONE_TIME", "RECURRING", "CRON"),
    "name": ("", "x", "x" * 200, "x" * 201, "a\nb", None),
    "payload": (
        {},
        *(
            CALL | {"webhook_url": url}
            for url in ("HTTP://a.b", "ftp://a.b", "a.b", "http://a b", "", f"http://a/{'x' * 2000}")
        ),
        *(CALL | {"method": method} for method in ("GET", "HEAD", "get", "TRACE")),
        *(
            CALL | {"headers": headers}
            for headers in ({"X-A": "b"}, {"": "b"}, {"a b": "c"}, {"a": "\n"}, {"a": 1}, [])
        ),
        CALL | {"headers": {f"x{n}": "" for n in range(65)}},
        *(CALL | {"body": body} for body in (None, 1, "x", [], {})),
        CALL | {"url": "x"},
    ),
    "scheduled_at": ("2040-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "9500-01-01T00:00:00Z", 1),
    "cron_expression": ("* * * * *", "nonsense"),
    "interval": (*ALLOWED, "EVERY 5 minutes", "sometimes", "", f"daily{' ' * 200}"),
    "timezone": ("Europe/Berlin", "Europe / Berlin"),
    "end_date": ("2040-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "9500-01-01T00:00:00Z"),
    "retry": (
        {},
        *({"max_attempts": attempts} for attempts in (0, 1, 100, 101)),
        *({"backoff": backoff} for backoff in ("LIST", "EXPONENTIAL", "FIXED", "RANDOM")),
        *({"delays_ms": delays} for delays in ([], [0], [-1], [604_800_000], [604_800_001], [1] * 100, [1] * 101)),
        *({"initial_delay_ms": delay} for delay in (-1, 0, 604_800_000, 604_800_001)),
        {"backoff": "FIXED", "delays_ms": [1]},
        {"backoff": "LIST", "initial_delay_ms": 1},
        {"delays_ms": [1], "initial_delay_ms": 1},
        *(
            {"statuses": statuses}
            for statuses in ([], [409], [300, 599], [410], [299], [600], [200], ["5xx"], 409, [500] * 301)
        ),
        {"statuses": [409], "delays_ms": [1]},
    ),
    "timeout_seconds": (0, 0.001, 300, 300.5),
    "ordered": (False, True, None, 1),
    "ordering_key": ("", "x", "x" * 200, "x" * 201, "a\nb", None, 1),
}


def is_accepted(task: dict[str, Any]) -> bool:
    try:
        to_job_spec(msgspec.convert(task, TaskSpec), 0)
    except (InvalidInput, msgspec.ValidationError):
        return False
    return True


def test_the_table_covers_every_field_of_a_task():
    assert VALUES.keys() == {field.encode_name for field in msgspec.structs.fields(TaskSpec)}


@pytest.mark.parametrize("variant", LEAST)
@pytest.mark.parametrize("field", VALUES)
def test_schema_of_a_task_allows_the_values_that_the_rules_accept(variant: str, field: str):
    for value in VALUES[field]:
        task = LEAST[variant] | {field: value}
        assert SPEC.is_valid(task) == is_accepted(task), task


@pytest.mark.parametrize("variant", LEAST)
def test_schema_of_a_task_requires_the_fields_that_the_rules_require(variant: str):
    assert SPEC.is_valid(LEAST[variant])
    for field in LEAST[variant]:
        without = {name: value for name, value in LEAST[variant].items() if name != field}
        assert SPEC.is_valid(without) == is_accepted(without) is False


async def test_the_examples_of_tasks_are_accepted(client: Client):
    for option in COMPONENTS["TaskSpec"]["oneOf"]:
        for example in COMPONENTS[option["$ref"].rpartition("/")[2]]["examples"]:
            assert (await client.post("/v1/tasks", example, idempotency_key=option["$ref"])).status == 201


@pytest.mark.parametrize(
    ("patch", "is_valid"),
    [
        ({}, False),
        ({"status": "PAUSED"}, True),
        ({"status": "RUNNING"}, False),
        ({"status": "PAUSED", "name": "x"}, False),
        ({"name": None, "interval": "daily", "cron_expression": None}, True),
        ({"type": "ONE_TIME"}, False),
    ],
)
def test_the_schema_of_a_patch_has_the_status_alone_or_something_else(patch: dict[str, Any], is_valid: bool):
    assert PATCH.is_valid(patch) is is_valid


def test_the_document_says_that_changes_of_tasks_need_a_key():
    needed = {
        f"{method} {path}": parameter["required"]
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        for parameter in operation["parameters"]
        if parameter["name"] == "Idempotency-Key"
    }
    of_tasks = {name for name, required in needed.items() if required and "/v1/task" in name}
    assert of_tasks == {
        *("post /v1/tasks", "patch /v1/tasks/{task_id}", "delete /v1/tasks/{task_id}"),
        *("post /v1/tasks/{task_id}/executions/{execution_id}/resend", "post /v1/task-executions/resend"),
        *("post /v1/task-dlq/retry", "post /v1/task-dlq/archive"),
        *("post /v1/task-dlq/{id}/retry", "post /v1/task-dlq/{id}/archive"),
    }
    assert needed["post /v1/jobs"] is False


def test_a_deletion_is_answered_without_a_body():
    answer = DOCUMENT["paths"]["/v1/tasks/{task_id}"]["delete"]["responses"]["204"]
    assert "content" not in answer
