"""YAML for people who write jobs: plain values only, and an error where YAML would guess.

A word such as `on`, `no` or `12:30` is text, as in JSON. Repeated keys and aliases are errors: an unquoted `*/5 * * * *` is an
alias to YAML.
"""

import re
from functools import cache
from typing import Any

from noonday.model.errors import InvalidInput, MissingExtra

DEEPEST = 100
"""Maximum number of nested values."""
_QUOTE = "put text that begins with * in quotes"
_PLAIN = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?[0-9]+\.[0-9]+([eE][-+][0-9]+)?", "-+0123456789"),
)
"""Plain values that are not text: tag, form, first characters. PyYAML quotes all of them, and more, when it writes text."""


def load_all(text: str, name: str) -> list[Any]:
    """Return the documents of a text. Raises InvalidInput with line and column."""
    yaml = _yaml(name)
    try:
        return [document for document in yaml.load_all(text, Loader=_loader()) if document is not None]
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        place = f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name
        hint = f"; {_QUOTE}" if "alias" in (bad.context or "") else ""
        raise InvalidInput(f"{place}: {bad.problem or bad.context}{hint}") from bad
    except (yaml.YAMLError, ValueError) as bad:
        raise InvalidInput(f"{name} is not YAML: {bad}") from bad
    except RecursionError as deep:
        raise InvalidInput(f"{name} is nested too deeply") from deep


def dump(value: Any) -> str:
    """Return a value as YAML, in the order of its members."""
    yaml = _yaml("--format yaml")
    text: str = yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)
    return text


def _yaml(needed_by: str) -> Any:
    try:
        import yaml  # optional, and takes time to import
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"{needed_by} needs YAML: pip install 'noonday[yaml]', or use JSON") from missing
    return yaml


@cache
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """Writes text of several lines as a block, as people would."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: Any, text: str) -> Any:
        is_plain = all(each.isprintable() or each == "\n" for each in text)
        style = ("|" if "\n" in text else None) if is_plain else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    return Dumper


@cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            self._depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event = self.peek_event()
                problem = f"*{event.anchor} is an alias, which is not supported; {_QUOTE}"
                raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
            self._depth += 1
            if self._depth > DEEPEST:
                problem = f"more than {DEEPEST} nested values"
                raise yaml.composer.ComposerError(None, None, problem, self.peek_event().start_mark)
            node = super().compose_node(parent, index)
            self._depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or not key.tag.endswith(":str"):
                    problem = "a key must be text; put it in quotes"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                if key.value in seen:
                    problem = f"{key.value!r} is repeated"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    for tag, form, first in _PLAIN:
        characters = ["" if each == "\0" else each for each in first]
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{form})$"), characters)
    return Loader
