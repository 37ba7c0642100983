"""Built-in handlers: webhook calls, notices over each configured channel, and commands if they are allowed."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from noonday import __version__
from noonday.alerts.channels import handlers_of
from noonday.crypto.keyring import Keyring
from noonday.model.handler import Handler
from noonday.model.notice import ChannelType
from noonday.model.pool import NOTICES_POOL
from noonday.model.shell import HANDLER as SHELL_HANDLER
from noonday.model.shell import POOL as SHELL_POOL
from noonday.ports.channels import Channel, Channels
from noonday.ports.clock import Clock
from noonday.shell.handler import ShellHandler
from noonday.webhooks.handler import NAME, POOL, WebhookHandler
from noonday.wiring.settings import Settings
from noonday.wiring.settings.outgoing import EmailSettings


class BuiltInHandlers:
    """The built-in handlers of one process, which share their connections to webhooks."""

    def __init__(self, settings: Settings, keyring: Keyring, clock: Clock) -> None:
        self._settings = settings
        self._keyring = keyring
        self._webhooks = _webhooks(settings, keyring, clock)

    def of_pools(self, pools: Collection[str]) -> dict[tuple[str, str], Handler]:
        """Return the handlers of those built-in pools that are in `pools`."""
        handlers: dict[tuple[str, str], Handler] = {}
        if NOTICES_POOL in pools:
            # A notice to a webhook is a call like any other, and takes no slot from tasks.
            handlers[NOTICES_POOL, NAME] = replace(self._webhooks.handler(), pool=NOTICES_POOL)
            handlers |= handlers_of(channels_of(self._settings), self._keyring)
        if POOL in pools:
            handlers[POOL, NAME] = self._webhooks.handler()
        shell = self._settings.shell
        if SHELL_POOL in pools and shell.allow:
            handlers[SHELL_POOL, SHELL_HANDLER] = ShellHandler(shell.allowed_tenants, shell.output_bytes).handler()
        return handlers

    async def close(self) -> None:
        await self._webhooks.close()


def _webhooks(settings: Settings, keyring: Keyring, clock: Clock) -> WebhookHandler:
    webhooks = settings.webhooks
    return WebhookHandler(
        keyring,
        clock,
        user_agent=f"noonday/{__version__}",
        allow_networks=webhooks.networks,
        ca_file=Path(webhooks.ca_file) if webhooks.ca_file else None,
        max_timeout_sec=webhooks.max_timeout_sec,
    )


def channels_of(settings: Settings) -> Channels:
    """Return the configured channels of notices. Add a new channel here."""
    return {ChannelType.EMAIL: _mail(settings.email)} if settings.email.host is not None else {}


def _mail(email: EmailSettings) -> Channel:
    from noonday.mail.smtp import MailServer, SmtpChannel  # importing it takes 0.1 s, and most processes do not need it

    assert email.host is not None
    assert email.sender is not None
    server = MailServer(
        email.host,
        email.sender,
        port=email.port,
        username=email.username,
        password=email.password,
        password_file=Path(email.password_file) if email.password_file else None,
        tls=email.tls,
        starttls=email.starttls,
        ca_file=Path(email.ca_file) if email.ca_file else None,
        timeout_sec=email.timeout_sec,
        recipients=email.allowed_recipients,
    )
    return SmtpChannel(server)
