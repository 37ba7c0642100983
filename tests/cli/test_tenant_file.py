"""`noonday tenant apply`, and the refusal of a full quota."""

from pathlib import Path
from typing import Any

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run
from tests.cli.test_online import FAR, Answer

FILE = """
[tenants.initech]
weight = 4
ratePerSec = 2.5
maxJobs = 1000

[tenants.initech.pools.mail]
maxRunning = 5

[tenants.umbrella]
retentionDays = 90
"""


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        (tmp_path / "tenants.toml").write_text(text)
        return "tenants.toml"

    return write


@pytest.mark.slow
def test_a_file_sets_each_tenant_whole(ask: Run, ask_json: Answer, written: Any) -> None:
    ask("tenant", "set", "initech", "--max-jobs", "500", "--burst", "7")
    file = written(FILE)
    tried = ask("tenant", "apply", file, "--dry-run")
    assert "nothing was changed" in tried.stderr
    assert ask_json("tenant", "show", "initech", "--json")["settings"] == {"maxJobs": 500, "burst": 7}
    applied = ask("tenant", "apply", file)
    assert applied.stdout == tried.stdout
    first, second = applied.stdout.splitlines()
    assert first == (
        "initech: weight 1 -> 4, burst 7 -> none, maxJobs 500 -> 1000, ratePerSec none -> 2.5, "
        "pools.mail.maxRunning none -> 5"
    )
    assert second == "umbrella: retentionDays none -> 90"
    wanted = {"weight": 4, "ratePerSec": 2.5, "maxJobs": 1000, "pools": {"mail": {"maxRunning": 5}}}
    assert ask_json("tenant", "show", "initech", "--json")["settings"] == wanted
    assert ask("tenant", "apply", file).stdout.splitlines() == ["initech: unchanged", "umbrella: unchanged"]


def test_changes_of_a_file_are_printed_as_json(ask_json: Answer, written: Any) -> None:
    message = ask_json("tenant", "apply", written("[tenants.hooli]\nmaxJobs = 3\n"), "--json")
    assert message == {"dryRun": False, "tenants": {"hooli": {"maxJobs": {"old": None, "new": 3}}}}


def test_every_flaw_of_a_file_is_named_and_nothing_is_changed(ask: Run, written: Any) -> None:
    file = written(
        """
        tennants = 1
        [tenants.vandelay]
        maxJobs = 5
        [tenants.acme]
        maxjobs = 3
        weight = 0
        burst = "many"
        [tenants.acme.pools.mail]
        max_running = 5
        [tenants.acme.pools.etl]
        maxRunning = -1
        [tenants.globex]
        pools = 7
        """
    )
    result = ask("tenant", "apply", file)
    assert result.exit_code == exits.FAILED
    errors = result.stderr
    assert "7 invalid values in tenants.toml; nothing was changed" in errors
    assert "tenants.toml: tennants: unknown key 'tennants'" in errors
    assert "did you mean tenants?" in errors
    assert "tenants.toml: tenants.acme.maxjobs: unknown key 'maxjobs'" in errors
    assert "did you mean maxJobs?" in errors
    assert "tenants.toml: tenants.acme.weight: must be from 1 to 1000" in errors
    assert "tenants.toml: tenants.acme.burst: expected `int" in errors
    assert "tenants.toml: tenants.acme.pools.mail.max_running: unknown key 'max_running'" in errors
    assert "did you mean maxRunning?" in errors
    assert "tenants.toml: tenants.acme.pools.etl.maxRunning: must be from 0" in errors
    assert "tenants.toml: tenants.globex.pools: must be tables" in errors
    assert "no such tenant" in ask("tenant", "show", "vandelay").stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tenants.acme", "tenants.toml is not valid TOML"),
        ("tenants = 3", "tenants.toml: tenants"),
        ("[tenants]\nacme = 3", "tenants.toml: tenants.acme"),
        ('[tenants."a\\nb"]\nweight = 2', "a tenant's name must have"),
        ("[tenants.acme]\nratePerSec = nan", "tenants.toml: tenants.acme.ratePerSec"),
        ("[tenants.acme]\nmaxJobs = 2030-01-01", "tenants.toml: tenants.acme.maxJobs"),
    ],
)
def test_unreadable_file_is_reported_with_the_position(run: Run, written: Any, text: str, message: str) -> None:
    result = run("tenant", "apply", written(text))
    assert (result.exit_code, message in result.stderr) == (exits.FAILED, True)


def test_a_file_that_is_not_there_is_not_found(run: Run) -> None:
    result = run("tenant", "apply", "nowhere.toml")
    assert (result.exit_code, "cannot read nowhere.toml" in result.stderr) == (exits.NOT_FOUND, True)


def test_full_quota_is_reported_in_words(ask: Run) -> None:
    ask("tenant", "set", "full", "--max-jobs", "1")
    token = ask("token", "--tenant", "full", "--scopes", "write").stdout.strip()
    create = ("job", "create", "--handler", "demo.echo", "--pool", "demo", "--at", FAR, "--token", token)
    assert ask(*create).exit_code == exits.OK
    result = ask(*create)
    assert result.exit_code == exits.FAILED
    assert "tenant 'full' has 1 of at most 1 jobs waiting for their time (maxJobs)" in result.stderr
    assert "Retry after 3600 s" in result.stderr
