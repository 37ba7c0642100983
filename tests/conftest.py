"""For every test: logs are silent unless a test listens, and no example has to be quick."""

import logging
from itertools import cycle

import pytest
import structlog
from hypothesis import settings

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
settings.register_profile("noonday", deadline=None)
settings.load_profile("noonday")

PATIENT = ("tests/scenarios/", "tests/bench/", "tests/servers/", "tests/cluster/")
"""Tests that mostly wait: for leases to lapse, for servers to start."""
AT_ONCE = 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker gets as many tests as the others, as they come in this list. Two of them begin with those that wait, while the
    others use the cores; otherwise these would all be left for the end."""
    workers = int(getattr(config, "workerinput", {}).get("workercount", 0))
    if workers <= AT_ONCE:
        return
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    modules: dict[str, list[pytest.Item]] = {}
    quick = []
    for item in items:
        if item.nodeid.startswith(PATIENT):
            modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
        else:
            quick.append(item)
    for part, module in zip(cycle(parts[:AT_ONCE]), modules.values(), strict=False):
        part += module
    each, more = divmod(len(items), workers)
    for place, part in enumerate(parts):
        room = max(0, each + (place < more) - len(part))
        part += quick[:room]
        del quick[:room]
    items[:] = [item for part in parts for item in part] + quick
