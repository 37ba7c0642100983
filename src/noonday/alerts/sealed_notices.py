"""Seals that prove that an alert preference created a notice.

A user who may create jobs must not be able to send arbitrary mail. A seal needs the encryption keys, which servers and workers
have and users do not. It covers the tenant, the recipient and the whole text of its notice.
"""

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.errors import BadKey, DoNotRetry
from noonday.model.notice import Notice

_encode = msgspec.json.Encoder().encode


class SealedNotice(msgspec.Struct, frozen=True):
    """Payload of a job that sends a notice."""

    notice: Notice
    seal: bytes = b""


def seal_notice(notice: Notice, keyring: Keyring) -> SealedNotice:
    return SealedNotice(notice, keyring.seal(b"", _seal_context(notice)))


def open_notice(sealed: SealedNotice, tenant: str, keyring: Keyring) -> Notice:
    """Check the seal and return the notice. Raises DoNotRetry if no alert preference of the tenant created it."""
    try:
        keyring.open(sealed.seal, _seal_context(sealed.notice))
    except BadKey as error:
        raise DoNotRetry("notice not sent: its seal is not valid, so no alert preference created it") from error
    if sealed.notice.tenant != tenant:
        raise DoNotRetry(
            f"notice not sent: it belongs to tenant {sealed.notice.tenant}, and its job to tenant {tenant}"
        )
    return sealed.notice


def _seal_context(notice: Notice) -> bytes:
    return context_of(notice.tenant, "notice") + _encode(notice)
