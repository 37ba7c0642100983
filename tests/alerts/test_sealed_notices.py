"""A worker sends only notices that an alert preference created."""

from typing import Any

import msgspec
import pytest

from noonday.alerts.channels import handlers_of
from noonday.alerts.sealed_notices import SealedNotice, open_notice, seal_notice
from noonday.crypto.keyring import Keyring
from noonday.model.errors import DoNotRetry
from noonday.model.handler import Handler
from noonday.model.message import Token
from noonday.model.notice import ChannelType, Notice
from noonday.ports.channels import Channel
from noonday.worker.context import Context
from tests.support.factories import NOW_MS, TENANT, dispatch

KEYRING = Keyring.generate()
NOTICE = Notice("n-1", TENANT, "ops", "sam", "ops@example.com", "[noonday] nightly", "3 dead letters", NOW_MS)


class Outbox(Channel):
    def __init__(self) -> None:
        self.sent: list[Notice] = []

    def flaw_of(self, address: str) -> str | None:
        return None

    async def send(self, notice: Notice) -> None:
        self.sent.append(notice)


def handler_on(outbox: Outbox) -> Handler:
    (handler,) = handlers_of({ChannelType.EMAIL: outbox}, KEYRING).values()
    return handler


async def sent(payload: Any, tenant: str = TENANT) -> list[Notice]:
    """Run a job with this payload and return the notices it sends."""
    outbox = Outbox()
    handler = handler_on(outbox)
    assert handler.decode is not None
    context = Context(dispatch(tenant=tenant), Token(1, NOW_MS), None)
    await handler.call(context, handler.decode(msgspec.json.encode(payload)))
    return outbox.sent


async def test_notice_of_a_preference_is_sent() -> None:
    assert await sent(seal_notice(NOTICE, KEYRING)) == [NOTICE]


@pytest.mark.parametrize("field", ["address", "subject", "text", "id", "tenant"])
async def test_changed_notice_is_not_sent(field: str) -> None:
    sealed = seal_notice(NOTICE, KEYRING)
    changed = msgspec.structs.replace(NOTICE, **{field: "victim@example.net"})
    with pytest.raises(DoNotRetry):
        await sent(SealedNotice(changed, sealed.seal), changed.tenant)


@pytest.mark.parametrize(
    "payload",
    [
        {"notice": msgspec.to_builtins(NOTICE)},
        {"notice": msgspec.to_builtins(NOTICE), "seal": "AAAA"},
        msgspec.to_builtins(seal_notice(NOTICE, Keyring.generate())),
        msgspec.to_builtins(NOTICE),
        None,
        [],
    ],
)
async def test_forged_payload_sends_nothing(payload: Any) -> None:
    with pytest.raises(DoNotRetry):
        await sent(payload)


def test_notice_of_another_tenant_is_not_sent() -> None:
    with pytest.raises(DoNotRetry, match="its job to tenant other"):
        open_notice(seal_notice(NOTICE, KEYRING), "other", KEYRING)
