"""Which addresses mail can be sent to and from."""

import re
from collections.abc import Sequence
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.utils import parseaddr

LONGEST = 254
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
ADDRESS = rf"^{_LOCAL}@({_LABEL}\.)*{_LABEL}$"
"""Plain ASCII, without a name, without quotes: what every mail server takes."""
_ADDRESS = re.compile(ADDRESS)


def flaw_of_address(text: str) -> str | None:
    """What is wrong with an address, in words; None if mail can be sent there."""
    if len(text) > LONGEST:
        return f"must have at most {LONGEST} characters"
    if not _ADDRESS.fullmatch(text) or len(text.rpartition("@")[0]) > 64:
        return "must be an address such as ops@example.com, without a name"
    return None


def flaw_of_recipient(address: str, allowed: Sequence[str]) -> str | None:
    """Why an operator's mail server does not write to an address; None if it does. `allowed` are addresses and domains."""
    if not allowed or {address.lower(), address.lower().rpartition("@")[2]} & {each.lower() for each in allowed}:
        return None
    return "is not one of those that this server writes to (email.recipients): ask its operator"


def flaw_of_allowed(text: str) -> str | None:
    """What is wrong with an entry of `email.recipients`, in words."""
    if flaw_of_address(text if "@" in text else f"a@{text}") is not None:
        return "must be an address or a domain, such as ops@example.com or example.com"
    return None


def flaw_of_sender(text: str) -> str | None:
    """The same of a sender, who may have a name: `Noonday <noonday@example.com>`."""
    _, address = parseaddr(text)
    if not text.isprintable() or flaw_of_address(address) is not None:
        return "must be an address such as noonday@example.com, or Noonday <noonday@example.com>"
    return None


def sender_of(text: str) -> Address:
    """Of a text that `flaw_of_sender` finds no fault with."""
    name, address = parseaddr(text)
    local, _, domain = address.rpartition("@")
    try:
        return Address(name, local, domain)
    except HeaderParseError as error:
        raise ValueError(f"{text!r} cannot be a sender: {error}") from error
