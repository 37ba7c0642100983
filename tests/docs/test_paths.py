"""Every page, file, function and test that a document names exists."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, SOURCE, name_of, names_in, spans, without_code

pytestmark = pytest.mark.usefixtures("no_garbage_collection")

_FILE = re.compile(r"(?P<path>[\w/-]+\.(?:py|sql|toml|lock|md)|[\w-]+/(?:[\w-]+/)*)(?:: (?P<name>[\w.]+))?")
_TEST = re.compile(r"test_\w+")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OTHERS = {"noonday.toml", "uv.lock", "jobs.py", "shop/jobs.py", "var/chaos/", "var/servers/"}
"""Files of the reader, and files that a run creates; not part of the project."""
LATER = {"performance.md"}
"""Pages made from measurements: they do not exist before the first one."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_in_the_code_exists(page: Path) -> None:
    missing = [span for span in spans(page) if (place := _FILE.fullmatch(span)) and not _exists(place)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(without_code(page.read_text())) if not link.startswith("http")]
    assert [link for link in links if not _leads_somewhere(page, link) and link not in LATER] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_that_is_named_exists(page: Path) -> None:
    assert {span for span in spans(page) if _TEST.fullmatch(span)} - _tests() == set()


def test_every_page_is_listed() -> None:
    listed = {(DOCS / link).resolve() for link in _LINK.findall((DOCS / "README.md").read_text())}
    unlisted = [page for page in PAGES if page not in listed and page.parent.name != "adr" and page.name != "README.md"]
    assert unlisted == []


def _exists(place: re.Match[str]) -> bool:
    if place["path"] in OTHERS:
        return True
    path = next((folder / place["path"] for folder in (SOURCE, ROOT) if (folder / place["path"]).exists()), None)
    return path is not None and (place["name"] is None or place["name"] in names_in(path))


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not heading or heading in _headings(target))


def _headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@cache
def _tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found |= {name for name in names_in(path) if name.startswith("test_")}
    return found
