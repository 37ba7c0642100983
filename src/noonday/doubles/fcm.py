"""Double of FCM HTTP v1 and of Google's token endpoint."""

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qs

import jwt
import msgspec
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from noonday.doubles.behaviour import Behaviour, Cut
from noonday.doubles.http_answers import answer, delay, is_cut, nothing, read_body, status_code
from noonday.doubles.outbox import AcceptedMessage, DoubleOutbox, ProviderCall
from noonday.doubles.patterns import behaviour_of_token
from noonday.doubles.scripts import Scripts
from noonday.model.notifications.sending import ChannelKind, ProviderKind
from noonday.ports.clock import Clock

PROJECT = "noonday-double"
CLIENT_EMAIL = f"double@{PROJECT}.iam.gserviceaccount.com"
MAX_BODY = 65_536
MAX_PAYLOAD = 4_096
MAX_TOKENS = 1_000
LIFE_SEC = 3_599
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TARGETS = ("token", "topic", "condition")
_STATUSES = {
    "UNREGISTERED": (404, "NOT_FOUND"),
    "INVALID_ARGUMENT": (400, "INVALID_ARGUMENT"),
    "SENDER_ID_MISMATCH": (403, "PERMISSION_DENIED"),
    "QUOTA_EXCEEDED": (429, "RESOURCE_EXHAUSTED"),
    "UNAVAILABLE": (503, "UNAVAILABLE"),
    "INTERNAL": (500, "INTERNAL"),
    "THIRD_PARTY_AUTH_ERROR": (401, "UNAUTHENTICATED"),
}


@cache
def _service_key() -> rsa.RSAPrivateKey:
    """The key of the service account, made once in a process because that takes a while."""
    return rsa.generate_private_key(65_537, 2_048)


@dataclass(slots=True)
class _Sending:
    """A valid request."""

    token: str
    message: dict[str, Any]
    is_dry: bool
    notification: dict[str, Any] = field(default_factory=dict)


