"""`noonday notification`, `noonday user` and `noonday provider`, with a server."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run

Answer = Callable[..., Any]
TEXT = ("--channel", "email", "--title", "Shipped", "--text", "Order A-17")
_users = count(1)


@pytest.fixture
def user() -> str:
    """A user of this test only."""
    return f"u-{next(_users)}"


@pytest.fixture(autouse=True)
def account(ask: Run) -> None:
    assert ask("provider", "put", "mail", "--kind", "smtp", "--setting", "host=smtp.invalid", *SENDER).exit_code == 0


SENDER = ("--setting", "from=shop@example.com")


@pytest.mark.slow
def test_a_notification_is_sent_shown_and_listed(ask: Run, ask_json: Answer, user: str) -> None:
    sent = ask_json(
        "notification", "send", user, *TEXT, "--in", "1h", "--expires", "30m", "--priority", "high", "--json"
    )
    assert sent["status"] == "SCHEDULED"
    shown = ask("notification", "show", sent["id"]).stdout
    assert all(word in shown for word in (sent["id"], user, "SCHEDULED", "EMAIL", "HIGH", "no: it may still be sent"))
    assert "Order A-17" not in shown
    as_json = ask_json("notification", "show", sent["id"], "--json")
    assert as_json["expires_at"] > as_json["send_at"]
    listed = ask_json("notification", "list", "--user", user, "--status", "scheduled", "--json")
    assert [each["id"] for each in listed["notifications"]] == [sent["id"]]
    assert "no notifications" in ask("notification", "list", "--user", user, "--status", "sent").stderr


@pytest.mark.slow
def test_the_output_of_a_send_has_the_next_command(ask: Run, user: str) -> None:
    sent = ask("notification", "send", user, *TEXT, "--in", "1h")
    assert sent.exit_code == 0
    assert "to be sent" in sent.stdout
    assert "  noonday notification show " in sent.stdout


@pytest.mark.slow
def test_the_same_key_and_time_send_one_notification(ask_json: Answer, user: str) -> None:
    words = ("notification", "send", user, *TEXT, "--at", "2099-01-01T09:00:00Z", "--if-past", "send")
    refused_far = ("--idempotency-key", f"k-{user}", "--json")
    with pytest.raises(AssertionError, match="a year ahead"):
        ask_json(*words, *refused_far)
    now = ("notification", "send", user, *TEXT, "--idempotency-key", f"k-{user}", "--json")
    assert ask_json(*now)["id"] == ask_json(*now)["id"]


@pytest.mark.slow
def test_a_text_may_come_from_a_file(ask_json: Answer, tmp_path: Path, user: str) -> None:
    (tmp_path / "mail.html").write_text("<p>Order</p>")
    words = ("--channel", "email", "--html", f"@{tmp_path}/mail.html", "--push-data", '{"order": 17}')
    assert ask_json("notification", "send", user, *words, "--json")["status"] == "QUEUED"


@pytest.mark.slow
def test_local_time_is_in_the_zone_of_the_user(ask: Run, ask_json: Answer, user: str) -> None:
    refused = ask("notification", "send", user, *TEXT, "--local-time", "2030-01-31 09:00")
    assert refused.exit_code == exits.FAILED
    assert "--local-time" in refused.stderr
    assert ask("user", "put", user, "--zone", "Asia/Tokyo").exit_code == 0
    refused = ask("notification", "send", user, *TEXT, "--local-time", "2001-01-31 09:00")
    assert "the server's time is" in refused.stderr
    sent = ask_json(
        "notification", "send", user, *TEXT, "--local-time", "2001-01-31 09:00", "--if-past", "send", "--json"
    )
    assert sent["status"] == "QUEUED"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--channel", "fax"), "--channel"),
        ((*TEXT, "--at", "+1h", "--in", "1h"), "mutually exclusive"),
        ((*TEXT, "--local-time", "2030-01-31 09:00", "--expires", "1h"), "--expires counts from the send time"),
        (("--channel", "email", "--text", "@missing.txt"), "cannot read missing.txt"),
    ],
)
def test_invalid_command_line_is_explained(run: Run, words: tuple[str, ...], message: str) -> None:
    refused = run("notification", "send", "u-1", *words)
    assert refused.exit_code == exits.USAGE
    assert message in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("--channel", "email"), "--text"),
        ((*TEXT, "--dedupe-for", "1h"), "--dedupe-for"),
        ((*TEXT, "--expires", "8d"), "--expires"),
        ((*TEXT, "--in", "9000h"), "--in"),
        (("--channel", "email", "--channel", "email", "--text", "t"), "--channel"),
    ],
)
def test_errors_of_the_server_name_the_flag(ask: Run, words: tuple[str, ...], flag: str, user: str) -> None:
    refused = ask("notification", "send", user, *words)
    assert refused.exit_code == exits.FAILED
    assert flag in refused.stderr


@pytest.mark.slow
def test_unknown_ids_are_not_found(ask: Run) -> None:
    for words in (
        ("notification", "show", "01a230d5-1280-81a7-9c1e-5b2f6d8e9a01"),
        ("user", "show", "nobody"),
        ("provider", "show", "nothing"),
    ):
        assert ask(*words).exit_code == exits.NOT_FOUND


@pytest.mark.slow
def test_a_profile_is_put_shown_and_deleted(ask: Run, ask_json: Answer, user: str) -> None:
    made = ask_json("user", "put", user, "--email", "a@example.com", "--zone", "Europe/Berlin", "--json")
    assert (made["email"], made["phone"]) == ("a@example.com", None)
    shown = ask("user", "show", user).stdout
    assert "a@example.com" in shown
    assert "Europe/Berlin" in shown
    refused = ask("user", "put", user, "--phone", "030 123456")
    assert "--phone must be a phone number in E.164" in refused.stderr
    assert ask("user", "delete", user).exit_code == 0
    assert ask("user", "show", user).exit_code == exits.NOT_FOUND


@pytest.mark.slow
def test_secrets_come_from_a_file_a_variable_or_a_prompt(ask: Run, ask_json: Answer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("0123456789abcdef0123456789abcdef\n")
    words = ("provider", "put", "sms", "--kind", "twilio", "--setting", "from=+15005550006", "--order", "3")
    sources = ("--secret-file", f"auth_token={tmp_path}/password", "--secret-env", "account_sid=SID")
    made = ask(*words, *sources, env={"SID": "AC00000000000000000000000000000001"})
    assert made.exit_code == 0, made.stderr
    assert "account_sid, auth_token" in made.stdout
    prompted = ask(
        *words,
        "--secret",
        "account_sid",
        "--secret",
        "auth_token",
        input="AC00000000000000000000000000000002\nfedcba9876543210fedcba9876543210\n",
    )
    assert prompted.exit_code == 0, prompted.stderr
    for secret in (
        "0123456789abcdef0123456789abcdef",
        "AC00000000000000000000000000000001",
        "AC00000000000000000000000000000002",
        "fedcba9876543210fedcba9876543210",
    ):
        assert secret not in made.output + prompted.output
    shown = ask_json("provider", "show", "sms", "--json")
    assert (shown["settings"], shown["channel"], shown["order"]) == ({"from": "+15005550006"}, "SMS", 3)
    assert "secrets" not in shown
    assert ask("provider", "delete", "sms").exit_code == 0


@pytest.mark.slow
def test_values_of_settings_are_json_or_text(ask: Run, ask_json: Answer, tmp_path: Path) -> None:
    (tmp_path / "sender").write_text("shop@example.com")
    settings = ('host="smtp.invalid"', "port=587", "encryption=TLS", f"from=@{tmp_path}/sender")
    flags = [word for setting in settings for word in ("--setting", setting)]
    made = ask_json("provider", "put", "other", "--kind", "smtp", *flags, "--rate", "5", "--json")
    assert made["settings"] == {
        "host": "smtp.invalid",
        "port": 587,
        "encryption": "TLS",
        "from": "shop@example.com",
    }
    assert made["limits"] == {"rate_per_sec": 5}
    assert ask("provider", "delete", "other").exit_code == 0


@pytest.mark.slow
def test_provider_accounts_are_listed_with_their_state(ask: Run) -> None:
    listed = ask("provider", "list", env={"COLUMNS": "60"})
    assert listed.stdout.splitlines()[0].split() == ["NAME", "CHANNEL", "KIND", "ORDER", "STATE"]
    assert "in use" in listed.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--secret-env", "password=NOT_SET_HERE"), "the variable NOT_SET_HERE is not set"),
        (("--secret-file", "password=missing"), "cannot read missing"),
        (("--secret-file", "hunter2"), "expected NAME=FILE"),
        (("--setting", "host"), "expected NAME=VALUE"),
    ],
)
def test_invalid_settings_and_secrets_are_explained(run: Run, words: tuple[str, ...], message: str) -> None:
    refused = run("provider", "put", "mail", "--kind", "smtp", *words)
    assert refused.exit_code == exits.USAGE
    assert message in refused.stderr
    assert "hunter2" not in refused.stderr
