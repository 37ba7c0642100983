"""Control port of the doubles: the outbox as a page and as an API, scripts, and SMS of users."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from aiohttp import web

from noonday.doubles.behaviour import Behaviour
from noonday.doubles.http_answers import answer, read_body
from noonday.doubles.outbox import DoubleOutbox
from noonday.doubles.page import PAGE_HEADERS, PAGE_STYLE, outbox_page
from noonday.doubles.scripts import MAX_CALLS, Scripts
from noonday.doubles.twilio import TwilioDouble
from noonday.model.notifications.sending import ChannelKind

MAX_BODY = 262_144
MAX_LIMIT = 1_000
ON_PAGE = 50
_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NewInbound(msgspec.Struct, frozen=True, rename={"user": "from", "sender": "to"}, forbid_unknown_fields=True):
    """An SMS that a user sends to the application."""

    url: Annotated[str, msgspec.Meta(max_length=2_000)]
    """URL that Twilio would call."""
    user: Annotated[str, msgspec.Meta(max_length=20)]
    sender: Annotated[str, msgspec.Meta(max_length=40)]
    text: Annotated[str, msgspec.Meta(max_length=1_600)]


class Control:
    """Shows and controls what the doubles do."""

    def __init__(self, outbox: DoubleOutbox, scripts: Scripts, twilio: TwilioDouble) -> None:
        self._outbox = outbox
        self._scripts = scripts
        self._twilio = twilio

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the control port."""
        return [
            web.get("/", self._page),
            web.get("/page.css", self._style),
            web.get("/outbox", self._list),
            web.delete("/outbox", self._clear),
            web.get("/outbox/{id:[0-9]{1,15}}", self._show),
            web.get("/calls", self._calls),
            web.get("/scripts", self._scripts_left),
            web.put("/scripts/{recipient}", self._script),
            web.delete("/scripts", self._clear_scripts),
            web.post("/inbound", self._inbound),
        ]

    async def _page(self, request: web.Request) -> web.Response:
        channel, before = _channel(request), _number(request, "before", None)
        messages = self._outbox.newest(ON_PAGE + 1, channel=channel, to=request.query.get("to") or None, before=before)
        page = outbox_page(messages[:ON_PAGE], dict(request.query), has_more=len(messages) > ON_PAGE)
        return web.Response(text=page, content_type="text/html", headers=PAGE_HEADERS)

    async def _style(self, _request: web.Request) -> web.Response:
        return web.Response(text=PAGE_STYLE, content_type="text/css", headers=PAGE_HEADERS)

    async def _list(self, request: web.Request) -> web.Response:
        limit = min(_number(request, "limit", 100) or 100, MAX_LIMIT)
        found = self._outbox.newest(
            limit, channel=_channel(request), to=request.query.get("to"), before=_number(request, "before", None)
        )
        return answer({"messages": found})

    async def _show(self, request: web.Request) -> web.Response:
        found = self._outbox.find(int(request.match_info["id"]))
        return _problem(404, "this message is not in the outbox") if found is None else answer(found)

    async def _clear(self, _request: web.Request) -> web.Response:
        self._outbox.clear()
        return web.Response(status=204)

    async def _calls(self, request: web.Request) -> web.Response:
        limit = min(_number(request, "limit", 100) or 100, MAX_LIMIT)
        calls = list(self._outbox.calls)[-limit:]
        return answer({"calls": [{name: getattr(call, name) for name in call.__struct_fields__} for call in calls]})

    async def _scripts_left(self, _request: web.Request) -> web.Response:
        return answer(self._scripts.left())

    async def _script(self, request: web.Request) -> web.Response:
        try:
            behaviours = msgspec.json.decode(await _body(request), type=list[Behaviour])
        except msgspec.DecodeError as error:
            return _problem(422, f"the script must be a list of behaviours: {error}")
        if len(behaviours) > MAX_CALLS:
            return _problem(422, f"a script has at most {MAX_CALLS} behaviours, this one has {len(behaviours)}")
        self._scripts.put(request.match_info["recipient"], behaviours)
        return web.Response(status=204)

    async def _clear_scripts(self, _request: web.Request) -> web.Response:
        self._scripts.clear()
        return web.Response(status=204)

    async def _inbound(self, request: web.Request) -> web.Response:
        try:
            inbound = msgspec.json.decode(await _body(request), type=NewInbound)
        except msgspec.DecodeError as error:
            return _problem(422, f"an inbound SMS has url, from, to and text: {error}")
        status, failed = await self._twilio.send_inbound(inbound.url, inbound.user, inbound.sender, inbound.text)
        return answer({"status": status, "error": failed})


@web.middleware
async def refuse_foreign_hosts(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests under another name than that of the loopback, so that no web page reaches the doubles by DNS."""
    host = request.host
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name.lower() not in _HOSTS:
        return _problem(403, "open the doubles as localhost or 127.0.0.1")
    return await handler(request)


async def _body(request: web.Request) -> bytes:
    body = await read_body(request, MAX_BODY)
    if body is None:
        raise msgspec.DecodeError(f"more than {MAX_BODY} bytes")
    return body


def _channel(request: web.Request) -> ChannelKind | None:
    try:
        return ChannelKind(request.query.get("channel", "").upper())
    except ValueError:
        return None


def _number(request: web.Request, name: str, default: int | None) -> int | None:
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else default


def _problem(status: int, detail: str) -> web.Response:
    return answer({"status": status, "detail": detail}, status)
