"""References to functions."""

import json

import pytest

from noonday.model.errors import InvalidInput
from noonday.worker.function_ref import FunctionRef, reference_to


def test_a_function_of_a_module_is_found_by_its_name() -> None:
    assert reference_to(json.dumps) == FunctionRef("json", "dumps")


def test_a_nested_function_cannot_be_referenced() -> None:
    def nested() -> None: ...

    with pytest.raises(InvalidInput, match="expected a function at the top level of its module"):
        reference_to(nested)
