from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.api.app import ROUTES
from noonday.api.cron_pattern import CRON
from noonday.api.openapi import document
from noonday.model import cron_parsing, zones
from noonday.model.errors import InvalidInput
from noonday.model.job import JobSpec, JobType, check
from tests.api.asgi import Client

DOCUMENT: dict[str, Any] = msgspec.to_builtins(document(ROUTES))
COMPONENTS = DOCUMENT["components"]["schemas"]
NOW_MS = 0


def validator_of(name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    )


JOB_SCHEMA = validator_of("JobSpec")


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def is_accepted(job: dict[str, Any]) -> bool:
    try:
        check(msgspec.convert(job, JobSpec), NOW_MS)
    except (InvalidInput, msgspec.ValidationError):
        return False
    return True


async def test_the_document_is_served_without_a_token(client: Client):
    client.headers.clear()
    response = await client.get("/openapi.json")
    assert (response.status, response.json["openapi"]) == (200, "3.1.0")


def test_every_path_under_v1_and_every_probe_is_documented():
    served = {f"{route.method} {route.path}" for route in ROUTES} - {
        "GET /docs",
        "GET /docs/page.css",
        "GET /docs/page.js",
        "GET /",
    }
    assert {name for name, _ in operations()} == served


def test_every_operation_has_summary_and_scope():
    for route in ROUTES:
        if route.documented:
            operation = DOCUMENT["paths"][route.path][route.method.lower()]
            assert operation["summary"]
            assert operation.get("security", []) == ([{"bearer": [route.scope]}] if route.scope else [])


def test_operation_ids_are_unique():
    ids = [operation["operationId"] for _, operation in operations()]
    assert len(set(ids)) == len(ids)


def test_changes_accept_idempotency_key_and_replace_accepts_if_match():
    taken = {
        name: {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "header"}
        for name, operation in operations()
    }
    assert taken["PUT /v1/jobs/{jobId}"] == {"If-Match", "Idempotency-Key"}
    assert taken["POST /v1/jobs"] == {"Idempotency-Key"}
    assert taken["POST /v1/schedules/preview"] == taken["GET /v1/jobs"] == set()


def test_routes_that_count_against_a_quota_document_429():
    counted = {name for name, operation in operations() if "429" in operation["responses"]}
    assert counted == {"POST /v1/jobs", "POST /v1/jobs/batch", "POST /v1/tasks", "POST /v1/notifications"}
    headers = DOCUMENT["components"]["responses"]["TooManyRequests"]["headers"]
    assert headers.keys() == {"Retry-After", "RateLimit", "RateLimit-Policy"}


def test_job_responses_have_etag_and_created_jobs_location():
    created = DOCUMENT["paths"]["/v1/jobs"]["post"]["responses"]["201"]["headers"]
    assert created.keys() == {"ETag", "Location", "Idempotency-Replay", "RateLimit", "RateLimit-Policy"}


def test_every_schema_reference_resolves():
    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            node = list(node.values())
        if isinstance(node, list):
            for part in node:
                yield from references(part)

    for reference in references(DOCUMENT):
        _, _, kind, name = reference.split("/")
        assert name in DOCUMENT["components"][kind]


def test_request_schemas_forbid_additional_properties():
    def closed(schema: dict[str, Any]) -> bool:
        if "$ref" in schema:
            schema = COMPONENTS[schema["$ref"].rpartition("/")[2]]
        return schema.get("additionalProperties") is False or all(map(closed, schema.get("oneOf", [{}])))

    for name, operation in operations():
        if "requestBody" in operation:
            assert closed(operation["requestBody"]["content"]["application/json"]["schema"]), name


def test_instants_have_format_date_time():
    view = COMPONENTS["JobView"]["properties"]
    assert view["createdAt"] == {"type": "string", "format": "date-time"}
    assert view["nextFireAt"]["anyOf"][0] == {"type": "string", "format": "date-time"}
    assert COMPONENTS["BackfillView"]["properties"]["first"]["items"]["format"] == "date-time"


