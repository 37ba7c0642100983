"""`noonday endpoint`, with a server."""

from collections.abc import Callable
from typing import Any

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run

Answer = Callable[..., Any]
FAR = "2099-01-01T00:00:00Z"


@pytest.mark.slow
def test_settings_without_a_flag_stay_as_they_are(ask_json: Answer, ask: Run) -> None:
    there = "https://set.example.com"
    ask_json("endpoint", "set", there, "--rate", "10", "--burst", "20", "--concurrency", "5", "--json")
    changed = ask_json("endpoint", "set", f"{there}/some/path", "--rate", "any", "--disable-after", "12h", "--json")
    assert changed["endpoint"] == "https://set.example.com:443"
    assert changed["settings"] == {
        "max_concurrency": 5,
        "rate_per_sec": None,
        "burst": 20,
        "disable_after_days": 0.5,
    }
    shown = ask("endpoint", "show", there).stdout
    assert "HEALTHY" in shown
    assert "0.5 days of failures" in shown
    assert there in ask("endpoint", "list").stdout
    assert ask_json("endpoint", "show", changed["id"], "--json") == changed


def test_invalid_value_is_reported_with_its_flag(ask: Run) -> None:
    refused = ask("endpoint", "set", "https://wrong.example.com", "--rate", "0")
    assert refused.exit_code == exits.FAILED
    assert "--rate" in refused.stderr
    nothing = ask("endpoint", "set", "https://wrong.example.com")
    assert nothing.exit_code == exits.USAGE
    assert "nothing to set: pass --rate" in nothing.stderr


def test_an_endpoint_that_is_not_known_is_not_found(ask: Run) -> None:
    refused = ask("endpoint", "show", "https://nobody.example.com")
    assert refused.exit_code == exits.NOT_FOUND
    assert "no endpoint https://nobody.example.com:443" in refused.stderr


@pytest.mark.slow
def test_tasks_stop_with_their_endpoint_and_go_on_with_it(ask_json: Answer, ask: Run) -> None:
    there = "https://stop.example.com"
    task = ask_json("task", "create", f"{there}/x", "--at", FAR, "--json")["id"]
    assert "disabled https://stop.example.com:443" in ask("endpoint", "disable", there).stdout
    assert ask_json("task", "show", task, "--json")["status"] == "FAILED"
    refused = ask("task", "create", f"{there}/y", "--at", FAR)
    assert refused.exit_code == exits.FAILED
    assert "noonday endpoint enable https://stop.example.com:443" in refused.stderr
    ask("endpoint", "enable", there)
    assert ask_json("task", "show", task, "--json")["status"] == "SCHEDULED"
