"""Scenarios that take too long for every run of the tests."""

import os

import pytest

only_in_chaos = pytest.mark.skipif(not os.environ.get("CHAOS"), reason="takes long: set CHAOS=1 to run it")
every_cut = pytest.mark.parametrize(
    "towards", [None, *(pytest.param(side, marks=only_in_chaos) for side in ("server", "client"))]
)
"""Nothing gets through, or only what goes one way."""
