"""Double of a mail server: STARTTLS, AUTH, SIZE, and replies as scripted for each recipient."""

import asyncio
import base64
import binascii
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message

from noonday.doubles.behaviour import ACCEPT, Behaviour, Cut
from noonday.doubles.outbox import AcceptedMessage, DoubleOutbox, ProviderCall
from noonday.doubles.patterns import behaviour_of_email
from noonday.doubles.scripts import Scripts
from noonday.doubles.smtp_lines import Lines, LineTooLong
from noonday.model.notifications.sending import ChannelKind, ProviderKind
from noonday.ports.clock import Clock

MAX_SIZE = 10 * 1024 * 1024
MAX_RECIPIENTS = 100
MAX_CONNECTIONS = 1_000
IDLE_SEC = 300.0
EVERYONE = "*"
"""Recipient of a script for the greeting."""


class SmtpDouble:
    """A mail server for the tests and the trial of notifications."""

    def __init__(
        self,
        outbox: DoubleOutbox,
        scripts: Scripts,
        clock: Clock,
        *,
        username: str,
        password: str,
        tls: ssl.SSLContext | None,
        implicit_tls: bool = False,
    ) -> None:
        """Create a server. `tls`: the certificate that it offers with STARTTLS, or with `implicit_tls` from the first byte.

        Without `tls` it offers AUTH unencrypted.
        """
        self.outbox = outbox
        self.scripts = scripts
        self.clock = clock
        self.username = username
        self.password = password
        self.tls = tls
        self.connections = 0
        """Connections that were accepted since the start."""
        self.port = 0
        self._implicit_tls = implicit_tls
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen."""
        tls = self.tls if self._implicit_tls else None
        self._server = await asyncio.get_running_loop().create_server(self._accept, host, port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut all connections."""
        if self._server is not None:
            self._server.close()
        for serving in self._serving:
            serving.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    def _accept(self) -> Lines:
        lines = Lines()
        self.connections += 1
        serving = asyncio.create_task(self._serve(lines), name="smtp double")
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        return lines

    async def _serve(self, lines: Lines) -> None:
        try:
            await lines.connected
            lines.is_encrypted = self._implicit_tls
            if len(self._serving) > MAX_CONNECTIONS:
                lines.write("421 4.3.2 too many connections")
                return
            with suppress(EOFError, ConnectionError, ssl.SSLError, TimeoutError):
                await _Dialogue(self, lines).run()
        except LineTooLong:
            lines.write("500 5.5.2 line too long")
        finally:
            lines.close()


class _HangUp(Exception):
    """The conversation is over."""


