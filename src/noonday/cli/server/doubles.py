"""Doubles of providers as a process, and their messages."""

import asyncio
import sys
from typing import Any

from rich.text import Text

from noonday.cli.screen import show, show_json
from noonday.cli.tables import facts
from noonday.doubles.receipt_sender import is_on_loopback
from noonday.doubles.running import Doubles
from noonday.model.errors import BadSettings
from noonday.model.notifications.sending import ProviderAccount
from noonday.runtime.clock import SystemClock
from noonday.wiring.engine_thread import new_event_loop
from noonday.wiring.listening import stop_signals

TENANT = "default"


def run_doubles(port: int, smtp_port: int, events_url: str | None, *, as_json: bool) -> None:
    """Run the doubles until a signal stops them."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(port, smtp_port, events_url, as_json=as_json))


async def _serve(port: int, smtp_port: int, events_url: str | None, *, as_json: bool) -> None:
    if events_url is not None and not is_on_loopback(events_url):
        raise BadSettings(
            f"--events-url: {events_url!r} must be a URL of this machine, such as http://127.0.0.1:8080/..."
        )
    doubles = Doubles(SystemClock())
    doubles.sendgrid.events_url = events_url
    with stop_signals() as stop:
        await doubles.start(port, smtp_port)
        try:
            _greet(doubles, as_json=as_json)
            await stop.wait()
        finally:
            await doubles.stop()


def _greet(doubles: Doubles, *, as_json: bool) -> None:
    accounts = doubles.accounts(TENANT)
    if as_json:
        show_json(
            {
                "outbox": doubles.url,
                "endpoints": [f"{host}:{port}" for host, port in doubles.endpoints],
                "accounts": {account.name: account_body(account) for account in accounts},
            }
        )
    else:
        rows = [(account.channel.lower(), f"{account.kind} at {_where(account)}") for account in accounts]
        show(
            Text("Doubles of the providers are running", style="bold green"),
            "",
            facts([("outbox", doubles.url), *rows]),
            "",
            "Every message stays in the outbox; nothing leaves this machine.",
            "The accounts that reach them: noonday provider serve --json",
            Text("Stop with Ctrl-C.", style="dim"),
        )
    sys.stdout.flush()


def account_body(account: ProviderAccount) -> dict[str, Any]:
    """Return an account as the body of `PUT /v1/providers/{name}`."""
    return {
        "kind": account.kind,
        "channel": account.channel,
        "order": account.order,
        "settings": dict(account.settings),
        "secrets": dict(account.secrets),
    }


def _where(account: ProviderAccount) -> str:
    settings = account.settings
    return str(settings.get("url") or f"{settings['host']}:{settings['port']}")
