"""mypy and basedpyright accept a correct application, and refuse a wrong one at the line that is wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "cases.py"
ROOT = Path(__file__).parents[2]
MARKED = {number for number, line in enumerate(CASES.read_text("utf-8").splitlines(), 1) if line.endswith("# error")}
RULES = {"reportUnusedCallResult": "none", "reportAny": "none", "reportUnusedParameter": "none"}
"""Rules of style, which say nothing about types."""

pytestmark = pytest.mark.slow


def test_mypy_refuses_the_wrong_lines_only(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={tmp_path}", str(CASES)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused_lines(re.findall(r"cases\.py:(\d+): error", said.stdout)) == MARKED, said.stdout + said.stderr


def test_basedpyright_refuses_the_wrong_lines_only(tmp_path: Path) -> None:
    config = tmp_path / "pyrightconfig.json"
    options = {"include": [str(CASES)], "pythonVersion": "3.11", "typeCheckingMode": "recommended", **RULES}
    config.write_text(json.dumps(options | {"extraPaths": [str(ROOT / "src"), str(ROOT)]}))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error", "-p", str(config)]
    said = subprocess.run([*command, "--pythonpath", sys.executable], capture_output=True, text=True, check=False)
    found = json.loads(said.stdout)["generalDiagnostics"]
    shown = [
        f"{each['range']['start']['line'] + 1}: {each['message']}" for each in found if each["severity"] == "error"
    ]
    lines = [each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"]
    assert refused_lines(lines) == MARKED, "\n".join(shown)


def refused_lines(numbers: list[str] | list[int]) -> set[int]:
    return {int(number) for number in numbers}
