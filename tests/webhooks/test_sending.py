"""Requests to a receiver, checked by the receiver; and the meaning of its answers."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.execution import GONE
from noonday.model.message import Dispatch, Token
from noonday.model.tasks.wire import Method
from noonday.model.url import read_url
from noonday.runtime.clock import SystemClock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.calling import WebhookClient
from noonday.webhooks.sending import SEALED_FOR, CallFailed, WebhookCall, WebhookSender, body_of
from noonday.webhooks.signing import new_key_pair, new_secret, verify
from noonday.worker.context import Context
from tests.support.factories import NOW_MS, TENANT, dispatch
from tests.webhooks.receiver import ODD_ANSWERS, Receiver

KEYRING = Keyring.generate()
SECRET = new_secret()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as opened:
        yield opened


@pytest.fixture
async def sender() -> AsyncIterator[WebhookSender]:
    async with WebhookClient(Networks(["127.0.0.0/8"]), SystemClock()) as client:
        yield WebhookSender(client, KEYRING, "noonday/test")


def sealed(*secrets: str, tenant: str = TENANT) -> tuple[bytes, ...]:
    return tuple(KEYRING.seal(secret.encode(), context_of(tenant, SEALED_FOR)) for secret in secrets)


def context(url: str, **fields: Any) -> Context:
    made: Dispatch = dispatch(
        **{"endpoint": str(read_url(url)), "secrets": sealed(SECRET), "timeout_sec": 5.0, **fields}
    )
    return Context(made, Token(1, NOW_MS), None)


def exchange(ctx: Context) -> Any:
    assert ctx._attempt_record is not None
    return json.loads(ctx._attempt_record)


async def failure(sender: WebhookSender, url: str, **fields: Any) -> tuple[CallFailed, Context]:
    ctx = context(url, **fields)
    with pytest.raises(CallFailed) as caught:
        await sender.send(ctx, WebhookCall(url))
    return caught.value, ctx


@pytest.mark.slow
async def test_reference_library_accepts_the_signature(sender: WebhookSender, receiver: Receiver) -> None:
    url = receiver.url("/status/200")
    ctx = context(url)
    answer = await sender.send(ctx, WebhookCall(url, body={"report": "daily"}))
    assert answer.status == 200
    headers = {name: receiver.header(name) or "" for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
    assert Webhook(SECRET).verify(receiver.bodies[0], headers) == {"report": "daily"}
    assert headers["webhook-id"] == receiver.header("X-Idempotency-Key") == ctx.execution_id


@pytest.mark.slow
async def test_both_secrets_of_a_rotation_sign(sender: WebhookSender, receiver: Receiver) -> None:
    url, keys = receiver.url("/status/200"), new_key_pair()
    await sender.send(context(url, secrets=sealed(keys.private, SECRET)), WebhookCall(url))
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    headers = {name: receiver.header(name) or "" for name in names}
    now_sec = int(headers["webhook-timestamp"])
    assert verify([SECRET], headers, b"", now_sec) == verify([keys.public], headers, b"", now_sec)


@pytest.mark.slow
async def test_call_carries_attempt_schedule_and_trace_headers(sender: WebhookSender, receiver: Receiver) -> None:
    url = receiver.url("/status/200")
    ctx = context(url, attempt=3)
    await sender.send(ctx, WebhookCall(url, "PUT", {"x-mine": "yes", "user-agent": "shop"}, {"a": 1}))
    assert receiver.heads[0].startswith("PUT /status/200 HTTP/1.1")
    sent = {
        name: receiver.header(name) for name in ("noonday-attempt", "noonday-scheduled-at", "traceparent", "x-mine")
    }
    assert sent == {
        "noonday-attempt": "3",
        "noonday-scheduled-at": "2030-01-01T00:00:00Z",
        "traceparent": ctx.traceparent,
        "x-mine": "yes",
    }
    assert receiver.header("content-type") == "application/json"
    assert receiver.header("user-agent") == "shop"
    assert receiver.bodies[0] == b'{"a":1}'


@pytest.mark.parametrize(
    ("body", "headers", "sent"),
    [
        (None, {}, (b"", None)),
        ({"a": 1}, {}, (b'{"a":1}', "application/json")),
        ("text", {}, (b'"text"', "application/json")),
        ("a=1&b=2", {"Content-Type": "application/x-www-form-urlencoded"}, (b"a=1&b=2", None)),
        ("text", {"content-type": "application/ld+json"}, (b'"text"', None)),
        ([1], {"content-type": "text/plain"}, (b"[1]", None)),
    ],
)
def test_body_is_json_unless_it_is_text_of_another_content_type(body: Any, headers: dict[str, str], sent: Any) -> None:
    assert body_of(WebhookCall("https://a.example", headers=headers, body=body)) == sent


@pytest.mark.slow
async def test_record_has_the_exchange_without_secrets(sender: WebhookSender, receiver: Receiver) -> None:
    url = receiver.url("/status/201/X-Api-Key:hidden")
    ctx = context(url)
    await sender.send(ctx, WebhookCall(url, headers={"Authorization": "Bearer hidden"}, body={"a": 1}))
    kept = exchange(ctx)
    assert "hidden" not in json.dumps(kept).replace(url, "")
    assert kept["request"]["body"] == '{"a":1}'
    assert kept["response"]["status"] == 201
    assert kept["response"]["body"] == "{}"
    assert kept["timings"]["total_ms"] > 0
    assert "error" not in kept


@pytest.mark.slow
async def test_retryable_failure_waits_for_retry_after(sender: WebhookSender, receiver: Receiver) -> None:
    failed, ctx = await failure(sender, receiver.url("/status/429/Retry-After:7"))
    assert (failed.failure.type, failed.failure.retryable, failed.counts) == ("HTTP_429", True, True)
    assert 6 < failed.seconds <= 7
    assert exchange(ctx)["response"]["status"] == 429


@pytest.mark.slow
@pytest.mark.parametrize(("status", "kind"), [("404", "HTTP_404"), ("301", "HTTP_301"), ("410", GONE)])
async def test_permanent_failure_is_not_retried(
    sender: WebhookSender, receiver: Receiver, status: str, kind: str
) -> None:
    failed, _ = await failure(sender, receiver.url(f"/status/{status}"))
    assert (failed.failure.type, failed.failure.retryable, failed.counts) == (kind, False, False)


@pytest.mark.slow
async def test_timeout_after_sent_is_recorded(sender: WebhookSender, receiver: Receiver) -> None:
    failed, ctx = await failure(sender, receiver.url("/slow-headers"), timeout_sec=0.2)
    assert (failed.failure.type, failed.failure.retryable) == ("TIMEOUT_AFTER_SENT", True)
    assert exchange(ctx)["error"]["kind"] == "TIMEOUT_AFTER_SENT"


@pytest.mark.slow
async def test_refused_address_is_not_called(receiver: Receiver) -> None:
    async with WebhookClient(Networks(), SystemClock()) as client:
        failed, _ = await failure(WebhookSender(client, KEYRING, ""), receiver.url("/status/200"))
    assert (failed.failure.type, failed.failure.retryable) == ("REFUSED_ADDRESS", False)
    assert receiver.connections == 0


@pytest.mark.slow
async def test_call_without_a_secret_sends_nothing(sender: WebhookSender, receiver: Receiver) -> None:
    failed, _ = await failure(sender, receiver.url("/status/200"), secrets=())
    assert (failed.failure.type, failed.failure.retryable) == ("NoSecret", True)
    assert receiver.connections == 0


@pytest.mark.slow
async def test_secret_of_one_endpoint_does_not_sign_for_another(sender: WebhookSender, receiver: Receiver) -> None:
    url = receiver.url("/status/200")
    with pytest.raises(
        CallFailed, match=r"the job is for https://a\.example:443, but its URL is of http://127"
    ) as caught:
        await sender.send(context(url, endpoint="https://a.example:443"), WebhookCall(url))
    assert not caught.value.failure.retryable
    assert receiver.connections == 0


@pytest.mark.slow
async def test_task_sets_the_retried_statuses(sender: WebhookSender, receiver: Receiver) -> None:
    for status, statuses, retryable in (
        (409, {409}, True),
        (503, {409}, False),
        (503, set(), False),
        (503, None, True),
    ):
        url = receiver.url(f"/status/{status}")
        with pytest.raises(CallFailed) as caught:
            await sender.send(
                context(url), WebhookCall(url, retried_statuses=None if statuses is None else frozenset(statuses))
            )
        assert caught.value.failure.retryable is retryable, (status, statuses)


@pytest.mark.slow
async def test_call_without_a_response_is_always_retried(sender: WebhookSender, receiver: Receiver) -> None:
    url = receiver.url("/hang-up")
    with pytest.raises(CallFailed) as caught:
        await sender.send(context(url), WebhookCall(url, retried_statuses=frozenset()))
    assert caught.value.failure.retryable


INBOX = "POST /status/200/X-Of:inbox HTTP/1.1\r\nHost: shared.example\r\nContent-Length: 400\r\n\r\n"
"""Behind a request, these bytes turn the beginning of the next request on the same connection into its body."""
SMUGGLED = {
    "chunked": WebhookCall(
        "", "POST", {"Transfer-Encoding": "chunked", "Content-Type": "text/plain"}, f"0\r\n\r\n{INBOX}"
    ),
    "length": WebhookCall("", "POST", {"content-length": "0", "Content-Type": "text/plain"}, INBOX),
    "header": WebhookCall("", "GET", {"X-Mine": f"a\r\nContent-Length: 0\r\n\r\n{INBOX}"}),
    "header name": WebhookCall("", "GET", {f"X: a\r\n\r\n{INBOX}": "a"}),
    "method": WebhookCall("", f"GET /status/200 HTTP/1.1\r\nHost: a\r\n\r\n{INBOX}GET"),
    "host": WebhookCall("", "GET", {"Host": "internal.example"}),
    "connection": WebhookCall("", "GET", {"Connection": "X-Idempotency-Key"}),
    "upgrade": WebhookCall("", "GET", {"Upgrade": "h2c"}),
    "signature": WebhookCall("", "GET", {"webhook-signature": "v1,forged"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", SMUGGLED.values(), ids=SMUGGLED)
async def test_request_cannot_be_smuggled_into_another_tenants_call(
    sender: WebhookSender, receiver: Receiver, call: WebhookCall
) -> None:
    url = receiver.url("/status/200/X-Of:victim")
    with pytest.raises(CallFailed) as caught:
        await sender.send(context(url), msgspec.structs.replace(call, webhook_url=url))
    assert (caught.value.failure.type, caught.value.failure.retryable) == ("BAD_CALL", False)
    assert receiver.connections == 0
    ctx = context(url, tenant="victim", secrets=sealed(SECRET, tenant="victim"))
    assert (await sender.send(ctx, WebhookCall(url, body="private"))).status == 200
    assert (receiver.paths, receiver.bodies) == (["/status/200/X-Of:victim"], [b'"private"'])


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD_ANSWERS)
async def test_odd_answer_is_a_success(sender: WebhookSender, receiver: Receiver, name: str) -> None:
    url = receiver.url(f"/odd/{name}")
    ctx = context(url)
    assert (await sender.send(ctx, WebhookCall(url))).status in (200, 201)
    assert exchange(ctx)["response"]["status"] in (200, 201)


@pytest.mark.slow
async def test_tenants_share_no_connection(sender: WebhookSender, receiver: Receiver) -> None:
    url = receiver.url("/status/200")
    for tenant in ("one", "two", "one", "two"):
        await sender.send(context(url, tenant=tenant, secrets=sealed(SECRET, tenant=tenant)), WebhookCall(url))
    assert (len(receiver.heads), receiver.connections) == (4, 2)


@pytest.mark.slow
async def test_methods_are_those_of_tasks(sender: WebhookSender, receiver: Receiver) -> None:
    url = receiver.url("/close")
    for method in Method:
        await sender.send(context(url), WebhookCall(url, method.value))
    assert [head.split(" ")[0] for head in receiver.heads] == list(Method)


@pytest.mark.slow
async def test_call_ends_at_the_operators_maximum_timeout(receiver: Receiver) -> None:
    url = receiver.url("/slow-headers")
    async with WebhookClient(Networks(["127.0.0.0/8"]), SystemClock()) as client:
        patient = WebhookSender(client, KEYRING, "noonday/test", max_timeout_sec=0.2)
        failed, _ = await failure(patient, url, timeout_sec=30 * 86_400.0)
    assert failed.failure.type == "TIMEOUT_AFTER_SENT"
