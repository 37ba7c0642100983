"""Checks of the settings and secrets of a provider account."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

from noonday.mail.addresses import flaw_of_sender
from noonday.model.errors import Flaw, nearest, pointer_to

SECRET_CHARS = 8_192
"""Maximum length of a secret. A service account's key is the longest one."""
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_SHOWN = 200
"""Characters of a refused value that a flaw repeats."""

Check = Callable[[Any], str | None]
"""Returns what is wrong with a value, as a sentence without its subject, or None."""


@dataclass(frozen=True, slots=True)
class AccountField:
    """A setting or a secret of an account."""

    check: Check
    required: bool = False


def flaws_in_settings(settings: Mapping[str, Any], fields: Mapping[str, AccountField]) -> list[Flaw]:
    """Return the flaws of an account's settings, located below `/settings`."""
    return _flaws("settings", settings, fields, shows_values=True)


def flaws_in_secrets(secrets: Mapping[str, Any], fields: Mapping[str, AccountField]) -> list[Flaw]:
    """Return the flaws of an account's secrets, located below `/secrets`. No flaw contains a value."""
    return _flaws("secrets", secrets, fields, shows_values=False)


def _flaws(
    section: str, values: Mapping[str, Any], fields: Mapping[str, AccountField], *, shows_values: bool
) -> list[Flaw]:
    flaws = [_unknown(section, name, fields) for name in values if name not in fields]
    for name, field in fields.items():
        value = values.get(name)
        pointer = pointer_to(section, name)
        if value is None:
            if field.required:
                flaws.append(Flaw(pointer, f"must be set: {section}.{name} is required"))
        elif (detail := field.check(value)) is not None:
            flaws.append(Flaw(pointer, detail, _shown(value) if shows_values else None))
    return flaws


def _unknown(section: str, name: str, fields: Mapping[str, AccountField]) -> Flaw:
    shown = name[:_SHOWN]
    known = tuple(fields)
    detail = f"is not known; {section} of this kind are {', '.join(known)}"
    return Flaw(pointer_to(section, shown), detail, allowed=known, nearest=nearest(shown, known))


def _shown(value: Any) -> Any:
    return value[:_SHOWN] if isinstance(value, str) else value if isinstance(value, int | float) else None


def text(value: Any, most: int = 255) -> str | None:
    """Check a printable text of one line."""
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        return f"must be a text of 1 to {most} printable characters"
    return None


def secret(value: Any) -> str | None:
    """Check a secret of one line."""
    return text(value, SECRET_CHARS)


def host(value: Any) -> str | None:
    """Check a host name or an IP address."""
    if isinstance(value, str) and (_HOST.fullmatch(value) or _is_ipv6(value)):
        return None
    return "must be a host name such as smtp.example.com, or an IP address"


def port(value: Any) -> str | None:
    """Check a port."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65_536:
        return None
    return "must be a port from 1 to 65535"


def sender(value: Any) -> str | None:
    """Check the sender of an email."""
    return text(value, 400) or flaw_of_sender(value)


def phone(value: Any) -> str | None:
    """Check a phone number."""
    if isinstance(value, str) and _E164.fullmatch(value):
        return None
    return "must be a phone number in E.164, such as +15005550006"


def one_of(*allowed: str) -> Check:
    """Return a check that accepts these values only."""

    def check(value: Any) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


def matching(pattern: str, example: str) -> Check:
    """Return a check that accepts texts that match a pattern as a whole."""
    compiled = re.compile(pattern)

    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and compiled.fullmatch(value) else f"must be {example}"

    return check


def _is_ipv6(value: str) -> bool:
    try:
        return IPv6Address(value).scope_id is None
    except ValueError:
        return False
