"""Only one process uses a file."""

from pathlib import Path

import pytest

from tests.scenarios.process import Server, served


@pytest.mark.slow
async def test_second_process_on_the_file_names_the_first_and_leaves_it_alone(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    async with served(tmp_path) as first, Server(tmp_path / "second", data=first.data) as second:
        running = await first.create("stay", {"until": str(tmp_path / "go")})
        await first.started(running)

        second.start()
        code = await second.exit_code()
        (tmp_path / "go").touch()

        assert code == 3
        assert str(first.data) in second.err
        assert str(first.pid) in second.err
        assert second.out == ""
        assert (await first.execution(running, state="SUCCEEDED"))["dispatch"] == 1
        assert (await first.ask("GET", "/readyz"))[0] == 200
        await first.execution(await first.create("act"), state="SUCCEEDED")


@pytest.mark.slow
async def test_the_file_is_free_again_as_soon_as_its_process_was_killed(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    async with served(tmp_path) as first, Server(tmp_path / "second", data=first.data) as second:
        job = await first.create("act", type="DELAYED", delaySec=0.5)
        first.kill()

        await second.up()

        assert (await second.execution(job, state="SUCCEEDED"))["attempt"] == 1
