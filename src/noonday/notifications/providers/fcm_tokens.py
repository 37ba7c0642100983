"""Access tokens of service accounts, each shared by all messages of its account."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated
from urllib.parse import urlencode

import jwt
import msgspec

from noonday.model.notifications.sending import OutcomeKind, ProviderAccount, ProviderOutcome
from noonday.notifications.providers.fcm_account import DEFAULT_TOKEN_URL, ServiceAccount
from noonday.notifications.providers.http_client import ProviderClient
from noonday.notifications.providers.outcomes import account_fault
from noonday.ports.clock import Clock
from noonday.webhooks.calling import ErrorKind, Exchange, WebhookRequest
from noonday.webhooks.judging import retry_after_ms

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LIFE_SEC = 3_600
EARLY_MS = 300_000
"""Time before its end at which a token is replaced."""
MAX_TOKENS = 1_000


class _Granted(msgspec.Struct):
    access_token: Annotated[str, msgspec.Meta(min_length=1, max_length=8_192, pattern=r"^[\x21-\x7e]+$")]
    expires_in: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = LIFE_SEC


@dataclass(frozen=True, slots=True)
class TokenRefused:
    """There is no token. The outcome is that of the message, of which nothing was sent."""

    outcome: ProviderOutcome


@dataclass(slots=True)
class _Entry:
    token: str = ""
    until_ms: int = 0
    fetching: "asyncio.Task[str | TokenRefused] | None" = None


class AccessTokens:
    """Fetches and keeps access tokens. Messages of one account wait for one fetch, and share its failure."""

    def __init__(self, client: ProviderClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._entries: OrderedDict[tuple[str, bytes], _Entry] = OrderedDict()

    async def get(self, account: ProviderAccount, service: ServiceAccount) -> str | TokenRefused:
        """Return a token that is valid for some minutes, or why there is none."""
        key = _key(account)
        entry = self._entries.pop(key, None) or _Entry()
        self._entries[key] = entry
        if len(self._entries) > MAX_TOKENS:
            self._entries.popitem(last=False)
        if self._clock.now_ms() < entry.until_ms:
            return entry.token
        if entry.fetching is None:
            entry.fetching = asyncio.create_task(self._fetch(account, service, entry), name="fcm access token")
        # A message that is cancelled does not end the fetch that others wait for.
        return await asyncio.shield(entry.fetching)

    async def _fetch(self, account: ProviderAccount, service: ServiceAccount, entry: _Entry) -> str | TokenRefused:
        try:
            exchange = await self._client.call(account.tenant, _request(account, service, self._clock.now_ms()))
            granted = _granted(exchange)
            if isinstance(granted, TokenRefused):
                return granted
            entry.token = granted.access_token
            entry.until_ms = self._clock.now_ms() + granted.expires_in * 1000 - EARLY_MS
            return entry.token
        finally:
            entry.fetching = None

    def forget(self, account: ProviderAccount, token: str) -> None:
        """Fetch another token for the next message, unless that has happened already."""
        entry = self._entries.get(_key(account))
        if entry is not None and entry.token == token:
            entry.until_ms = 0


def _key(account: ProviderAccount) -> tuple[str, bytes]:
    url = str(account.settings.get("token_url") or "")
    return account.tenant, sha256(f"{url}\n{account.secrets['service_account']}".encode()).digest()


def _request(account: ProviderAccount, service: ServiceAccount, now_ms: int) -> WebhookRequest:
    url = f"{str(account.settings.get('token_url') or DEFAULT_TOKEN_URL).rstrip('/')}/token"
    issued = now_ms // 1000
    claims = {"iss": service.client_email, "scope": SCOPE, "aud": url, "iat": issued, "exp": issued + LIFE_SEC}
    assertion = jwt.encode(claims, service.private_key, "RS256", {"kid": service.private_key_id})
    form = urlencode({"grant_type": GRANT, "assertion": assertion}).encode()
    return WebhookRequest("POST", url, {"Content-Type": "application/x-www-form-urlencoded"}, form)


def _granted(exchange: Exchange) -> _Granted | TokenRefused:
    status = exchange.status
    if status == 200:
        try:
            return msgspec.json.decode(exchange.body, type=_Granted)
        except msgspec.DecodeError:
            return TokenRefused(
                ProviderOutcome(OutcomeKind.RETRY, code="TOKEN", detail="the access token is unreadable")
            )
    if exchange.error is not None and status is None:
        # Whatever became of this request, the message has not left.
        detail = f"no access token: {exchange.error.detail}"
        if exchange.error.kind is ErrorKind.REFUSED_ADDRESS:
            return TokenRefused(account_fault("TOKEN", detail))
        return TokenRefused(ProviderOutcome(OutcomeKind.RETRY, code="TOKEN", detail=detail[:300]))
    detail = f"no access token: Google answered {status}"
    if status is not None and (status == 429 or status >= 500):
        return TokenRefused(ProviderOutcome(OutcomeKind.RETRY, None, "TOKEN", detail, retry_after_ms(exchange)))
    return TokenRefused(account_fault("TOKEN", f"{detail}; check the service account and its key"))
