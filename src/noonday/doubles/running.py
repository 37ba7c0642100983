"""All doubles of a process."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from noonday.doubles.certificate import ThrowAwayCertificate
from noonday.doubles.control import Control, refuse_foreign_hosts
from noonday.doubles.fcm import FcmDouble
from noonday.doubles.outbox import DoubleOutbox
from noonday.doubles.receipt_sender import ReceiptSender
from noonday.doubles.scripts import Scripts
from noonday.doubles.sendgrid import SendGridDouble
from noonday.doubles.smtp import SmtpDouble
from noonday.doubles.twilio import TwilioDouble
from noonday.model.errors import NoondayError
from noonday.model.notifications.sending import ProviderAccount, ProviderKind
from noonday.ports.clock import Clock

HOST = "127.0.0.1"
"""The doubles accept everything, so only this machine reaches them."""


class DoublesPortTaken(NoondayError):
    """The doubles cannot listen on the port: it is in use or not permitted."""

    code = "doubles-port-taken"


@dataclass(frozen=True, slots=True)
class DoubleCredentials:
    """Credentials that the doubles accept."""

    username: str = "noonday"
    password: str = field(default_factory=secrets.token_urlsafe, repr=False)
    account_sid: str = field(default_factory=lambda: "AC" + secrets.token_hex(16))
    auth_token: str = field(default_factory=secrets.token_urlsafe, repr=False)
    api_key: str = field(default_factory=lambda: "SG." + secrets.token_urlsafe(), repr=False)


class Doubles:
    """Starts and stops the doubles on the running event loop."""

    def __init__(self, clock: Clock, credentials: DoubleCredentials | None = None) -> None:
        self._credentials = login = credentials or DoubleCredentials()
        self._certificate = ThrowAwayCertificate()
        self.outbox = DoubleOutbox()
        self.scripts = Scripts()
        self.receipts = ReceiptSender(self.outbox, clock)
        self.smtp = SmtpDouble(
            self.outbox,
            self.scripts,
            clock,
            username=login.username,
            password=login.password,
            tls=self._certificate.server_context(),
        )
        self.twilio = TwilioDouble(
            self.outbox,
            self.scripts,
            clock,
            self.receipts,
            account_sid=login.account_sid,
            auth_token=login.auth_token,
        )
        self.sendgrid = SendGridDouble(self.outbox, self.scripts, clock, self.receipts, api_key=login.api_key)
        self.fcm = FcmDouble(self.outbox, self.scripts, clock)
        self._runner: web.AppRunner | None = None
        self.port = 0
        """Port of the outbox and of the doubles that speak HTTP."""

    async def start(self, port: int = 0, smtp_port: int = 0) -> None:
        """Listen. `port`: of the outbox and of the HTTP doubles; 0 picks a free port. Raises DoublesPortTaken."""
        app = web.Application(middlewares=[refuse_foreign_hosts])
        app.add_routes(self.twilio.routes())
        app.add_routes(self.sendgrid.routes())
        app.add_routes(self.fcm.routes())
        app.add_routes(Control(self.outbox, self.scripts, self.twilio).routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await self._runner.setup()
        listening = port
        try:
            await web.TCPSite(self._runner, HOST, port, backlog=1024).start()
            self.port = int(self._runner.addresses[0][1])
            listening = smtp_port
            await self.smtp.start(HOST, smtp_port)
        except OSError as error:
            await self.stop()
            raise DoublesPortTaken(f"port {listening} is not available: {error.strerror}; choose another") from error

    async def stop(self) -> None:
        """Stop listening, and drop receipts that wait."""
        await self.receipts.close()
        await self.smtp.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        """URL of the outbox."""
        return f"http://{HOST}:{self.port}"

    @property
    def endpoints(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each double: endpoints that the operator of this process runs."""
        return ((HOST, self.port), (HOST, self.smtp.port))

    def accounts(self, tenant: str) -> list[ProviderAccount]:
        """Return an account for each double."""
        return [
            ProviderAccount(tenant, name, kind, order, settings=settings, secrets=login)
            for order, (name, (kind, settings, login)) in enumerate(self._accounts().items(), 1)
        ]

    def _accounts(self) -> Mapping[str, tuple[ProviderKind, Mapping[str, object], Mapping[str, str]]]:
        login = self._credentials
        return {
            "double-smtp": (
                ProviderKind.SMTP,
                {
                    "host": HOST,
                    "port": self.smtp.port,
                    "from": "Noonday <noonday@example.com>",
                    "ca": self._certificate.authority,
                },
                {"username": login.username, "password": login.password},
            ),
            "double-twilio": (
                ProviderKind.TWILIO,
                {"from": "+15005550006", "url": self.url},
                {"account_sid": login.account_sid, "auth_token": login.auth_token},
            ),
            "double-sendgrid": (
                ProviderKind.SENDGRID,
                {
                    "from": "Noonday <noonday@example.com>",
                    "url": self.url,
                    "verification_key": self.sendgrid.verification_key,
                },
                {"api_key": login.api_key},
            ),
            "double-fcm": (
                ProviderKind.FCM,
                {"url": self.url, "token_url": self.url},
                {"service_account": self.fcm.service_account()},
            ),
        }