class FcmDouble:
    """Exchanges assertions for access tokens, and takes push messages of one project."""

    def __init__(self, outbox: DoubleOutbox, scripts: Scripts, clock: Clock) -> None:
        self._outbox = outbox
        self._scripts = scripts
        self._clock = clock
        self._key_id = secrets.token_hex(20)
        self._tokens: OrderedDict[str, int] = OrderedDict()
        """End of each access token, in milliseconds."""

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, under Google's own paths."""
        return [web.post("/token", self._grant), web.post("/v1/projects/{project}/messages:send", self._send)]

    def service_account(self) -> str:
        """Return the JSON file of the service account."""
        form, no_password = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pem = _service_key().private_bytes(serialization.Encoding.PEM, form, no_password).decode()
        content = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": self._key_id,
            "private_key": pem,
            "client_email": CLIENT_EMAIL,
        }
        return msgspec.json.encode(content).decode()

    def revoke_tokens(self) -> None:
        """End all access tokens at once."""
        self._tokens.clear()

    async def _grant(self, request: web.Request) -> web.Response:
        body = await read_body(request, MAX_BODY) or b""
        form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        if form.get("grant_type") != _GRANT:
            return answer({"error": "unsupported_grant_type"}, 400)
        if not self._is_valid(form.get("assertion", ""), f"http://{request.host}/token"):
            return answer({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400)
        token = "ya29." + secrets.token_urlsafe(32)
        self._tokens[token] = self._clock.now_ms() + LIFE_SEC * 1000
        if len(self._tokens) > MAX_TOKENS:
            self._tokens.popitem(last=False)
        return answer({"access_token": token, "expires_in": LIFE_SEC, "token_type": "Bearer"})

    def _is_valid(self, assertion: str, audience: str) -> bool:
        # The times are checked here, because the library reads the clock of the system.
        checks = {"verify_exp": False, "verify_iat": False, "require": ["exp", "iat", "iss", "scope"]}
        try:
            claims = jwt.decode(
                assertion,
                _service_key().public_key(),
                ["RS256"],
                checks,  # type: ignore[arg-type]
                audience=audience,
                issuer=CLIENT_EMAIL,
            )
            key_id = jwt.get_unverified_header(assertion).get("kid")
        except jwt.PyJWTError:
            return False
        now = self._clock.now_ms() / 1000
        is_now = claims["iat"] - 60 <= now < claims["exp"] <= claims["iat"] + 3_600
        return is_now and key_id == self._key_id and SCOPE in str(claims["scope"]).split()

    async def _send(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._clock.now_ms() >= self._tokens.get(token, 0):
            return _refusal(401, "UNAUTHENTICATED", None)
        if request.match_info["project"] != PROJECT:
            return _refusal(403, "PERMISSION_DENIED", None)
        body = await read_body(request, MAX_BODY)
        sending = None if body is None else _read(body)
        if sending is None:
            return _refusal(400, "INVALID_ARGUMENT", None, has_bad_field=True)
        behaviour = self._scripts.take(sending.token, behaviour_of_token)
        await delay(behaviour, self._clock)
        if is_cut(request, behaviour, Cut.BEFORE):
            self._count(sending, "cut")
            return nothing()
        if behaviour.code is not None:
            return self._refuse(sending, behaviour)
        name = f"projects/{PROJECT}/messages/{secrets.token_hex(12)}"
        if not sending.is_dry:
            self._accept(sending, name)
        return nothing() if is_cut(request, behaviour, Cut.AFTER) else answer({"name": name})

    def _refuse(self, sending: _Sending, behaviour: Behaviour) -> web.Response:
        code = behaviour.code or ""
        self._count(sending, code)
        if (status := status_code(behaviour)) is not None:
            return web.Response(status=status, text="<html>as scripted</html>")
        if code == "BAD_FIELD":
            return _refusal(400, "INVALID_ARGUMENT", None, has_bad_field=True)
        status, name = _STATUSES.get(code, (400, "INVALID_ARGUMENT"))
        return _refusal(status, name, code)

    def _accept(self, sending: _Sending, name: str) -> None:
        shown = sending.notification
        self._outbox.add(
            AcceptedMessage(
                id=self._outbox.next_id(),
                at_ms=self._clock.now_ms(),
                provider=ProviderKind.FCM,
                channel=ChannelKind.PUSH,
                provider_id=name,
                sender=PROJECT,
                to=sending.token,
                title=shown.get("title"),
                text=shown.get("body"),
                data={key: value for key, value in sending.message.items() if key not in ("token", "notification")},
            )
        )
        self._count(sending, "accepted")

    def _count(self, sending: _Sending, result: str) -> None:
        reference = str(sending.message.get("data", {}).get("notification_id", ""))
        call = ProviderCall(self._clock.now_ms(), ProviderKind.FCM, sending.token, result, reference)
        self._outbox.calls.append(call)


def _read(body: bytes) -> _Sending | None:
    """Return the request, or None if FCM would refuse a field of it."""
    try:
        content = msgspec.json.decode(body, type=dict[str, Any])
        message = msgspec.convert(content.get("message"), dict[str, Any])
        data = msgspec.convert(message.get("data", {}), dict[str, str])
        shown = msgspec.convert(message.get("notification", {}), dict[str, str])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    targets = [message[name] for name in _TARGETS if name in message]
    is_reserved = any(name in ("from", "message_type") or name.startswith(("google", "gcm")) for name in data)
    size = len(msgspec.json.encode(data)) + len(msgspec.json.encode(shown))
    if len(targets) != 1 or not isinstance(targets[0], str) or is_reserved or size > MAX_PAYLOAD:
        return None
    return _Sending(targets[0], message, content.get("validate_only") is True, shown)


def _refusal(status: int, name: str, error_code: str | None, *, has_bad_field: bool = False) -> web.Response:
    details: list[dict[str, Any]] = []
    if error_code is not None:
        kind = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
        details.append({"@type": kind, "errorCode": error_code})
    if has_bad_field:
        details.append(
            {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"field": "message"}]}
        )
    content = {"error": {"code": status, "message": name, "status": name, "details": details}}
    return answer(content, status, {"Retry-After": "7"} if status == 503 else None)
