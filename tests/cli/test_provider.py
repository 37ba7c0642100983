"""`noonday provider serve` as a real process."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest

from noonday.cli.server.doubles import account_body
from noonday.doubles.running import Doubles
from tests.cli.serving import DEADLINE_SEC, plain_environment
from tests.support.clock import ManualClock

pytestmark = pytest.mark.slow


@contextmanager
def serving(*words: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "noonday", "provider", "serve", *words],
        env=plain_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_json(process: "subprocess.Popen[str]") -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    """Read the greeting, which ends with the brace that closes the document."""
    assert process.stdout is not None
    text = ""
    while not text.endswith("\n}\n"):
        line = process.stdout.readline()
        assert line, process.communicate()
        text += line
    return json.loads(text)  # type: ignore[no-any-return]


def test_the_accounts_of_the_greeting_reach_the_doubles() -> None:
    with serving("--port", "0", "--smtp-port", "0", "--json") as process:
        greeting = read_json(process)
        accounts = greeting["accounts"]
        twilio = accounts["double-twilio"]
        path = f"/2010-04-01/Accounts/{twilio['secrets']['account_sid']}/Messages.json"
        refused = Request(twilio["settings"]["url"] + path, method="POST", data=b"To=%2B4930123456")
        with pytest.raises(OSError, match="401"):
            urlopen(refused, timeout=DEADLINE_SEC)
        smtp = accounts["double-smtp"]["settings"]
        with socket.create_connection((smtp["host"], int(smtp["port"])), timeout=DEADLINE_SEC) as connection:
            assert connection.recv(4) == b"220 "
        with urlopen(f"{greeting['outbox']}/outbox", timeout=DEADLINE_SEC) as answer:
            assert json.load(answer) == {"messages": []}
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SEC) == 0


def test_the_greeting_names_the_outbox_and_no_secret() -> None:
    with serving("--port", "0", "--smtp-port", "0") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(8)]
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=DEADLINE_SEC)
    text = "".join(lines) + rest
    assert process.returncode == 0
    assert "outbox  http://127.0.0.1:" in text
    assert "TWILIO at http://127.0.0.1:" in text
    assert "token" not in text


def test_a_taken_port_is_refused_with_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with serving("--port", port, "--smtp-port", "0") as process:
            _, errors = process.communicate(timeout=DEADLINE_SEC)
    assert process.returncode == 1
    assert f"port {port} is not available" in errors
    assert "Traceback" not in errors


def test_events_go_to_this_machine_only() -> None:
    with serving("--port", "0", "--smtp-port", "0", "--events-url", "https://noonday.example.com/") as process:
        _, errors = process.communicate(timeout=DEADLINE_SEC)
    assert process.returncode == 2
    assert "--events-url: 'https://noonday.example.com/' must be a URL of this machine" in errors


def test_the_body_of_an_account_has_no_name() -> None:
    [smtp, *_] = Doubles(ManualClock()).accounts("acme")
    assert account_body(smtp)["kind"] == "SMTP"
    assert set(account_body(smtp)) == {"kind", "channel", "order", "settings", "secrets"}
