"""Users who create jobs of all kinds, and change them."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import uuid4

import aiohttp

from noonday.model.limits import Sizes
from tests.scenarios.cluster.cluster import Cluster, Job
from tests.scenarios.process import job_body
from tests.scenarios.server_run import any_task, now_ms
from tests.simulation.history import Answer

PAYLOAD_BYTES, RESULT_BYTES, PROGRESS_BYTES = Sizes().payload_bytes, Sizes().result_bytes, Sizes().progress_bytes
BALLAST_MARGIN = 1_000
"""By how many bytes large payloads, results and progress stay below the limit."""
ANSWER_SEC = 12.0
"""Seconds after which a user stops waiting for an answer."""
RECENT = 60
"""A user changes only this many of its latest jobs."""
MANY = (10, 25, 60)
LARGE_JOBS, LARGE_BATCHES = 0.01, 0.3
"""Share of the jobs, and of the batches, that have values near the largest allowed size."""
LARGE_BATCH = 4
"""The number of jobs of such a batch: as many as fill one message of the bus, and one request."""
REFUSED = (404, 409)
UNAVAILABLE = 503
_PAYLOADS: tuple[Job, ...] = (
    *({},) * 8,
    *({"sec": 0.2},) * 4,
    *({"failures": 1},) * 2,
    {"failures": 99},
    {"final": True},
    *({"snoozes": 2},) * 2,
)
_LONG: tuple[Job, ...] = ({"sec": 2.5}, {"sec": 2.5}, {"sec": 12})
"""Payloads of one-shots only: a recurring job that buffers such runs would take many minutes."""
_BALLAST: Job = {
    "ballast": "x" * (PAYLOAD_BYTES - BALLAST_MARGIN),
    "result_bytes": RESULT_BYTES - BALLAST_MARGIN,
    "progress_bytes": PROGRESS_BYTES - BALLAST_MARGIN,
}
"""Makes payload, progress and result nearly as large as allowed. Encrypted, they do not compress."""
_OVERLAPS = ("ALLOW", "ALLOW", "SKIP", "BUFFER_ONE", "BUFFER_ALL", "CANCEL_OTHER")
_ACTIONS = {"replace": 3, "pause": 3, "resume": 3, "delete": 1, "trigger": 3, "cancel": 4}


class User:
    """A user who sends one request after the other and notes the answers.

    The user leaves a job alone after a request about it was not answered: such a request may still take effect at any later
    time.
    """

    def __init__(self, cluster: Cluster, number: int, seed: int, receiver: str) -> None:
        """`receiver`: the URL that tasks call."""
        self.statuses: Counter[str] = Counter()
        self.surprises: list[str] = []
        """Answers that no request should get."""
        self._cluster = cluster
        self._random = Random(f"user/{number}/{seed}")
        self._receiver = receiver
        self._tasks: list[str] = []
        self._jobs: dict[str, Job] = {}
        self._edits = 1

    async def ask_on(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            choice = self._random.random()
            if choice < 0.02:
                await self._create_many()
            elif choice < 0.15:
                await self._ask_for_a_task()
            elif choice < 0.55 or not self._jobs:
                await self._create()
            else:
                await self._change(self._random.choice(list(self._jobs)))
            await asyncio.sleep(self._random.random() * 0.4)

    async def resume(self, job: str) -> None:
        await self._ask("resume", job, "POST", f"/v1/jobs/{job}/resume")

    async def _create(self) -> None:
        job = await self._ask("create", "", "POST", "/v1/jobs", _any_job(self._random))
        if job is not None:
            self._note("create", job["jobId"])
            self._jobs[job["jobId"]] = job
            if len(self._jobs) > RECENT:
                del self._jobs[next(iter(self._jobs))]

    async def _ask_for_a_task(self) -> None:
        if not self._tasks or self._random.random() < 0.7:
            task = await self._ask("create", "", "POST", "/v1/tasks", any_task(self._random, self._receiver))
            if task is not None:
                self._note("create", task["id"])
                self._tasks = [*self._tasks[-RECENT:], task["id"]]
            return
        task = self._random.choice(self._tasks)
        action = self._random.choice(["pause", "resume", "delete"])
        path = f"/v1/tasks/{task}"
        if action == "delete":
            await self._ask("delete", task, "DELETE", path)
        else:
            await self._ask(action, task, "PATCH", path, {"status": "PAUSED" if action == "pause" else "SCHEDULED"})

    async def _create_many(self) -> None:
        large = self._random.random() < LARGE_BATCHES
        count = LARGE_BATCH if large else self._random.choice(MANY)
        bodies = [_any_job(self._random, large=large) for _ in range(count)]
        answer = await self._ask("create", "", "POST", "/v1/jobs/batch?atomic=true", {"jobs": bodies})
        for job in answer["jobs"] if answer else ():
            self._note("create", job["jobId"])

    async def _change(self, job: str) -> None:
        action = self._random.choices(list(_ACTIONS), list(_ACTIONS.values()))[0]
        path = f"/v1/jobs/{job}"
        if action == "replace":
            self._edits += 1
            body = _any_job(self._random)
            body["payload"]["v"] = self._edits
            await self._ask("replace", job, "PUT", path, body, value=self._edits)
        elif action == "delete":
            await self._ask("delete", job, "DELETE", path)
        elif action == "cancel":
            await self._cancel(job)
        else:
            await self._ask(action, job, "POST", f"{path}/{action}")

    async def _cancel(self, job: str) -> None:
        page = await self._ask("read", job, "GET", f"/v1/jobs/{job}/executions")
        for execution in page["executions"][:2] if page else ():
            if execution["state"] in ("PENDING", "RUNNING"):
                id_ = execution["executionId"]
                await self._ask("cancel", id_, "POST", f"/v1/executions/{id_}/cancel")

    async def _ask(
        self, action: str, target: str, method: str, path: str, body: Any = None, *, value: Any = None
    ) -> Any | None:
        """Send a request. Returns the answer if the request was successful."""
        apis = [api for api in self._cluster.alive("api") if api.url]
        if not apis:
            return None
        asked_ms = now_ms()
        status, answer = 0, None
        with contextlib.suppress(OSError, aiohttp.ClientError):
            async with asyncio.timeout(ANSWER_SEC):
                api = self._random.choice(apis)
                key = {"Idempotency-Key": uuid4().hex} if path.startswith("/v1/tasks") else {}
                status, answer, _ = await self._cluster.ask(method, path, body, api=api, **key)
        self.statuses[str(status or "none")] += 1
        if 200 <= status < 300:
            if action not in ("create", "read"):
                self._note(action, target, value, asked_ms)
            return answer
        if status in (0, UNAVAILABLE):
            self._note(f"{action}?", target, value, asked_ms)
            self._jobs.pop(target, None)
            self._tasks = [task for task in self._tasks if task != target]
        elif status not in REFUSED and not _came_too_late(status, answer):
            self.surprises.append(f"{method} {path} was answered {status}: {answer}")
        return None

    def _note(self, action: str, target: str, value: Any = None, asked_ms: int = 0) -> None:
        self._cluster.answers.append(Answer(action, target, now_ms(), value, asked_ms))


def _came_too_late(status: int, answer: Any) -> bool:
    """Whether every flaw is an end that had passed when the request was finally read."""
    return status == 422 and all(
        flaw["pointer"].endswith(("endAt", "end_date", "scheduled_at")) for flaw in answer["errors"]
    )


def _any_job(random: Random, *, large: bool = False) -> Job:
    """A random job that comes to an end."""
    fields: Job = {"priority": random.choice(["HIGH", "NORMAL", "LOW"]), "overlap": random.choice(_OVERLAPS)}
    if random.random() < 0.1:
        fields["concurrency"] = {"key": f"key-{random.randrange(4)}", "limit": 3}
    if random.random() < 0.05:
        fields["timeoutSec"] = 0.5
    payloads = _PAYLOADS
    if random.random() < 0.8:
        payloads += _LONG
        fields |= {"type": "DELAYED", "delaySec": random.choice([0, 0, 0.05, 0.5, 2, 5, 20])}
        if random.random() < 0.1:
            fields["startDeadlineSec"] = 3
    else:
        fields |= _rhythm(random)
    payload = random.choice(payloads)
    if large or random.random() < LARGE_JOBS:
        payload = payload | _BALLAST
    return job_body(random.choice(["act", "act", "plod", "haul"]), payload, **fields)


def _rhythm(random: Random) -> Job:
    end = datetime.now(UTC) + timedelta(seconds=random.choice([3, 8, 20]))
    fields = {"endAt": end.isoformat(), "catchUp": {"policy": random.choice(["ALL", "LATEST", "NONE"])}}
    if random.random() < 0.6:
        return fields | {"type": "CRON", "schedule": random.choice(["* * * * * *", "*/3 * * * * *"])}
    return fields | {"type": "INTERVAL", "everySec": random.choice([1, 2.5])}
