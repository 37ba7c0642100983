"""The code speaks the field's words: no private vocabulary, and no class name with two meanings."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, SOURCE, table

pytestmark = pytest.mark.usefixtures("no_garbage_collection")

OLD_WORDS = (
    r"\b(Task|Alert|Secret|Endpoint|Preference)?Desk\b",
    r"\bledger\b|\bLedger\b|\bBooks\b|\bVolley\b|\bShot\b",
    r"\bHerald\b|\bHealthWarden\b|\bSighting\b|\bHappening\b|\bCrew\b",
    r"\bSurroundings\b|\bguarded_from\b|\bcast_net\b|\badrift\b|\blet_go\b",
    r"\braise_flags\b|\bbegin_era\b|\bheldBy\b|\bheld_by\b|\brungs?\b",
    r"[Ww]hoever",
    r"\b[Ss]tor(y|ies)\b",
    r"\b(class|def) [Ll]i(fe|ves)\b|\bLi(fe|ves)\(|\bli(fe|ves)\.\w|\bli(fe|ves)(: \w+)? = |_any_life|_a_life",
    r"\b[Ww]ish(es)?\b|\bdeaf\b|\btwins?\b|\beras?\b|_eras?(_|\b)|[ _]last[ _]look\b",
    r"\bin_line\b|\bmoves_of\b|\buntold\b|\bhand_out\b",
    r"def test_(what|whoever|whom|those|of|one_that|one_who|one_whose|wishes)_",
)
"""Words that were replaced, in their former sense. `docs/glossary.md` has the words that replaced them."""
SENTENCES = (
    "What was answered before the worker's last look",
    "an instant before the start, wins",
    "Without a word: show what is held",
    "List what a schedule meant in a span of time",
    "Tell nobody any more under this id",
    "A line is another thing than a plain key of the same name",
    "No refusal is made by an old count",
    "Repeating a backfill of the same id makes what is missing",
    "The request says something that cannot be",
    "the payload is no ",
)
"""Sentences that users of messages and documents did not understand."""
MOST_ROWS = 35
CHECKED = ("src", "tests", "docs", "README.md", "CONTRIBUTING.md", "examples", "cluster", "servers", "bench")
FIXED = ("docs/howto/call-a-webhook.md", "docs/howto/overlap-and-catch-up.md")
"""Pages with an example job that is called `ledger`."""


def texts() -> list[Path]:
    """Sources, tests and documents. Migrations are never edited once landed, and this file quotes the words."""
    paths = [
        path for name in CHECKED for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))
    ]
    suffixes = {".py", ".sql", ".lua", ".md"}
    excluded = re.compile(r"migrations/0|CHANGELOG|tests/docs/test_words\.py")
    return [path for path in paths if path.suffix in suffixes and not excluded.search(str(path))]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", OLD_WORDS)
def test_replaced_words_do_not_come_back(pattern: str) -> None:
    old = re.compile(pattern)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in texts()
        if str(path.relative_to(ROOT)) not in FIXED or "ledger" not in pattern
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if old.search(line)
    ]
    assert found == []


@pytest.mark.slow
def test_public_class_names_have_one_meaning() -> None:
    """Drivers of one port name their classes after the driver, as in SqliteFiring and PostgresFiring.

    Problem is the wire type of errors. The API and the client define it each, because the client imports no server package.
    """
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1 and name != "Problem"} == {}


@pytest.mark.slow
@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentences_that_nobody_understood_do_not_come_back(sentence: str) -> None:
    # A sentence may continue on the next line of a page.
    found = [path for path in texts() if sentence in " ".join(path.read_text().split())]
    assert found == []


def test_glossary_is_short() -> None:
    assert len(table("glossary.md", "word")) <= MOST_ROWS
