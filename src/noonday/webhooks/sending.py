"""Webhook call of one attempt: builds and signs the request, and turns the exchange into the attempt's outcome."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.errors import Flaw, InvalidInput
from noonday.model.execution import GONE, Failure
from noonday.model.redaction import redacted
from noonday.model.tasks.wire import Method
from noonday.model.url import read_url
from noonday.runtime.tracing import current_traceparent, record_call
from noonday.webhooks.calling import Exchange, WebhookClient, WebhookRequest
from noonday.webhooks.handler import MAX_TIMEOUT_SEC
from noonday.webhooks.headers import flaws_of
from noonday.webhooks.judging import DEFAULTS, CallVerdict, Judgement, JudgingSettings, judge
from noonday.webhooks.signing import sign
from noonday.worker.context import Context, RetryLater

SEALED_FOR = "webhook-secrets"
"""Context, besides the tenant, that the encryption of a secret is bound to."""
DEFAULT_TIMEOUT_SEC = 30.0
METHODS = tuple(method.value for method in Method)
_MAX_MESSAGE = 1_000
_MAX_BODY = 65_536
_MAX_CACHED_SECRETS = 10_000
_encode = msgspec.json.Encoder().encode


class WebhookCall(msgspec.Struct, frozen=True):
    """Payload of a job that calls a webhook."""

    webhook_url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    body: Any = None
    retried_statuses: frozenset[int] | None = None
    """Statuses that are retried; None for the default ones."""

    @property
    def judging(self) -> JudgingSettings:
        return DEFAULTS if self.retried_statuses is None else JudgingSettings(self.retried_statuses)


class WebhookResult(msgspec.Struct, frozen=True):
    """Stored result of a successful call. The whole exchange is stored with the attempt."""

    status: int
    duration_ms: float


class CallFailed(RetryLater):
    """The call failed. `failure` is stored and shown to users."""

    code = "call-failed"

    def __init__(self, failure: Failure, seconds: float = 0, *, counts: bool = False) -> None:
        super().__init__(f"{failure.type}: {failure.message}", seconds)
        self.failure = failure
        self.counts = counts


class WebhookSender:
    """Makes the call of one attempt. Used on one event loop."""

    def __init__(
        self, client: WebhookClient, keyring: Keyring, user_agent: str, max_timeout_sec: float = MAX_TIMEOUT_SEC
    ) -> None:
        """`max_timeout_sec` limits every call, whatever timeout its job has."""
        self._client = client
        self._keyring = keyring
        self._user_agent = user_agent
        self._max_timeout_sec = max_timeout_sec
        self._decrypted: dict[tuple[str, tuple[bytes, ...]], list[str]] = {}
        """Cache of decrypted secrets by tenant and ciphertext: most calls of a tenant use the same secrets."""

    async def close(self) -> None:
        await self._client.close()

    async def send(self, ctx: Context, call: WebhookCall) -> WebhookResult:
        """Make the call, and store the attempt's record in the context, also on failure. Raises CallFailed."""
        _check(ctx, call)
        request = self._request(ctx, call)
        timeout_sec = min(ctx._dispatch.timeout_sec or DEFAULT_TIMEOUT_SEC, self._max_timeout_sec)
        exchange = await self._client.call(ctx.tenant, request, timeout_sec)
        record_call(request.method, read_url(request.url).host, exchange.status)
        ctx._attempt_record = record_of(request, exchange)
        judgement = judge(exchange, call.judging)
        if judgement.verdict is CallVerdict.SUCCEEDED and exchange.status is not None:
            return WebhookResult(exchange.status, exchange.timings.total_ms)
        raise call_failed(judgement, exchange)

    def _request(self, ctx: Context, call: WebhookCall) -> WebhookRequest:
        body, content_type = body_of(call)
        headers = {
            "User-Agent": self._user_agent,
            **({"Content-Type": content_type} if content_type else {}),
            **_canonical(call.headers),
            "X-Idempotency-Key": ctx.execution_id,
            "noonday-attempt": str(ctx.attempt),
            "noonday-token": str(ctx.token),
            "noonday-scheduled-at": ctx.scheduled_at.isoformat().replace("+00:00", "Z"),
            "traceparent": current_traceparent() or ctx.traceparent,
            **sign(self._secrets(ctx), ctx.execution_id, int(time.time()), body),
        }
        return WebhookRequest(call.method, call.webhook_url, headers, body)

    def _secrets(self, ctx: Context) -> list[str]:
        sealed = ctx._dispatch.secrets
        if not sealed:
            failure = Failure("NoSecret", "no valid secret to sign with; create one with POST /v1/webhook-secrets")
            raise CallFailed(failure)
        secrets = self._decrypted.get((ctx.tenant, sealed))
        if secrets is None:
            if len(self._decrypted) >= _MAX_CACHED_SECRETS:
                self._decrypted.clear()
            context = context_of(ctx.tenant, SEALED_FOR)
            secrets = [self._keyring.open(secret, context).decode() for secret in sealed]
            self._decrypted[ctx.tenant, sealed] = secrets
        return secrets


