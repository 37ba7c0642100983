"""What is sent to a receiver, checked by the receiver; and what its answer means."""

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
from noonday.runtime.clock import SystemClock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.calling import Caller
from noonday.webhooks.methods import Method
from noonday.webhooks.sending import SEALED_FOR, Call, CallFailed, Sender, body_of
from noonday.webhooks.signing import new_key_pair, new_secret, verify
from noonday.webhooks.urls import read_url
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
async def sender() -> AsyncIterator[Sender]:
    async with Caller(Networks(["127.0.0.0/8"]), SystemClock()) as caller:
        yield Sender(caller, KEYRING, "noonday/test")


def sealed(*secrets: str, tenant: str = TENANT) -> tuple[bytes, ...]:
    return tuple(KEYRING.seal(secret.encode(), context_of(tenant, SEALED_FOR)) for secret in secrets)


def context(url: str, **said: Any) -> Context:
    made: Dispatch = dispatch(**{"endpoint": str(read_url(url)), "secrets": sealed(SECRET), "timeout_sec": 5.0, **said})
    return Context(made, Token(1, NOW_MS), None)


def account(ctx: Context) -> Any:
    assert ctx._account is not None
    return json.loads(ctx._account)


async def failure(sender: Sender, url: str, **said: Any) -> tuple[CallFailed, Context]:
    ctx = context(url, **said)
    with pytest.raises(CallFailed) as caught:
        await sender.send(ctx, Call(url))
    return caught.value, ctx


