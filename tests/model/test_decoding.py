from typing import Any

import pytest

from noonday.model.decoding import BodyDecoder
from noonday.model.errors import Flaw, InvalidInput, MalformedBody
from noonday.model.job import JobSpec, JobType
from noonday.model.view import TenantSettings

DECODER = BodyDecoder(JobSpec)
TARGET = b'"target": {"pool": "p", "handler": "h"}'


def flaw_in(body: bytes) -> Flaw:
    with pytest.raises(InvalidInput) as refused:
        DECODER.decode(body)
    (flaw,) = refused.value.flaws
    return flaw


def test_an_unknown_field_is_named_with_the_nearest_known_one():
    flaw = flaw_in(b'{"type": "CRON", "shedule": "* * * * *", %s}' % TARGET)
    assert (flaw.pointer, flaw.value, flaw.nearest) == ("/shedule", "* * * * *", "schedule")
    assert "schedule" in flaw.allowed


def test_unknown_nested_field_is_compared_with_fields_of_its_object():
    flaw = flaw_in(b'{"type": "CRON", "retryPolicy": {"maxAttempt": 3}, %s}' % TARGET)
    assert (flaw.pointer, flaw.value, flaw.nearest) == ("/retryPolicy/maxAttempt", 3, "maxAttempts")


def test_missing_field_has_the_pointer_of_its_position():
    flaw = flaw_in(b'{"type": "CRON", "target": {"pool": "p"}}')
    assert (flaw.pointer, flaw.detail) == ("/target/handler", "handler is required")


def test_invalid_enum_value_lists_the_allowed_ones():
    flaw = flaw_in(b'{"type": "CORN", %s}' % TARGET)
    assert (flaw.pointer, flaw.value, flaw.nearest) == ("/type", "CORN", "CRON")
    assert flaw.allowed == [type_.value for type_ in JobType]


@pytest.mark.parametrize(
    ("field", "pointer", "value"),
    [
        (b'"tags": ["a", 7]', "/tags/1", 7),
        (b'"timeoutSec": "10"', "/timeoutSec", "10"),
        (b'"startAt": "tomorrow"', "/startAt", "tomorrow"),
        (b'"retryPolicy": {"delaysMs": [1, null]}', "/retryPolicy/delaysMs/1", None),
        (b'"maxRuns": 1.5', "/maxRuns", 1.5),
        (b'"maxRuns": true', "/maxRuns", True),
        (b'"concurrency": []', "/concurrency", []),
    ],
)
def test_value_of_wrong_type_is_reported_with_its_pointer(field: bytes, pointer: str, value: Any):
    flaw = flaw_in(b'{"type": "CRON", %s, %s}' % (TARGET, field))
    assert (flaw.pointer, flaw.value) == (pointer, value)


def test_the_pointer_of_a_field_with_slashes_is_escaped():
    assert flaw_in(b'{"type": "CRON", "a/b~c": 1, %s}' % TARGET).pointer == "/a~1b~0c"


@pytest.mark.parametrize("name", ["x` - at `$.target", "`", "ü\\n", "$", ""])
def test_special_field_names_are_reported_correctly(name: str):
    flaw_in(b'{"type": "CRON", "%s": 1, %s}' % (name.encode(), TARGET))


def test_long_field_name_is_truncated():
    flaw = flaw_in(b'{"type": "CRON", "%s": 1, %s}' % (b"x" * 900_000, TARGET))
    assert len(flaw.pointer) == 101


def test_whole_float_is_accepted_as_integer():
    body = b'{"type": "CRON", "maxRuns": 3.0, "retryPolicy": {"delaysMs": [1.0, 2, 3.0], "maxAttempts": 2.0}, %s}'
    spec = DECODER.decode(body % TARGET)
    assert (spec.max_runs, spec.retry_policy.delays_ms, spec.retry_policy.max_attempts) == (3, (1, 2, 3), 2)


def test_a_float_in_the_payload_stays_a_float():
    spec = DECODER.decode(b'{"type": "CRON", "maxRuns": 3.0, "payload": {"x": 1.0}, %s}' % TARGET)
    assert isinstance(spec.payload["x"], float)


@pytest.mark.parametrize(
    ("body", "detail", "position"),
    [
        (b"", "the body is empty", 0),
        (b"  \n", "the body is empty", 0),
        (b'{"type": }', "JSON is malformed: invalid character, at byte 9 (line 1, column 10)", 9),
        (b'{\n "type": }', "JSON is malformed: invalid character, at byte 11 (line 2, column 10)", 11),
        (b'{"type"', "Input data was truncated, at byte 7", 7),
        (b'{"type": "\xff"}', "the body is not UTF-8, at byte 10", 10),
        (b'3\xff"', "the body is not UTF-8, at byte 1", 1),
        (b'{"type": "\\ud800"}', "", None),
        (b'{"type": NaN}', "JSON is malformed", 9),
    ],
)
def test_malformed_json_is_reported_with_its_position(body: bytes, detail: str, position: int | None):
    with pytest.raises(MalformedBody) as refused:
        DECODER.decode(body)
    assert refused.value.detail.startswith(detail)
    assert position in (None, refused.value.context["position"])


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_json_that_is_nested_too_deeply_is_malformed(depth: int):
    with pytest.raises(MalformedBody, match="nested too deeply"):
        DECODER.decode(b'{"payload": %s%s}' % (b"[" * depth, b"]" * depth))


def test_nul_character_is_accepted():
    assert DECODER.decode(b'{"type": "CRON", "name": "\\u0000", %s}' % TARGET).name == "\0"


TENANT = BodyDecoder(TenantSettings)


@pytest.mark.parametrize(
    ("pools", "pointer", "value", "likely"),
    [
        (b'{"etl": {}, "mail": {"maxRunning": "x"}}', "/pools/mail/maxRunning", "x", None),
        (b'{"mail": {"maxRuning": 1}}', "/pools/mail/maxRuning", 1, "maxRunning"),
        (b'{"mail": 3}', "/pools/mail", 3, None),
    ],
)
def test_flaw_in_a_dict_value_names_its_key(pools: bytes, pointer: str, value: object, likely: str | None):
    with pytest.raises(InvalidInput) as refused:
        TENANT.decode(b'{"pools": %s}' % pools)
    (flaw,) = refused.value.flaws
    assert (flaw.pointer, flaw.value, flaw.nearest) == (pointer, value, likely)


def test_whole_float_in_a_dict_is_accepted_as_integer():
    read = TENANT.decode(b'{"pools": {"etl": {"maxRunning": 3.0}, "mail": {"maxRunning": 5.0}}}')
    assert [each.max_running for each in read.pools.values()] == [3, 5]
