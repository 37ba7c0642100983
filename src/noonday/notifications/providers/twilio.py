"""SMS through Twilio."""

from noonday.model.errors import InvalidInput
from noonday.model.notifications.sending import ProviderAccount, ProviderMessage, ProviderOutcome
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.http_client import ProviderClient
from noonday.notifications.providers.outcomes import account_fault, request_rejected
from noonday.notifications.providers.twilio_account import flaws_of
from noonday.notifications.providers.twilio_sms import found_in, judge, look_up_request, request
from noonday.ports.clock import Clock
from noonday.ports.providers import Provider


class TwilioProvider(Provider):
    """Creates SMS at Twilio, which has no idempotency key: a call without an answer is unknown."""

    def __init__(self, clock: Clock, hosts: ProviderHosts, client: ProviderClient) -> None:
        """Create a provider. The caller closes the `client`, which all HTTP providers share."""
        self._clock = clock
        self._hosts = hosts
        self._client = client

    async def send(self, account: ProviderAccount, message: ProviderMessage) -> ProviderOutcome:
        if flaws := flaws_of(account.settings, account.secrets, self._hosts):
            return account_fault("BAD_ACCOUNT", f"{flaws[0].pointer} {flaws[0].detail}")
        try:
            call = request(account, message, self._clock.now_ms())
        except InvalidInput as bad:
            return request_rejected("BAD_MESSAGE", bad.detail)
        return judge(await self._client.call(account.tenant, call))

    async def find(self, account: ProviderAccount, message: ProviderMessage, since_ms: int) -> ProviderOutcome | None:
        if flaws_of(account.settings, account.secrets, self._hosts):
            return None
        exchange = await self._client.call(account.tenant, look_up_request(account, message))
        return found_in(exchange, message, since_ms)

    async def close(self) -> None:
        """Do nothing: the client belongs to the caller."""
