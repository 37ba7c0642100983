"""Housekeeping on an engine that is not started."""

from pathlib import Path

import pytest

from noonday.model.alert import AlertKind, Observation
from noonday.model.view import TenantSettings
from noonday.wiring.engine_queries import OWNER
from tests.scenarios.inside import Inside
from tests.scenarios.process import until


@pytest.mark.slow
async def test_a_tenants_retention_is_followed_when_it_changes(tmp_path: Path) -> None:
    inside = Inside(tmp_path)
    async with inside.open():
        job = await inside.create()
        await until(lambda: _ended(inside))
        await inside.engine.services.tenants.put(OWNER, OWNER.tenant, TenantSettings(retention_days=90))
    inside.clock.let_pass(60 * 86_400)
    async with inside.open(run=False):
        await _keep_house(inside)
        assert len((await inside.job(job)).executions) == 1
        await inside.engine.services.tenants.put(OWNER, OWNER.tenant, TenantSettings(retention_days=30))
        await _keep_house(inside)
        assert inside.query("SELECT id FROM jobs") == []
        assert inside.query("SELECT id FROM executions") == []


def _ended(inside: Inside) -> bool:
    return bool(inside.query("SELECT 1 FROM executions WHERE state = 5"))


async def _keep_house(inside: Inside) -> None:
    for _ in range(3):
        await inside.engine.loops["housekeeper"].service.run_once(inside.clock.now_ms())


@pytest.mark.slow
async def test_alerts_go_some_time_after_they_last_happened(tmp_path: Path) -> None:
    inside = Inside(tmp_path)
    async with inside.open(run=False):
        seen = Observation(
            kind=AlertKind.FAILED, tenant=OWNER.tenant, about="j", message="no", at_ms=inside.clock.now_ms()
        )
        await inside.engine.drivers.alerts.record([seen])
        inside.clock.let_pass(89 * 86_400)
        await _keep_house(inside)
        assert inside.query("SELECT about FROM alerts") == [("j",)]
        inside.clock.let_pass(2 * 86_400)
        await _keep_house(inside)
        assert inside.query("SELECT about FROM alerts") == []