async def test_a_call_is_signed_so_that_the_reference_library_accepts_it(sender: Sender, receiver: Receiver) -> None:
    url = receiver.url("/status/200")
    ctx = context(url)
    answer = await sender.send(ctx, Call(url, body={"report": "daily"}))
    assert answer.status == 200
    headers = {name: receiver.header(name) or "" for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
    assert Webhook(SECRET).verify(receiver.bodies[0], headers) == {"report": "daily"}
    assert headers["webhook-id"] == receiver.header("X-Idempotency-Key") == ctx.execution_id


async def test_while_a_secret_is_replaced_both_sign_of_either_kind(sender: Sender, receiver: Receiver) -> None:
    url, keys = receiver.url("/status/200"), new_key_pair()
    await sender.send(context(url, secrets=sealed(keys.private, SECRET)), Call(url))
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    headers = {name: receiver.header(name) or "" for name in names}
    now_sec = int(headers["webhook-timestamp"])
    assert verify([SECRET], headers, b"", now_sec) == verify([keys.public], headers, b"", now_sec)


async def test_what_a_receiver_is_told_besides(sender: Sender, receiver: Receiver) -> None:
    url = receiver.url("/status/200")
    ctx = context(url, attempt=3)
    await sender.send(ctx, Call(url, "PUT", {"x-mine": "yes", "user-agent": "shop"}, {"a": 1}))
    assert receiver.heads[0].startswith("PUT /status/200 HTTP/1.1")
    said = {
        name: receiver.header(name) for name in ("noonday-attempt", "noonday-scheduled-at", "traceparent", "x-mine")
    }
    assert said == {
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
def test_a_body_is_json_unless_it_is_text_and_a_header_says_otherwise(
    body: Any, headers: dict[str, str], sent: Any
) -> None:
    assert body_of(Call("https://a.example", headers=headers, body=body)) == sent


async def test_of_a_call_the_whole_exchange_is_kept_without_secrets(sender: Sender, receiver: Receiver) -> None:
    url = receiver.url("/status/201/X-Api-Key:hidden")
    ctx = context(url)
    await sender.send(ctx, Call(url, headers={"Authorization": "Bearer hidden"}, body={"a": 1}))
    kept = account(ctx)
    assert "hidden" not in json.dumps(kept).replace(url, "")
    assert kept["request"]["body"] == '{"a":1}'
    assert kept["response"]["status"] == 201
    assert kept["response"]["body"] == "{}"
    assert kept["timings"]["total_ms"] > 0
    assert "error" not in kept


async def test_what_may_work_next_time_is_tried_again_when_the_receiver_wants_it(
    sender: Sender, receiver: Receiver
) -> None:
    failed, ctx = await failure(sender, receiver.url("/status/429/Retry-After:7"))
    assert (failed.failure.type, failed.failure.retryable, failed.counts) == ("HTTP_429", True, True)
    assert 6 < failed.seconds <= 7
    assert account(ctx)["response"]["status"] == 429


@pytest.mark.parametrize(("status", "kind"), [("404", "HTTP_404"), ("301", "HTTP_301"), ("410", GONE)])
async def test_what_will_never_work_is_not_tried_again(
    sender: Sender, receiver: Receiver, status: str, kind: str
) -> None:
    failed, _ = await failure(sender, receiver.url(f"/status/{status}"))
    assert (failed.failure.type, failed.failure.retryable, failed.counts) == (kind, False, False)


async def test_a_timeout_after_the_request_left_is_kept_as_such(sender: Sender, receiver: Receiver) -> None:
    failed, ctx = await failure(sender, receiver.url("/slow-headers"), timeout_sec=0.2)
    assert (failed.failure.type, failed.failure.retryable) == ("TIMEOUT_AFTER_SENT", True)
    assert account(ctx)["error"]["kind"] == "TIMEOUT_AFTER_SENT"


async def test_an_address_that_may_not_be_called_is_not_called(receiver: Receiver) -> None:
    async with Caller(Networks(), SystemClock()) as caller:
        failed, _ = await failure(Sender(caller, KEYRING, ""), receiver.url("/status/200"))
    assert (failed.failure.type, failed.failure.retryable) == ("REFUSED_ADDRESS", False)
    assert receiver.connections == 0


async def test_nothing_is_sent_unsigned(sender: Sender, receiver: Receiver) -> None:
    failed, _ = await failure(sender, receiver.url("/status/200"), secrets=())
    assert (failed.failure.type, failed.failure.retryable) == ("NoSecret", True)
    assert receiver.connections == 0


async def test_the_secret_of_one_endpoint_signs_nothing_for_another(sender: Sender, receiver: Receiver) -> None:
    url = receiver.url("/status/200")
    with pytest.raises(
        CallFailed, match=r"the job is for https://a\.example:443, and its URL is of http://127"
    ) as caught:
        await sender.send(context(url, endpoint="https://a.example:443"), Call(url))
    assert not caught.value.failure.retryable
    assert receiver.connections == 0


async def test_a_task_says_which_statuses_are_tried_again(sender: Sender, receiver: Receiver) -> None:
    for status, statuses, retryable in (
        (409, {409}, True),
        (503, {409}, False),
        (503, set(), False),
        (503, None, True),
    ):
        url = receiver.url(f"/status/{status}")
        with pytest.raises(CallFailed) as caught:
            await sender.send(
                context(url), Call(url, retried_statuses=None if statuses is None else frozenset(statuses))
            )
        assert caught.value.failure.retryable is retryable, (status, statuses)


async def test_without_an_answer_a_call_is_always_tried_again(sender: Sender, receiver: Receiver) -> None:
    url = receiver.url("/hang-up")
    with pytest.raises(CallFailed) as caught:
        await sender.send(context(url), Call(url, retried_statuses=frozenset()))
    assert caught.value.failure.retryable


INBOX = "POST /status/200/X-Of:inbox HTTP/1.1\r\nHost: shared.example\r\nContent-Length: 400\r\n\r\n"
"""Written behind a request, it makes the beginning of the next one on the same connection its own body."""
SMUGGLED = {
    "chunked": Call("", "POST", {"Transfer-Encoding": "chunked", "Content-Type": "text/plain"}, f"0\r\n\r\n{INBOX}"),
    "length": Call("", "POST", {"content-length": "0", "Content-Type": "text/plain"}, INBOX),
    "header": Call("", "GET", {"X-Mine": f"a\r\nContent-Length: 0\r\n\r\n{INBOX}"}),
    "header name": Call("", "GET", {f"X: a\r\n\r\n{INBOX}": "a"}),
    "method": Call("", f"GET /status/200 HTTP/1.1\r\nHost: a\r\n\r\n{INBOX}GET"),
    "host": Call("", "GET", {"Host": "internal.example"}),
    "connection": Call("", "GET", {"Connection": "X-Idempotency-Key"}),
    "upgrade": Call("", "GET", {"Upgrade": "h2c"}),
    "signature": Call("", "GET", {"webhook-signature": "v1,forged"}),
}


@pytest.mark.parametrize("call", SMUGGLED.values(), ids=SMUGGLED)
async def test_request_cannot_be_smuggled_into_another_tenants_call(
    sender: Sender, receiver: Receiver, call: Call
) -> None:
    url = receiver.url("/status/200/X-Of:victim")
    with pytest.raises(CallFailed) as caught:
        await sender.send(context(url), msgspec.structs.replace(call, webhook_url=url))
    assert (caught.value.failure.type, caught.value.failure.retryable) == ("BAD_CALL", False)
    assert receiver.connections == 0
    ctx = context(url, tenant="victim", secrets=sealed(SECRET, tenant="victim"))
    assert (await sender.send(ctx, Call(url, body="private"))).status == 200
    assert (receiver.paths, receiver.bodies) == (["/status/200/X-Of:victim"], [b'"private"'])


@pytest.mark.parametrize("name", ODD_ANSWERS)
async def test_odd_answer_is_a_success(sender: Sender, receiver: Receiver, name: str) -> None:
    url = receiver.url(f"/odd/{name}")
    ctx = context(url)
    assert (await sender.send(ctx, Call(url))).status in (200, 201)
    assert account(ctx)["response"]["status"] in (200, 201)


async def test_tenants_share_no_connection(sender: Sender, receiver: Receiver) -> None:
    url = receiver.url("/status/200")
    for tenant in ("one", "two", "one", "two"):
        await sender.send(context(url, tenant=tenant, secrets=sealed(SECRET, tenant=tenant)), Call(url))
    assert (len(receiver.heads), receiver.connections) == (4, 2)


async def test_methods_are_those_of_tasks(sender: Sender, receiver: Receiver) -> None:
    url = receiver.url("/close")
    for method in Method:
        await sender.send(context(url), Call(url, method.value))
    assert [head.split(" ")[0] for head in receiver.heads] == list(Method)


async def test_call_ends_when_the_operator_says_so(receiver: Receiver) -> None:
    url = receiver.url("/slow-headers")
    async with Caller(Networks(["127.0.0.0/8"]), SystemClock()) as caller:
        patient = Sender(caller, KEYRING, "noonday/test", max_timeout_sec=0.2)
        failed, _ = await failure(patient, url, timeout_sec=30 * 86_400.0)
    assert failed.failure.type == "TIMEOUT_AFTER_SENT"
