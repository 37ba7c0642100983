"""Scenarios that take too long for every run of the tests."""

import os

import pytest

only_in_chaos = pytest.mark.skipif(not os.environ.get("CHAOS"), reason="takes long: set CHAOS=1 to run it")
