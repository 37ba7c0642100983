"""The handler that calls a webhook: what is sent, and what its outcome means for the execution."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.errors import Flaw, InvalidInput
from noonday.model.execution import GONE, Failure
from noonday.model.redaction import redacted
from noonday.runtime.tracing import present_traceparent, tell_of_call
from noonday.webhooks.calling import Caller, Exchange, Request
from noonday.webhooks.handler import MAX_TIMEOUT_SEC
from noonday.webhooks.headers import flaws_of
from noonday.webhooks.judging import DEFAULTS, Judgement, JudgingSettings, Verdict, judge
from noonday.webhooks.methods import Method
from noonday.webhooks.signing import sign
from noonday.webhooks.urls import read_url
from noonday.worker.context import Context, RetryLater

SEALED_FOR = "webhook-secrets"
"""What the ciphertext of a secret is bound to, besides its tenant."""
DEFAULT_TIMEOUT_SEC = 30.0
METHODS = tuple(method.value for method in Method)
_MESSAGE = 1_000
_KEPT_BODY = 65_536
_MOST_OPENED = 10_000
_encode = msgspec.json.Encoder().encode


class Call(msgspec.Struct, frozen=True):
    """The payload of a job that calls a webhook."""

    webhook_url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    body: Any = None
    retried_statuses: frozenset[int] | None = None
    """After which a call is made again; None: those after which it is unless told otherwise."""

    @property
    def judging(self) -> JudgingSettings:
        return DEFAULTS if self.retried_statuses is None else JudgingSettings(self.retried_statuses)


class Answer(msgspec.Struct, frozen=True):
    """What is kept as the result of a call that succeeded; the whole exchange is kept with the attempt."""

    status: int
    duration_ms: float


class CallFailed(RetryLater):
    """A call that did not succeed, as it is kept and shown."""

    code = "call-failed"

    def __init__(self, failure: Failure, seconds: float = 0, *, counts: bool = False) -> None:
        super().__init__(f"{failure.type}: {failure.message}", seconds)
        self.failure = failure
        self.counts = counts


class Sender:
    """Makes the call of one attempt. Used on one loop."""

    def __init__(
        self, caller: Caller, keyring: Keyring, user_agent: str, max_timeout_sec: float = MAX_TIMEOUT_SEC
    ) -> None:
        """A call ends after `max_timeout_sec`, whatever its job says."""
        self._caller = caller
        self._keyring = keyring
        self._user_agent = user_agent
        self._max_timeout_sec = max_timeout_sec
        self._opened: dict[tuple[str, tuple[bytes, ...]], list[str]] = {}
        """Secrets that were opened before, by tenant and ciphertext: most calls of a tenant are signed with the same."""

    async def close(self) -> None:
        await self._caller.close()

    async def send(self, ctx: Context, call: Call) -> Answer:
        """Raises CallFailed. The account of the attempt is in the context, whatever comes of it."""
        _check(ctx, call)
        request = self._request(ctx, call)
        timeout_sec = min(ctx._dispatch.timeout_sec or DEFAULT_TIMEOUT_SEC, self._max_timeout_sec)
        exchange = await self._caller.call(ctx.tenant, request, timeout_sec)
        tell_of_call(request.method, read_url(request.url).host, exchange.status)
        ctx._account = account_of(request, exchange)
        judgement = judge(exchange, call.judging)
        if judgement.verdict is Verdict.SUCCEEDED and exchange.status is not None:
            return Answer(exchange.status, exchange.timings.total_ms)
        raise failed(judgement, exchange)

    def _request(self, ctx: Context, call: Call) -> Request:
        body, content_type = body_of(call)
        headers = {
            "User-Agent": self._user_agent,
            **({"Content-Type": content_type} if content_type else {}),
            **_canonical(call.headers),
            "X-Idempotency-Key": ctx.execution_id,
            "noonday-attempt": str(ctx.attempt),
            "noonday-token": str(ctx.token),
            "noonday-scheduled-at": ctx.scheduled_at.isoformat().replace("+00:00", "Z"),
            "traceparent": present_traceparent() or ctx.traceparent,
            **sign(self._secrets(ctx), ctx.execution_id, int(time.time()), body),
        }
        return Request(call.method, call.webhook_url, headers, body)

    def _secrets(self, ctx: Context) -> list[str]:
        sealed = ctx._dispatch.secrets
        if not sealed:
            failure = Failure("NoSecret", "there is no valid secret to sign with: make one at /v1/webhook-secrets")
            raise CallFailed(failure)
        opened = self._opened.get((ctx.tenant, sealed))
        if opened is None:
            if len(self._opened) >= _MOST_OPENED:
                self._opened.clear()
            context = context_of(ctx.tenant, SEALED_FOR)
            opened = [self._keyring.open(each, context).decode() for each in sealed]
            self._opened[ctx.tenant, sealed] = opened
        return opened


def _check(ctx: Context, call: Call) -> None:
    """Refuse what a task could not have said: the job may be older than the checks at its door, or have passed by them.

    Raises CallFailed, for good.
    """
    flaws = flaws_of(call.headers)
    if call.method not in METHODS:
        flaws.append(Flaw("/payload/method", f"{call.method[:20]!r} is not one of {', '.join(METHODS)}"))
    try:
        endpoint = str(read_url(call.webhook_url))
    except InvalidInput as bad:
        flaws += bad.flaws
    else:
        if endpoint != ctx._dispatch.endpoint:
            # Its secrets and limits are those of somebody else.
            flaws.append(Flaw("", f"the job is for {ctx._dispatch.endpoint}, and its URL is of {endpoint}"))
    if flaws:
        message = "; ".join(flaw.detail for flaw in flaws)[:_MESSAGE]
        raise CallFailed(Failure("BAD_CALL", f"nothing was sent: {message}", retryable=False))


def body_of(call: Call) -> tuple[bytes, str | None]:
    """What is sent, and as what. Text goes as it is if a header says that it is not JSON; anything else is JSON."""
    if call.body is None:
        return b"", None
    said = next((value for name, value in call.headers.items() if name.lower() == "content-type"), None)
    if isinstance(call.body, str) and said is not None and "json" not in said.lower():
        return call.body.encode(), None
    return _encode(call.body), None if said else "application/json"


def failed(judgement: Judgement, exchange: Exchange) -> CallFailed:
    kind = exchange.error.kind.value if exchange.error else f"HTTP_{exchange.status}"
    if judgement.verdict is Verdict.GONE:
        kind = GONE
    failure = Failure(kind, judgement.reason.removeprefix(f"{kind}: "), retryable=judgement.verdict is Verdict.RETRY)
    return CallFailed(failure, (judgement.retry_after_ms or 0) / 1000, counts=judgement.counts_against_endpoint)


def account_of(request: Request, exchange: Exchange) -> bytes:
    """What is kept of an attempt, as JSON: whom it called with what, and what came back."""
    sent = redacted(list(request.headers.items()))
    account: dict[str, Any] = {
        "request": {"method": request.method, "url": request.url, "headers": sent, "body": _text(request.body)},
        "timings": exchange.timings,
    }
    if exchange.status is not None:
        answer = {"status": exchange.status, "headers": exchange.headers, "body": _text(exchange.body)}
        account["response"] = {**answer, "truncated": exchange.truncated}
    if exchange.error is not None:
        account["error"] = exchange.error
    if exchange.reused:
        account["reused_connection"] = True
    return _encode(account)


def _text(body: bytes) -> str:
    return body[:_KEPT_BODY].decode("utf-8", "replace")


def _canonical(headers: Mapping[str, str]) -> dict[str, str]:
    """A user's header replaces ours of the same name, however it is written."""
    ours = {"user-agent": "User-Agent", "content-type": "Content-Type"}
    return {ours.get(name.lower(), name): value for name, value in headers.items()}
