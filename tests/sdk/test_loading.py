import sys

import pytest

from noonday.model.errors import InvalidInput
from noonday.sdk.loading import load_app
from noonday.sdk.registry import Registry

APP = "from noonday.sdk.registry import Registry\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write modules into the current directory, and remove them from the import cache."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(path):
    with pytest.raises(InvalidInput) as caught:
        load_app(path)
    return caught.value


def test_an_app_is_found_in_the_current_directory(write):
    write("invoicing.py", APP + "app = Registry()\n")

    app = load_app("invoicing:app")

    assert isinstance(app, Registry)
    assert app is sys.modules["invoicing"].app


def test_the_only_app_of_a_module_needs_no_name(write):
    write("shop/__init__.py", "")
    write("shop/jobs.py", APP + "anything = Registry()\n")

    assert load_app("shop.jobs") is load_app("shop.jobs:anything")


def test_several_apps_need_a_name(write):
    write("several.py", APP + "a, b = Registry(), Registry()\n")

    assert "choose one of several:a, several:b" in str(refusal("several"))


def test_a_missing_module_is_refused_with_the_nearest_file(write, tmp_path):
    write("invoicing.py", "")

    bad = refusal("invoicin:app")

    assert f"no module invoicin in {tmp_path}" in str(bad)
    assert bad.flaws[0].nearest == "invoicing"


def test_a_missing_submodule_is_refused_with_the_nearest_file(write):
    write("store/__init__.py", "")
    write("store/jobs.py", "")

    assert refusal("store.job:app").flaws[0].nearest == "store.jobs"
    assert refusal("stor.jobs:app").flaws[0].nearest == "store.jobs"


def test_a_missing_module_with_nothing_near_is_refused_plainly(write):
    assert refusal("zzzzzz.qqqq:app").flaws[0].nearest is None


def test_module_that_fails_to_import_is_reported_with_the_error(write):
    write("needy.py", "import a_module_that_is_nowhere\n")
    write("broken.py", "1 / 0\n")
    write("garbled.py", "def\n")

    assert "importing needy failed: ModuleNotFoundError: No module named 'a_module_that_is_nowhere'" in str(
        refusal("needy:app")
    )
    assert isinstance(refusal("broken:app").__cause__, ZeroDivisionError)
    assert "SyntaxError" in str(refusal("garbled:app"))


def test_a_missing_attribute_is_refused_with_the_apps_there_are(write):
    write("lined.py", APP + "application = Registry()\n")

    bad = refusal("lined:app")

    assert "module lined has no app; its Noonday apps are: application" in str(bad)
    assert bad.flaws[0].allowed == ["application"]


def test_module_without_an_app_is_refused(write):
    write("bare.py", "x = 1\n")

    assert "bare has no app; it has no Noonday app" in str(refusal("bare:app"))
    assert "bare has no Noonday app" in str(refusal("bare"))


def test_object_that_is_no_app_is_refused_by_its_type(write):
    write("wrong.py", "app = {}\n")

    assert "app in module wrong is a dict, not a Noonday app" in str(refusal("wrong:app"))


@pytest.mark.parametrize("path", ["shop/jobs.py:app", "./shop/jobs.py:app"])
def test_a_file_is_answered_with_its_module(write, path):
    assert "as in shop.jobs:app" in str(refusal(path))
