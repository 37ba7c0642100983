"""`noonday import`: files that `noonday job apply` accepts, and jobs that run."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run, _runner
from tests.cli.serving import Up, eventually
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "howto/move-from-crontab.md"
CRONJOB = {
    "kind": "CronJob",
    "metadata": {"name": "suspended"},
    "spec": {
        "schedule": "@daily",
        "suspend": True,
        "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"image": "x", "command": ["true"]}]}}}},
    },
}
Answer = Callable[..., Any]


@pytest.fixture(scope="module")
def shell_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server that may run commands."""
    with Up(tmp_path_factory.mktemp("shell"), "--allow-shell", "--port", "0") as up:
        yield up


@pytest.fixture
def ask(shell_server: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against the server."""
    monkeypatch.chdir(tmp_path)
    return _runner(shell_server.environ)


def json_of(ask: Run, *words: str) -> Any:
    result = ask(*words, "--json")
    assert result.exit_code == exits.OK, result.stderr
    return json.loads(result.stdout)


def crontab_of_page() -> str:
    (crontab,) = blocks(PAGE, "crontab")
    return crontab.text


def test_the_greeting_says_who_may_run_commands(shell_server: Up) -> None:
    assert "tenants default may run any command as" in shell_server.greeting


def test_the_notes_of_the_how_to_are_those_of_the_import(run: Run) -> None:
    imported = run("import", "crontab", "-", "--tz", "UTC", input=crontab_of_page())
    (notes,) = blocks(PAGE, "text")
    assert (imported.exit_code, imported.stderr) == (exits.OK, notes.text)
    assert imported.stdout.startswith("".join(f"# {line}\n" for line in notes.text.splitlines()) + "set: crontab\n")


def test_the_crontab_of_the_how_to_is_imported_and_runs(ask: Run) -> None:
    Path("jobs.yaml").write_text(ask("import", "crontab", "-", input=crontab_of_page()).stdout)
    assert ask("job", "apply", "jobs.yaml").stdout.endswith("set crontab: 3 create\n")
    created = ask("import", "crontab", "-", "--create", input=crontab_of_page())
    assert (created.exit_code, created.stdout) == (exits.OK, "set crontab: 0 created, 4 notes\n")
    for name, output in (("echo", "polled\n"), ("echo-2", "archived\n"), ("cat", "good morning\n")):
        execution = json_of(ask, "job", "trigger", name)["executionId"]

        def succeeded(execution: str = execution) -> Any:
            shown = json_of(ask, "execution", "show", execution)
            return shown["state"] == "SUCCEEDED" and shown

        assert eventually(succeeded)["result"]["stdout"] == output


def test_forty_lines_become_forty_jobs(ask: Run) -> None:
    crontab = "".join(f"{minute} {minute % 24} * * * /opt/job-{minute}.sh\n" for minute in range(40))
    created = ask("import", "crontab", "-", "--create", "--set", "forty", input=crontab)
    assert (created.exit_code, created.stderr, created.stdout) == (exits.OK, "", "set forty: 40 created, 0 notes\n")
    jobs = json_of(ask, "job", "list", "--tag", "apply:forty")["jobs"]
    assert {job["name"] for job in jobs} == {f"job-{number}.sh" for number in range(40)}


def test_a_suspended_cronjob_is_paused(ask: Run) -> None:
    Path("cronjob.json").write_text(json.dumps(CRONJOB))
    assert ask("import", "cronjobs", "cronjob.json", "--create").exit_code == exits.OK
    assert json_of(ask, "job", "show", "suspended")["state"] == "PAUSED"


def test_celery_beat_becomes_a_file(run: Run) -> None:
    Path("beat.json").write_text('{"a": {"task": "shop.poll", "schedule": 60, "options": {"queue": "shop"}}}')
    imported = run("import", "celery-beat", "beat.json", "--format", "json")
    assert json.loads(imported.stdout) == {
        "set": "celery-beat",
        "jobs": [{"name": "a", "type": "INTERVAL", "target": {"pool": "shop", "handler": "shop.poll"}, "everySec": 60}],
    }


@pytest.mark.parametrize("words", [("crontab", "none"), ("cronjobs", "none"), ("celery-beat", "none.json")])
def test_a_missing_file_is_not_found(run: Run, words: tuple[str, str]) -> None:
    assert run("import", *words).exit_code == exits.NOT_FOUND


def test_an_unknown_zone_is_refused(run: Run) -> None:
    refused = run("import", "crontab", "-", "--tz", "Europe/Olso", input="@daily x")
    assert refused.exit_code == exits.FAILED
    assert "Europe/Oslo" in refused.stderr
