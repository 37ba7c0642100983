"""`noonday job apply` and `noonday job export` against a server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noonday.cli import exits
from noonday.cli.applying import key_of
from noonday.cli.job_files import JobSet
from tests.cli.conftest import Run
from tests.docs.pages import DOCS, blocks

Answer = Callable[..., Any]
TARGET = {"pool": "demo", "handler": "demo.echo"}


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return str(request.node.name)


def cron(name: str, schedule: str = "0 3 * * *", **members: Any) -> dict[str, Any]:
    return {"name": name, "type": "CRON", "schedule": schedule, "target": TARGET, **members}


def file_of(*jobs: dict[str, Any]) -> str:
    """Write the file of the set in the folder of the test, and return its path."""
    Path("jobs.json").write_text(json.dumps({"jobs": jobs}))
    return "jobs.json"


def actions(answer: Any) -> dict[str, str]:
    return {one["name"]: one["action"] for one in answer["jobs"]}


def test_applying_twice_changes_nothing(ask_json: Answer, name: str) -> None:
    words = ("job", "apply", file_of(cron(name, payload={"n": 1}, tags=["a"])), "--set", name, "--json")
    assert actions(ask_json(*words)) == {name: "create"}
    assert actions(ask_json(*words)) == {name: "same"}
    shown = ask_json("job", "show", name, "--json")
    assert (shown["version"], shown["payload"], shown["tags"]) == (1, {"n": 1}, ["a", f"apply:{name}"])
    assert shown["uniqueKey"] == f"apply:{name}/{name}"


def test_dry_run_shows_differences_and_times_and_changes_nothing(ask: Run, ask_json: Answer, name: str) -> None:
    ask_json("job", "apply", file_of(cron(name)), "--set", name, "--json")
    shown = ask("job", "apply", file_of(cron(name, "0 4 * * *")), "--set", name, "--dry-run").stdout
    assert f"change  {name}\n" in shown
    assert 'schedule: "0 3 * * *" -> "0 4 * * *"' in shown
    before, _, after = next(line for line in shown.splitlines() if "next: " in line).partition(" -> ")
    assert (before.count("03:00:00Z"), after.count("04:00:00Z")) == (3, 3)
    assert shown.endswith(f"set {name}: 1 change; nothing was changed\n")
    assert ask_json("job", "show", name, "--json")["schedule"] == "0 3 * * *"


def test_check_fails_while_something_differs(ask: Run, name: str) -> None:
    words = ("job", "apply", file_of(cron(name)), "--set", name)
    assert ask(*words, "--check").exit_code == exits.FAILED
    assert ask(*words).exit_code == exits.OK
    assert ask(*words, "--check").exit_code == exits.OK


def test_a_job_that_left_the_files_is_cancelled_with_prune_only(ask: Run, ask_json: Answer, name: str) -> None:
    gone, kept = cron(f"{name}-gone"), cron(f"{name}-kept")
    ask_json("job", "apply", file_of(gone, kept), "--set", name, "--json")
    words = ("job", "apply", file_of(kept), "--set", name)
    assert "not in the files any more; it keeps running" in ask(*words).stdout
    assert ask_json("job", "show", gone["name"], "--json")["state"] == "ACTIVE"
    assert "would be cancelled" in ask(*words, "--prune", "--dry-run").stdout
    assert ask_json("job", "show", gone["name"], "--json")["state"] == "ACTIVE"
    ask_json(*words, "--prune", "--json")
    assert ask_json("job", "show", gone["name"], "--json")["state"] == "CANCELLED"
    assert actions(ask_json(*words, "--json")) == {kept["name"]: "same"}
    assert actions(ask_json("job", "apply", file_of(gone), "--set", name, "--json"))[gone["name"]] == "create"


def test_jobs_of_others_are_never_gone(ask_json: Answer, name: str) -> None:
    ask_json("job", "create", "--handler", "demo.echo", "--cron", "@daily", "--name", f"{name}-other", "--json")
    answer = ask_json("job", "apply", file_of(cron(name)), "--set", name, "--prune", "--json")
    assert actions(answer) == {name: "create"}


def test_a_live_job_of_the_same_name_is_taken_over(ask: Run, ask_json: Answer, name: str) -> None:
    made = ask_json("job", "create", "--handler", "demo.echo", "--cron", "@daily", "--name", name, "--json")
    ask("job", "pause", name)
    (one,) = ask_json("job", "apply", file_of(cron(name)), "--set", name, "--json")["jobs"]
    assert (one["action"], one["jobId"]) == ("change", made["jobId"])
    shown = ask_json("job", "show", name, "--json")
    assert (shown["schedule"], shown["uniqueKey"], shown["state"]) == ("0 3 * * *", None, "PAUSED")


def test_a_name_that_several_jobs_have_is_refused(ask: Run, name: str) -> None:
    for _ in range(2):
        ask("job", "create", "--handler", "demo.echo", "--cron", "@daily", "--name", name)
    refused = ask("job", "apply", file_of(cron(name)), "--set", name)
    assert refused.exit_code == exits.FAILED
    assert "give the job in the file a uniqueKey" in refused.stderr


def test_a_job_that_is_declared_in_code_is_refused(ask: Run, name: str) -> None:
    refused = ask("job", "apply", file_of(cron("shop.nightly")), "--set", name)
    assert refused.exit_code == exits.FAILED
    assert "is declared in code" in refused.stderr


def test_nothing_is_changed_if_one_job_is_invalid(ask: Run, name: str) -> None:
    refused = ask("job", "apply", file_of(cron(name), cron(f"{name}-bad", "61 * * * *")), "--set", name)
    assert refused.exit_code == exits.FAILED
    assert "jobs.json, job 2: /schedule" in refused.stderr
    assert ask("job", "show", name).exit_code == exits.NOT_FOUND


def test_jobs_that_the_server_refuses_are_named_and_the_others_are_applied(ask: Run, name: str) -> None:
    bad = cron(f"{name}-bad", target={"pool": "dmeo", "handler": "demo.echo"})
    refused = ask("job", "apply", file_of(cron(name), bad), "--set", name)
    assert refused.exit_code == exits.FAILED
    assert "did you mean demo?" in refused.stderr
    assert f"set {name}: 1 create, 1 refused" in refused.stdout
    assert ask("job", "show", name).exit_code == exits.OK


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_exported_jobs_are_the_same_when_they_are_applied(ask: Run, ask_json: Answer, name: str, form: str) -> None:
    name = name.replace("[", "-").replace("]", "")
    once = {"name": f"{name}-once", "type": "ONE_TIME", "runAt": "2099-01-01T00:00:00Z", "target": TARGET}
    keyed = cron(f"{name}-keyed", uniqueKey=f"{name}/1", tags=["x"], retryPolicy={"maxAttempts": 2}, payload="on")
    ask_json("job", "apply", file_of(once, keyed), "--set", name, "--json")
    exported = ask("job", "export", "--set", name, "--format", form).stdout
    Path(f"exported.{form}").write_text(exported)
    answer = ask_json("job", "apply", f"exported.{form}", "--json")
    assert (answer["set"], actions(answer)) == (name, {once["name"]: "same", keyed["name"]: "same"})


def test_jobs_that_cannot_be_in_a_file_are_named(ask: Run, name: str) -> None:
    for words in (("--name", name), ("--name", name), ()):
        ask("job", "create", "--handler", "demo.echo", "--cron", "@daily", "--tag", name, *words)
    exported = ask("job", "export", "--tag", name)
    assert exported.stdout == "jobs: []\n"
    assert exported.stderr.count("2 jobs have this name") == 2
    assert "it has neither a name nor a unique key" in exported.stderr
    assert "shop.nightly" in ask("job", "export", "--pool", "shop").stderr


def test_keys_of_long_names_fit() -> None:
    long, other = key_of(JobSet("s", []), "n" * 200), key_of(JobSet("s", []), "n" * 199 + "m")
    assert len(long) < 200
    assert long != other
    assert key_of(JobSet("s", []), "n") == "apply:s/n"


def test_the_file_of_the_how_to_is_applied(ask: Run, name: str) -> None:
    (file,) = blocks(DOCS / "howto/keep-jobs-in-files.md", "yaml")
    Path("jobs.yaml").write_text(file.text)
    assert ask("job", "apply", "jobs.yaml", "--set", name).stdout.endswith(f"set {name}: 2 create\n")
    Path("jobs.yaml").write_text(file.text.replace("0 3 *", "0 4 *"))
    assert f"set {name}: 1 change, 1 same;" in ask("job", "apply", "jobs.yaml", "--set", name, "--dry-run").stdout
