"""Push messages through Firebase Cloud Messaging."""

from noonday.model.errors import InvalidInput
from noonday.model.notifications.sending import ProviderAccount, ProviderMessage, ProviderOutcome
from noonday.notifications.providers.fcm_account import ServiceAccount, flaws_of, service_account_of
from noonday.notifications.providers.fcm_push import is_stale_token, judge, request
from noonday.notifications.providers.fcm_tokens import AccessTokens, TokenRefused
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.http_client import ProviderClient
from noonday.notifications.providers.outcomes import account_fault, request_rejected
from noonday.ports.clock import Clock
from noonday.ports.providers import Provider
from noonday.webhooks.calling import Exchange


class FcmProvider(Provider):
    """Sends push messages, each with an access token of its account's service account."""

    def __init__(self, clock: Clock, hosts: ProviderHosts, client: ProviderClient) -> None:
        """Create a provider. The caller closes the `client`, which all HTTP providers share."""
        self._clock = clock
        self._hosts = hosts
        self._client = client
        self._tokens = AccessTokens(client, clock)

    async def send(self, account: ProviderAccount, message: ProviderMessage) -> ProviderOutcome:
        if flaws := flaws_of(account.settings, account.secrets, self._hosts):
            return account_fault("BAD_ACCOUNT", f"{flaws[0].pointer} {flaws[0].detail}")
        service = service_account_of(account)
        exchange = await self._call(account, service, message)
        if isinstance(exchange, Exchange) and is_stale_token(exchange):
            # The answer says that nothing was accepted, so another call with another access token repeats nothing.
            exchange = await self._call(account, service, message)
        return judge(exchange) if isinstance(exchange, Exchange) else exchange

    async def find(self, account: ProviderAccount, message: ProviderMessage, since_ms: int) -> None:
        """Return None: FCM does not list messages."""

    async def close(self) -> None:
        """Do nothing: the client belongs to the caller."""

    async def _call(
        self, account: ProviderAccount, service: ServiceAccount, message: ProviderMessage
    ) -> Exchange | ProviderOutcome:
        """Make one call. Returns the outcome if nothing is sent."""
        token = await self._tokens.get(account, service)
        if isinstance(token, TokenRefused):
            return token.outcome
        try:
            call = request(account, service, message, token, self._clock.now_ms())
        except InvalidInput as bad:
            return request_rejected("BAD_MESSAGE", bad.detail)
        exchange = await self._client.call(account.tenant, call)
        if is_stale_token(exchange):
            self._tokens.forget(account, token)
        return exchange
