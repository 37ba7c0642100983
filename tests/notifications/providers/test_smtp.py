import asyncio
import re
import socket
from dataclasses import replace

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from noonday.doubles.behaviour import Behaviour, Cut
from noonday.doubles.smtp import EVERYONE
from noonday.model.notifications.sending import AddressEffect, OutcomeKind, ProviderKind, ProviderLimits
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.notifications.providers.smtp_connections import IDLE_SEC, MESSAGES_PER_CONNECTION
from noonday.webhooks.addresses import Networks
from noonday.webhooks.dialing import MAX_RESOLVES
from tests.notifications.providers.mail_servers import LOGIN, mail_server
from tests.notifications.providers.messages import NOTIFICATION, content, message
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

ACCEPTED, RETRY, UNKNOWN = OutcomeKind.ACCEPTED, OutcomeKind.RETRY, OutcomeKind.UNKNOWN
REQUEST, RECIPIENT = OutcomeKind.REQUEST_REJECTED, OutcomeKind.RECIPIENT_REJECTED
FAULT = OutcomeKind.CONFIGURATION_FAULT


async def test_an_email_arrives_encrypted_with_our_id() -> None:
    async with mail_server() as mail:
        outcome = await mail.send(unsubscribe_url=f"https://noonday.example.com/v1/unsubscribe/{'x' * 120}")
    [accepted] = mail.accepted
    assert outcome.kind is ACCEPTED
    assert outcome.provider_id == accepted.provider_id == f"<{NOTIFICATION}@sender.test>"
    assert (accepted.sender, accepted.to) == ("shop@sender.test", "ann@example.com")
    assert (accepted.title, accepted.text) == ("Shipped", "Order A-17 is on its way.\n")
    assert accepted.data["encrypted"]
    headers = accepted.data["headers"]
    assert headers["List-Unsubscribe"] == f"<https://noonday.example.com/v1/unsubscribe/{'x' * 120}>"
    assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert headers["From"] == "Shop <shop@sender.test>"


async def test_text_and_html_are_alternatives() -> None:
    text, html = ".a line with a dot\n..two\nGrüße 🎉\n", "<p>Grüße 🎉</p>\n"
    async with mail_server() as mail:
        assert (
            await mail.send(content=content(title="Grüße\r\nBcc: eve@example.com", text=text, html=html))
        ).kind is ACCEPTED
    [accepted] = mail.accepted
    assert (accepted.text, accepted.html) == (text, html)
    assert accepted.title == "Grüße Bcc: eve@example.com"
    assert "Bcc" not in accepted.data["headers"]


async def test_an_email_without_a_body_is_refused_before_it_is_sent() -> None:
    async with mail_server() as mail:
        outcome = await mail.send(content=content(text=None))
        assert (outcome.kind, outcome.detail) == (REQUEST, "an email needs text or html, and the content has neither")
        assert (await mail.send("not an address")).kind is REQUEST
        assert mail.double.connections == 0


@pytest.mark.parametrize(
    ("code", "at", "kind", "effect", "alerts"),
    [
        ("450 4.2.0", "RCPT", RETRY, AddressEffect.KEEP, False),
        ("451", "BODY", RETRY, AddressEffect.KEEP, False),
        ("452 4.3.1", "MAIL", RETRY, AddressEffect.KEEP, False),
        ("451 4.7.1", "DATA", RETRY, AddressEffect.KEEP, False),
        ("421 4.3.2", "RCPT", RETRY, AddressEffect.KEEP, False),
        ("421 4.3.2", "BODY", RETRY, AddressEffect.KEEP, False),
        ("550 5.1.1", "RCPT", RECIPIENT, AddressEffect.RETIRE, False),
        ("551 5.1.6", "RCPT", RECIPIENT, AddressEffect.RETIRE, False),
        ("553 5.1.3", "RCPT", RECIPIENT, AddressEffect.RETIRE, False),
        ("550 5.1.1", "BODY", RECIPIENT, AddressEffect.RETIRE, False),
        ("550", "RCPT", RECIPIENT, AddressEffect.KEEP, False),
        ("550 5.2.1", "RCPT", RECIPIENT, AddressEffect.KEEP, False),
        ("550 5.1.8", "RCPT", FAULT, AddressEffect.KEEP, True),
        ("552", "RCPT", RETRY, AddressEffect.KEEP, False),
        ("550 5.2.2", "RCPT", RETRY, AddressEffect.KEEP, False),
        ("552 5.2.2", "BODY", RETRY, AddressEffect.KEEP, False),
        ("552 5.3.4", "MAIL", REQUEST, AddressEffect.KEEP, False),
        ("552 5.3.4", "BODY", REQUEST, AddressEffect.KEEP, False),
        ("554 5.7.1", "RCPT", REQUEST, AddressEffect.KEEP, True),
        ("550 5.7.26", "BODY", REQUEST, AddressEffect.KEEP, True),
        ("554 5.6.0", "BODY", REQUEST, AddressEffect.KEEP, False),
        ("530 5.7.0", "RCPT", FAULT, AddressEffect.KEEP, True),
        ("534 5.7.9", "MAIL", FAULT, AddressEffect.KEEP, True),
        ("535 5.7.8", "DATA", FAULT, AddressEffect.KEEP, True),
        ("553 5.7.1", "MAIL", FAULT, AddressEffect.KEEP, True),
    ],
)
async def test_each_reply_has_its_outcome(
    code: str, at: str, kind: OutcomeKind, effect: AddressEffect, alerts: bool
) -> None:
    sender = "shop@sender.test" if at == "MAIL" else "ann@example.com"
    async with mail_server() as mail:
        mail.double.scripts.put(sender, [Behaviour(code=code, at=at)])  # type: ignore[arg-type]
        outcome = await mail.send()
        assert (outcome.kind, outcome.effect, outcome.alerts) == (kind, effect, alerts)
        assert outcome.code == code
        assert outcome.detail is not None
        assert not re.search(r"ann|example|scripted|A-17", outcome.detail)
        assert mail.accepted == []
        # Whatever was refused, the next message is accepted.
        assert (await mail.send("ben@example.com")).kind is ACCEPTED
        assert mail.double.connections == (2 if code.startswith("421") else 1)


