"""API documentation page: files of this package without external resources, so that it works offline."""

from functools import cache
from importlib.resources import files

from noonday.api.context import RequestContext
from noonday.api.reply import Header, Reply
from noonday.api.routing import Route

# The page executes no inline script or style, loads nothing from elsewhere, and connects only to the server that it came from.
_HEADERS: list[Header] = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
    (b"cache-control", b"no-cache"),
]


async def show_docs(_context: RequestContext) -> Reply:
    """Return the documentation page."""
    return _file("index.html", "text/html; charset=utf-8")


async def show_style(_context: RequestContext) -> Reply:
    """Return the style of the documentation page."""
    return _file("page.css", "text/css; charset=utf-8")


async def show_script(_context: RequestContext) -> Reply:
    """Return the script of the documentation page."""
    return _file("page.js", "text/javascript; charset=utf-8")


async def redirect_to_docs(_context: RequestContext) -> Reply:
    """Redirect the root to the documentation page."""
    return Reply(status=307, headers=[(b"location", b"/docs")])


def _file(name: str, media_type: str) -> Reply:
    return Reply(_content(name), media_type=media_type, headers=_HEADERS)


@cache
def _content(name: str) -> bytes:
    return files("noonday.api").joinpath("docs", name).read_bytes()


ROUTES = (
    Route("GET", "/docs", show_docs, scope=None, documented=False),
    Route("GET", "/docs/page.css", show_style, scope=None, documented=False),
    Route("GET", "/docs/page.js", show_script, scope=None, documented=False),
    Route("GET", "/", redirect_to_docs, scope=None, documented=False),
)
