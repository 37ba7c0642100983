"""Tasks over the parts of intake: jobs that call a webhook, stored as the task service stores them."""

from typing import Any

from noonday.intake.dead_letter_service import DeadLetterService
from noonday.intake.execution_service import ExecutionService
from noonday.model.job import Job, Target
from noonday.model.tasks.wire import HANDLER, POOL
from tests.intake.parts import Parts
from tests.support.factories import spec

ENDPOINT = "https://api.example.com"
URL = f"{ENDPOINT}/reports"


async def add_task(parts: Parts, url: str = URL, **said: Any) -> Job:
    """Store a task that is due now."""
    target = Target(POOL, HANDLER, f"{ENDPOINT}:443")
    return await parts.add(spec(target=target, **said), payload={"webhook_url": url})


def executions_of(parts: Parts) -> ExecutionService:
    return ExecutionService(
        editor=parts.editor,
        query_store=parts.store.query_store,
        workload=parts.store.workload,
        presenter=parts.presenter,
        blockers=parts.blockers,
        clock=parts.clock,
    )


def dead_letters_of(parts: Parts) -> DeadLetterService:
    return DeadLetterService(
        editor=parts.editor,
        receipts=parts.receipts,
        query_store=parts.store.query_store,
        presenter=parts.presenter,
        clock=parts.clock,
    )
