"""Proof that a notice was made by an alert preference, and by nobody else.

Whoever may create jobs must not be able to send mail. A notice carries a seal that only the holder of the encryption keys can
make, and that is bound to its tenant, its recipient and all its words. Workers hold the keys; users do not.
"""

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.errors import BadKey, DoNotRetry
from noonday.model.notice import Notice

_encode = msgspec.json.Encoder().encode


class VouchedNotice(msgspec.Struct, frozen=True):
    """The payload of a job that sends a notice."""

    notice: Notice
    seal: bytes = b""


def vouch_for(notice: Notice, keyring: Keyring) -> VouchedNotice:
    return VouchedNotice(notice, keyring.seal(b"", _bound_to(notice)))


def checked(vouched: VouchedNotice, tenant: str, keyring: Keyring) -> Notice:
    """The notice inside. Raises DoNotRetry if no alert preference of the tenant has made it."""
    try:
        keyring.open(vouched.seal, _bound_to(vouched.notice))
    except BadKey as error:
        raise DoNotRetry("no alert preference has made this notice: it is not sent") from error
    if vouched.notice.tenant != tenant:
        raise DoNotRetry(f"this notice is not of tenant {tenant}: it is not sent")
    return vouched.notice


def _bound_to(notice: Notice) -> bytes:
    return context_of(notice.tenant, "notice") + _encode(notice)
