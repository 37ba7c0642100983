import os
from pathlib import Path

import pytest

from noonday.drivers.memory.leases import LocalLeases
from noonday.model.errors import AlreadyRunning, StoreUnavailable
from noonday.model.ids import InstanceId
from tests.support.clock import ManualClock


async def test_refused_process_learns_which_process_uses_the_file(tmp_path: Path) -> None:
    first, second = (
        LocalLeases(tmp_path / "noonday.db.lock", ManualClock()),
        LocalLeases(tmp_path / "noonday.db.lock", ManualClock()),
    )
    await first.join(InstanceId("i-1"), 1.0)
    with pytest.raises(AlreadyRunning, match=rf"process {os.getpid()}\) is using .*/noonday\.db: stop it"):
        await second.join(InstanceId("i-2"), 1.0)
    await first.leave()


async def test_lock_of_a_dead_process_refuses_no_process(tmp_path: Path) -> None:
    path = tmp_path / "noonday.db.lock"
    path.write_text("999999 and more")
    leases = LocalLeases(path, ManualClock())
    await leases.join(InstanceId("i-1"), 1.0)
    assert path.read_text() == str(os.getpid())
    await leases.leave()


async def test_the_lock_is_for_its_owner_alone(tmp_path: Path) -> None:
    leases = LocalLeases(tmp_path / "noonday.db.lock", ManualClock())
    await leases.join(InstanceId("i-1"), 1.0)
    assert (tmp_path / "noonday.db.lock").stat().st_mode & 0o077 == 0
    await leases.leave()


async def test_a_folder_that_cannot_hold_the_lock_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await LocalLeases(tmp_path / "nowhere" / "lock", ManualClock()).join(InstanceId("i-1"), 1.0)


async def test_data_in_memory_needs_no_lock() -> None:
    first, second = LocalLeases(None, ManualClock()), LocalLeases(None, ManualClock())
    await first.join(InstanceId("i-1"), 1.0)
    await second.join(InstanceId("i-2"), 1.0)
    assert await first.renew()
    assert await second.renew()