@pytest.mark.parametrize(("code", "kind"), [("421 4.3.2", RETRY), ("454", RETRY), ("554 5.7.1", FAULT)])
async def test_a_refused_connection_is_judged(code: str, kind: OutcomeKind) -> None:
    async with mail_server() as mail:
        mail.double.scripts.put(EVERYONE, [Behaviour(code=code, at="GREETING")])
        assert (await mail.send()).kind is kind
        assert (await mail.send()).kind is ACCEPTED


async def test_wrong_password_is_a_fault_of_the_account() -> None:
    async with mail_server() as mail:
        for secrets, code in ((LOGIN | {"password": "wrong"}, "535 5.7.8"), ({}, "530 5.7.0")):
            outcome = await mail.provider.send(mail.account(secrets), message(ProviderKind.SMTP))
            assert (outcome.kind, outcome.code) == (FAULT, code)
            assert "wrong" not in repr(outcome)


@pytest.mark.parametrize(("at", "kind"), [("MAIL", RETRY), ("RCPT", RETRY), ("DATA", RETRY), ("BODY", UNKNOWN)])
async def test_a_broken_connection_is_unknown_only_once_the_content_leaves(at: str, kind: OutcomeKind) -> None:
    to = "shop@sender.test" if at == "MAIL" else "ann@example.com"
    async with mail_server() as mail:
        mail.double.scripts.put(to, [Behaviour(cut=Cut.BEFORE, at=at)])  # type: ignore[arg-type]
        outcome = await mail.send()
        assert (outcome.kind, outcome.code) == (kind, "BROKEN")
        assert mail.accepted == []


async def test_a_message_whose_acceptance_was_not_heard_is_unknown() -> None:
    async with mail_server() as mail:
        assert (await mail.send("drop@example.com")).kind is UNKNOWN
        assert len(mail.accepted) == 1


@pytest.mark.parametrize(("at", "kind"), [("RCPT", RETRY), ("BODY", UNKNOWN)])
async def test_a_timeout_is_unknown_only_once_the_content_left(at: str, kind: OutcomeKind) -> None:
    """The time limit grows until the double has begun to wait, however slow the machine is."""
    for timeout_sec in (0.5, 5.0, 50.0):
        async with mail_server(timeout_sec=timeout_sec) as mail:
            outcome = await mail.send("ann@example.com", Behaviour(delay_ms=1_000, at=at))  # type: ignore[arg-type]
            if mail.clock.sleepers:
                break
    assert (outcome.kind, outcome.code) == (kind, "TIMEOUT")


async def test_connections_are_kept_and_replaced() -> None:
    async with mail_server() as mail:
        for _ in range(MESSAGES_PER_CONNECTION + 1):
            assert (await mail.send()).kind is ACCEPTED
        assert mail.double.connections == 2
        assert mail.provider.idle_connections == 1


async def test_idle_connections_are_closed() -> None:
    async with mail_server() as mail:
        await mail.send()
        await eventually(lambda: mail.clock.sleepers)
        mail.clock.advance(IDLE_SEC)
        await eventually(lambda: mail.provider.idle_connections == 0)
        assert (await mail.send()).kind is ACCEPTED
        assert mail.double.connections == 2


async def test_a_dead_kept_connection_costs_nothing() -> None:
    async with mail_server() as mail:
        await mail.send()
        assert (await mail.send("ann@example.com", Behaviour(cut=Cut.BEFORE, at="RCPT"))).kind is ACCEPTED
        mail.double.scripts.put("shop@sender.test", [Behaviour(code="421 4.4.2", at="MAIL")])
        assert (await mail.send()).kind is ACCEPTED
        assert mail.double.connections == 3
        assert len(mail.accepted) == 3


