"""A client that openapi-python-client generates from the OpenAPI document, at work against a server."""

import asyncio
import time
from pathlib import Path

from noonday.crypto.tokens import mint
from tests.clients.tools import python_generator, run, write_document
from tests.scenarios.process import SECRET, served

PROGRAM = Path(__file__).with_name("python_program.py")


async def test_a_generated_python_client_creates_reads_and_is_refused(tmp_path: Path):
    python = python_generator()
    (tmp_path / "config.yml").write_text("post_hooks: []\n")
    command = [python, "-m", "openapi_python_client", "generate", "--path", write_document(tmp_path)]
    options = ["--meta", "none", "--output-path", tmp_path / "noonday_client", "--config", tmp_path / "config.yml"]
    written = await asyncio.to_thread(run, [*command, *options, "--fail-on-warning"], tmp_path)
    assert "warning" not in written.lower(), written
    token = mint(SECRET, tenant="default", subject="t", scopes=["write"], ttl_seconds=86_400, now=int(time.time()))
    async with served(tmp_path) as server:
        assert server.url is not None
        lines = await asyncio.to_thread(run, [python, PROGRAM, server.url, token], tmp_path, PYTHONPATH=str(tmp_path))
    assert lines.splitlines() == [
        "result {'hello': 'world'}",
        "timezone Europe/Oslo",
        "times 2",
        "refused 422 Europe/Oslo",
    ]
