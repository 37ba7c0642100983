"""`noonday alert notify`, with a server that has a mail server and may call this machine."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run
from tests.cli.serving import Up, eventually
from tests.support.mail import Mailbox

Answer = Callable[..., Any]


@contextmanager
def mailbox_in_a_thread() -> Iterator[Mailbox]:
    box, ready, loop = Mailbox(), threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with box:
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(60)
    try:
        yield box
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mailbox_in_a_thread() as box:
        yield box


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, box: Mailbox) -> Iterator[Up]:
    environ = {
        "NOONDAY_WEBHOOKS_ALLOW_NETWORKS": "127.0.0.0/8",
        "NOONDAY_EMAIL_HOST": "127.0.0.1",
        "NOONDAY_EMAIL_PORT": str(box.port),
        "NOONDAY_EMAIL_SENDER": "Noonday <noonday@sender.test>",
    }
    with Up(tmp_path_factory.mktemp("up"), "--port", "0", environ=environ) as up:
        yield up


@pytest.mark.slow
def test_a_test_notice_arrives_by_mail(ask: Run, box: Mailbox) -> None:
    made = ask("alert", "notify", "set", "mail", "--email", "ops@example.com", "--user", "Sam")
    assert made.exit_code == 0, made.output
    assert (
        "ops@example.com receives exhausted, stopped, disabled, missed, recovered, at most one message per 5 min"
        in made.stdout
    )
    sent = ask("alert", "notify", "test", "mail")
    assert "test notice queued; `noonday why " in sent.stdout
    message = eventually(lambda: box.messages and box.messages[-1])
    assert message["Subject"] == "[noonday] test of alert preference mail"
    assert box.recipients[-1] == "ops@example.com"


def test_fields_without_a_flag_stay_as_they_are(ask_json: Answer) -> None:
    ask_json("alert", "notify", "set", "stays", "--email", "a@example.com", "--on", "first", "--pool", "etl", "--json")
    changed = ask_json("alert", "notify", "set", "stays", "--digest", "1h", "--disabled", "--json")
    assert (changed["channel"]["address"], changed["kinds"], changed["pools"]) == ("a@example.com", ["FAILED"], ["etl"])
    assert (changed["digest_seconds"], changed["enabled"]) == (3600, False)
    moved = ask_json(
        "alert", "notify", "set", "stays", "--webhook", "https://hooks.example.com/x", "--enabled", "--json"
    )
    assert moved["channel"] == {"type": "WEBHOOK", "url": "https://hooks.example.com/x"}
    assert (moved["digest_seconds"], moved["enabled"]) == (3600, True)


def test_list_shows_recipients_and_their_alert_kinds(ask: Run) -> None:
    ask("alert", "notify", "set", "listed", "--email", "l@example.com", "--on", "exhausted", "--digest", "0")
    lines = ask("alert", "notify", "list").stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("listed "))
    assert "EMAIL" in line
    assert "l@example.com" in line
    assert "at once" in line


def test_deleted_preference_is_not_listed(ask: Run, ask_json: Answer) -> None:
    ask("alert", "notify", "set", "gone", "--email", "g@example.com")
    assert ask("alert", "notify", "delete", "gone").stdout == "deleted gone\n"
    assert "gone" not in [each["id"] for each in ask_json("alert", "notify", "list", "--json")["preferences"]]
    assert ask("alert", "notify", "delete", "gone").exit_code == exits.NOT_FOUND


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "a new recipient needs --email"),
        (("--email", "ops"), "--email"),
        (("--webhook", "ftp://x"), "--webhook"),
        (("--email", "a@example.com", "--webhook", "https://x.example"), "a recipient has one channel"),
        (("--email", "a@example.com", "--digest", "2d"), "--digest"),
        (("--email", "a@example.com", "--job", "nightly"), "--job"),
        (("--email", "a@example.com", "--on", "exausted"), "--on"),
        (("--push", "phone"), "push is not available; use EMAIL or WEBHOOK"),
    ],
)
def test_invalid_value_is_reported_with_its_flag(ask: Run, flags: tuple[str, ...], message: str) -> None:
    refused = ask("alert", "notify", "set", "wrong", *flags)
    assert refused.exit_code != 0
    assert message in refused.output


@pytest.mark.slow
def test_without_a_mail_server_the_setting_that_is_missing_is_named(tmp_path: Path, run: Run) -> None:
    with Up(tmp_path, "--port", "0") as up:
        refused = run("alert", "notify", "set", "ops", "--email", "ops@example.com", env=up.environ)
    assert refused.exit_code != 0
    assert "set email.host and email.sender" in refused.output