async def test_an_account_opens_few_connections_at_a_time() -> None:
    async with mail_server() as mail:
        account = replace(mail.account(), limits=ProviderLimits(max_concurrency=2))
        slow = [message(ProviderKind.SMTP, f"ann{number}@example.com") for number in range(5)]
        for each in slow:
            mail.double.scripts.put(each.address, [Behaviour(delay_ms=1_000, at="BODY")])
        sending = [asyncio.create_task(mail.provider.send(account, each)) for each in slow]
        await eventually(lambda: mail.clock.sleepers == 2)

        def look() -> bool:
            mail.clock.advance(0.01)
            return all(each.done() for each in sending)

        await eventually(look)
        assert {(await each).kind for each in sending} == {ACCEPTED}
        assert mail.double.connections == 2


async def test_a_cancelled_message_does_not_spoil_its_connection() -> None:
    async with mail_server() as mail:
        mail.double.scripts.put("ann@example.com", [Behaviour(delay_ms=1_000, at="RCPT")])
        sending = asyncio.create_task(mail.send())
        await eventually(lambda: mail.clock.sleepers)
        sending.cancel()
        await asyncio.wait({sending})
        assert mail.provider.idle_connections == 0
        assert (await mail.send("ben@example.com")).kind is ACCEPTED
        assert [each.to for each in mail.accepted] == ["ben@example.com"]


async def test_a_host_in_a_private_network_is_not_dialled() -> None:
    async with mail_server(hosts=ProviderHosts(Networks())) as mail:
        for host in ("127.0.0.1", "localhost"):
            outcome = await mail.provider.send(mail.account(host=host), message(ProviderKind.SMTP))
            assert (outcome.kind, outcome.code) == (FAULT, "REFUSED_ADDRESS")
        assert mail.double.connections == 0


class Names(AbstractResolver):
    """Resolves every name to these addresses, when it is allowed to."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        await self.may_answer.wait()
        of = socket.AF_INET
        return [
            ResolveResult(hostname=host, host=each, port=port, family=of, proto=0, flags=0) for each in self._addresses
        ]

    async def close(self) -> None: ...


async def test_an_endpoint_of_the_operator_is_dialled_wherever_it_is() -> None:
    """The host has two addresses, and nobody listens on the first one."""
    names = Names("127.0.0.2", "127.0.0.1")
    names.may_answer.set()
    hosts = ProviderHosts(Networks())
    async with mail_server(hosts=hosts, resolver=names, tls=False) as mail:
        account = mail.account({}, host="relay.internal")
        assert (await mail.provider.send(account, message(ProviderKind.SMTP))).code == "REFUSED_ADDRESS"
        hosts._operated = frozenset({("relay.internal", mail.double.port)})
        # The double asks for a login, which the account does not have: it was reached.
        assert (await mail.provider.send(account, message(ProviderKind.SMTP))).code == "530 5.7.0"


async def test_slow_names_of_one_tenant_do_not_delay_another() -> None:
    names = Names("127.0.0.1")
    async with mail_server(resolver=names, tls=False) as mail:
        account = mail.account({}, host="slow.test")
        sending = [
            asyncio.create_task(mail.provider.send(replace(account, tenant=tenant), message(ProviderKind.SMTP)))
            for tenant in ["acme"] * (MAX_RESOLVES + 3) + ["other"]
        ]
        await eventually(lambda: len(names.asked) == MAX_RESOLVES + 1)
        names.may_answer.set()
        assert {(await each).code for each in sending} == {"530 5.7.0"}


async def test_an_unreachable_server_is_a_retry() -> None:
    async with mail_server() as mail:
        account = mail.account()
        await mail.double.stop()
        outcome = await mail.provider.send(account, message(ProviderKind.SMTP))
        assert (outcome.kind, outcome.code) == (RETRY, "BROKEN")


async def test_an_untrusted_certificate_is_a_fault_of_the_account() -> None:
    async with mail_server() as mail:
        outcome = await mail.provider.send(mail.account(ca=None), message(ProviderKind.SMTP))
        assert (outcome.kind, outcome.code) == (FAULT, "UNTRUSTED")
        assert "certificate" in (outcome.detail or "")


async def test_a_server_that_hides_starttls_gets_no_password() -> None:
    async with mail_server(tls=False) as mail:
        outcome = await mail.provider.send(mail.account(encryption="STARTTLS"), message(ProviderKind.SMTP))
        assert (outcome.kind, outcome.code) == (FAULT, "UNTRUSTED")
        assert "STARTTLS" in (outcome.detail or "")


async def test_tls_from_the_first_byte() -> None:
    async with mail_server(implicit_tls=True) as mail:
        outcome = await mail.provider.send(mail.account(encryption="TLS"), message(ProviderKind.SMTP))
        assert outcome.kind is ACCEPTED
        assert mail.accepted[0].data["encrypted"]


async def test_an_invalid_account_is_a_fault() -> None:
    async with mail_server() as mail:
        outcome = await mail.provider.send(mail.account(host="a b"), message(ProviderKind.SMTP))
        assert outcome.kind is FAULT
        assert outcome.detail == "/settings/host must be a host name such as smtp.example.com, or an IP address"
