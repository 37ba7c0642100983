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
CONFIG = schemathesis.Config.from_dict({"auth": {"openapi": {"bearer": {"bearer": "operator"}}}})
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", BACKSTAGE.app(ApiLimits()), config=CONFIG)

BATCH = "/v1/jobs/batch"
MODERATE = hypothesis.settings(max_examples=10, deadline=None, derandomize=True)


@pytest.mark.slow
@SCHEMA.exclude(path=BATCH).parametrize()
@MODERATE
def test_the_api_keeps_its_contract(case: schemathesis.Case):
    make_plausible(case)
    case.call_and_validate()


@pytest.mark.slow
@SCHEMA.include(path=BATCH).parametrize()
@MODERATE
def test_a_batch_keeps_its_contract(case: schemathesis.Case):
    """But for one check: an invalid element is answered as a problem in its place, under 200."""
    make_plausible(case)
    case.call_and_validate(excluded_checks=[negative_data_rejection])
