import subprocess
import sys

import click
import pytest

from noonday.cli import exits
from noonday.cli.main import COMMANDS, main
from noonday.model.errors import AlreadyRunning, BadSettings, Flaw, InvalidInput, NoondayError, NotFound
from noonday.sdk.problems import ServerUnreachable
from tests.cli.conftest import Run


def commands(group: click.Group, *path: str) -> list[tuple[tuple[str, ...], click.Command]]:
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += commands(command, *path, name)
    return found


ALL = commands(main)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_every_command_has_help(run: Run, path: tuple[str, ...]) -> None:
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_group_gives_examples_that_name_real_commands_and_options(name: str) -> None:
    known = dict(ALL)
    epilog = known[(name,)].epilog or ""
    examples = [line.strip() for line in epilog.splitlines() if line.startswith("  noonday ")]
    assert examples
    for example in examples:
        words = example.split("  ")[0].split(" | ")[0].split()[1:]
        path = max((path for path in known if tuple(words[: len(path)]) == path), key=len)
        flags = {word for word in words if word.startswith("--")}
        options = {option for parameter in known[path].params for option in parameter.opts}
        assert flags <= options, example


@pytest.mark.parametrize("path", [path for path, one in ALL if path[-1] in ("list", "show")], ids=" ".join)
def test_every_list_and_show_can_be_json(path: tuple[str, ...]) -> None:
    command = dict(ALL)[path]
    assert "--json" in [option for parameter in command.params for option in parameter.opts]


def test_help_explains_the_exit_codes(run: Run) -> None:
    help_text = run("--help").stdout
    for code, meaning in exits.MEANINGS.items():
        assert f"{code}  {meaning}" in help_text


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["crn"], "noonday cron"),
        (["jobs"], "noonday job"),
        (["job", "lst"], "noonday job list"),
        (["create"], "noonday job create"),
        (["backfill"], "noonday job backfill"),
    ],
)
def test_a_wrong_command_names_the_nearest(run: Run, words: list[str], meant: str) -> None:
    result = run(*words)
    assert result.exit_code == exits.USAGE
    # Click uses the name by which the program was started, which here is that of the function.
    assert f"did you mean `{meant.replace('noonday', 'main', 1)}`?" in result.stderr


def test_a_command_like_no_other_is_just_refused(run: Run) -> None:
    result = run("xyzzy")
    assert (result.exit_code, "did you mean" in result.stderr) == (exits.USAGE, False)


def test_a_wrong_option_names_the_nearest(run: Run) -> None:
    result = run("job", "list", "--jsn")
    assert result.exit_code == exits.USAGE
    assert "--json" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoondayError("x"), exits.FAILED),
        (InvalidInput("x"), exits.FAILED),
        (BadSettings("x"), exits.USAGE),
        (AlreadyRunning("x"), exits.STORE),
        (ServerUnreachable("x"), exits.UNREACHABLE),
        (NotFound("x"), exits.NOT_FOUND),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: NoondayError, code: int) -> None:
    assert exits.code_of(error) == code


def test_flaws_are_printed_with_pointer_value_remedy_and_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    one = Flaw("/overlap", "no such overlap", "SKIPP", ["ALLOW", "SKIP"], "SKIP")
    other = Flaw("/maxRuns", "must be from 1", 0)
    exits.print_error(InvalidInput("2 values are not valid", [one, other]))
    assert capsys.readouterr().err.splitlines() == [
        "error: 2 values are not valid",
        "  /overlap: no such overlap",
        '    given: "SKIPP"',
        "    allowed: ALLOW, SKIP",
        "    did you mean SKIP?",
        "  /maxRuns: must be from 1",
        "    given: 0",
    ]


def test_single_flaw_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    exits.print_error(InvalidInput.of("/at", "too late", 5))
    assert capsys.readouterr().err.splitlines() == ["error: too late", "  at: /at", "  given: 5"]


def test_control_characters_of_errors_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    exits.print_error(NoondayError("a\x1b[2Jb"))
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.slow
def test_command_without_a_server_names_the_start_command(run: Run) -> None:
    result = run("job", "list")
    assert result.exit_code == exits.UNREACHABLE
    assert "http://127.0.0.1:1" in result.stderr
    assert "noonday up" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_the_package_can_be_run() -> None:
    done = subprocess.run([sys.executable, "-m", "noonday", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("noonday, version ")
