"""Commands that need a server."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noonday.cli import exits
from tests.cli.conftest import Run
from tests.cli.serving import Up, eventually

Answer = Callable[..., Any]
FAR = "2099-01-01T00:00:00Z"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return str(request.node.name)


def create(ask_json: Answer, name: str, *flags: str, handler: str = "demo.echo") -> str:
    job_id: str = ask_json("job", "create", "--handler", handler, "--name", name, "--json", *flags)["jobId"]
    return job_id


def ended(ask_json: Answer, job: str) -> Any:
    """Wait for the latest execution of a job to end, and return it."""

    def look() -> Any:
        executions = ask_json("job", "executions", job, "--json")["executions"]
        return executions and executions[0]["state"] not in ("PENDING", "RUNNING") and executions[0]

    return eventually(look)


# Jobs


def test_a_job_is_created_and_shown(ask: Run, name: str) -> None:
    result = ask("job", "create", "--handler", "demo.echo", "--name", name, "--at", FAR, "--payload", '{"a": 1}')
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"created {name} (")
    shown = ask("job", "show", name).stdout
    assert "demo.echo in pool demo" in shown
    assert '{"a":1}' in shown
    assert "2099-01-01 00:00:00+00:00 (in 7" in shown


def test_job_has_the_values_of_the_flags(ask_json: Answer, name: str) -> None:
    job = create(
        ask_json, name, "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--overlap", "skip", "--catch-up", "all",
        "--window", "2h", "--max-runs", "7", "--start", FAR, "--spread", "30s", "--tag", "a", "--tag", "b",
        "--priority", "high", "--timeout", "5m", "--max-attempts", "2", "--backoff", "fixed", "--initial-delay", "1s",
    )  # fmt: skip
    shown = ask_json("job", "show", job, "--json")
    assert (shown["schedule"], shown["timezone"], shown["overlap"]) == ("0 3 * * *", "Europe/Berlin", "SKIP")
    assert shown["catchUp"] == {"policy": "ALL", "windowSec": 7200}
    assert (shown["maxRuns"], shown["spreadSec"], shown["tags"]) == (7, 30, ["a", "b"])
    assert (shown["priority"], shown["timeoutSec"]) == ("HIGH", 300)
    assert shown["retryPolicy"] == {"maxAttempts": 2, "backoff": "FIXED", "initialDelayMs": 1000}


def test_a_job_can_come_from_a_file_or_from_standard_input(ask: Run, tmp_path: Path, name: str) -> None:
    job = {"type": "ONE_TIME", "runAt": FAR, "target": {"pool": "demo", "handler": "demo.echo"}, "name": name}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert ask("job", "create", "--file", "job.json").exit_code == 0
    assert ask("job", "create", "--file", "-", "--name", f"{name}-2", input=json.dumps(job)).exit_code == 0
    assert ask("job", "show", f"{name}-2").exit_code == 0


def test_the_same_idempotency_key_creates_one_job(ask_json: Answer, name: str) -> None:
    flags = ("--at", FAR, "--idempotency-key", name)
    assert create(ask_json, name, *flags) == create(ask_json, name, *flags)


def test_every_invalid_value_is_reported_with_its_flag(ask: Run) -> None:
    result = ask("job", "create", "--handler", "demo.echo", "--cron", "61 * * * *", "--tz", "Europe/Berln")
    assert (result.exit_code, result.stdout) == (exits.FAILED, "")
    assert '--cron: minute "61"' in result.stderr
    assert "--tz: " in result.stderr
    assert "did you mean Europe/Berlin?" in result.stderr


def test_an_unknown_handler_or_pool_names_the_nearest(ask: Run) -> None:
    assert "did you mean demo.echo?" in ask("job", "create", "--handler", "demo.ecko").stderr
    assert "did you mean demo?" in ask("job", "create", "--handler", "demo.echo", "--pool", "demmo").stderr


def test_a_handler_that_no_worker_has_is_accepted_with_a_warning(ask: Run, name: str) -> None:
    result = ask("job", "create", "--handler", "demo.later", "--pool", "demo", "--name", name, "--at", FAR)
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: ")


def test_a_job_is_found_by_the_beginning_of_its_id(ask_json: Answer, ask: Run, name: str) -> None:
    job = create(ask_json, name, "--at", FAR)
    assert ask_json("job", "show", job[:23], "--json")["jobId"] == job
    assert ask("job", "show", job[:23].upper()).exit_code == 0


def test_a_name_that_several_jobs_have_is_refused_with_their_ids(ask_json: Answer, ask: Run, name: str) -> None:
    jobs = [create(ask_json, name, "--at", FAR) for _ in range(2)]
    result = ask("job", "show", name)
    assert result.exit_code == exits.FAILED
    assert all(job in result.stderr for job in jobs)


def test_name_of_several_jobs_selects_the_one_that_is_not_cancelled(ask_json: Answer, name: str) -> None:
    jobs = [create(ask_json, name, "--at", FAR) for _ in range(2)]
    ask_json("job", "cancel", jobs[0], "--json")
    assert ask_json("job", "show", name, "--json")["jobId"] == jobs[1]


def test_an_unknown_job_names_the_nearest(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--at", FAR)
    result = ask("job", "show", f"{name}x")
    assert result.exit_code == exits.NOT_FOUND
    assert f"did you mean {name}?" in result.stderr


def test_an_id_that_nothing_has_is_not_found(ask: Run) -> None:
    assert ask("job", "show", "01900000-0000-7000-8000-000000000000").exit_code == exits.NOT_FOUND


def test_change_of_a_job_leaves_fields_without_a_flag_as_they_are(ask_json: Answer, ask: Run, name: str) -> None:
    job = create(
        ask_json, name, "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--payload", '{"a": 1, "b": {"c": 2}}', "--tag", "x"
    )  # fmt: skip
    result = ask("job", "change", name, "--every", "90s", "--payload", '{"b": {"d": 3}}')
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"changed {name} ({job}), next ")
    shown = ask_json("job", "show", job, "--json")
    assert (shown["type"], shown["everySec"], shown["schedule"], shown["timezone"]) == ("INTERVAL", 90, None, None)
    assert (shown["payload"], shown["tags"], shown["version"]) == ({"b": {"d": 3}}, ["x"], 2)


def test_change_of_another_version_is_refused(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--at", FAR)
    assert ask("job", "change", name, "--tag", "x", "--if-version", "1").exit_code == 0
    result = ask("job", "change", name, "--tag", "y", "--if-version", "1")
    assert "the job is at version 2, not 1" in result.stderr


def test_change_without_a_flag_says_what_is_missing(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--at", FAR)
    assert "nothing to change" in ask("job", "change", name).stderr


def test_second_job_of_a_name_is_warned_about_the_first(ask_json: Answer, ask: Run, name: str) -> None:
    first = create(ask_json, name, "--at", FAR)
    created = ask("job", "create", "--handler", "demo.echo", "--name", name, "--at", FAR)
    assert (created.exit_code, created.stderr.split(":")[0]) == (0, "warning")
    assert first in created.stderr
    create(ask_json, f"{name}-2", "--at", FAR)
    changed = ask("job", "change", f"{name}-2", "--name", name)
    assert first in changed.stderr


def test_triggered_job_may_have_another_payload_and_pass_its_overlap_rule(
    ask_json: Answer, ask: Run, name: str
) -> None:
    job = create(ask_json, name, "--at", FAR, "--overlap", "skip", "--payload", '{"a": 1}')
    made = ask_json("job", "trigger", job, "--payload", '{"a": 2}', "--force", "--json")
    assert ended(ask_json, job)["executionId"] == made["executionId"]
    assert json.loads(ask("execution", "wait", made["executionId"]).stdout) == {"a": 2}


def test_occurrences_are_skipped_and_shown_with_the_reason(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--cron", "0 3 1 1 *", "--start", FAR)
    skipped = ask("job", "skip", name, "--next", "2", "--reason", "a holiday")
    assert skipped.exit_code == 0
    assert skipped.stdout.count("2099-01-01") == skipped.stdout.count("2100-01-01") == 1
    shown = ask_json("job", "occurrences", name, "--from", FAR, "--to", "2101-12-01T00:00:00Z", "--json")
    assert [each["outcome"] for each in shown["occurrences"]] == ["SKIPPED", "SKIPPED", "PLANNED"]
    assert shown["occurrences"][0]["reason"].endswith(": a holiday")
    undone = ask("job", "skip", name, "--undo", "--at", "2100-01-01T03:00:00Z").stdout
    assert "next 2100-01-01" in undone
    assert undone.count("2100-01-01") == 1
    assert "skips nothing" in ask("job", "skip", name, "--undo").stdout
    assert "mutually exclusive" in ask("job", "skip", name, "--at", FAR, "--next", "1").stderr
    assert "--undo goes with --at alone" in ask("job", "skip", name, "--undo", "--next", "1").stderr


def test_occurrence_is_moved_and_shown_with_the_reason(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--cron", "0 3 1 1 *")
    first = ask_json("job", "show", name, "--json")["nextFireAt"]
    to = first.replace("T03:00:00", "T04:30:00")
    moved = ask("job", "move", name, "--at", first, "--to", to, "--reason", "a window")
    assert (moved.exit_code, moved.stdout.startswith("moved ")) == (0, True)
    assert "04:30" in moved.stdout
    assert "a window" in ask("job", "show", name).stdout
    why = ask("why", name, "--at", first).stdout
    assert ": MOVED: moved to " in why
    assert why.rstrip().endswith(": a window.")
    assert "moved from" in ask("why", name, "--at", to).stdout
    refused = ask("job", "move", name, "--at", to, "--to", "-1h")
    assert (refused.exit_code, "must be in the future; the server's time is" in refused.stderr) == (1, True)
    assert ask_json("job", "move", name, "--at", to, "--to", first, "--json")["moves"] == []


def test_job_is_paused_until_a_time(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--cron", "* * * * *")
    paused = ask("job", "pause", name, "--until", "tomorrow 06:00")
    assert paused.stdout.startswith(f"paused {name}")
    assert " until " in paused.stdout
    assert ask_json("job", "show", name, "--json")["pausedUntil"] is not None
    assert "paused until" in ask("job", "show", name).stdout
    assert " is PAUSED until " in ask("why", name, "--at", "+3m").stdout
    assert "PAUSED: it does not fire, because the job is paused until " in ask("why", name, "--at", "+3m").stdout
    assert "the server's time is" in ask("job", "pause", name, "--until", "-1h").stderr


@pytest.mark.slow
def test_job_is_resumed_at_the_end_of_its_pause(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--cron", "@yearly")
    ask("job", "pause", name, "--until", "+2s")
    eventually(lambda: ask_json("job", "show", name, "--json")["state"] == "ACTIVE")
    assert "noonday" in ask("audit", "--job", name).stdout


@pytest.mark.slow
def test_a_paused_job_can_be_resumed_and_cancelled(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--cron", "@yearly")
    assert ask("job", "pause", name).stdout.startswith(f"paused {name}")
    assert ask_json("job", "show", name, "--json")["state"] == "PAUSED"
    assert ", next " in ask("job", "resume", name).stdout
    assert ask_json("job", "cancel", name, "--json")["state"] == "CANCELLED"


def test_a_triggered_job_runs_besides_its_schedule(ask_json: Answer, name: str) -> None:
    create(ask_json, name, "--cron", "@yearly", "--payload", "42")
    made = ask_json("job", "trigger", name, "--json")
    assert made["cause"] == "TRIGGER"
    assert ended(ask_json, name)["executionId"] == made["executionId"]


@pytest.mark.slow
def test_jobs_are_listed_by_condition_newest_first(ask_json: Answer, ask: Run, name: str) -> None:
    jobs = [create(ask_json, f"{name}-{i}", "--at", FAR, "--tag", name) for i in range(3)]
    listed = ask_json("job", "list", "--tag", name, "--json")
    assert ([job["jobId"] for job in listed["jobs"]], listed["more"]) == (jobs[::-1], False)
    part = ask("job", "list", "--tag", name, "--limit", "2")
    assert len(part.stdout.splitlines()) == 3
    assert "more jobs" in part.stderr
    assert ask_json("job", "list", "--tag", name, "--limit", "2", "--json")["more"] is True
    assert len(ask_json("job", "list", "--tag", name, "--limit", "1", "--all", "--json")["jobs"]) == 3


def test_empty_list_is_reported_and_is_no_error(ask: Run, name: str) -> None:
    result = ask("job", "list", "--tag", name)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no jobs\n")


@pytest.mark.slow
def test_a_past_span_is_previewed_and_filled_once(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--cron", "@daily", "--start", "2026-01-01T00:00:00Z")
    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-03T00:00:00Z")
    assert ask("job", "backfill", name, *span, "--preview").stdout.startswith("would run 3 occurrences")
    assert ask_json("job", "backfill", name, *span, "--json")["created"] == 3
    assert ask("job", "backfill", name, *span).stdout.startswith("created 0 executions for 3")


def test_list_of_occurrences_includes_planned_ones(ask_json: Answer, name: str) -> None:
    create(ask_json, name, "--cron", "0 0 1 1 *")
    listed = ask_json("job", "occurrences", name, "--from", "now", "--to", "+750d", "--json")["occurrences"]
    assert [one["outcome"] for one in listed] == ["PLANNED", "PLANNED"]


# Executions


@pytest.mark.slow
def test_an_execution_is_waited_for_and_its_result_printed(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--payload", '{"a": [1]}')
    assert ask_json("execution", "wait", name, "--timeout", "20s") == {"a": [1]}
    shown = ask("execution", "show", ended(ask_json, name)["executionId"]).stdout
    assert "SUCCEEDED" in shown
    assert '{"a":[1]}' in shown


def test_waiting_for_an_execution_that_fails_prints_the_failure_and_exits_with_1(
    ask_json: Answer, ask: Run, name: str
) -> None:
    create(ask_json, name, "--max-attempts", "1", handler="demo.fail")
    result = ask("execution", "wait", name, "--timeout", "20s")
    assert (result.exit_code, result.stdout) == (exits.FAILED, "")
    assert "DEAD after attempt 1: RuntimeError" in result.stderr


@pytest.mark.slow
def test_waiting_ends_at_its_timeout(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--at", FAR)
    result = ask("execution", "wait", name, "--timeout", "100ms")
    assert result.exit_code == exits.FAILED
    assert "has no execution yet after 0.1 s" in result.stderr


@pytest.mark.slow
def test_a_running_execution_can_be_cancelled(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--payload", '{"seconds": 600}', handler="demo.sleep")
    executions = eventually(lambda: ask_json("job", "executions", name, "--json")["executions"])
    assert ask("execution", "cancel", executions[0]["executionId"]).exit_code == 0
    assert ended(ask_json, name)["state"] == "CANCELLED"


def test_the_id_of_a_job_is_not_that_of_an_execution(ask_json: Answer, ask: Run, name: str) -> None:
    job = create(ask_json, name, "--at", FAR)
    for wrong in (job, "abc"):
        result = ask("execution", "show", wrong)
        assert result.exit_code == exits.NOT_FOUND
        assert "noonday job executions" in result.stderr


# Why


@pytest.mark.slow
def test_why_shows_every_attempt_and_its_error(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--max-attempts", "2", "--retry-delays", "1ms", handler="demo.fail")
    execution = ended(ask_json, name)["executionId"]
    lines = ask("why", name).stdout.splitlines()
    assert lines[1].endswith(": FIRED.")
    assert lines[2].endswith("is DEAD.")
    assert "attempt 1 was told to fail" in lines[3]
    assert "attempt 2 was told to fail" in lines[4]
    assert lines[-1].strip() == f"noonday dead retry {execution}"


def test_a_job_that_died_is_found_with_its_error_and_its_log(ask_json: Answer, ask: Run, name: str) -> None:
    ask_json("job", "create", "--handler", "demo.fail", "--name", name, "--max-attempts", "1", "--json")
    assert ask("execution", "wait", name).exit_code == 1
    (dead,) = ask_json("job", "list", "--state", "dead", "--name", name, "--json")["jobs"]
    assert dead["state"] == "DEAD"
    execution = ask_json("job", "executions", name, "--json")["executions"][0]["executionId"]
    commands = (f"noonday execution show {execution} --traceback", f"noonday execution logs {execution}")
    for said in (ask("job", "show", name).stdout, ask("why", name).stdout):
        assert all(command in said for command in commands)
    assert "RuntimeError: attempt 1 was told to fail" in ask(*commands[0].split()[1:]).stdout
    head, line = ask(*commands[1].split()[1:]).stdout.splitlines()
    assert head.startswith("attempt 1, FAILED, ended ")
    assert line.endswith(" INFO     told to fail times=always")
    (attempt,) = ask_json(*commands[1].split()[1:], "--json")["attempts"]
    assert (attempt["attempt"], attempt["outcome"], attempt["text"]) == (1, "FAILED", f"{line}\n")
    none = ask(*commands[1].split()[1:], "--attempt", "2")
    assert (none.exit_code, none.stdout) == (0, "")
    assert f"no log lines of attempt 2 of {execution}" in none.stderr


def test_why_shows_the_next_planned_occurrence(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--at", FAR)
    assert "PLANNED: it fires in 7" in ask("why", name).stdout


def test_why_names_the_pause_that_blocks_an_occurrence(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--at", FAR)
    ask_json("job", "pause", name, "--json")
    assert "will not fire at present: the job is paused" in ask("why", name).stdout


@pytest.mark.slow
def test_why_shows_occurrences_that_a_pause_skipped(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--cron", "* * * * * *", "--start", "+1s")
    ask_json("job", "pause", name, "--json")
    due = datetime.now(UTC) + timedelta(seconds=2)
    eventually(lambda: datetime.now(UTC) > due and "PAUSED: the job was paused" in ask("why", name).stdout)
    ask_json("job", "resume", name, "--json")
    listed = ask_json("job", "occurrences", name, "--from", "-1m", "--to", "now", "--json")["occurrences"]
    ask_json("job", "cancel", name, "--json")
    # On a slow machine the job fired before it could be paused.
    missed = next(one for one in listed if one["outcome"] != "FIRED")
    assert missed["outcome"] == "PAUSED"
    output = ask("why", name, "--at", missed["scheduledAt"]).stdout
    assert "PAUSED: " in output


@pytest.mark.slow
def test_why_names_the_earlier_execution_that_blocked_an_occurrence(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--cron", "* * * * * *", "--overlap", "skip", "--payload", '{"seconds": 600}',
           handler="demo.sleep")  # fmt: skip
    eventually(lambda: "SKIPPED: overlap SKIP" in ask("why", name).stdout)
    ask_json("job", "cancel", name, "--json")


@pytest.mark.slow
def test_why_at_a_time_shows_the_nearest_occurrence(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--cron", "0 0 1 * *", "--start", "2098-12-31T00:00:00Z")
    exactly = ask_json("why", name, "--at", FAR, "--json")["occurrence"]
    around = ask("why", name, "--at", "2099-01-02T12:00:00Z").stdout
    assert exactly["scheduledAt"] == FAR
    assert "The job has no occurrence at 2099-01-02 12:00:00+00:00" in around
    assert "Occurrence 2099-01-01 00:00:00+00:00" in around


@pytest.mark.slow
def test_why_reports_a_time_before_the_job_existed(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--at", FAR)
    assert "The job did not exist at 2020-01-01" in ask("why", name, "--at", "2020-01-01T00:00:00Z").stdout


# Dead letters


@pytest.mark.slow
def test_a_dead_letter_is_listed_retried_and_archived(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--max-attempts", "1", handler="demo.fail")
    execution = ended(ask_json, name)["executionId"]
    listed = ask_json("dead", "list", "--job", name, "--json")["deadLetters"]
    assert [letter["execution"]["executionId"] for letter in listed] == [execution]
    again = ask_json("dead", "retry", execution, "--json")["executionId"]
    eventually(lambda: ask_json("dead", "list", "--job", name, "--json")["deadLetters"])
    assert ask("dead", "archive", again).stdout == f"archived {again}\n"
    assert ask("dead", "list", "--job", name).stderr == "no dead letters\n"
    assert again in ask("dead", "list", "--job", name, "--archived").stdout


@pytest.mark.slow
def test_dead_letters_are_changed_by_condition(ask_json: Answer, ask: Run, name: str) -> None:
    create(ask_json, name, "--max-attempts", "1", handler="demo.fail")
    ended(ask_json, name)
    for _ in range(2):
        ask_json("job", "trigger", name, "--json")
    eventually(lambda: len(ask_json("dead", "list", "--job", name, "--json")["deadLetters"]) == 3)
    assert ask("dead", "archive", "--job", name, "--since", "+1h").stdout == "0 dead letters archived\n"
    assert ask_json("dead", "archive", "--job", name, "--since", "-1h", "--json") == {"changed": 3}


def test_changing_dead_letters_needs_a_filter(ask: Run) -> None:
    for words in (["dead", "retry"], ["dead", "archive"], ["dead", "retry", "x", "--all"]):
        assert ask(*words).exit_code == exits.USAGE


# The server


def test_pools_are_listed_and_set_and_keep_earlier_settings(ask_json: Answer, ask: Run) -> None:
    assert ask("pool", "set", "mail", "--timeout", "5m", "--max-attempts", "3").exit_code == 0
    changed = ask_json("pool", "set", "mail", "--description", "sends mail", "--json")
    assert changed["settings"] == {"retryPolicy": {"maxAttempts": 3}, "timeoutSec": 300, "description": "sends mail"}
    assert "no workers" in ask("pool", "list").stdout
    assert {"demo", "shop", "mail"} <= {pool["name"] for pool in ask_json("pool", "list", "--json")["pools"]}


def test_invalid_pool_setting_is_refused(ask: Run) -> None:
    result = ask("pool", "set", "mail", "--max-attempts", "0")
    assert result.exit_code == exits.FAILED
    assert "--max-attempts must be from 1 to 100" in result.stderr


@pytest.mark.slow
def test_paused_pool_is_shown_as_paused_until_it_is_resumed(ask_json: Answer, ask: Run, name: str) -> None:
    ask("pool", "set", "letters", "--timeout", "5m")
    assert "pool letters is paused since" in ask("pause", "--pool", "letters").stdout
    assert [each["name"] for each in ask_json("pause", "--json")["pauses"]] == ["letters"]
    create(ask_json, name, "--pool", "letters")
    assert "pool 'letters' is paused since" in ask("why", name).stdout
    assert "pool 'letters' is paused since" in " ".join(ask("pool", "list").stdout.split())
    assert "did you mean letters?" in ask("pause", "--pool", "leters").stderr
    assert ask("resume", "--pool", "letters").stdout == "resumed pool letters\n"


@pytest.mark.slow
def test_a_tenants_settings_are_changed_one_at_a_time(ask_json: Answer, ask: Run) -> None:
    assert "no such tenant" in ask("tenant", "show", "globex").stderr
    assert ask("tenant", "set", "globex", "--weight", "4", "--rate", "50").exit_code == 0
    changed = ask_json("tenant", "set", "globex", "--burst", "100", "--rate", "none", "--json")
    assert changed["settings"] == {"weight": 4, "burst": 100}
    assert "weight 4, burst 100" in ask("tenant", "show", "globex").stdout
    assert "must be from 1 to 1000" in ask("tenant", "set", "globex", "--weight", "0").stderr


def test_pause_takes_exactly_one_target(ask: Run) -> None:
    assert "pass exactly one of --tenant, --pool and --all" in ask("pause", "--all", "--pool", "mail").stderr
    assert "pass exactly one of --tenant, --pool and --all" in ask("resume").stderr


def test_workers_are_listed_with_their_pools(ask_json: Answer, ask: Run, server: Up) -> None:
    (worker,) = ask_json("workers", "--json")["workers"]
    assert (worker["pid"], set(worker["pools"])) == (server.process.pid, {"demo", "shop", "webhooks", "notices"})
    assert worker["workerId"] in ask("workers").stdout


def test_top_prints_a_frame(ask_json: Answer, ask: Run) -> None:
    frame = ask_json("top", "--json")
    assert set(frame) == {"overview", "pools", "workers", "unreadAlerts"}
    shown = ask("top", "--once").stdout
    assert "late p99" in shown
    assert "demo" in shown


def test_audit_log_names_the_subject_and_the_action(ask_json: Answer, ask: Run, name: str) -> None:
    job = create(ask_json, name, "--at", FAR)
    ask_json("job", "pause", job, "--json")
    entries = ask_json("audit", "--job", name, "--json")["entries"]
    assert [entry["action"] for entry in entries] == ["job.pause", "job.create"]
    assert entries[0]["subject"].startswith("cli:")
    assert "job.pause" in ask("audit", "--target", job).stdout


# Callers


def test_a_token_given_is_used_instead_of_one_of_its_own(ask: Run, name: str) -> None:
    reader = ask("token", "--scopes", "read").stdout.strip()
    assert ask("job", "list", env={"NOONDAY_TOKEN": reader}).exit_code == 0
    refused = ask("job", "create", "--handler", "demo.echo", "--pool", "demo", "--token", reader)
    assert refused.exit_code == exits.FAILED
    assert "needs scope write" in refused.stderr


def test_command_without_the_secret_explains_how_to_authenticate(ask: Run) -> None:
    result = ask("job", "list", "--data", "elsewhere.db")
    assert result.exit_code == exits.FAILED
    assert "elsewhere.db.secret" in result.stderr
    assert "--data" in result.stderr


def test_command_with_a_wrong_secret_names_the_source_of_its_token(ask: Run, tmp_path: Path) -> None:
    (tmp_path / "other.db.secret").touch(0o600)
    (tmp_path / "other.db.secret").write_text("x" * 43)
    result = ask("job", "list", "--data", "other.db")
    assert result.exit_code == exits.FAILED
    assert "created from other.db.secret" in result.stderr


def test_the_token_of_one_tenant_sees_nothing_of_another(ask: Run, name: str, ask_json: Answer) -> None:
    job = create(ask_json, name, "--at", FAR)
    other = ask("token", "--tenant", "acme").stdout.strip()
    assert ask("job", "show", job, "--token", other).exit_code == exits.NOT_FOUND


def test_the_url_follows_from_the_settings(ask: Run, server: Up) -> None:
    port = server.url.rpartition(":")[2]
    assert ask("job", "list", env={"NOONDAY_URL": "", "NOONDAY_PORT": port}).exit_code == 0


def test_the_doctor_recognises_a_running_server(ask: Run, server: Up) -> None:
    port = server.url.rpartition(":")[2]
    result = ask("doctor", env={"NOONDAY_PORT": port})
    assert result.exit_code == 0
    assert f"process {server.process.pid}" in result.stdout
    assert f"a Noonday server answers on 127.0.0.1 port {port}" in result.stdout


# Executions of all jobs


def test_executions_of_all_jobs_are_listed(ask: Run, ask_json: Answer, name: str) -> None:
    good, bad = create(ask_json, name), create(ask_json, f"{name}-2", "--max-attempts", "1", handler="demo.fail")
    for job in (good, bad):
        ended(ask_json, job)
    found = ask_json("execution", "list", "--since", "yesterday", "--json")["executions"]
    assert {(one["jobName"], one["state"]) for one in found} >= {(name, "SUCCEEDED"), (f"{name}-2", "DEAD")}
    of_job = ask("execution", "list", "--job", name).stdout
    assert name in of_job
    assert "SUCCEEDED" in of_job
    assert ask_json("execution", "list", "--job", bad, "--state", "SUCCEEDED", "--json") == {
        "executions": [],
        "more": False,
    }


# Bulk operations


def test_matching_jobs_are_paused_after_a_dry_run(ask: Run, ask_json: Answer, name: str) -> None:
    jobs = {create(ask_json, name, "--at", FAR, "--tag", name) for _ in range(3)}
    assert "would pause 3 jobs" in ask("job", "pause", "--tag", name, "--dry-run").stdout
    assert {one["state"] for one in ask_json("job", "list", "--tag", name, "--json")["jobs"]} == {"ACTIVE"}
    ended = ask("job", "pause", "--tag", name, "--yes")
    assert (ended.exit_code, ended.stdout.split(" (")[0]) == (0, "3 jobs changed")
    assert {one["state"] for one in ask_json("job", "list", "--tag", name, "--json")["jobs"]} == {"PAUSED"}
    resumed = ask_json("job", "resume", "--tag", name, "--yes", "--json")
    assert (resumed["state"], resumed["done"], resumed["total"]) == ("DONE", 3, 3)
    assert ask("job", "cancel", "--tag", name, "--yes").exit_code == 0
    assert {one["jobId"] for one in ask_json("job", "list", "--tag", name, "--json")["jobs"]} == jobs
    assert ask("job", "cancel", "--tag", name, "--yes").stdout == "no jobs match\n"


def test_a_bulk_change_needs_a_filter_and_a_confirmation(ask: Run, ask_json: Answer, name: str) -> None:
    job = create(ask_json, name, "--at", FAR, "--tag", name)
    assert "pass a JOB, filters, or --all" in ask("job", "pause").stderr
    assert "pass a JOB or filters, not both" in ask("job", "pause", job, "--tag", name).stderr
    assert "pass a JOB or filters, not both" in ask("job", "pause", job, "--dry-run").stderr
    refused = ask("job", "pause", "--tag", name)
    assert refused.exit_code != 0
    assert "Pause 1 jobs?" in refused.stderr
    assert ask_json("job", "show", job, "--json")["state"] == "ACTIVE"


def test_operations_are_listed_shown_and_stopped(ask: Run, ask_json: Answer, name: str) -> None:
    create(ask_json, name, "--at", FAR, "--tag", name)
    started = ask_json("job", "pause", "--tag", name, "--yes", "--no-wait", "--json")
    assert ask("operation", "wait", started["id"][:18]).exit_code == 0
    assert started["id"] in ask("operation", "list").stdout
    shown = ask("operation", "show", started["id"][:18]).stdout
    assert "1 of 1 changed, 0 skipped, 0 failed" in shown
    assert (
        ask("operation", "stop", started["id"]).stdout == f"operation {started['id']} is DONE: all items were changed\n"
    )
    assert "no operation has an id that begins with '0000'" in ask("operation", "show", "0000").stderr


def test_dead_letters_of_a_group_are_retried_after_a_sample(ask: Run, ask_json: Answer, name: str) -> None:
    for _ in range(2):
        job = create(ask_json, name, "--max-attempts", "1", "--tag", name, handler="demo.fail")
        assert ended(ask_json, job)["state"] == "DEAD"
    groups = ask_json("dead", "groups", "--json")["groups"]
    group = next(one for one in groups if one["jobs"] >= 2)
    assert group["fingerprint"] in ask("dead", "groups").stdout
    shown = ask("dead", "retry", "--fingerprint", group["fingerprint"], "--dry-run").stdout
    assert shown.startswith("would retry ")
    retried = ask("dead", "retry", "--fingerprint", group["fingerprint"], "--sample", "1", "--yes", "--json")
    assert retried.exit_code == 1
    assert "1 of the latest 1 results are failures, more than 20 %" in json.loads(retried.stdout)["stoppedBecause"]
    assert "not both" in ask("dead", "retry", group["sample"], "--dry-run").stderr


def test_open_executions_are_cancelled_by_a_filter(ask: Run, ask_json: Answer, name: str) -> None:
    job = create(ask_json, name, "--payload", '{"seconds": 600}', handler="demo.sleep")
    eventually(lambda: ask_json("job", "executions", job, "--state", "RUNNING", "--json")["executions"])
    assert "would cancel 1 executions" in ask("execution", "cancel", "--job", name, "--dry-run").stdout
    assert ask("execution", "cancel", "--job", name, "--yes").exit_code == 0
    assert ended(ask_json, job)["state"] == "CANCELLED"
