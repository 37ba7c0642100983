"""Fixtures of every test: logs are silent unless a test captures them, and examples of hypothesis have no deadline."""

import gc
import logging
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
settings.register_profile("noonday", deadline=None)
settings.load_profile("noonday")

PATIENT = ("tests/scenarios/", "tests/bench/", "tests/servers/", "tests/cluster/")
"""Tests that mostly wait: for leases to lapse, for servers to start."""
AT_ONCE = 2
SERVERS = ("postgres", "redis", "kafka", "etcd")
NOT_QUICK = (
    *(f"tests/drivers/{name}/" for name in SERVERS),
    "tests/servers/",
    "tests/cluster/",
    "tests/cli/test_replay.py",
    "tests/wiring/test_transactions.py",
    "tests/simulation/test_named_cluster_seeds.py",
)
NOT_QUICK_PATHS = tuple(f"{path.rstrip('/')}/" for path in NOT_QUICK)


@pytest.fixture(scope="module")
def no_garbage_collection() -> Iterator[None]:
    """Keep finalizers from running while the tests of a module parse source files. A full collection takes a third of a second.

    A finalizer that formats a traceback parses source, too. Inside another `ast.parse`, CPython 3.11 then raises SystemError
    ("AST constructor recursion depth mismatch").
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import tests that are slow as a whole, if slow tests are left out."""
    path = collection_path.relative_to(config.rootpath).as_posix() if collection_path != config.rootpath else ""
    is_left_out = config.option.markexpr == "not slow" and f"{path}/".startswith(NOT_QUICK_PATHS)
    return True if is_left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _is_slow(item):
            item.add_marker(pytest.mark.slow)
    _deal_out(config, items)


def _is_slow(item: pytest.Item) -> bool:
    """Whether a test is slow: it needs servers, because of its folder or its parameters, or it is one of many that take
    time."""
    return item.nodeid.startswith(NOT_QUICK) or any(name in item.nodeid.partition("[")[2] for name in SERVERS)


def _deal_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each worker as many tests as the others, in the order of this list.

    Two workers begin with the tests that wait, while the others use the cores; otherwise all of these would be left for the
    end.
    """
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
