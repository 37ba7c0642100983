import asyncio

import pytest

from noonday.model.errors import NotFound, Unauthorized
from noonday.model.notifications.provider_receipts import ReceiptRequest
from noonday.model.notifications.sending import OutcomeKind, ProviderKind
from noonday.notifications.providers.catalogue import (
    KINDS,
    OpenProviders,
    flaws_of_account,
    open_providers,
    read_receipts,
)
from noonday.notifications.providers.http_client import ProviderClient, flaw_of_url
from noonday.wiring.engine_thread import new_event_loop
from tests.notifications.providers.doubles import running
from tests.notifications.providers.messages import LOOPBACK, account
from tests.support.clock import ManualClock

MISSING = {ProviderKind.SMTP: 2, ProviderKind.TWILIO: 3, ProviderKind.SENDGRID: 2, ProviderKind.FCM: 1}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_the_account_of_a_double_is_valid_and_sends(kind: ProviderKind) -> None:
    async with running(kind) as double:
        own = double.account
        assert flaws_of_account(kind, own.settings, own.secrets, double.hosts) == []
        assert (await double.send()).kind is OutcomeKind.ACCEPTED
        [accepted] = double.accepted
        assert (accepted.provider, accepted.channel) == (kind, own.channel)


@pytest.mark.slow
def test_doubles_and_providers_run_on_the_loop_of_a_server() -> None:
    """Its transports are of another library than those of the other tests."""

    async def send_all() -> list[OutcomeKind]:
        outcomes = []
        for kind in KINDS:
            async with running(kind) as double:
                outcomes += [(await double.send()).kind for _ in range(2)]
        return outcomes

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(send_all()) == [OutcomeKind.ACCEPTED] * 2 * len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_account_has_flaws(kind: ProviderKind) -> None:
    assert len(flaws_of_account(kind, {}, {}, LOOPBACK)) == MISSING[kind]


async def test_each_kind_has_a_provider() -> None:
    providers = open_providers(ManualClock(), LOOPBACK)
    assert isinstance(providers, OpenProviders)
    assert isinstance(providers.client, ProviderClient)
    assert tuple(providers.by_kind) == KINDS
    await providers.close()


def test_receipts_need_a_signature_and_a_kind_that_sends_them() -> None:
    request = ReceiptRequest("https://noonday.example.com/v1/receipts/main", {}, b"")
    with pytest.raises(NotFound, match="SMTP sends no receipts"):
        read_receipts(account(ProviderKind.SMTP, {}), request)
    secrets = {"account_sid": "AC" + "0" * 32, "auth_token": "x"}
    with pytest.raises(Unauthorized):
        read_receipts(account(ProviderKind.TWILIO, {}, secrets), request)


def test_a_missing_url_is_valid() -> None:
    assert flaw_of_url(None, "twilio.com", LOOPBACK) is None
