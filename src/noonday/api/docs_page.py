"""A page that shows the API, made of one file and nothing else: it works without a network."""

from functools import cache
from importlib.resources import files

from noonday.api.call import Call
from noonday.api.reply import Reply
from noonday.api.routing import Route

# The page brings all it needs, and talks to nobody but the server it came from.
_POLICY = (
    b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
)


async def show_docs(_call: Call) -> Reply:
    """This API, for people."""
    return Reply(_page(), media_type="text/html; charset=utf-8", headers=[(b"content-security-policy", _POLICY)])


async def redirect_to_docs(_call: Call) -> Reply:
    """The front page."""
    return Reply(status=307, headers=[(b"location", b"/docs")])


@cache
def _page() -> bytes:
    return files("noonday.api").joinpath("docs.html").read_bytes()


ROUTES = (
    Route("GET", "/docs", show_docs, scope=None, documented=False),
    Route("GET", "/", redirect_to_docs, scope=None, documented=False),
)
