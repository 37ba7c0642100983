"""Changes of the syntax tree that make a mutant of the engine. A change names its code by module and function."""

import ast
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
Transform = Callable[[ast.FunctionDef | ast.AsyncFunctionDef], list[ast.stmt]]


class CodeNotFound(Exception):
    """The engine has no such code: the mutation must be updated."""


@dataclass(frozen=True)
class Change:
    """A change of one function, method, constant or named query."""

    module: str
    """Path below `src/noonday`."""
    place: str
    """`function`, `Class.method`, `CONSTANT`, or the name of a query."""
    apply: Callable[[str, str], str]
    """(text of the file, name of the code) -> text of the mutated file. Raises CodeNotFound."""


def copy_with(changes: Sequence[Change], into: Path) -> None:
    """Copy the engine and apply changes to the copy.

    Compiled files are copied, too, so that only changed files are compiled again.
    """
    shutil.copytree(SOURCE / "noonday", into / "noonday")
    for change in changes:
        path = into / "noonday" / change.module
        path.write_text(mutated(path, change))


def mutated(path: Path, change: Change) -> str:
    """Return the text of a file with a change. Raises CodeNotFound."""
    if not path.exists():
        raise CodeNotFound(f"there is no {change.module}")
    before = path.read_text()
    after = change.apply(before, change.place)
    if after == before:
        raise CodeNotFound(f"nothing changed in {change.module}: {change.place}")
    return after


def wrapped(module: str, place: str, *, before: str = "", after: str = "") -> Change:
    """Run code around a function: `before` may change its arguments in `given`, by name; `after` may change `result`."""

    def transform(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
        is_async = isinstance(function, ast.AsyncFunctionDef)
        name, original = function.name, f"_original_{function.name}"
        arguments = [*function.args.posonlyargs, *function.args.args]
        is_method = bool(arguments) and arguments[0].arg == "self"
        whole = f"type(self).{original}" if is_method else original
        lines = [
            f"{'async ' * is_async}def {name}({'self, ' * is_method}*args, **kwargs):",
            "    import inspect",
            f"    bound = inspect.signature({whole}).bind({'self, ' * is_method}*args, **kwargs)",
            "    bound.apply_defaults()",
            "    given = bound.arguments",
            *textwrap.indent(textwrap.dedent(before).strip(), "    ").splitlines(),
            f"    result = {'await ' * is_async}{whole}(*bound.args, **bound.kwargs)",
            *textwrap.indent(textwrap.dedent(after).strip(), "    ").splitlines(),
            "    return result",
        ]
        function.name = original
        return [function, *ast.parse("\n".join(lines)).body]

    return Change(module, place, lambda text, place: _change_function(text, place, transform))


def returning(module: str, place: str, value: str) -> Change:
    """Replace a function by one that only returns a value."""

    def transform(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
        function.body = [ast.Return(ast.parse(value, mode="eval").body)]
        return [function]

    return Change(module, place, lambda text, place: _change_function(text, place, transform))


def constant(module: str, name: str, value: str) -> Change:
    """Replace the value of a module's constant."""

    def apply(text: str, place: str) -> str:
        tree = ast.parse(text)
        found = [
            node
            for node in tree.body
            if (isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == place for t in node.targets))
            or (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == place)
        ]
        if not found:
            raise CodeNotFound(f"there is no constant {place}")
        for node in found:
            node.value = ast.parse(value, mode="eval").body
        return ast.unparse(ast.fix_missing_locations(tree))

    return Change(module, name, apply)


def query(module: str, name: str, old: str, new: str) -> Change:
    """Replace text in a named query."""

    def apply(text: str, place: str) -> str:
        head, mark, rest = text.partition(f"-- name: {place}\n")
        body, end, tail = rest.partition("-- name: ")
        if not mark or old not in body:
            raise CodeNotFound(f"there is no query {place} with {old!r}")
        return head + mark + body.replace(old, new) + end + tail

    return Change(module, name, apply)


def _change_function(text: str, place: str, transform: Transform) -> str:
    tree = ast.parse(text)
    *outer, name = place.split(".")
    home: ast.Module | ast.ClassDef = tree
    for each in outer:
        classes = [node for node in home.body if isinstance(node, ast.ClassDef) and node.name == each]
        if not classes:
            raise CodeNotFound(f"there is no class {each}")
        home = classes[0]
    for at, node in enumerate(home.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            home.body[at : at + 1] = transform(node)
            return ast.unparse(ast.fix_missing_locations(tree))
    raise CodeNotFound(f"there is no function {place}")
