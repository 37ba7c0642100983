"""Answers of the doubles that speak HTTP."""

from typing import Any

import msgspec
from aiohttp import web

from noonday.doubles.behaviour import Behaviour, Cut
from noonday.ports.clock import Clock

_encode = msgspec.json.Encoder().encode


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return an answer in JSON."""
    return web.Response(body=_encode(content), status=status, content_type="application/json", headers=headers)


async def delay(behaviour: Behaviour, clock: Clock) -> None:
    """Wait as the behaviour says."""
    if behaviour.delay_ms:
        await clock.sleep(behaviour.delay_ms / 1000)


def is_cut(request: web.Request, behaviour: Behaviour, when: Cut) -> bool:
    """Cut the connection if the behaviour says so. Returns whether it is cut: then nobody gets the answer."""
    if behaviour.cut is not when:
        return False
    if request.transport is not None:
        request.transport.abort()
    return True


async def read_body(request: web.Request, most: int) -> bytes | None:
    """Return the body of a request, or None if it has more than `most` bytes."""
    if request.content_length is not None and request.content_length > most:
        return None
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


def status_code(behaviour: Behaviour) -> int | None:
    """Return the HTTP status of a behaviour whose code is one, such as `502`: an answer without the provider's own error."""
    code = behaviour.code or ""
    return int(code) if len(code) == 3 and code.isdecimal() and 200 <= int(code) < 600 else None


def nothing() -> web.Response:
    """Return the answer on a connection that is cut, which nobody gets."""
    return web.Response(status=500)
