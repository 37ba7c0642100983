"""The named seed pool-away: a pool without workers keeps its work for any time, and is reported."""

from datetime import timedelta
from pathlib import Path

import pytest

from noonday import Context, Noonday
from noonday.model.job import JobSpec, JobType, Target
from noonday.model.view import PoolSettings
from noonday.testing import ManualClock, Testing
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_queries import OWNER
from noonday.wiring.settings import Settings


@pytest.mark.slow
async def test_pool_away(tmp_path: Path) -> None:
    settings, clock, ran = Settings(data=str(tmp_path / "n.db")), ManualClock(), []
    away = await Embedded.open(settings, {}, clock=clock, run=False)
    await away.engine.services.pools.put(OWNER, "billing", PoolSettings())
    spec = JobSpec(type=JobType.ONE_TIME, target=Target("billing", "print"))
    job = await away.engine.services.jobs.create(OWNER, spec)
    assert await Testing(Noonday(), away, clock).advance(timedelta(days=8)) == 0
    page = await away.engine.services.occurrences.list_occurrences(OWNER, job.job_id, from_ms=0, to_ms=clock.now_ms())
    assert [(o.outcome, o.reason) for o in page.occurrences] == [("DUE", "pool 'billing' has no workers")]
    assert (
        await away.engine.services.pools.get(OWNER, "billing")
    ).note == "no workers: 1 due entries wait on the timeline"
    await away.abandon()

    app = Noonday()

    @app.handler("print", pool="billing")
    async def print_(ctx: Context) -> None:
        ran.append(ctx.execution_id)

    back = await Embedded.open(settings, app.handlers, clock=clock, run=False)
    assert await Testing(Noonday(), back, clock).run_due() == 1
    assert (await back.engine.services.job_queries.get_job(OWNER, job.job_id)).executions[0].state == "SUCCEEDED"
    assert len(ran) == 1
    await back.abandon()
