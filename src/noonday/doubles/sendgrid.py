"""Double of SendGrid's mail API: bearer key, limits, and signed batches of events."""

import base64
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from noonday.doubles.behaviour import Behaviour, Cut
from noonday.doubles.http_answers import answer, delay, is_cut, nothing, read_body, status_code
from noonday.doubles.outbox import AcceptedMessage, DoubleOutbox, ProviderCall
from noonday.doubles.patterns import behaviour_of_email
from noonday.doubles.receipt_sender import ReceiptSender
from noonday.doubles.scripts import Scripts
from noonday.model.notifications.sending import ChannelKind, ProviderKind
from noonday.ports.clock import Clock

MAX_BODY = 30 * 1024 * 1024
MAX_RECIPIENTS = 1_000
MAX_CUSTOM_ARGS = 10_000
_USUAL = ("processed", "delivered")
_encode = msgspec.json.Encoder().encode


class _Address(msgspec.Struct):
    email: Annotated[str, msgspec.Meta(pattern=r"^[^@\s]+@[^@\s]+$")]
    name: str | None = None


class _Personalization(msgspec.Struct):
    to: Annotated[list[_Address], msgspec.Meta(min_length=1)]
    custom_args: dict[str, str] = {}


class _Part(msgspec.Struct):
    type: str
    value: Annotated[str, msgspec.Meta(min_length=1)]


class _Mail(msgspec.Struct, rename={"sender": "from"}):
    personalizations: Annotated[list[_Personalization], msgspec.Meta(min_length=1, max_length=1_000)]
    sender: _Address
    subject: Annotated[str, msgspec.Meta(min_length=1)]
    content: Annotated[list[_Part], msgspec.Meta(min_length=1)]
    custom_args: dict[str, str] = {}
    headers: dict[str, str] = {}


class SendGridDouble:
    """Accepts emails as SendGrid does, for one API key. Its events go to `events_url`, as set in SendGrid's settings."""

    def __init__(
        self, outbox: DoubleOutbox, scripts: Scripts, clock: Clock, receipts: ReceiptSender, *, api_key: str
    ) -> None:
        self._outbox = outbox
        self._scripts = scripts
        self._clock = clock
        self._receipts = receipts
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.api_key = api_key
        self.events_url: str | None = None
        """URL that gets the events. None: nobody does."""

    @property
    def verification_key(self) -> str:
        """The public key of the events, as SendGrid shows it."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return base64.b64encode(self._key.public_key().public_bytes(serialization.Encoding.DER, form)).decode()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, under SendGrid's own paths."""
        return [web.post("/v3/mail/send", self._send)]

    async def _send(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return _refusal(401, "The provided authorization grant is invalid, expired, or revoked")
        body = await read_body(request, MAX_BODY)
        if body is None:
            return _refusal(413, "The request is too large")
        try:
            mail = msgspec.json.decode(body, type=_Mail)
        except msgspec.DecodeError as error:
            return _refusal(400, str(error))
        if (flaw := _flaw_of(mail)) is not None:
            return _refusal(400, flaw)
        # The first recipient's script decides: the request has only one answer.
        to = mail.personalizations[0].to[0].email
        return await self._answer(request, mail, self._scripts.take(to, behaviour_of_email))

    async def _answer(self, request: web.Request, mail: _Mail, behaviour: Behaviour) -> web.Response:
        to = mail.personalizations[0].to[0].email
        await delay(behaviour, self._clock)
        if is_cut(request, behaviour, Cut.BEFORE):
            self._count(to, "cut", mail)
            return nothing()
        if behaviour.code is not None:
            status = status_code(Behaviour(code=behaviour.code[:3])) or 400
            self._count(to, str(status), mail)
            reset = str(self._clock.now_ms() // 1000 + 2)
            return _refusal(status, "as scripted", {"X-RateLimit-Reset": reset} if status == 429 else None)
        message_id = uuid.uuid4().hex
        for personalization in mail.personalizations:
            for address in personalization.to:
                self._accept(mail, personalization, address.email, message_id, behaviour)
        if is_cut(request, behaviour, Cut.AFTER):
            return nothing()
        return web.Response(status=202, headers={"X-Message-Id": message_id})

    def _accept(
        self, mail: _Mail, personalization: _Personalization, to: str, message_id: str, behaviour: Behaviour
    ) -> None:
        parts = {part.type: part.value for part in mail.content}
        arguments = {**mail.custom_args, **personalization.custom_args}
        message = AcceptedMessage(
            id=self._outbox.next_id(),
            at_ms=self._clock.now_ms(),
            provider=ProviderKind.SENDGRID,
            channel=ChannelKind.EMAIL,
            provider_id=message_id,
            sender=mail.sender.email,
            to=to,
            title=mail.subject,
            text=parts.get("text/plain"),
            html=parts.get("text/html"),
            data={"headers": mail.headers, "custom_args": arguments},
        )
        self._outbox.add(message)
        self._count(to, "accepted", mail)
        if self.events_url is not None:
            states = _USUAL if behaviour.receipts is None else behaviour.receipts
            self._send_events(self.events_url, message, states, arguments, behaviour.receipts_delay_ms)

    def _send_events(
        self, url: str, message: AcceptedMessage, states: Sequence[str], arguments: Mapping[str, str], delay_ms: int
    ) -> None:
        # A repeat of an event has the id of the first one, as SendGrid's repeats do.
        ids: dict[str, str] = {}
        events = [
            (state, _event(message, state, ids.setdefault(state, uuid.uuid4().hex), arguments)) for state in states
        ]
        self._receipts.send_all(
            message.provider_id, [(state, partial(self._signed, url, [event])) for state, event in events], delay_ms
        )

    def _signed(self, url: str, events: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, str], bytes]:
        now = str(self._clock.now_ms() // 1000)
        body = _encode([{**event, "timestamp": int(now)} for event in events]) + b"\r\n"
        signature = self._key.sign(now.encode() + body, ec.ECDSA(hashes.SHA256()))
        headers = {
            "Content-Type": "application/json",
            "X-Twilio-Email-Event-Webhook-Signature": base64.b64encode(signature).decode(),
            "X-Twilio-Email-Event-Webhook-Timestamp": now,
        }
        return url, headers, body

    def _count(self, to: str, result: str, mail: _Mail) -> None:
        reference = "/".join(mail.custom_args.values())
        self._outbox.calls.append(ProviderCall(self._clock.now_ms(), ProviderKind.SENDGRID, to, result, reference))


def _event(message: AcceptedMessage, scripted: str, event_id: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return an event. `scripted`: its name, and a bounce's type after a colon."""
    state, _, kind = scripted.partition(":")
    event: dict[str, Any] = {
        **arguments,
        "email": message.to,
        "event": state,
        "sg_event_id": event_id,
        "sg_message_id": f"{message.provider_id}.filter-0",
    }
    if state == "bounce":
        event |= {"type": kind or "bounce", "status": "5.1.1", "reason": f"550 5.1.1 {message.to}: no such user"}
    return event


def _flaw_of(mail: _Mail) -> str | None:
    recipients = [address.email.lower() for each in mail.personalizations for address in each.to]
    if len(recipients) > MAX_RECIPIENTS:
        return f"at most {MAX_RECIPIENTS} recipients"
    if len(set(recipients)) < len(recipients):
        return "each address once"
    return "custom_args are too large" if len(_encode(mail.custom_args)) > MAX_CUSTOM_ARGS else None


def _refusal(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return answer({"errors": [{"message": message, "field": None, "help": None}]}, status, headers)
