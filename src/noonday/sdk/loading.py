"""Import of the application that a command line names."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

from noonday.model.errors import InvalidInput, nearest
from noonday.sdk.registry import Registry


def load_app(path: str) -> Registry:
    """Return the application at `module:attribute`, imported with the current directory on the path.

    Without `:attribute`, returns the only application of the module. Raises InvalidInput.
    """
    name, _, attribute = path.partition(":")
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise _refusal(path, f"{name} is a file: expected a module, as in {dotted}:{attribute or 'app'}")
    module = _import(path, name)
    return _app_in(path, module, attribute) if attribute else _only_app_in(path, module)


def _import(path: str, name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name and (name == missing.name or name.startswith(f"{missing.name}.")):
            raise _no_module(path, name, missing.name) from missing
        raise _broken(path, name, missing) from missing
    except Exception as bad:
        raise _broken(path, name, bad) from bad


def _app_in(path: str, module: ModuleType, attribute: str) -> Registry:
    apps = _apps_in(module)
    found = getattr(module, attribute, None)
    if found is None:
        listed = f"its Noonday apps are: {', '.join(apps)}" if apps else "it has no Noonday app"
        raise _refusal(path, f"module {module.__name__} has no {attribute}; {listed}", apps, nearest(attribute, apps))
    if not isinstance(found, Registry):
        kind = type(found).__name__
        raise _refusal(path, f"{attribute} in module {module.__name__} is a {kind}, not a Noonday app", apps)
    return found


def _only_app_in(path: str, module: ModuleType) -> Registry:
    apps = _apps_in(module)
    if len(apps) == 1:
        return apps.popitem()[1]
    if not apps:
        raise _refusal(path, f"module {module.__name__} has no Noonday app")
    choices = [f"{module.__name__}:{name}" for name in apps]
    raise _refusal(
        path, f"module {module.__name__} has several Noonday apps: choose one of {', '.join(choices)}", choices
    )


def _apps_in(module: ModuleType) -> dict[str, Registry]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Registry)}


def _no_module(path: str, name: str, missing: str) -> InvalidInput:
    parent, _, last = missing.rpartition(".")
    folder = Path(*parent.split(".")) if parent else Path()
    guess = nearest(last, _modules_in(folder))
    where = f"no module {missing} in {Path.cwd()} or among the installed packages"
    if not guess:
        return _refusal(path, where)
    meant = f"{parent}.{guess}" if parent else guess
    rest = name.removeprefix(missing)
    return _refusal(path, f"{where}; did you mean {meant}?", guess=meant + rest)


def _modules_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return [entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").is_file()]


def _broken(path: str, name: str, why: Exception) -> InvalidInput:
    return _refusal(path, f"importing {name} failed: {type(why).__name__}: {why}")


def _refusal(path: str, detail: str, allowed: object = None, guess: str | None = None) -> InvalidInput:
    known = list(allowed) if isinstance(allowed, dict | list) else None
    return InvalidInput.of("", f"cannot load {path}: {detail}", path, allowed=known, nearest=guess)