def _check(ctx: Context, call: WebhookCall) -> None:
    """Repeat the checks of task creation, because the job may be older than they are or may have bypassed them.

    Raises CallFailed, which is not retried.
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
            # The dispatch carries the secrets and limits of another endpoint.
            flaws.append(Flaw("", f"the job is for {ctx._dispatch.endpoint}, but its URL is of {endpoint}"))
    if flaws:
        message = "; ".join(flaw.detail for flaw in flaws)[:_MAX_MESSAGE]
        raise CallFailed(Failure("BAD_CALL", f"nothing was sent: {message}", retryable=False))


def body_of(call: WebhookCall) -> tuple[bytes, str | None]:
    """Return the body and the content type to add, if any.

    Text is sent as it is if the user's Content-Type is not JSON. Any other body is sent as JSON.
    """
    if call.body is None:
        return b"", None
    content_type = next((value for name, value in call.headers.items() if name.lower() == "content-type"), None)
    if isinstance(call.body, str) and content_type is not None and "json" not in content_type.lower():
        return call.body.encode(), None
    return _encode(call.body), None if content_type else "application/json"


def call_failed(judgement: Judgement, exchange: Exchange) -> CallFailed:
    kind = exchange.error.kind.value if exchange.error else f"HTTP_{exchange.status}"
    if judgement.verdict is CallVerdict.GONE:
        kind = GONE
    is_retryable = judgement.verdict is CallVerdict.RETRY
    failure = Failure(kind, judgement.reason.removeprefix(f"{kind}: "), retryable=is_retryable)
    return CallFailed(failure, (judgement.retry_after_ms or 0) / 1000, counts=judgement.counts_against_endpoint)


def record_of(request: WebhookRequest, exchange: Exchange) -> bytes:
    """Encode the stored record of an attempt as JSON: request, response, error and timings."""
    headers = redacted(list(request.headers.items()))
    record: dict[str, Any] = {
        "request": {"method": request.method, "url": request.url, "headers": headers, "body": _text(request.body)},
        "timings": exchange.timings,
    }
    if exchange.status is not None:
        response = {"status": exchange.status, "headers": exchange.headers, "body": _text(exchange.body)}
        record["response"] = {**response, "truncated": exchange.truncated}
    if exchange.error is not None:
        record["error"] = exchange.error
    if exchange.reused:
        record["reused_connection"] = True
    return _encode(record)


def _text(body: bytes) -> str:
    return body[:_MAX_BODY].decode("utf-8", "replace")


def _canonical(headers: Mapping[str, str]) -> dict[str, str]:
    """Spell User-Agent and Content-Type as we do, so that a user's value replaces the default one."""
    spelling = {"user-agent": "User-Agent", "content-type": "Content-Type"}
    return {spelling.get(name.lower(), name): value for name, value in headers.items()}
