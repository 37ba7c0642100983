"""`noonday alert`, with a server whose jobs fail."""

from collections.abc import Callable
from typing import Any

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run
from tests.cli.serving import eventually

Answer = Callable[..., Any]
ONCE = ("--max-attempts", "1")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return str(request.node.name)


def fail(ask_json: Answer, name: str, *flags: str) -> str:
    payload = ("--payload", '{"times": 100}')
    made = ask_json("job", "create", "--handler", "demo.fail", "--name", name, *payload, *flags, "--json")
    return str(made["jobId"])


def alerts_of(ask_json: Answer, job: str, *flags: str) -> Any:
    return eventually(lambda: ask_json("alert", "list", "--job", job, "--json", *flags)["alerts"])


@pytest.mark.slow
def test_a_job_that_failed_is_in_the_inbox_until_it_is_acknowledged(ask: Run, ask_json: Answer, name: str) -> None:
    job = fail(ask_json, name, *ONCE)
    (alert,) = alerts_of(ask_json, job)
    assert (alert["kind"], alert["status"], alert["job_id"], alert["count"]) == ("EXHAUSTED", "OPEN", job, 1)
    listed = ask("alert", "list", "--job", name)
    assert (listed.exit_code, name in listed.stdout) == (0, True)
    assert f"noonday dead retry --job {job}" in listed.stderr
    assert "RuntimeError" in ask("alert", "show", alert["id"]).stdout
    seen = ask("alert", "ack", alert["id"][:23])
    assert (seen.exit_code, seen.stdout) == (0, f"acknowledged {alert['id']}\n")
    assert ask("alert", "list", "--job", name).stderr == "no alerts\n"
    (kept,) = alerts_of(ask_json, job, "--all")
    assert kept["status"] == "ACKNOWLEDGED"


@pytest.mark.slow
def test_a_job_that_succeeds_in_the_end_has_recovered(ask_json: Answer, name: str) -> None:
    retry = ("--max-attempts", "3", "--backoff", "fixed", "--initial-delay", "0s")
    made = ask_json(
        "job", "create", "--handler", "demo.fail", "--name", name, "--payload", '{"times": 1}', *retry, "--json"
    )
    assert [alert["kind"] for alert in alerts_of(ask_json, made["jobId"])] == ["FAILED"]
    eventually(lambda: alerts_of(ask_json, made["jobId"])[0]["status"] == "RECOVERED")


@pytest.mark.slow
def test_all_of_a_job_are_acknowledged_at_once(ask: Run, ask_json: Answer, name: str) -> None:
    job = fail(ask_json, name, *ONCE)
    alerts_of(ask_json, job)
    assert ask_json("alert", "ack", "--job", name, "--kind", "exhausted", "--json") == {"acknowledged": 1}
    assert ask("alert", "ack", "--job", name).stdout == "acknowledged 0 alerts\n"


@pytest.mark.slow
def test_top_counts_unread_alerts(ask: Run, ask_json: Answer, name: str) -> None:
    alerts_of(ask_json, fail(ask_json, name, *ONCE))
    assert ask_json("top", "--json")["unreadAlerts"] >= 1
    assert "unread alerts" in ask("top", "--once").stdout


@pytest.mark.parametrize("words", [(), ("abcd", "--everything")])
def test_acknowledge_needs_an_alert_or_filters(ask: Run, words: tuple[str, ...]) -> None:
    refused = ask("alert", "ack", *words)
    assert (refused.exit_code, refused.stdout) == (exits.USAGE, "")
    assert "pass either an ALERT or filters" in refused.stderr


def test_unknown_alert_is_reported(ask: Run) -> None:
    refused = ask("alert", "show", "ffff")
    assert (refused.exit_code, refused.stdout) == (exits.NOT_FOUND, "")
    assert "noonday alert list --all" in refused.stderr
