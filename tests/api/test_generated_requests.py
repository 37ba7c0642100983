"""Requests generated from the OpenAPI document alone, valid and invalid, with every check of schemathesis.

Each test makes its requests when it runs. The plugin of schemathesis makes those of all operations during collection, which
takes ten seconds in every process that collects tests, even if it runs none of them.
"""

import asyncio
import tomllib

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import load_all_checks
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test

from noonday.api.limits import ApiLimits
from tests.api.engine import Backstage
from tests.api.plausible import make_plausible, register_formats
from tests.docs.pages import ROOT

register_formats()
load_all_checks()
BACKSTAGE = Backstage.make()
asyncio.run(BACKSTAGE.add_demo_pool())
RULES = tomllib.loads((ROOT / "schemathesis.toml").read_text("utf-8"))
CONFIG = schemathesis.Config.from_dict(RULES | {"auth": {"openapi": {"bearer": {"bearer": "operator"}}}})
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", BACKSTAGE.app(ApiLimits()), config=CONFIG)
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("label", OPERATIONS)
def test_the_api_keeps_its_contract(label: str) -> None:
    @hypothesis.settings(max_examples=10, deadline=None, derandomize=True)
    def call(case: schemathesis.Case) -> None:
        make_plausible(case)
        case.call_and_validate()

    test = build_operation_test(
        config=SCHEMA.config, operation=OPERATIONS[label], test_func=call, given_kwargs={}, feedback=FeedbackSources()
    )
    test()
