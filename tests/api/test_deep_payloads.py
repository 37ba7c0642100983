"""Payloads that are nested deeply, and those that were stored before the depth was limited."""

from typing import Any

import pytest

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.intake.presenters import Presenter
from noonday.model.nesting import MOST_LEVELS
from tests.api.asgi import Client

TARGET = {"pool": "demo", "handler": "h"}


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def job_with(payload: bytes) -> bytes:
    return b'{"type": "ONE_TIME", "target": {"pool": "demo", "handler": "h"}, "payload": ' + payload + b"}"


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 500])
async def test_a_payload_that_is_nested_too_deeply_is_refused(client: Client, levels: int) -> None:
    response = await client.post("/v1/jobs", job_with(nested(levels)))
    assert (response.status, response.flaw["pointer"]) == (422, "/payload")


async def test_a_body_that_cannot_be_followed_is_refused(client: Client) -> None:
    response = await client.post("/v1/jobs", job_with(nested(100_000)))
    assert (response.status, response.code) == (400, "malformed-body")


async def test_a_payload_that_is_accepted_can_be_read(client: Client) -> None:
    made = await client.post("/v1/jobs", job_with(nested(MOST_LEVELS)))
    assert made.status == 201
    shown = await client.get(f"/v1/jobs/{made.json['jobId']}")
    assert shown.status == 200
    assert levels_in(shown.json["payload"]) == MOST_LEVELS


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 500])
async def test_a_job_is_not_replaced_by_one_that_cannot_be_read(client: Client, levels: int) -> None:
    made = (await client.post("/v1/jobs", job_with(b"1"))).json
    response = await client.put(f"/v1/jobs/{made['jobId']}", job_with(nested(levels)))
    assert (response.status, response.flaw["pointer"]) == (422, "/payload")


async def test_each_job_of_a_batch_is_judged_by_itself(client: Client) -> None:
    batch = b'{"jobs": [' + job_with(nested(200)) + b", " + job_with(b"1") + b"]}"
    bad, good = (await client.post("/v1/jobs/batch", batch)).json["jobs"]
    assert (bad["status"], good["payload"]) == (422, 1)


async def test_the_body_of_a_task_is_bounded_too(client: Client) -> None:
    task = (
        b'{"type": "ONE_TIME", "scheduled_at": "2031-01-01T00:00:00Z", "payload": '
        b'{"webhook_url": "https://example.com/", "body": ' + nested(300) + b"}}"
    )
    assert (await client.post("/v1/tasks", task, idempotency_key="k")).status == 422


def test_stored_payload_that_is_nested_too_deeply_is_shown_as_unreadable() -> None:
    keyring = Keyring.generate()
    sealed = keyring.seal(nested(50_000), context_of("acme", "j"))
    assert Presenter(keyring, None).open(sealed, "acme", "j") == {"unreadable": "nested too deeply to be decoded"}


def levels_in(value: Any) -> int:
    levels = 0
    while isinstance(value, list):
        levels += 1
        value = value[0] if value else None
    return levels
