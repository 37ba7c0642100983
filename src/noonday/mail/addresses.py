"""Checks of recipient and sender addresses."""

import re
from collections.abc import Sequence
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.utils import parseaddr

LONGEST = 254
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
ADDRESS = rf"^{_LOCAL}@({_LABEL}\.)*{_LABEL}$"
"""Plain ASCII, without a display name and without quotes: the form that every mail server accepts."""
_ADDRESS = re.compile(ADDRESS)


def flaw_of_address(text: str) -> str | None:
    """Check a recipient address. Returns the problem, or None if mail can be sent there."""
    if len(text) > LONGEST:
        return f"must have at most {LONGEST} characters"
    if not _ADDRESS.fullmatch(text) or len(text.rpartition("@")[0]) > 64:
        return "must be a plain address such as ops@example.com, without a display name"
    return None


def flaw_of_recipient(address: str, allowed: Sequence[str]) -> str | None:
    """Check an address against the addresses and domains in `allowed`; an empty `allowed` permits all.

    Returns the problem, or None if the address is allowed.
    """
    if not allowed or {address.lower(), address.lower().rpartition("@")[2]} & {each.lower() for each in allowed}:
        return None
    return "is not allowed by email.recipients; ask the operator of this server to add it"


def flaw_of_allowed(text: str) -> str | None:
    """Check an entry of `email.recipients`. Returns the problem, or None if the entry is valid."""
    if flaw_of_address(text if "@" in text else f"a@{text}") is not None:
        return "must be an address or a domain, such as ops@example.com or example.com"
    return None


def flaw_of_sender(text: str) -> str | None:
    """Check a sender, which may have a display name: `Noonday <noonday@example.com>`.

    Returns the problem, or None if the sender is valid.
    """
    _, address = parseaddr(text)
    if not text.isprintable() or flaw_of_address(address) is not None:
        return "must be an address such as noonday@example.com, or Noonday <noonday@example.com>"
    return None


def sender_of(text: str) -> Address:
    """Parse a sender that `flaw_of_sender` accepts. Raises ValueError if it cannot be a mail header."""
    name, address = parseaddr(text)
    local, _, domain = address.rpartition("@")
    try:
        return Address(name, local, domain)
    except HeaderParseError as error:
        raise ValueError(f"{text!r} is not a valid sender: {error}") from error
