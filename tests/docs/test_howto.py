"""The contents of the how-tos are correct: their Python runs, their commands and bodies are accepted, their tables are
true."""

import ast
import asyncio
import contextlib
import inspect
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click
import msgspec
import pytest
import structlog
from click.testing import CliRunner

from noonday import Context, Noonday
from noonday.api.job_patch import JobPatch
from noonday.cli.main import main
from noonday.cli.tenant_file import read_tenants
from noonday.model.cron_parsing import explain
from noonday.model.decoding import BodyDecoder
from noonday.model.filters import PreviewRequest
from noonday.model.firing import Start, decide_overlap, plan_fire
from noonday.model.job import CatchUp, Dst, JobSpec, JobType, Overlap, check, ms_of
from noonday.model.notifications.wire import NotificationSpec
from noonday.model.retry import RetryPolicy, bound_ms
from noonday.model.schedule import CronRule, describe
from noonday.wiring.settings.loading import load_settings
from tests.docs.conftest import Server
from tests.docs.pages import DOCS, HOWTOS, PAGES, Block, blocks, name_of, spans, table
from tests.support.factories import HOUR, NOW_MS, job, spec

pytestmark = pytest.mark.usefixtures("no_garbage_collection")

PYTHON = [block for page in PAGES for block in blocks(page, "python")]
BASH = [block for page in PAGES for block in blocks(page, "bash")]
HERE = "http://127.0.0.1:8080"
BODIES = {"preview": PreviewRequest, "notifications": NotificationSpec}
"""Types of bodies by the last part of the path. Others are jobs."""


@pytest.mark.slow
@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_every_piece_of_python_compiles(block: Block) -> None:
    compile(block.text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in HOWTOS if blocks(page, "python")], ids=name_of)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    pieces = [block for block in blocks(page, "python") if not block.not_run]
    if any("NOONDAY_URL" in block.text for block in pieces):
        server: Server = request.getfixturevalue("server")
        monkeypatch.setenv("NOONDAY_URL", server.url)
        monkeypatch.setenv("NOONDAY_TOKEN", server.token)
    _run(pieces)


def _run(pieces: list[Block]) -> dict[str, Any]:
    """Run a block as a module; functions that look like tests are run as tests, by pytest if they take fixtures."""
    names: dict[str, Any] = {"__name__": "howto"}
    for block in pieces:
        exec(compile(block.text, block.name, "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_") and inspect.iscoroutinefunction(value)]
    if any(inspect.signature(test).parameters for test in tests):
        _run_with_pytest(pieces)
        return names
    for test in tests:
        asyncio.run(test())
    return names


