"""Payloads and results of handlers: decoders, encoders and JSON schemas derived from annotations.

Supported types are those of msgspec: structs, dataclasses, TypedDicts, builtins, dates and so on. Pydantic models work too;
this module never imports pydantic, because a program that uses a model has imported it already.
"""

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Never, NoReturn, Optional

import msgspec

from noonday.model.errors import Flaw, InvalidInput, pointer_to

_VOWELS = "AEIOUaeiou"
_UNTYPED = (inspect.Parameter.empty, Any, object)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NEVER_A_CONTEXT = (dict, list, tuple, set, str, int, float, bool, bytes)


@dataclass(frozen=True)
class Shape:
    """Decoder, encoder and schema of a handler, as in `worker.handler.Handler`."""

    decode: Callable[[bytes], Any] | None
    encode: Callable[[Any], bytes] | None
    schema: dict[str, Any] | None


def shape_of(function: Callable[..., Any], handler: str | None = None) -> Shape:
    """Return the shape of a handler from its signature: a context, then at most one payload.

    `handler` is its name in messages, by default that of the function.

    If the payload has a default, a job may omit it: JSON null stands for the default. Raises InvalidInput, which names the
    function, if the signature differs or an annotation has no JSON form.
    """
    payload = _payload_parameter(function)
    encode = encoder_of(_result_annotation(function), handler or function.__name__)
    if payload is None:
        return Shape(None, encode, None)
    annotation = _resolved(function, f"parameter `{payload.name}`", payload.annotation)
    optional = payload.default is not payload.empty
    if optional and annotation not in _UNTYPED:
        annotation = Optional[annotation]  # noqa: UP045 - the annotation is a value here, and may not know the operator
    try:
        decode, schema = decoder_of(annotation), schema_of(annotation)
    except InvalidInput as bad:
        raise InvalidInput(f"{label(function)}: parameter `{payload.name}`: {bad.detail}") from bad
    return Shape(_or_default(decode, payload.default) if optional else decode, encode, schema)


def decoder_of(annotation: Any, what: str = "payload") -> Callable[[bytes], Any]:
    """Return a function that decodes JSON into the annotated type. `what` names the value in messages.

    The function raises InvalidInput with the path of an invalid value. An annotation without a JSON form raises InvalidInput
    immediately.
    """
    if annotation in _UNTYPED:
        annotation = Any
    if _mentions_model(annotation):
        return _model_decoder(annotation, what)
    try:
        decoder = msgspec.json.Decoder(annotation)
    except TypeError as bad:
        raise _unsupported_type(annotation, bad) from bad

    def decode(raw: bytes) -> Any:
        try:
            return decoder.decode(raw)
        except msgspec.DecodeError as bad:
            raise _invalid_value(annotation, what, raw, bad) from bad

    return decode


def encoder_of(annotation: Any, handler: str) -> Callable[[Any], bytes] | None:
    """Return a function that encodes a handler's result as JSON, or None if the handler returns nothing."""
    return None if annotation in (None, types.NoneType, Never, NoReturn) else partial(to_json, handler=handler)


