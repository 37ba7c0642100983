from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Annotated, Any, NotRequired, TypedDict

import jsonschema_rs
import msgspec
import pydantic
import pytest

from noonday.model.errors import InvalidInput
from noonday.sdk.payload import decoder_of, encoder_of, schema_of, shape_of, to_builtins, to_json


class Line(msgspec.Struct):
    amount: int


class Invoice(msgspec.Struct):
    pages: Annotated[int, msgspec.Meta(ge=1)]
    lines: list[Line] = []
    totals: dict[str, int] = {}


@dataclass
class DateRange:
    start: datetime
    pages: int = 1


class Mail(TypedDict):
    to: str
    subject: NotRequired[str]


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)

    age: int
    full_name: str = pydantic.Field(default="", alias="fullName")


Titled = Annotated[Invoice, msgspec.Meta(title="T")]


class Opaque:
    pass


@pytest.mark.parametrize(
    ("annotation", "raw", "value"),
    [
        (Invoice, b'{"pages": 2, "lines": [{"amount": 5}]}', Invoice(2, [Line(5)])),
        (DateRange, b'{"start": "2030-01-31T09:00:00Z"}', DateRange(datetime(2030, 1, 31, 9, tzinfo=UTC))),
        (Mail, b'{"to": "a@b.c"}', {"to": "a@b.c"}),
        (dict, b'{"a": 1}', {"a": 1}),
        (list[int], b"[1, 2]", [1, 2]),
        (datetime, b'"2030-01-31T09:00:00Z"', datetime(2030, 1, 31, 9, tzinfo=UTC)),
        (Any, b'{"a": [1]}', {"a": [1]}),
        (object, b"1", 1),
        (Invoice | None, b"null", None),
        (Person, b'{"age": 3, "fullName": "A B"}', Person(age=3, full_name="A B")),
        (list[Person] | None, b'[{"age": 3}]', [Person(age=3)]),
    ],
    ids=repr,
)
def test_json_is_converted_to_the_annotation(annotation, raw, value):
    assert decoder_of(annotation)(raw) == value


@pytest.mark.parametrize(
    "annotation", [Invoice, DateRange, Mail, dict, list[int], Person, list[Person] | None], ids=repr
)
def test_schema_is_valid_and_refuses_the_values_that_the_decoder_refuses(annotation):
    schema = jsonschema_rs.validator_for(schema_of(annotation))

    assert not schema.is_valid("a string")
    with pytest.raises(InvalidInput):
        decoder_of(annotation)(b'"a string"')


def test_schema_includes_its_definitions():
    schema = jsonschema_rs.validator_for(schema_of(Invoice))

    assert schema.is_valid({"pages": 1, "lines": [{"amount": 1}]})
    assert not schema.is_valid({"pages": 1, "lines": [{"amount": "1"}]})


@pytest.mark.parametrize("annotation", [Any, object])
def test_annotation_that_accepts_anything_has_no_schema(annotation):
    assert schema_of(annotation) is None


@pytest.mark.parametrize(
    ("raw", "pointer", "value", "message"),
    [
        (b'{"pages": "two"}', "/payload/pages", "two", "Expected `int`, got `str` - at `$.pages`"),
        (b'{"pages": 0}', "/payload/pages", 0, "Expected `int` >= 1"),
        (b'{"pages": 1, "lines": [{"amount": 1}, {}]}', "/payload/lines/1", {}, "missing required field `amount`"),
        (b'{"pages": 1, "totals": {"a/b": "x"}}', "/payload/totals", {"a/b": "x"}, "Expected `int`, got `str`"),
        (b"null", "/payload", None, "Expected `object`, got `null`"),
        (b"{", "/payload", None, "not JSON"),
    ],
)
def test_mismatch_is_reported_with_its_pointer_and_value(raw, pointer, value, message):
    with pytest.raises(InvalidInput, match="the payload is") as caught:
        decoder_of(Invoice)(raw)

    [flaw] = caught.value.flaws
    assert (flaw.pointer, flaw.value) == (pointer, value)
    assert message in str(caught.value)


def test_every_mismatch_of_a_pydantic_model_is_reported():
    with pytest.raises(InvalidInput) as caught:
        decoder_of(list[Person])(b'[{"age": "x"}, {}]')

    assert [(flaw.pointer, flaw.value) for flaw in caught.value.flaws] == [
        ("/payload/0/age", "x"),
        ("/payload/1/age", {}),
    ]
    assert "/payload/0/age" in str(caught.value)


def test_handler_that_returns_none_keeps_no_result():
    def silent(ctx) -> None: ...

    assert encoder_of(None, "ship") is None
    assert shape_of(silent).encode is None


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (Invoice(1), b'{"pages":1,"lines":[],"totals":{}}'),
        (datetime(2030, 1, 31, 9, tzinfo=UTC), b'"2030-01-31T09:00:00Z"'),
        ({"who": [Person(age=3, full_name="A")]}, b'{"who":[{"age":3,"fullName":"A"}]}'),
        (None, b"null"),
    ],
    ids=repr,
)
def test_results_are_json(value, raw):
    encode = encoder_of(Any, "ship")
    assert encode is not None
    assert encode(value) == raw


