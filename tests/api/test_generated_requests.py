"""Requests made of the document alone, valid and invalid, with every check that schemathesis has."""

import asyncio

import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection

from noonday.api.limits import ApiLimits
from tests.api.engine import Backstage
from tests.api.plausible import make_plausible, register_formats

register_formats()
BACKSTAGE = Backstage.make()
asyncio.run(BACKSTAGE.add_demo_pool())
CONFIG = schemathesis.Config.from_dict({"auth": {"openapi": {"bearer": {"bearer": "admin"}}}})
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", BACKSTAGE.app(ApiLimits()), config=CONFIG)


@pytest.mark.slow
@SCHEMA.parametrize()
@hypothesis.settings(max_examples=10, deadline=None, derandomize=True)
def test_the_api_keeps_its_contract(case: schemathesis.Case):
    make_plausible(case)
    # An invalid element of a batch is answered as a problem in its place, under 200.
    excluded = [negative_data_rejection] if case.operation.path == "/v1/jobs/batch" else []
    case.call_and_validate(excluded_checks=excluded)
