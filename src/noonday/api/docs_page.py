"""API documentation page: one HTML file without external resources, so that it works offline."""

from functools import cache
from importlib.resources import files

from noonday.api.context import RequestContext
from noonday.api.reply import Reply
from noonday.api.routing import Route

# The page loads no external resources and connects only to the server that it came from.
_POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
)


async def show_docs(_context: RequestContext) -> Reply:
    """Return the documentation page."""
    return Reply(_page(), media_type="text/html; charset=utf-8", headers=[(b"content-security-policy", _POLICY)])


async def redirect_to_docs(_context: RequestContext) -> Reply:
    """Redirect the root to the documentation page."""
    return Reply(status=307, headers=[(b"location", b"/docs")])


@cache
def _page() -> bytes:
    return files("noonday.api").joinpath("docs.html").read_bytes()


ROUTES = (
    Route("GET", "/docs", show_docs, scope=None, documented=False),
    Route("GET", "/", redirect_to_docs, scope=None, documented=False),
)