def _run_with_pytest(pieces: list[Block]) -> None:
    page = Path("test_page.py")
    page.write_text("\n\n".join(block.text for block in pieces), "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", str(page)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout


def test_blocks_that_are_not_run_have_a_reason() -> None:
    reasons = [block.not_run for block in PYTHON + BASH if block.not_run is not None]
    assert all(len(reason) > 5 for reason in reasons)


@pytest.mark.slow
@pytest.mark.parametrize("block", BASH, ids=lambda block: block.name)
def test_every_command_is_accepted_by_the_command_line(block: Block) -> None:
    for words in _commands_in(block.text):
        _parse(main, words)


def _commands_in(text: str) -> Iterator[list[str]]:
    """Return the words after `noonday` of each command in a script."""
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", "\n;"), posix=True, punctuation_chars="();|&")
    lexer.whitespace_split = True
    command: list[str] | None = None
    words = iter([*lexer, ";"])
    for word in words:
        if word == ">":
            next(words)  # the file that the output goes to
        elif set(word) <= set("();|&"):
            if command:
                yield command
            command = None
        elif command is not None:
            command.append(word)
        elif word == "noonday":
            command = []


def _parse(command: click.Command, words: list[str]) -> None:
    """Parse a command. Raises if the command or option does not exist, or if a value is invalid."""
    if not isinstance(command, click.Group):
        command.make_context(command.name or "", list(words))
        return
    context = click.Context(command)
    inner = command.get_command(context, words[0])
    assert inner is not None, f"there is no command {words[0]}"
    _parse(inner, words[1:])


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_in_the_prose_exists(page: Path) -> None:
    commands = [span for span in spans(page) if span.startswith("noonday ") and "COMMAND" not in span]
    for words in (words for command in commands for words in _commands_in(command)):
        with contextlib.suppress(click.MissingParameter):  # prose may name a command without its arguments
            _parse(main, words)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    (words,) = _commands_in("export X=$(noonday job create --handlr demo.echo)")
    with pytest.raises(click.NoSuchOption):
        _parse(main, words)


@pytest.mark.parametrize("block", [block for block in BASH if "-d '" in block.text], ids=lambda block: block.name)
def test_every_body_that_curl_sends_is_accepted(block: Block) -> None:
    words = shlex.split(block.text.replace("\\\n", " "))
    url = next(word for word in words if word.startswith(HERE))
    body = words[words.index("-d") + 1].encode()
    kind = JobPatch if "PATCH" in words else BODIES.get(url.rpartition("/")[2], JobSpec)
    read = BodyDecoder(kind).decode(body)
    if isinstance(read, JobSpec):
        check(read, NOW_MS)


@pytest.mark.slow
def test_the_requests_of_the_first_page_work(server: Server) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    script = "\n".join(block.text for block in FIRST_PAGE if "curl" in block.text).replace(HERE, server.url)
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=server.folder,
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count('"jobId"') >= 2


@pytest.mark.slow
def test_the_commands_of_the_first_page_work(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(server.folder)
    output = "".join(_invoke(words, server) for block in FIRST_PAGE for words in _commands_in(block.text))
    assert '"succeeded at attempt 2"' in output
    assert "Attempt 1 began" in output
    assert "cancelled nightly" in output


FIRST_PAGE = [block for block in blocks(DOCS / "howto" / "first-job.md", "bash") if not block.not_run]


def _invoke(words: list[str], server: Server) -> str:
    logs = structlog.get_config()
    try:
        ran = CliRunner().invoke(main, words, env={"NOONDAY_URL": server.url, "NOONDAY_TOKEN": server.token})
    finally:
        structlog.configure(**logs)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=name_of)
def test_every_settings_file_is_accepted(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(block.text)
        if block.text.startswith("[tenants."):
            assert read_tenants(file)
            continue
        load_settings({}, {}, file)


def test_the_job_that_is_shown_with_a_retry_policy_is_accepted() -> None:
    (block,) = blocks(DOCS / "howto" / "retries-and-dead-letters.md", "json")
    check(msgspec.json.decode(block.text, type=JobSpec), NOW_MS)


@pytest.mark.slow
async def test_the_copy_that_the_howto_makes_can_be_used(tmp_path: Path) -> None:
    names = _run(blocks(DOCS / "howto" / "run-in-production.md", "python"))
    app, copy = Noonday(), tmp_path / "copy"
    copy.mkdir()

    @app.handler("echo")
    async def echo(ctx: Context, payload: str) -> str:
        return payload

    async with app.embedded(tmp_path / "noonday.db"):
        stored = await app.enqueue("echo", "still here", delay=timedelta(days=1))
        names["back_up"](tmp_path / "noonday.db", copy)
    async with app.embedded(copy / "noonday.db") as restored:
        assert (await restored.get_job(stored.job_id)).payload == "still here"


def test_the_expressions_mean_what_the_page_says() -> None:
    for expression, meaning in table("howto/cron-and-time-zones.md", "expression"):
        assert explain(expression.strip("`")) == meaning


def test_schedules_fire_in_the_odd_nights_as_the_page_says() -> None:
    for expression, spring, autumn in table("howto/cron-and-time-zones.md", "schedule"):
        assert [spring, autumn] == _odd_nights(expression.strip("`"), Dst())


def test_each_choice_for_the_odd_nights_does_what_the_page_says() -> None:
    for choice, spring, autumn in table("howto/cron-and-time-zones.md", "`dst`"):
        dst = msgspec.json.decode(choice.strip("`"), type=Dst)
        assert [spring, autumn] == _odd_nights("30 2 * * *", dst)


def _odd_nights(expression: str, dst: Dst) -> list[str]:
    """The fires between one and four o'clock on the days in 2026 on which the clocks change in Berlin."""
    return [_night(expression, dst, 3, 29), _night(expression, dst, 10, 25)]


def _night(expression: str, dst: Dst, month: int, day: int) -> str:
    berlin = ZoneInfo("Europe/Berlin")
    begin, end = (datetime(2026, month, day, hour, tzinfo=berlin).astimezone(UTC) for hour in (1, 4))
    rule = CronRule(expression, "Europe/Berlin", dst.gap, dst.repeat)
    times = [ms for ms in rule.take(ms_of(begin) - 1, 20) if ms < ms_of(end)]
    local = [datetime.fromisoformat(describe(ms, rule).local).astimezone(berlin) for ms in times]
    return ", ".join(f"{at:%H:%M %Z}" for at in local) or "nothing"


def test_retry_policies_wait_as_the_page_says() -> None:
    for policy, waits in table("howto/retries-and-dead-letters.md", "policy"):
        read = msgspec.json.decode(policy.strip("`"), type=RetryPolicy)
        assert waits == ", ".join(f"{bound_ms(read, attempt) / 1000:g} s" for attempt in range(1, 6))


def test_overlap_is_decided_as_the_page_says() -> None:
    rows = table("howto/overlap-and-catch-up.md", "`overlap`")
    assert [policy.strip("`") for policy, *_ in rows] == [policy.value for policy in Overlap]
    for policy, *cells in rows:
        overlap = Overlap(policy.strip("`"))
        assert cells == [_decided(overlap, 0, 0), _decided(overlap, 1, 0), _decided(overlap, 2, 1)]


_WORDS = {Start.NOW: "starts", Start.BUFFER: "waits", Start.SKIP: "is skipped"}


def _decided(overlap: Overlap, open_count: int, buffered: int) -> str:
    start, cancel = decide_overlap(overlap, open_count, buffered)
    return _WORDS[start] + (", the open one is asked to cancel" if cancel else "")


def test_an_hourly_job_catches_up_as_the_page_says() -> None:
    for catch_up, runs, missed in table("howto/overlap-and-catch-up.md", "`catchUp`"):
        policy = msgspec.json.decode(catch_up.strip("`"), type=CatchUp)
        hourly = job(spec(type=JobType.CRON, schedule="0 * * * *", catch_up=policy))
        plan = plan_fire(hourly, NOW_MS + HOUR, NOW_MS + 5 * HOUR + 60_000, None)
        assert [str(len(plan.fires)), str(sum(each.count for each in plan.decisions))] == [runs, missed]
