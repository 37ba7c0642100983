"""Other generators of clients. They take half a minute, so they run only with NOONDAY_GENERATORS=1."""

import os
import re
from pathlib import Path

import pytest

from tests.clients.tools import needs, openapi_generator, run, typescript_tools, write_document

pytestmark = pytest.mark.skipif(
    not os.environ.get("NOONDAY_GENERATORS"), reason="takes half a minute: set NOONDAY_GENERATORS=1"
)
HARMLESS = (
    "OpenAPI 3.1 support is still in beta",
    "Renamed to",
    "Codegen property is null (e.g. map/dict of undefined type). Default to typing.Any",
    "Failed to get the schema name: null",
)
"""Warnings of openapi-generator about names that are reserved in a language, and about values that may be any JSON."""


def generate(language: str, folder: Path, *options: str) -> Path:
    made = folder / language
    command = [
        "java",
        "-jar",
        openapi_generator(),
        "generate",
        "-i",
        write_document(folder),
        "-g",
        language,
        "-o",
        made,
    ]
    written = run([*command, *options], folder)
    found = re.findall(r"^.*(?:WARN|ERROR).*$", written, re.MULTILINE)
    assert [line for line in found if not any(known in line for known in HARMLESS)] == []
    return made


def test_openapi_generator_makes_a_python_client_that_compiles(tmp_path: Path):
    made = generate("python", tmp_path)
    run(["python3", "-m", "compileall", "-q", made / "openapi_client"], tmp_path)


def test_openapi_generator_makes_a_go_client_that_compiles(tmp_path: Path):
    needs("go")
    # Without the prefix, two enumerations with a common value would define the same constant.
    made = generate("go", tmp_path, "--additional-properties=enumClassPrefix=true")
    run(["go", "vet", "."], made)


def test_openapi_generator_makes_a_typescript_client_that_compiles(tmp_path: Path):
    tools = typescript_tools()
    made = generate("typescript-fetch", tmp_path)
    run([tools / "tsc", "--noEmit", "--strict", "--target", "es2020", "--lib", "dom,es2020", made / "index.ts"], made)


def test_openapi_typescript_makes_types_that_compile(tmp_path: Path):
    tools = typescript_tools()
    run([tools / "openapi-typescript", write_document(tmp_path), "-o", tmp_path / "api.ts"], tmp_path)
    run([tools / "tsc", "--noEmit", "--strict", tmp_path / "api.ts"], tmp_path)