TARGET = {"pool": "demo", "handler": "demo.echo"}
LEAST: dict[JobType, dict[str, Any]] = {
    JobType.ONE_TIME: {"type": "ONE_TIME", "target": TARGET},
    JobType.DELAYED: {"type": "DELAYED", "target": TARGET, "delaySec": 5},
    JobType.CRON: {"type": "CRON", "target": TARGET, "schedule": "0 3 * * *"},
    JobType.INTERVAL: {"type": "INTERVAL", "target": TARGET, "everySec": 5},
}
VALUES: dict[str, tuple[Any, ...]] = {
    "runAt": ("2040-01-01T00:00:00Z",),
    "delaySec": (-1, 0, 3_162_240_000, 3_162_240_001),
    "schedule": ("* * * * *", "nonsense"),
    "timezone": ("Europe/Berlin", "Europe / Berlin", None),
    "dst": ({"gap": "SKIP"}, {"gap": "JUMP"}),
    "everySec": (0.5, 1, 3_162_240_000, 3_162_240_001),
    "phaseSec": (-1, 3, 3_162_240_000, 3_162_240_001),
    "startAt": ("2040-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "9500-01-01T00:00:00Z"),
    "endAt": ("2040-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "9500-01-01T00:00:00Z"),
    "maxRuns": (0, 1, 10**12, 10**12 + 1),
    "catchUp": (*({"windowSec": seconds} for seconds in (9, 10, 316_224_000, 316_224_001)), {"policy": "ALL"}),
    "startDeadlineSec": (-1, 0, 3_162_240_000, 3_162_240_001),
    "spreadSec": (-1, 0, 86_400, 86_401),
    "timeoutSec": (0, 0.001, 2_592_000, 2_592_001),
    "heartbeatTimeoutSec": (0.5, 1, 2_592_000, 2_592_001),
    "name": ("", "x", "x" * 200, "x" * 201, "a\nb", "\0"),
    "uniqueKey": ("", "x", "x" * 200, "x" * 201),
    "concurrency": (
        *tuple({"key": "k", "limit": limit} for limit in (0, 1, 10**6, 10**6 + 1)),
        {"key": "", "limit": 1},
        *({"key": "k", "limit": limit, "ordered": ordered} for limit in (1, 2) for ordered in (True, False, None)),
    ),
    "tags": ([], ["x"] * 50, ["x"] * 51, [""], ["x" * 201]),
    "target": tuple({"pool": pool, "handler": "h"} for pool in ("", "a", "-a", "a" * 100, "a" * 101, "a b")),
    "retryPolicy": (
        *({"maxAttempts": attempts} for attempts in (0, 1, 100, 101)),
        *({"delaysMs": delays} for delays in ([], [0], [-1], [604_800_000], [604_800_001], [1] * 100, [1] * 101)),
        *({"initialDelayMs": delay} for delay in (-1, 0, 604_800_000, 604_800_001)),
        *({"maxDelayMs": delay} for delay in (-1, 0, 604_800_000, 604_800_001)),
        *({"multiplier": factor} for factor in (0.9, 1, 100, 100.1)),
    ),
    "priority": ("HIGH", "HIGHEST"),
    "overlap": ("SKIP", "skip"),
}


def test_the_table_below_covers_every_field_of_a_job():
    assert VALUES.keys() | {"type", "payload"} == {field.encode_name for field in msgspec.structs.fields(JobSpec)}


@pytest.mark.slow
@pytest.mark.parametrize("type_", JobType)
@pytest.mark.parametrize("field", VALUES)
def test_schema_of_a_job_allows_the_values_that_the_rules_accept(type_: JobType, field: str):
    for value in VALUES[field]:
        job = LEAST[type_] | {field: value}
        if value is None and not JOB_SCHEMA.is_valid(job):
            continue  # null for a field of another type is harmless, and not worth a line in the schema
        assert JOB_SCHEMA.is_valid(job) == is_accepted(job), job


@pytest.mark.parametrize("type_", JobType)
def test_schema_of_a_job_requires_the_fields_that_the_rules_require(type_: JobType):
    for field in LEAST[type_]:
        without = {name: value for name, value in LEAST[type_].items() if name != field}
        assert JOB_SCHEMA.is_valid(without) == is_accepted(without) is False


async def test_the_examples_of_the_document_are_accepted(client: Client):
    for variant in COMPONENTS["JobSpec"]["oneOf"]:
        for example in COMPONENTS[variant["$ref"].rpartition("/")[2]]["examples"]:
            assert (await client.post("/v1/jobs", example)).status == 201
    for variant in COMPONENTS["PreviewRequest"]["oneOf"]:
        for example in COMPONENTS[variant["$ref"].rpartition("/")[2]]["examples"]:
            assert (await client.post("/v1/schedules/preview", example)).status == 200


@pytest.mark.slow
def test_pattern_of_time_zones_matches_every_known_one():
    pattern = jsonschema_rs.Draft202012Validator(COMPONENTS["TimeZone"])
    for name in files("tzdata").joinpath("zones").read_text("ascii").split():
        assert zones.zone(name).key == name
        assert pattern.is_valid(name)


def test_no_schema_is_a_bare_constant():
    def constants(node: Any) -> Iterator[Any]:
        if isinstance(node, dict):
            if "const" in node:
                yield node
            node = [value for key, value in node.items() if key not in ("default", "examples")]
        if isinstance(node, list):
            for part in node:
                yield from constants(part)

    assert list(constants(DOCUMENT)) == []


def test_no_reference_has_an_empty_default():
    for component in COMPONENTS.values():
        for field in component.get("properties", {}).values():
            assert "$ref" not in field or field.get("default") != {}


PATTERN = jsonschema_rs.Draft202012Validator({"type": "string", "pattern": CRON})
FIELD_TEXT = st.text("0123456789*-/,#LWlwMONsunjan", min_size=1, max_size=5)


@pytest.mark.slow
@given(st.lists(FIELD_TEXT, min_size=4, max_size=7).map(" ".join))
def test_cron_pattern_matches_every_parsable_expression(text: str):
    try:
        cron_parsing.parse(text)
    except InvalidInput:
        return
    assert PATTERN.is_valid(text)


@pytest.mark.parametrize(
    "text", ["0 3 * * *", "0 0 3 * * MON-FRI", "*/5 0-23/2 L,15 jan 5#2", "0 0 LW * friL", *cron_parsing.ALIASES]
)
def test_cron_pattern_matches_the_whole_dialect(text: str):
    cron_parsing.parse(text)
    assert PATTERN.is_valid(text)


@pytest.mark.parametrize(
    "text", ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "@often"]
)
def test_cron_pattern_rejects_invalid_expressions(text: str):
    assert not PATTERN.is_valid(text)
