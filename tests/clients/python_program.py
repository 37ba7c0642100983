"""A program that uses a generated client. It runs in the generator's environment, not in that of the tests."""

import sys
import time

from noonday_client import AuthenticatedClient
from noonday_client.api.executions import get_execution, list_executions
from noonday_client.api.jobs import create_job, delete_job, get_job
from noonday_client.api.schedules import preview_schedule
from noonday_client.models import (
    CronJob,
    CronJobType,
    CronPreview,
    CronPreviewType,
    ExecutionView,
    JobView,
    OneTimeJob,
    OneTimeJobType,
    Preview,
    Problem,
    Target,
)


def main(url: str, token: str) -> None:
    target = Target(pool="demo", handler="demo.echo")
    with AuthenticatedClient(url, token) as client:
        once = OneTimeJob(type_=OneTimeJobType.ONE_TIME, target=target, payload={"hello": "world"})
        job = create_job.sync(client=client, body=once, idempotency_key="generated")
        assert isinstance(job, JobView), job
        again = create_job.sync(client=client, body=once, idempotency_key="generated")
        assert isinstance(again, JobView)
        assert again.job_id == job.job_id

        execution = result_of(client, job)
        print("result", execution.result)

        nightly = CronJob(
            type_=CronJobType.CRON, target=target, schedule="0 3 * * *", timezone="Europe/Oslo", name="nightly"
        )
        cron = create_job.sync(client=client, body=nightly)
        assert isinstance(cron, JobView), cron
        found = get_job.sync(cron.job_id, client=client)
        assert isinstance(found, JobView)
        print("timezone", found.timezone)
        delete_job.sync(cron.job_id, client=client)

        preview = preview_schedule.sync(
            client=client,
            body=CronPreview(type_=CronPreviewType.CRON, schedule="0 3 * * *", timezone="Europe/Oslo", count=2),
        )
        assert isinstance(preview, Preview), preview
        print("times", len(preview.times))

        nightly.timezone = "Europe/Osla"
        refused = create_job.sync(client=client, body=nightly)
        assert isinstance(refused, Problem)
        print("refused", refused.status, refused.errors[0].nearest)


def result_of(client: AuthenticatedClient, job: JobView) -> ExecutionView:
    while True:
        page = list_executions.sync(job.job_id, client=client)
        for execution in page.executions:
            if str(execution.state) == "SUCCEEDED":
                return get_execution.sync(execution.execution_id, client=client)
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
