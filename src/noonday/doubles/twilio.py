"""Double of Twilio's Messages API: Basic authentication, error codes, and signed status callbacks."""

import hmac
import re
import uuid
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from aiohttp import web

from noonday.doubles.behaviour import Behaviour, Cut
from noonday.doubles.http_answers import answer, delay, is_cut, nothing, read_body, status_code
from noonday.doubles.outbox import AcceptedMessage, DoubleOutbox, ProviderCall
from noonday.doubles.patterns import behaviour_of_phone
from noonday.doubles.receipt_sender import Post, ReceiptSender
from noonday.doubles.scripts import Scripts
from noonday.model.notifications.sending import ChannelKind, ProviderKind
from noonday.ports.clock import Clock

MAX_BODY = 65_536
MAX_TEXT = 1_600
MAX_STOPPED = 10_000
MAX_PAGE = 1_000
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_STATUSES = {20003: 401, 20404: 404, 20429: 429, 20500: 500, 20503: 503}
"""HTTP statuses of error codes. The others come with 400."""
_USUAL = ("sent", "delivered")
_STOPS, _STARTS = {"STOP", "UNSUBSCRIBE", "CANCEL", "END", "QUIT"}, {"START", "YES", "UNSTOP"}


class TwilioDouble:
    """Creates and lists SMS as Twilio does, for one account."""

    def __init__(
        self,
        outbox: DoubleOutbox,
        scripts: Scripts,
        clock: Clock,
        receipts: ReceiptSender,
        *,
        account_sid: str,
        auth_token: str,
    ) -> None:
        self._outbox = outbox
        self._scripts = scripts
        self._clock = clock
        self._receipts = receipts
        self.account_sid = account_sid
        self.auth_token = auth_token
        self._stopped: OrderedDict[tuple[str, str], None] = OrderedDict()
        """(user, sender) of each STOP."""

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, under Twilio's own paths."""
        path = "/2010-04-01/Accounts/{account}/Messages"
        return [
            web.post(f"{path}.json", self._create),
            web.get(f"{path}.json", self._list),
            web.get(path + "/{sid}.json", self._show),
        ]

    async def send_inbound(self, url: str, user: str, sender: str, text: str) -> tuple[int | None, str | None]:
        """Deliver an SMS of a user to the URL, as Twilio does. STOP keeps further SMS from the user, until START.

        Returns the status of the answer, or the error.
        """
        word = text.strip().upper()
        if word in _STOPS:
            self._stopped[user, sender] = None
            if len(self._stopped) > MAX_STOPPED:
                self._stopped.popitem(last=False)
        elif word in _STARTS:
            self._stopped.pop((user, sender), None)
        sid = "SM" + uuid.uuid4().hex
        fields = {"MessageSid": sid, "SmsSid": sid, "SmsStatus": "received", "AccountSid": self.account_sid}
        fields |= {"From": user, "To": sender, "Body": text, "NumMedia": "0", "ApiVersion": "2010-04-01"}
        if word in _STOPS | _STARTS:
            fields["OptOutType"] = "STOP" if word in _STOPS else "START"
        return await self._receipts.post(partial(self._signed, url, fields))

    async def _create(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal_of_login(request)) is not None:
            return refusal
        body = await read_body(request, MAX_BODY)
        if body is None:
            return web.Response(status=413)
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if (code := self._flaw_of(form)) is not None:
            return self._refuse(form, code)
        behaviour = self._scripts.take(form["To"], behaviour_of_phone)
        await delay(behaviour, self._clock)
        if is_cut(request, behaviour, Cut.BEFORE):
            self._count(form, "cut")
            return nothing()
        if behaviour.code is not None:
            return self._refuse_as_scripted(form, behaviour)
        message = self._accept(form)
        self._send_receipts(message, form.get("StatusCallback"), behaviour)
        if is_cut(request, behaviour, Cut.AFTER):
            return nothing()
        return answer(self._resource(message), 201)

    async def _list(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal_of_login(request)) is not None:
            return refusal
        size = request.query.get("PageSize", "50")
        limit = min(int(size), MAX_PAGE) if size.isdecimal() and len(size) < 6 else 50
        found = self._outbox.newest(limit, channel=ChannelKind.SMS, to=request.query.get("To"))
        return answer({"messages": [self._resource(each) for each in found], "page": 0, "page_size": limit})

    async def _show(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal_of_login(request)) is not None:
            return refusal
        found = self._outbox.find_by_provider_id(request.match_info["sid"])
        return _error(20404) if found is None else answer(self._resource(found))

    def _refusal_of_login(self, request: web.Request) -> web.Response | None:
        login = b64encode(f"{self.account_sid}:{self.auth_token}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {login}":
            return _error(20003)
        return None if request.match_info["account"] == self.account_sid else _error(20404)

    def _flaw_of(self, form: Mapping[str, str]) -> int | None:
        """Return the error code of a request that Twilio refuses."""
        if not form.get("To"):
            return 21604
        if not form.get("From") and not form.get("MessagingServiceSid"):
            return 21603
        if not form.get("Body"):
            return 21602
        if len(form["Body"]) > MAX_TEXT:
            return 21617
        if not _E164.fullmatch(form["To"]):
            return 21211
        return 21610 if (form["To"], form.get("From", "")) in self._stopped else None

    def _refuse_as_scripted(self, form: Mapping[str, str], behaviour: Behaviour) -> web.Response:
        if (status := status_code(behaviour)) is not None:
            self._count(form, str(status))
            headers = {"Retry-After": "1"} if status in (429, 503) else None
            return web.Response(status=status, text="<html>as scripted</html>", headers=headers)
        code = behaviour.code or ""
        return self._refuse(form, int(code) if code.isdecimal() and len(code) < 7 else 20500)

    def _refuse(self, form: Mapping[str, str], code: int) -> web.Response:
        self._count(form, str(code))
        return _error(code, form.get("To", ""))

    def _accept(self, form: Mapping[str, str]) -> AcceptedMessage:
        message = AcceptedMessage(
            id=self._outbox.next_id(),
            at_ms=self._clock.now_ms(),
            provider=ProviderKind.TWILIO,
            channel=ChannelKind.SMS,
            provider_id="SM" + uuid.uuid4().hex,
            sender=form.get("From") or form["MessagingServiceSid"],
            to=form["To"],
            text=form["Body"],
            data={name: value for name, value in form.items() if name not in ("To", "From", "Body")},
        )
        self._outbox.add(message)
        self._count(form, "accepted")
        return message

    def _count(self, form: Mapping[str, str], result: str) -> None:
        reference = form.get("StatusCallback", "")
        call = ProviderCall(self._clock.now_ms(), ProviderKind.TWILIO, form.get("To", ""), result, reference)
        self._outbox.calls.append(call)

    def _send_receipts(self, message: AcceptedMessage, url: str | None, behaviour: Behaviour) -> None:
        if url is None:
            return
        states = _USUAL if behaviour.receipts is None else behaviour.receipts
        receipts: list[tuple[str, Post]] = [
            (state, partial(self._signed, url, self._receipt_fields(message, state))) for state in states
        ]
        self._receipts.send_all(message.provider_id, receipts, behaviour.receipts_delay_ms)

    def _receipt_fields(self, message: AcceptedMessage, scripted: str) -> dict[str, str]:
        state, _, error = scripted.partition(":")
        sid = message.provider_id
        fields = {"MessageSid": sid, "SmsSid": sid, "MessageStatus": state, "SmsStatus": state}
        fields |= {"AccountSid": self.account_sid, "From": message.sender, "To": message.to, "ApiVersion": "2010-04-01"}
        return fields | ({"ErrorCode": error} if error else {})

    def _signed(self, url: str, fields: Mapping[str, str]) -> tuple[str, dict[str, str], bytes]:
        text = url + "".join(name + fields[name] for name in sorted(fields))
        signature = b64encode(hmac.digest(self.auth_token.encode(), text.encode(), "sha1")).decode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "X-Twilio-Signature": signature}
        return url, headers, urlencode(fields).encode()

    def _resource(self, message: AcceptedMessage) -> dict[str, Any]:
        created = format_datetime(datetime.fromtimestamp(message.at_ms // 1000, UTC))
        service = message.data.get("MessagingServiceSid")
        return {
            "sid": message.provider_id,
            "account_sid": self.account_sid,
            "to": message.to,
            "from": None if service else message.sender,
            "messaging_service_sid": service,
            "body": message.text,
            "status": "accepted" if service else "queued",
            "direction": "outbound-api",
            "date_created": created,
            "date_updated": created,
            "date_sent": None,
            "error_code": None,
            "error_message": None,
            "api_version": "2010-04-01",
            "uri": f"/2010-04-01/Accounts/{self.account_sid}/Messages/{message.provider_id}.json",
        }


def _error(code: int, to: str = "") -> web.Response:
    """Return a refusal in Twilio's form. Its text contains the phone number, as Twilio's does."""
    status = _STATUSES.get(code, 400)
    content = {
        "code": code,
        "message": f"Error {code} for 'To' number {to}",
        "more_info": f"https://www.twilio.com/docs/errors/{code}",
        "status": status,
    }
    return answer(content, status, {"Retry-After": "1"} if status == 429 else None)