def test_a_result_without_json_is_named():
    with pytest.raises(
        InvalidInput, match=r"handler ship returned a dict \(type Opaque has no JSON form\): return JSON"
    ):
        to_json({"it": Opaque()}, handler="ship")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (DateRange(datetime(2030, 1, 31, 9, tzinfo=UTC)), {"start": "2030-01-31T09:00:00Z", "pages": 1}),
        ([Person(age=3)], [{"age": 3, "fullName": ""}]),
        ({1: "one"}, {"1": "one"}),
    ],
    ids=repr,
)
def test_values_become_builtins_that_their_own_type_reads_again(value, plain):
    assert to_builtins(value) == plain
    assert decoder_of(type(value))(msgspec.json.encode(plain)) is not None


def test_a_value_without_json_is_refused_with_its_pointer():
    with pytest.raises(InvalidInput) as caught:
        to_builtins(Opaque())

    assert caught.value.flaws[0].pointer == "/payload"


def test_the_context_alone_is_enough():
    async def lonely(anything_at_all): ...

    shape = shape_of(lonely)

    assert shape.decode is None
    assert shape.schema is None


def test_a_result_that_only_a_type_checker_knows_is_kept():
    def textual(ctx) -> "OnlyForTypeCheckers": ...  # noqa: F821

    assert shape_of(textual).encode is not None


def test_annotations_that_are_text_are_resolved_in_the_functions_module():
    def textual(ctx: "OnlyForTypeCheckers", payload: "Titled") -> "None": ...  # noqa: F821

    shape = shape_of(textual)

    assert shape.decode(b'{"pages": 1}') == Invoice(1)
    assert shape.schema["title"] == "T"
    assert shape.encode is None


def test_a_wrapped_function_is_read_through_its_wrapper():
    def inner(ctx, payload: "Invoice") -> None: ...

    @wraps(inner)
    def outer(*args):
        return inner(*args)

    assert shape_of(outer).decode(b'{"pages": 1}') == Invoice(1)


def test_a_method_is_read_without_its_self():
    class Billing:
        def bill(self, ctx, payload: Invoice) -> None: ...

    assert shape_of(Billing().bill).decode(b'{"pages": 1}') == Invoice(1)


def test_a_payload_with_a_default_may_be_left_out():
    def optional(ctx, payload: Invoice = Invoice(7)): ...  # noqa: B008

    shape = shape_of(optional)

    assert shape.decode(b"null") == Invoice(7)
    assert shape.decode(b'{"pages": 1}') == Invoice(1)
    assert jsonschema_rs.is_valid(shape.schema, None)


def test_further_parameters_with_defaults_are_left_alone():
    def roomy(ctx, payload: Invoice, retries=3, *, verbose=False, **more): ...

    assert shape_of(roomy).decode(b'{"pages": 1}') == Invoice(1)


def no_context(): ...
def too_many(ctx, payload, third): ...
def starred(ctx, *payloads): ...
def demanding(ctx, *, payload): ...


@pytest.mark.parametrize("function", [no_context, too_many, starred, demanding])
def test_wrong_parameters_are_refused_by_name_with_the_expected_ones(function):
    with pytest.raises(InvalidInput) as caught:
        shape_of(function)

    assert f"test_payload.{function.__name__}(" in str(caught.value)
    assert f"`{function.__name__}(ctx, payload)`" in str(caught.value)


@pytest.mark.parametrize("annotation", [Invoice, dict[str, int], Mail, Person, str])
def test_payload_in_the_position_of_the_context_is_recognised(annotation):
    def hasty(payload): ...

    hasty.__annotations__["payload"] = annotation

    with pytest.raises(InvalidInput, match=r"hasty: the first parameter is the context, but `payload`"):
        shape_of(hasty)


def test_an_annotation_that_cannot_be_resolved_is_refused_by_name():
    def lost(ctx, payload: "Nowhere"): ...  # noqa: F821

    with pytest.raises(InvalidInput, match=r"lost: the annotation `Nowhere` of parameter `payload`.*not defined"):
        shape_of(lost)


@pytest.mark.parametrize("annotation", [Opaque, list[Opaque], Invoice | Line, Person | Opaque], ids=repr)
def test_an_annotation_that_json_cannot_become_is_refused_by_name(annotation):
    def odd(ctx, payload): ...

    odd.__annotations__["payload"] = annotation

    with pytest.raises(InvalidInput, match=r"odd: parameter `payload`: .* cannot be read from JSON"):
        shape_of(odd)
