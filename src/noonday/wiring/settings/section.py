"""The base of all sections, and the type of a setting."""

import os
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.inspect import BoolType, IntType, LiteralType, Metadata, NoneType, StrType, Type, UnionType, type_info

HIDDEN = "(hidden)"
"""Shown in place of a secret."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One section of the settings. Its repr hides secrets."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(info.name, self._shown(info)) for info in msgspec.structs.fields(self)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def _shown(self, info: msgspec.structs.FieldInfo) -> Any:
        value = getattr(self, info.name)
        return HIDDEN if value is not None and SettingType.of(info.type).secret else value


@dataclass(frozen=True)
class SettingType:
    """Type, default and description of one setting."""

    type: Any
    default: Any
    bare: Type
    help: str
    secret: bool

    @classmethod
    def of(cls, annotation: Any, default: Any = None) -> "SettingType":
        info, help_text, secret = type_info(annotation), "", False
        while isinstance(info, Metadata | UnionType):
            if isinstance(info, Metadata):
                help_text = help_text or (info.extra_json_schema or {}).get("description", "")
                secret = secret or bool((info.extra or {}).get("secret"))
                info = info.type
            else:
                info = next(one for one in info.types if not isinstance(one, NoneType))
        return cls(annotation, default, info, help_text, secret)

    @property
    def name(self) -> str:
        match self.bare:
            case IntType():
                return "integer"
            case BoolType():
                return "boolean"
            case LiteralType(values=values):
                return " | ".join(str(value) for value in values)
            case _:
                return "text"

    @property
    def allowed(self) -> str:
        match self.bare:
            case IntType(ge=least, le=most):
                return f"a whole number from {least} to {most}"
            case BoolType():
                return "true or false"
            case LiteralType(values=values):
                return " or ".join(str(value) for value in values)
            case StrType(pattern="^postgres(ql)?://"):
                return "a URL that begins with postgresql://"
            case StrType(pattern="^rediss?://"):
                return "a URL that begins with redis:// or rediss://"
            case StrType(pattern="^[a-z_][a-z0-9_]{0,62}$"):
                return "lower-case letters, digits and underscores, 63 at most"
            case StrType(pattern="^[a-z0-9-]{1,40}$"):
                return "lower-case letters, digits and hyphens, 40 at most"
            case StrType(pattern="^https?://"):
                return "a URL that begins with http:// or https://"
            case StrType(min_length=int(length)) if length > 1:
                return f"text of at least {length} characters"
            case _:
                return "text, not empty"

    def read(self, value: Any, *, is_text: bool) -> Any:
        """Convert a value to the type of the setting. Raises ValueError (as msgspec does) if that is not possible.

        `is_text`: whether numbers and booleans may be text, as in the environment.
        """
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, str) and isinstance(self.bare, LiteralType):
            value = next((one for one in self.bare.values if str(one).lower() == value.lower()), value)
        if value == "":
            raise ValueError
        return msgspec.convert(value, self.type, strict=not (is_text and isinstance(value, str)))


def comma_separated(text: str | None) -> tuple[str, ...]:
    """Split the value of a setting at its commas."""
    return tuple(each.strip() for each in (text or "").split(",") if each.strip())