class _Dialogue:
    """One conversation."""

    def __init__(self, double: SmtpDouble, lines: Lines) -> None:
        self._double = double
        self._lines = lines
        self._is_logged_in = False
        self._has_greeted = False
        self._sender: str | None = None
        self._recipients: list[tuple[str, Behaviour]] = []
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "EHLO": self._ehlo,
            "HELO": self._ehlo,
            "STARTTLS": self._starttls,
            "AUTH": self._auth,
            "MAIL": self._mail,
            "RCPT": self._rcpt,
            "DATA": self._data,
            "RSET": self._rset,
            "NOOP": self._noop,
            "QUIT": self._quit,
        }

    async def run(self) -> None:
        try:
            await self._greet()
            while True:
                async with asyncio.timeout(IDLE_SEC):
                    line = await self._lines.read_line()
                verb, _, rest = line.partition(" ")
                command = self._commands.get(verb.upper())
                if command is None:
                    self._lines.write("502 5.5.1 command not implemented")
                else:
                    await command(rest)
        except _HangUp:
            pass

    async def _greet(self) -> None:
        behaviour = self._double.scripts.take(EVERYONE, lambda _: ACCEPT)
        if behaviour.at == "GREETING" and await self._misbehaves(behaviour):
            raise _HangUp
        self._lines.write("220 double.noonday ESMTP")

    async def _ehlo(self, _rest: str) -> None:
        self._has_greeted = True
        self._forget()
        offers = [f"SIZE {MAX_SIZE}", "8BITMIME", "ENHANCEDSTATUSCODES"]
        if self._double.tls is not None and not self._lines.is_encrypted:
            offers.append("STARTTLS")
        else:
            offers.append("AUTH PLAIN LOGIN")
        for offer in ["double.noonday", *offers[:-1]]:
            self._lines.write(f"250-{offer}")
        self._lines.write(f"250 {offers[-1]}")

    async def _starttls(self, _rest: str) -> None:
        if self._double.tls is None or self._lines.is_encrypted:
            self._lines.write("503 5.5.1 TLS is not available here")
            return
        self._lines.write("220 2.0.0 ready to start TLS")
        await self._lines.encrypt(self._double.tls)
        self._has_greeted = self._is_logged_in = False
        self._forget()

    async def _auth(self, rest: str) -> None:
        mechanism, _, initial = rest.partition(" ")
        if self._double.tls is not None and not self._lines.is_encrypted:
            self._lines.write("538 5.7.11 encryption required")
        elif mechanism.upper() == "PLAIN":
            _, _, login = _decoded(initial or await self._ask("")).partition("\0")
            name, _, password = login.partition("\0")
            self._log_in(name, password)
        elif mechanism.upper() == "LOGIN":
            name = _decoded(initial or await self._ask("VXNlcm5hbWU6"))
            self._log_in(name, _decoded(await self._ask("UGFzc3dvcmQ6")))
        else:
            self._lines.write("504 5.5.4 mechanism not implemented")

    async def _ask(self, challenge: str) -> str:
        self._lines.write(f"334 {challenge}")
        return await self._lines.read_line()

    def _log_in(self, name: str, password: str) -> None:
        self._is_logged_in = (name, password) == (self._double.username, self._double.password)
        self._lines.write("235 2.7.0 ok" if self._is_logged_in else "535 5.7.8 wrong user name or password")

    async def _mail(self, rest: str) -> None:
        address, options = _path(rest)
        if not self._has_greeted or self._sender is not None:
            self._lines.write("503 5.5.1 bad sequence of commands")
        elif not self._is_logged_in:
            self._lines.write("530 5.7.0 authentication required")
        elif _size(options) > MAX_SIZE:
            self._lines.write("552 5.3.4 message too large")
        elif not await self._refuses("MAIL", address, self._double.scripts.take(address, behaviour_of_email)):
            self._sender = address
            self._lines.write("250 2.1.0 ok")

    async def _rcpt(self, rest: str) -> None:
        address, _ = _path(rest)
        if self._sender is None:
            self._lines.write("503 5.5.1 bad sequence of commands")
        elif len(self._recipients) >= MAX_RECIPIENTS:
            self._lines.write("452 4.5.3 too many recipients")
        elif "@" not in address:
            self._lines.write("501 5.1.3 bad address")
        else:
            behaviour = self._double.scripts.take(address, behaviour_of_email)
            if not await self._refuses("RCPT", address, behaviour):
                self._recipients.append((address, behaviour))
                self._lines.write("250 2.1.5 ok")

    async def _data(self, _rest: str) -> None:
        if not self._recipients:
            self._lines.write("503 5.5.1 bad sequence of commands")
            return
        # The first recipient's script decides: the message has only one reply.
        to, behaviour = self._recipients[0]
        if await self._refuses("DATA", to, behaviour):
            return
        self._lines.write("354 end with a dot")
        async with asyncio.timeout(IDLE_SEC):
            content = await self._lines.read_content(MAX_SIZE + 4)
        is_cut_after = behaviour.at == "BODY" and behaviour.cut is Cut.AFTER
        if is_cut_after or not await self._refuses("BODY", to, behaviour):
            for recipient, _ in self._recipients:
                self._accept(recipient, content)
            if is_cut_after:
                await self._delay(behaviour)
                self._hang_up()
            self._lines.write(f"250 2.0.0 ok: queued as {self._double.outbox.next_id() - 1}")
        self._forget()

    async def _rset(self, _rest: str) -> None:
        self._forget()
        self._lines.write("250 2.0.0 ok")

    async def _noop(self, _rest: str) -> None:
        self._lines.write("250 2.0.0 ok")

    async def _quit(self, _rest: str) -> None:
        self._lines.write("221 2.0.0 bye")
        raise _HangUp

    async def _refuses(self, step: str, to: str, behaviour: Behaviour) -> bool:
        if behaviour.at != step:
            return False
        refuses = await self._misbehaves(behaviour)
        if refuses:
            self._count(to, behaviour.code or "")
        return refuses

    async def _misbehaves(self, behaviour: Behaviour) -> bool:
        await self._delay(behaviour)
        if behaviour.cut is not None:
            self._hang_up()
        if behaviour.code is None:
            return False
        self._lines.write(f"{behaviour.code} as scripted")
        if behaviour.code.startswith("421"):
            raise _HangUp
        return True

    async def _delay(self, behaviour: Behaviour) -> None:
        if behaviour.delay_ms:
            await self._double.clock.sleep(behaviour.delay_ms / 1000)

    def _hang_up(self) -> None:
        self._lines.abort()
        raise _HangUp

    def _accept(self, to: str, content: bytes) -> None:
        outbox = self._double.outbox
        # Without a policy: parsing each header by its grammar takes longer than all the rest of the message.
        message = message_from_bytes(content)
        accepted = AcceptedMessage(
            id=outbox.next_id(),
            at_ms=self._double.clock.now_ms(),
            provider=ProviderKind.SMTP,
            channel=ChannelKind.EMAIL,
            provider_id=_header(message, "Message-ID"),
            sender=self._sender or "",
            to=to,
            title=_header(message, "Subject"),
            text=_part(message, "text/plain"),
            html=_part(message, "text/html"),
            data={
                "headers": {name: _header(message, name) for name in message},
                "encrypted": self._lines.is_encrypted,
            },
        )
        outbox.add(accepted)
        self._count(to, "accepted", accepted.provider_id)

    def _count(self, to: str, answer: str, reference: str = "") -> None:
        call = ProviderCall(self._double.clock.now_ms(), ProviderKind.SMTP, to, answer, reference)
        self._double.outbox.calls.append(call)

    def _forget(self) -> None:
        self._sender, self._recipients = None, []


def _path(rest: str) -> tuple[str, str]:
    """Return the address of `FROM:<a@b> SIZE=1`, and the options."""
    _, _, path = rest.partition(":")
    address, _, options = path.strip().partition(">")
    return address.removeprefix("<"), options


def _size(options: str) -> int:
    for option in options.upper().split():
        name, _, value = option.partition("=")
        if name == "SIZE" and value.isdecimal():
            return int(value[:12])
    return 0


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


def _header(message: Message, name: str) -> str:
    """Return a header as text, unfolded."""
    written = " ".join(str(message.get(name, "")).split())
    try:
        return str(make_header(decode_header(written)))
    except (HeaderParseError, LookupError, ValueError):
        return written


def _part(message: Message, content_type: str) -> str | None:
    """Return the text of the first part of a type, or None if there is none or its charset is unknown."""
    part = next((each for each in message.walk() if each.get_content_type() == content_type), None)
    content = None if part is None else part.get_payload(decode=True)
    if part is None or not isinstance(content, bytes):
        return None
    try:
        return content.decode(part.get_content_charset("us-ascii"), "replace").replace("\r\n", "\n")
    except LookupError:
        return None