@lru_cache(maxsize=1_000)
def result_decoder_of(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a function that converts a result from JSON builtins to the type that the handler returns.

    It returns the builtins if the handler names no type, or one that cannot be read from JSON, and raises InvalidInput if the
    result does not fit the type.
    """
    try:
        decode = decoder_of(_result_annotation(function), "result")
    except InvalidInput:
        return lambda result: result
    return lambda result: decode(msgspec.json.encode(result))


def schema_of(annotation: Any) -> dict[str, Any] | None:
    """Return the self-contained JSON schema of the annotated type; None if any value is valid."""
    if annotation in _UNTYPED:
        return None
    if _mentions_model(annotation):
        schema: dict[str, Any] = _adapter(annotation).json_schema()
        return schema
    try:
        return msgspec.json.schema(annotation) or None
    except TypeError as bad:
        raise _unsupported_type(annotation, bad) from bad


def to_json(value: Any, *, handler: str) -> bytes:
    """Encode a handler's result as JSON. Raises InvalidInput if a value has no JSON form."""
    try:
        return msgspec.json.encode(value, enc_hook=_model_json)
    except (TypeError, ValueError) as bad:
        kind = _type_name(type(value))
        reason = "" if str(bad) == _without_json(value) else f" ({bad})"
        raise InvalidInput(
            f"handler {handler} returned {'an' if kind[0] in _VOWELS else 'a'} {kind}{reason}: "
            "return JSON types, a dataclass, or a model"
        ) from bad


def to_builtins(value: Any, pointer: str = "/payload") -> Any:
    """Convert a value of any supported type to JSON builtins. Raises InvalidInput if a value has no JSON form."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_model_builtins)
    except (TypeError, ValueError) as bad:
        raise InvalidInput.of(pointer, f"{pointer[1:]} cannot be written as JSON: {bad}", repr(value)) from bad


def label(function: Callable[..., Any]) -> str:
    """Return the name of a function for error messages."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{getattr(function, '__module__', None) or '?'}.{name}"


def _payload_parameter(function: Callable[..., Any]) -> inspect.Parameter | None:
    parameters = list(inspect.signature(function).parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    starred = [parameter for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL]
    demands = [parameter for parameter in needed if parameter.kind is parameter.KEYWORD_ONLY]
    if not positional or starred or demands or len([each for each in needed if each in positional]) > 2:
        raise _wrong_parameters(function)
    _refuse_payload_as_context(function, positional[0])
    return positional[1] if len(positional) > 1 else None


def _result_annotation(function: Callable[..., Any]) -> Any:
    try:
        return _resolved(function, "the result", inspect.signature(function).return_annotation)
    except InvalidInput:
        return Any  # imported for type checkers only; it is not None


def _wrong_parameters(function: Callable[..., Any]) -> InvalidInput:
    name = getattr(function, "__name__", "handler")
    return InvalidInput(
        f"{label(function)}{inspect.signature(function)} cannot be a handler: expected a context and at most one "
        f"payload, as in `{name}(ctx)` or `{name}(ctx, payload)`; further parameters need defaults"
    )


def _refuse_payload_as_context(function: Callable[..., Any], first: inspect.Parameter) -> None:
    try:
        annotation = _resolved(function, "", first.annotation)
    except InvalidInput:
        return  # a context imported for type checkers only
    if _is_payload_type(annotation):
        raise InvalidInput(
            f"{label(function)}: the first parameter is the context, but `{first.name}` is annotated as "
            f"{_type_name(annotation)}; expected `{first.name}` to come second, as in `(ctx, {first.name})`"
        )


def _is_payload_type(annotation: Any) -> bool:
    kind = typing.get_origin(annotation) or annotation
    if not isinstance(kind, type):
        return False
    return kind in _NEVER_A_CONTEXT or issubclass(kind, msgspec.Struct) or typing.is_typeddict(kind) or _is_model(kind)


def _resolved(function: Callable[..., Any], what: str, annotation: Any) -> Any:
    """Resolve an annotation; a string is evaluated in the function's module. Raises InvalidInput."""
    if annotation is inspect.Parameter.empty:
        return annotation

    def holder() -> None: ...

    # One annotation at a time: others may be strings that only a type checker can resolve.
    holder.__annotations__ = {"it": annotation}
    known = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, globalns=known, include_extras=True)["it"]
    except (NameError, AttributeError, SyntaxError, TypeError) as bad:
        raise InvalidInput(
            f"{label(function)}: the annotation `{annotation}` of {what} cannot be resolved ({bad}): "
            "expected a type that is defined or imported at the top of the module"
        ) from bad


def _or_default(decode: Callable[[bytes], Any], default: Any) -> Callable[[bytes], Any]:
    def decode_or_default(raw: bytes) -> Any:
        value = decode(raw)
        return default if value is None else value

    return decode_or_default


def _unsupported_type(annotation: Any, why: Exception) -> InvalidInput:
    reason = str(why).rpartition("\n\n")[2].splitlines()[0]
    return InvalidInput(
        f"{_type_name(annotation)} cannot be read from JSON ({reason}): expected a msgspec.Struct, a dataclass, "
        "a TypedDict, a pydantic model or builtin types of these"
    )


_PATH = re.compile(r"`\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])")


def _invalid_value(annotation: Any, what: str, raw: bytes, bad: msgspec.DecodeError) -> InvalidInput:
    if not isinstance(bad, msgspec.ValidationError):
        return InvalidInput.of(f"/{what}", f"the {what} is not JSON: {bad}")
    path = _PATH.search(str(bad))
    steps = _known_steps(path[1]) if path else []
    detail = f"the {what} is not a valid {_type_name(annotation)}: {bad}"
    return InvalidInput.of(pointer_to(what, *steps), detail, _value_at(raw, steps))


def _known_steps(path: str) -> list[str]:
    """Return the steps before the first dict key, which msgspec writes as `[...]`."""
    steps = []
    for field, index, unnamed in _STEP.findall(path):
        if unnamed:
            break
        steps.append(field or index)
    return steps


def _value_at(raw: bytes, steps: list[str]) -> Any:
    value = msgspec.json.decode(raw)
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _is_model(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _mentions_model(annotation: Any) -> bool:
    return _is_model(annotation) or any(_mentions_model(part) for part in typing.get_args(annotation))


def _model_decoder(annotation: Any, what: str) -> Callable[[bytes], Any]:
    adapter = _adapter(annotation)

    def decode(raw: bytes) -> Any:
        try:
            return adapter.validate_json(raw)
        except sys.modules["pydantic"].ValidationError as bad:
            flaws = [_model_flaw(error, what) for error in bad.errors(include_url=False)]
            details = "; ".join(f"{flaw.detail} - at `{flaw.pointer}`" for flaw in flaws)
            raise InvalidInput(f"the {what} is not a valid {_type_name(annotation)}: {details}", flaws) from bad

    return decode


def _adapter(annotation: Any) -> Any:
    pydantic = sys.modules["pydantic"]
    try:
        return pydantic.TypeAdapter(annotation)
    except pydantic.PydanticUserError as bad:
        raise _unsupported_type(annotation, bad) from bad


def _model_flaw(error: dict[str, Any], what: str) -> Flaw:
    value = None if isinstance(error["input"], bytes) else error["input"]  # bytes: the input is not JSON
    return Flaw(pointer_to(what, *error["loc"]), error["msg"], value)


def _model_json(value: Any) -> Any:
    _require_model(value)
    return msgspec.Raw(value.model_dump_json(by_alias=True).encode())


def _model_builtins(value: Any) -> Any:
    _require_model(value)
    return value.model_dump(mode="json", by_alias=True)


def _require_model(value: Any) -> None:
    if not _is_model(type(value)):
        raise TypeError(_without_json(value))


def _without_json(value: Any) -> str:
    return f"type {_type_name(type(value))} has no JSON form"


def codec_of(function: Callable[..., Any]) -> tuple[Callable[[bytes], Any] | None, Callable[[Any], bytes] | None]:
    """Return decoder and encoder of a handler, for a process that has only the function."""
    shape = shape_of(function)
    return shape.decode, shape.encode
