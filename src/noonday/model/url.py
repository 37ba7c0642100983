"""Parsing and validation of webhook URLs."""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

import msgspec
from yarl import URL

from noonday.model.errors import InvalidInput, nearest

POINTER = "/payload/webhook_url"
MAX_LENGTH = 2_000
SCHEMES = ("http", "https")

_UNWANTED = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ufeff]")
_CREDENTIALS = re.compile(r"[^/?#]*//[^/?#]*@")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Endpoint(msgspec.Struct, frozen=True):
    """Scheme, host and port that a webhook calls. Secrets, limits and health belong to an endpoint."""

    scheme: str
    host: str
    """Normalized: lower case, IDNA-encoded, without a trailing dot; an IPv6 address without brackets."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@lru_cache(maxsize=4096)
def read_url(text: str) -> Endpoint:
    """Validate a URL and return its endpoint. Raises InvalidInput with a flaw at `/payload/webhook_url`.

    The parser is the one that the HTTP client uses, so both see the same host. IP addresses are checked elsewhere, whenever
    one is dialled.
    """
    if not 0 < len(text) <= MAX_LENGTH:
        raise InvalidInput.of(POINTER, f"must have 1 to {MAX_LENGTH} characters", len(text))
    if _UNWANTED.search(text):
        raise _flawed(text, "must not contain spaces, control characters or backslashes")
    if _CREDENTIALS.match(text):
        raise InvalidInput.of(POINTER, "must not contain credentials; put them into a header")
    url = _parse(text)
    _check_scheme(url, text)
    return Endpoint(url.scheme, _host_of(url, text), _port_of(url, text))


def _parse(text: str) -> URL:
    try:
        return URL(text)
    except ValueError as error:
        raise _flawed(text, f"is not a URL: {error}") from error


def _check_scheme(url: URL, text: str) -> None:
    if url.scheme not in SCHEMES:
        detail = "must begin with http:// or https://"
        raise InvalidInput.of(POINTER, detail, text, allowed=SCHEMES, nearest=nearest(url.scheme, SCHEMES))


def _host_of(url: URL, text: str) -> str:
    written = (url.raw_host or "").lower()
    if ":" in written:
        return _ipv6(written, text)
    host = written.removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(written, text)
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise _flawed(text, "must name a host")
    return host


def _ipv4(host: str, text: str) -> str:
    # Libraries disagree about other spellings (2130706433, 0x7f.1, 0177.0.0.1, 127.0.0.1.).
    try:
        return str(IPv4Address(host))
    except ValueError as error:
        raise _flawed(text, "an IPv4 address must be written as four decimal numbers, such as 192.0.2.1") from error


def _ipv6(host: str, text: str) -> str:
    try:
        address = IPv6Address(host)
    except ValueError as error:
        raise _flawed(text, f"is not an IPv6 address: {error}") from error
    if address.scope_id is not None:
        raise _flawed(text, "an IPv6 address must not name an interface")
    return str(address)


def _port_of(url: URL, text: str) -> int:
    # yarl reads `http://host:/` as the default port of the scheme, which is correct.
    if url.port is None or not 0 < url.port < 65_536:
        raise _flawed(text, "the port must be from 1 to 65535")
    return url.port


def _flawed(text: str, detail: str) -> InvalidInput:
    return InvalidInput.of(POINTER, detail, text)
