"""Crontabs, line by line."""

import subprocess

import pytest

from noonday.cli.importing.crontab import CrontabReader
from noonday.cli.importing.imported import Imported
from noonday.model.job import CatchUpPolicy, JobSpec


def read(text: str, *, has_users: bool = False) -> Imported:
    return CrontabReader("Europe/Oslo", has_users=has_users).read(text)


def only(text: str) -> JobSpec:
    """The one job of a crontab without notes."""
    found = read(text)
    assert found.notes == []
    (job,) = found.jobs
    return job


def test_a_line_becomes_a_job_that_treats_its_command_as_cron_does() -> None:
    job = only("*/5 1-3 * JAN mon /opt/poll.sh  --fast 'a b'\n")
    assert (job.name, job.schedule, job.timezone) == ("poll.sh", "*/5 1-3 * JAN mon", "Europe/Oslo")
    assert (job.target.pool, job.target.handler) == ("shell", "shell.run")
    assert job.payload == {"script": "/opt/poll.sh  --fast 'a b'"}
    assert job.catch_up.policy is CatchUpPolicy.NONE
    assert job.retry_policy is not None
    assert (job.retry_policy.max_attempts, job.timeout_sec) == (1, 86_400)


def test_a_variable_holds_for_the_lines_below_it() -> None:
    first, second = read("A=1\n@daily x\nA = 'two words'\nSHELL=/bin/bash\nHOME=/srv\n@daily y").jobs
    assert first.payload == {"script": "x", "env": {"A": "1"}}
    assert second.payload == {
        "script": "y", "shell": "/bin/bash", "env": {"A": "two words", "HOME": "/srv"}, "cwd": "/srv",
    }  # fmt: skip


def test_the_zone_of_cron_holds_for_the_lines_below_it() -> None:
    first, second = read("@daily x\nCRON_TZ=America/Lima\n@daily y").jobs
    assert (first.timezone, second.timezone) == ("Europe/Oslo", "America/Lima")


def test_random_delay_becomes_a_spread() -> None:
    found = read("RANDOM_DELAY=5\n@daily x")
    assert found.jobs[0].spread_sec == 300
    assert "constant delay" in found.notes[0]


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("MAILTO=ops@example.com", "line 2: MAILTO=ops@example.com: cron's mail is not carried over"),
        ("CRON_TZ=Mars/Base", "line 2: CRON_TZ=Mars/Base: not carried over"),
        ("START_HOURS_RANGE=3-5", "line 2: START_HOURS_RANGE=3-5: not carried over"),
        ("USER=bob", "line 2: USER=bob: not carried over; the command runs as the user of the worker"),
        ("@reboot /opt/start", "line 2: @reboot '/opt/start': not carried over: nothing runs at boot"),
        ("@every_minute x", "line 2: @every_minute 'x': not carried over"),
        ("61 * * * * x", "line 2: not carried over: schedule '61 * * * *': minute"),
        ("0~30 * * * * x", "line 2: not carried over: schedule"),
        ("* * * *", "line 2: not carried over: not a line of a crontab"),
    ],
)
def test_a_line_without_an_equal_is_named(line: str, note: str) -> None:
    found = read(f"# a comment\n{line}\n")
    assert found.jobs == []
    assert len(found.notes) == 1
    assert found.notes[0].startswith(note)


def test_two_restricted_day_fields_are_noted() -> None:
    assert read("0 0 1 * */2 x").notes == []
    (note,) = read("0 0 1 * MON x").notes
    assert note == "line 1: x: runs if the day of month or the day of week matches, as in cron"


def test_a_system_crontab_has_users() -> None:
    found = read("0 3 * * * backup /opt/backup.sh now\n@daily root x", has_users=True)
    assert [job.payload["script"] for job in found.jobs] == ["/opt/backup.sh now", "x"]
    assert found.notes[0] == (
        "line 1: backup.sh: user backup: not carried over; the command runs as the user of the worker"
    )


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (r"printf %s a", None),
        (r"date -d @0 -u +\%Y", "1970\n"),
        ("cat%one%two words%", "one\ntwo words\n\n"),
        ("cat; echo done%in $HOME", "in $HOME\ndone\n"),
        (r"cat%100\% sure", "100% sure\n"),
    ],
)
def test_percent_signs_are_treated_as_cron_does(command: str, output: str | None) -> None:
    (job,) = read(f"@daily {command}").jobs
    if output is None:
        # The text after the first % is input, so the command is cut there.
        assert job.payload["script"].startswith("{ printf\n}")
        return
    ran = subprocess.run(["/bin/sh", "-c", job.payload["script"]], capture_output=True, text=True, check=True)
    assert ran.stdout == output


def test_names_are_unique_and_those_of_the_programs() -> None:
    found = read(
        '@daily A=1 nice -n /opt/x.sh\n@daily cd /srv && /opt/x.sh\n@daily (x y)\n@daily "$HOME"/a b\n@daily -x'
    )
    assert [job.name for job in found.jobs] == ["x.sh", "x.sh-2", "y", "a", "cron"]
