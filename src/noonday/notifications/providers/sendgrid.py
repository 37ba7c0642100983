"""Email through SendGrid."""

from noonday.model.errors import InvalidInput
from noonday.model.notifications.sending import ProviderAccount, ProviderMessage, ProviderOutcome
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.http_client import ProviderClient
from noonday.notifications.providers.outcomes import account_fault, request_rejected
from noonday.notifications.providers.sendgrid_account import flaws_of
from noonday.notifications.providers.sendgrid_mail import judge, request
from noonday.ports.providers import Provider


class SendGridProvider(Provider):
    """Sends emails through SendGrid, which recognizes no repeats: a call without an answer is unknown."""

    def __init__(self, hosts: ProviderHosts, client: ProviderClient) -> None:
        """Create a provider. The caller closes the `client`, which all HTTP providers share."""
        self._hosts = hosts
        self._client = client

    async def send(self, account: ProviderAccount, message: ProviderMessage) -> ProviderOutcome:
        if flaws := flaws_of(account.settings, account.secrets, self._hosts):
            return account_fault("BAD_ACCOUNT", f"{flaws[0].pointer} {flaws[0].detail}")
        try:
            call = request(account, message)
        except InvalidInput as bad:
            return request_rejected("BAD_MESSAGE", bad.detail)
        return judge(await self._client.call(account.tenant, call))

    async def find(self, account: ProviderAccount, message: ProviderMessage, since_ms: int) -> None:
        """Return None: SendGrid lists emails only to accounts that pay for it, and minutes late."""

    async def close(self) -> None:
        """Do nothing: the client belongs to the caller."""
