"""A cluster for each file of scenarios: they share its start, and each sees to it that what it needs is alive."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")
