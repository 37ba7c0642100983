"""What `import noonday` promises."""

import subprocess
import sys

import noonday


def test_every_name_of_the_package_is_there() -> None:
    assert {name: getattr(noonday, name).__name__ for name in noonday.__all__} == {
        name: name for name in noonday.__all__
    }


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, noonday; print([m for m in ('aiohttp', 'uvicorn', 'starlette', 'rich') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
