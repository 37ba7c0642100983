"""A run of a real server process: users send requests, the run kills the process, and the checker reads the history."""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from tests.scenarios.process import UNFINISHED, Server, job_body, until
from tests.scenarios.receiver import Receiver
from tests.simulation.checker import check_end
from tests.simulation.history import Answer, Effect, History

QUIET_SEC = 90.0
_PAYLOADS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"sec": 0.2},
    {"sec": 2.5},
    {"failures": 1},
    {"failures": 99},
    {"final": True},
    {"snoozes": 2},
)


class ServerRun:
    """A run of one seed. The seed decides the requests and the kills; the machine decides the order of events."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.server = Server(
            folder,
            worker_concurrency=20,
            worker_threads=20,
            worker_drain_sec=5,
            # Many handlers fail for ever here: the breaker would delay their retries, and so the end.
            worker_retry_breaker_min_runs_per_minute=0,
            webhooks_allow_networks="127.0.0.0/8",
        )
        self.receiver = Receiver(
            self.server.log, lambda: [self.server.pid], lambda: int(self.deaths[-1][0]) if self.deaths else 0
        )
        self.answers: list[Answer] = []
        self.deaths: list[tuple[str, int]] = []
        self.over = False

    async def play(self, kills: int, users: int = 3) -> list[str]:
        """Play the run, and return every broken promise."""
        async with self.server, self.receiver:
            asking = [asyncio.create_task(_User(self, number).ask_on()) for number in range(users)]
            await self._be_killed(kills)
            self.over = True
            await asyncio.gather(*asking)
            await self.server.up()
            await self._resume_all()
            await self._be_quiet()
            self.server.signal()
            code = await self.server.exit_code()
            problems = self.check()
            return problems if code == 0 else [f"exit code {code}: {self.server.err}", *problems]

    async def _be_killed(self, times: int) -> None:
        random = Random(f"killer/{self.seed}")
        for _ in range(times):
            self.server.start()
            if random.random() < 0.2:
                await asyncio.sleep(random.random())
            else:
                await self.server.answering()
                await asyncio.sleep(random.choice([0.05, 0.3, 1, 2]) * random.random())
            pid = self.server.pid
            self.server.kill()
            self.deaths.append((str(pid), now_ms()))

    async def _resume_all(self) -> None:
        """Resume every paused job, so that none stays paused for ever."""
        for (job,) in self.server.query("SELECT id FROM jobs WHERE state = 1"):
            asked_ms = now_ms()
            status, answer = await self.server.ask("POST", f"/v1/jobs/{job}/resume")
            assert status == 200, answer
            self.answers.append(Answer("resume", job, now_ms(), asked_ms=asked_ms))

    async def _be_quiet(self) -> None:
        """Wait until nothing is open. If that never happens, the checker reports what is open."""
        with contextlib.suppress(AssertionError):
            await until(self._is_quiet, QUIET_SEC)

    def _is_quiet(self) -> bool:
        return not self.server.query(UNFINISHED)

    def check(self) -> list[str]:
        return check(self.server, self.answers, self.deaths)


def check(server: Server, answers: list[Answer], deaths: Sequence[tuple[str, int]] = ()) -> list[str]:
    """Check the data that a process left behind, and return every broken promise."""
    effects = effects_of(server.lines())
    history = History(answers, effects, checks_of(effects), list(deaths))
    with closing(sqlite3.connect(server.data)) as conn:
        return check_end(conn, history, now_ms(), calm=False)


def checks_of(effects: Sequence[Effect]) -> dict[tuple[str, int], int]:
    """The time of the pre-start check of each run."""
    return {(effect.execution, effect.dispatch): effect.checked_ms for effect in effects}


def effects_of(lines: list[dict[str, Any]]) -> list[Effect]:
    """Build runs from their lines. A run without an end line has ended at its last sign of life."""
    effects: list[Effect] = []
    under_way: dict[tuple[str, int, int], Effect] = {}
    for line in lines:
        name = (line["execution"], line["dispatch"], line["pid"])
        if line["what"] == "start":
            under_way[name] = _started(line)
            effects.append(under_way[name])
        elif "end_ms" in line and name in under_way:
            under_way.pop(name).end_ms = line["end_ms"]
        elif line["what"] == "alive" and name in under_way:
            under_way[name].end_ms = line["at_ms"]
    return effects


def _started(line: dict[str, Any]) -> Effect:
    return Effect(
        line["execution"],
        line["dispatch"],
        line["token"],
        str(line["pid"]),
        line["start_ms"],
        line["due_ms"],
        line["payload"],
        checked_ms=line.get("checked_ms", 0),
    )


class _User:
    """A user who sends one request after the other, and notes the answers.

    A request without an answer may have taken effect.
    """

    def __init__(self, run: ServerRun, number: int) -> None:
        self.run = run
        self.random = Random(f"user/{number}/{run.seed}")
        self.jobs: list[dict[str, Any]] = []
        self.tasks: list[str] = []
        self.edits = 1

    async def ask_on(self) -> None:
        while not self.run.over:
            if self.run.server.url is None:
                await asyncio.sleep(0.01)
            elif self.random.random() < 0.2:
                await self._ask_for_a_task()
            elif not self.jobs or self.random.random() < 0.6:
                await self._create()
            else:
                await self._meddle(self.random.choice(self.jobs[-40:]))
            await asyncio.sleep(self.random.random() * 0.06)

    async def _create(self) -> None:
        answer = await self._ask("create", "", "POST", "/v1/jobs", self._any_job(), lambda job: job["jobId"])
        if answer is not None:
            self.jobs.append(answer)

    async def _ask_for_a_task(self) -> None:
        if not self.tasks or self.random.random() < 0.7:
            answer = await self._ask(
                "create",
                "",
                "POST",
                "/v1/tasks",
                any_task(self.random, self.run.receiver.url),
                lambda task: task["id"],
            )
            if answer is not None:
                self.tasks.append(answer["id"])
            return
        task = self.random.choice(self.tasks[-20:])
        action = self.random.choice(["pause", "resume", "delete"])
        if action == "delete":
            await self._ask("delete", task, "DELETE", f"/v1/tasks/{task}")
        else:
            status = "PAUSED" if action == "pause" else "SCHEDULED"
            await self._ask(action, task, "PATCH", f"/v1/tasks/{task}", {"status": status})

    async def _meddle(self, job: dict[str, Any]) -> None:
        job_id = job["jobId"]
        path = f"/v1/jobs/{job_id}"
        action = self.random.choice(["replace", "pause", "resume", "delete", "trigger", "cancel", "cancel"])
        if action == "replace":
            self.edits += 1
            body = self._any_job() | {"payload": job["payload"] | {"v": self.edits}}
            await self._ask("replace", job_id, "PUT", path, body, value=self.edits)
        elif action == "delete":
            await self._ask("delete", job_id, "DELETE", path)
        elif action == "cancel":
            await self._cancel(job_id)
        else:
            await self._ask(action, job_id, "POST", f"{path}/{action}")

    async def _cancel(self, job_id: str) -> None:
        found = self.run.server.query("SELECT id FROM executions WHERE job_id = ? AND state < 2 LIMIT 1", job_id)
        for (execution,) in found:
            await self._ask("cancel", execution, "POST", f"/v1/executions/{execution}/cancel")

    async def _ask(
        self,
        action: str,
        target: str,
        method: str,
        path: str,
        body: Any = None,
        named: Callable[[Any], str] | None = None,
        *,
        value: Any = None,
    ) -> Any:
        asked_ms = now_ms()
        try:
            key = {"Idempotency-Key": str(self.random.random())} if path.startswith("/v1/tasks") else {}
            status, answer = await self.run.server.ask(method, path, body, **key)
        except (OSError, aiohttp.ClientError):
            self._note(f"{action}?", target, value, asked_ms)
            return None
        if status < 300:
            self._note(action, named(answer) if named else target, value, asked_ms)
            return answer
        assert status in (409, 404), (action, status, answer)
        return None

    def _note(self, action: str, target: str, value: Any, asked_ms: int) -> None:
        self.run.answers.append(Answer(action, target, now_ms(), value, asked_ms))

    def _any_job(self) -> dict[str, Any]:
        """A random job that comes to an end."""
        random = self.random
        fields: dict[str, Any] = {
            "priority": random.choice(["HIGH", "NORMAL", "LOW"]),
            "overlap": random.choice(["ALLOW", "ALLOW", "SKIP", "BUFFER_ONE", "BUFFER_ALL", "CANCEL_OTHER"]),
        }
        if random.random() < 0.15:
            fields["concurrency"] = {"key": "key", "limit": 2}
        if random.random() < 0.1:
            fields["timeoutSec"] = 0.5
        kind = random.random()
        if kind < 0.75:
            fields |= {"type": "DELAYED", "delaySec": random.choice([0, 0, 0.05, 0.5, 2, 5])}
            if random.random() < 0.1:
                fields["startDeadlineSec"] = 3
        else:
            end = datetime.now(UTC) + timedelta(seconds=random.choice([3, 8, 15]))
            fields |= {"endAt": end.isoformat(), "catchUp": {"policy": random.choice(["ALL", "LATEST", "NONE"])}}
            fields |= _rhythm(random)
        return job_body(random.choice(["act", "act", "plod"]), random.choice(_PAYLOADS), **fields)


def any_task(random: Random, url: str) -> dict[str, Any]:
    """A random task that comes to an end."""
    now = datetime.now(UTC)
    body = {"v": 1, **random.choice([{}, {}, {}, {"sec": 0.2}, {"sec": 1.5}, {"failures": 1}])}
    task = {
        "payload": {"webhook_url": url, "body": body},
        "retry": {"max_attempts": 6, "backoff": "FIXED", "initial_delay_ms": 300},
    }
    if random.random() < 0.15:
        task["ordering_key"] = f"line-{random.randrange(3)}"
    if random.random() < 0.7:
        at = now + timedelta(seconds=random.choice([0, 0.05, 0.5, 2, 5]))
        return {"type": "ONE_TIME", "scheduled_at": at.isoformat(), **task}
    end = now + timedelta(seconds=random.choice([3, 8]))
    rhythm = random.choice([{"interval": "every second"}, {"interval": "every 2 seconds"}])
    return {"type": "RECURRING", **rhythm, "end_date": end.isoformat(), **task}


def _rhythm(random: Random) -> dict[str, Any]:
    if random.random() < 0.6:
        return {"type": "CRON", "schedule": random.choice(["* * * * * *", "*/3 * * * * *"])}
    return {"type": "INTERVAL", "everySec": random.choice([1, 2.5])}


def now_ms() -> int:
    return time.time_ns() // 1_000_000
