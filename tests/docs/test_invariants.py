"""The listed promises are those that are checked, and the listed seeds are those that are played."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT, names_in, table

pytestmark = pytest.mark.usefixtures("no_garbage_collection")

SIMULATION = ROOT / "tests" / "simulation"


@pytest.mark.slow
def test_each_promise_that_is_checked_is_listed() -> None:
    checked = set(re.findall(r"\bI\d+\b", (SIMULATION / "checker.py").read_text()))
    checked |= set(re.findall(r"\bI\d+\b", (SIMULATION / "embedded.py").read_text()))
    assert checked <= {number for number, _, _ in table("invariants.md", "number")}


def test_each_promise_names_its_check() -> None:
    nowhere = [
        number for number, _, checks in table("invariants.md", "number") if not re.search(r"`test|_\w+`", checks)
    ]
    assert nowhere == []


def test_each_named_seed_is_listed_and_played() -> None:
    played = {name for name in names_in(SIMULATION / "test_named_seeds.py") if name.startswith("test_")}
    listed = {test.strip("`") for _, _, _, test in table("invariants.md", "seed") if " in " not in test}
    assert listed == played


def test_a_seed_is_called_like_its_test() -> None:
    for seed, _, _, test in table("invariants.md", "seed"):
        elsewhere = seed == "an-hour-away" or " in " in test
        assert elsewhere or test == f"`test_{seed.replace('-', '_')}`"


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    assert "250 random runs" in (DOCS / "invariants.md").read_text()
    assert '"NOONDAY_SIMULATION_SEEDS", "250"' in (SIMULATION / "test_embedded.py").read_text()
