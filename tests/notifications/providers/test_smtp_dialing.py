import pytest

from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.smtp_dialing import Dialer
from noonday.webhooks.addresses import Networks
from noonday.webhooks.dialing import RefusedAddress, SystemResolver


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
)
async def test_a_literal_address_that_is_not_public_is_refused(host: str) -> None:
    dialer = Dialer(ProviderHosts(Networks()), SystemResolver())
    with pytest.raises(RefusedAddress):
        await dialer.dial("acme", host, 25)
