"""The reference pages list everything that the code has: routes, problems, metrics, settings, commands."""

import re
import runpy
from collections.abc import Iterator

import click
import pytest

from noonday.api.app import ROUTES
from noonday.api.errors import PROBLEM_TYPES
from noonday.cli.exits import MEANINGS
from noonday.cli.main import main
from noonday.runtime.metrics import Metrics
from tests.docs.pages import DOCS, ROOT, row, table

_FOR_PEOPLE = {"/docs", "/openapi.json"}


def test_every_route_is_listed() -> None:
    expected = [
        row(route.method, f"`{route.path}`", route.scope or "none", route.status, route.doc[0])
        for route in ROUTES
        if route.documented
    ]
    assert _written("api.md", "method") == expected


def test_undocumented_routes_are_described_in_the_prose() -> None:
    undocumented = {route.path for route in ROUTES if not route.documented} | {"/openapi.json"}
    assert undocumented == {*_FOR_PEOPLE, "/", "/docs/page.css", "/docs/page.js"}
    assert all(f"`{path}`" in (DOCS / "api.md").read_text() for path in _FOR_PEOPLE)


def test_every_problem_is_listed() -> None:
    expected = [row(f"`{error.code}`", int(kind.status), kind.title) for error, kind in PROBLEM_TYPES.items()]
    assert _written("api.md", "code") == expected


def test_every_metric_is_listed() -> None:
    assert sorted(_written("metrics.md", "metric")) == sorted(_metrics())


def test_the_alerts_name_metrics_and_labels_that_exist() -> None:
    text = (DOCS / "metrics.md").read_text()
    known = {re.sub(r"_total$", "", cells[0].strip("`")) for cells in table("metrics.md", "metric")}
    named = {re.sub(r"_(total|bucket)$", "", name) for name in re.findall(r"noonday_\w+", text)} - {"noonday_"}
    assert named <= known


def test_page_of_settings_is_the_output_of_the_script() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "write-settings-doc"))
    assert (DOCS / "settings.md").read_text() == script["page"]()


def test_keyword_arguments_of_an_application_are_the_output_of_the_script() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "write-settings-doc"))
    assert script["KEYWORDS"].read_text() == script["keywords"]()


def test_every_command_is_listed() -> None:
    expected = [row(f"`{path}`", arguments, about) for path, arguments, about in _commands(main, [])]
    assert _written("cli.md", "command") == expected


def test_every_exit_code_is_listed() -> None:
    assert _written("cli.md", "code") == [row(code, meaning) for code, meaning in MEANINGS.items()]


@pytest.mark.parametrize("page", ["api.md", "metrics.md", "cli.md"])
def test_no_table_has_an_empty_first_cell(page: str) -> None:
    assert not re.search(r"^\| \|", (DOCS / page).read_text(), re.M)


def _written(page: str, first_column: str) -> list[str]:
    return [row(*cells) for cells in table(page, first_column)]


def _metrics() -> Iterator[str]:
    for metric in Metrics().registry.collect():
        samples = metric.name + ("_total" if metric.type == "counter" else "")
        yield row(f"`{samples}`", metric.type, _labels_of(metric.name), metric.documentation)


def _labels_of(name: str) -> str:
    metrics = Metrics()
    made = [*vars(metrics).values(), *metrics.runs.collect()]
    [found] = [each for each in made if name in (getattr(each, "_name", None), getattr(each, "name", None))]
    return ", ".join(found._labelnames)


def _commands(command: click.Command, path: list[str]) -> Iterator[tuple[str, str, str]]:
    context = click.Context(command, info_name=" ".join(path))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, [*path, name])
        return
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield " ".join(path), " ".join(pieces).replace("|", " or "), (command.help or "").partition("\n")[0]
