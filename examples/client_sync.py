"""Use a server from a program without an event loop.

Start a server with `noonday up`, set a token with `export NOONDAY_TOKEN=$(noonday token)`, and run `python client_sync.py`.
"""

import os
from datetime import timedelta

from noonday import JobSpec, JobType, Target
from noonday.model.errors import ExecutionFailed, InvalidInput
from noonday.model.view import JobView
from noonday.sdk.sync import SyncClient

URL = os.environ.get("NOONDAY_URL", "http://127.0.0.1:8080")


def main() -> None:
    echo = Target("demo", "demo.echo")
    with SyncClient(URL, os.environ["NOONDAY_TOKEN"]) as client:
        job = client.create(type="ONE_TIME", target=echo, payload={"hello": "world"})
        print("echo", client.result(job, timeout=timedelta(seconds=10)))

        specs = [JobSpec(type=JobType.ONE_TIME, target=echo, payload=number, tags=("batch",)) for number in range(100)]
        jobs = [created for created in client.create_many(specs) if isinstance(created, JobView)]
        print("batch", len(jobs), "last", client.result(jobs[-1], timeout=10))

        nightly = client.create(
            type="CRON", target=echo, schedule="0 3 * * *", timezone="Europe/Oslo", unique_key="nightly"
        )
        print("next", nightly.next_fire_at_local[11:] if nightly.next_fire_at_local else None)
        client.delete(nightly.job_id)

        try:
            client.create(type="CRON", target=echo, schedule="61 3 * * *")
        except InvalidInput as error:
            print("refused", error.detail)

        failing = client.create(
            type="ONE_TIME", target=Target("demo", "demo.fail"), retry_policy={"maxAttempts": 1}, name="failing"
        )
        try:
            client.result(failing, timeout=10)
        except ExecutionFailed as error:
            print("failed", error.context["state"])
        for letter in client.dead_letters(job_id=failing.job_id).items():
            print("dead letter", letter.execution.error.message if letter.execution.error else None)


if __name__ == "__main__":
    main()
