"""References to a notification that a provider returns with a receipt, so that the receipt needs no look-up."""

from collections.abc import Mapping
from urllib.parse import parse_qs, urlencode, urlsplit

from noonday.model.notifications.sending import ProviderMessage

_NOTIFICATION, _NUMBER = "notification", "number"
_ID_CHARS = 64
_MAX_NUMBER = 2**31 - 1


def with_reference(url: str, message: ProviderMessage) -> str:
    """Return a callback URL that names the dispatch."""
    query = urlencode(reference_fields(message))
    return f"{url}{'&' if urlsplit(url).query else '?'}{query}"


def reference_fields(message: ProviderMessage) -> dict[str, str]:
    """Return fields that name the dispatch, for providers that return them with a receipt."""
    return {_NOTIFICATION: message.notification_id, _NUMBER: str(message.number)}


def reference_in_url(url: str) -> tuple[str | None, int | None]:
    """Return the notification and the number of the dispatch that a callback URL names. None for what it does not name."""
    try:
        query = parse_qs(urlsplit(url).query, max_num_fields=20)
    except ValueError:
        return None, None
    return reference_of({name: values[0] for name, values in query.items()})


def reference_of(fields: Mapping[str, object]) -> tuple[str | None, int | None]:
    """Return the notification and the number of the dispatch in these fields."""
    notification, number = fields.get(_NOTIFICATION), str(fields.get(_NUMBER, ""))
    if not isinstance(notification, str) or not 0 < len(notification) <= _ID_CHARS:
        return None, None
    is_number = number.isascii() and number.isdecimal() and len(number) <= 10 and int(number) <= _MAX_NUMBER
    return notification, int(number) if is_number else None
