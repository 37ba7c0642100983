"""A cluster of real processes on real servers. A scenario starts it, sends requests, and harms it."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis

from noonday.crypto.keyring import new_env_value
from noonday.crypto.tokens import mint
from noonday.drivers.kafka.options import KafkaOptions
from noonday.model.execution import State
from tests.scenarios.cluster.history import EVERYONE, FROZEN, KILLED, Fault, problems_in
from tests.scenarios.cluster.processes import Process
from tests.scenarios.cluster.store import StoreView
from tests.scenarios.process import APP, PATIENCE_SEC, SECRET, UNFINISHED, job_body, until
from tests.scenarios.server_run import now_ms
from tests.simulation.history import Answer
from tests.support.kafka import delete_topics
from tests.support.servers_up import etcd_urls, kafka_servers, postgres_url, redis_url

Job = dict[str, Any]
_PAYLOADS: tuple[Job, ...] = ({}, {}, {}, {"sec": 0.2}, {}, {}, {"failures": 1}, {}, {}, {"snoozes": 1})
Answered = tuple[int, Any, Mapping[str, str]]
"""Status, body, headers."""


@dataclass(frozen=True)
class Servers:
    """The addresses of the servers, as a process of the cluster gets them."""

    postgres: str
    redis: str
    kafka: str
    etcd: str

    @classmethod
    def shared(cls, **own: str) -> "Servers":
        """The servers of all tests, except for those that a scenario starts for itself because it harms them."""
        there = {
            "postgres": postgres_url,
            "redis": redis_url,
            "kafka": kafka_servers,
            "etcd": lambda: ",".join(etcd_urls()),
        }
        return cls(**{name: own.get(name) or find() for name, find in there.items()})

    def seen(self, **others: str) -> "Servers":
        """Return the same servers with other addresses for some of them."""
        return replace(self, **others)

    def variables(self) -> dict[str, str]:
        return {
            "NOONDAY_POSTGRES_URL": self.postgres,
            "NOONDAY_REDIS_URL": self.redis,
            "NOONDAY_KAFKA_SERVERS": self.kafka,
            "NOONDAY_ETCD_URLS": self.etcd,
        }


class Cluster:
    """A cluster: its names on the servers, its processes, its requests and its faults."""

    def __init__(self, folder: Path, servers: Servers, **settings: object) -> None:
        """`settings` by their variables, as in `cluster_leases="redis"`."""
        self.folder = folder
        self.servers = servers
        self.settings = settings
        self.name = f"test-{uuid4().hex[:12]}"
        schema = self.name.replace("-", "_")
        self.store = StoreView(servers.postgres, schema)
        self.processes: list[Process] = []
        self.answers: list[Answer] = []
        self.faults: list[Fault] = []
        self.log = folder / "effects.jsonl"
        self._checked_ms = 0
        self._holds: list[Path] = []
        self._env = {
            "NOONDAY_CLUSTER_NAME": self.name,
            "NOONDAY_POSTGRES_SCHEMA": schema,
            "NOONDAY_KAFKA_POOL_PARTITIONS": "4",
            "NOONDAY_KAFKA_LOG_PARTITIONS": "8",
            "NOONDAY_KEYS": new_env_value(),
            "NOONDAY_AUTH_SECRET": SECRET,
            "NOONDAY_LOG_LEVEL": "INFO",
            "NOONDAY_WEBHOOKS_ALLOW_NETWORKS": "127.0.0.0/8",
            "VICTIM_LOG": str(self.log),
        }

    async def __aenter__(self) -> "Cluster":
        self.folder.mkdir(exist_ok=True)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_SEC))
        await self.store.prepare()
        return self

    async def __aexit__(self, *exception: object) -> None:
        for process in self.processes:
            process.kill()
        await self._session.close()
        await self._clean()

    # -- processes -----------------------------------------------------------------------------------------------------

    def serve(self, roles: str, **options: Any) -> Process:
        """Start a process in some roles without waiting for it."""
        return self._launch(roles, ["serve", "--roles", roles], **options)

    def work(self, *pools: str, concurrency: int = 50, **options: Any) -> Process:
        """Start a worker without waiting for it; of the pool p, if no other is named."""
        named = [word for pool in pools or ("p",) for word in ("--pool", pool)]
        words = ["worker", APP, *named, "--concurrency", str(concurrency)]
        return self._launch("worker", words, **options)

    async def have(self, **wanted: int) -> None:
        """Ensure that so many processes of each kind run, and have begun: `scheduler=2`, `worker=1`."""
        for kind, count in wanted.items():
            for _ in range(count - len(self.alive(kind))):
                self.work() if kind == "worker" else self.serve(kind)
        for process in self.alive(*wanted):
            await process.ready()
        if "scheduler" in wanted:
            await self.owned_by(len(self.alive("scheduler")))
        if "worker" in wanted:
            await self.known(*self.alive("worker"))

    async def ready(self, *processes: Process) -> None:
        for process in processes:
            await process.ready()

    async def known(self, *workers: Process) -> None:
        """Wait until the store knows these workers, and their pools and handlers."""

        async def look() -> bool:
            rows = await self.store.query("SELECT pid FROM workers WHERE state = 'ALIVE'")
            return {worker.pid for worker in workers} <= {pid for (pid,) in rows}

        await until(look)

    def alive(self, *kinds: str) -> list[Process]:
        return [process for process in self.processes if process.is_alive and process.kind in kinds]

    def one(self, kind: str) -> Process:
        """Return the youngest process of a kind."""
        return self.alive(kind)[-1]

    async def until_it_works(self, worker: Process) -> None:
        """Wait until a worker has a share of the pool, which others have to give up first."""
        await self.known(worker)
        deadline, seen = time.monotonic() + PATIENCE_SEC, len(self.lines("start"))
        while not any(line["pid"] == worker.pid for line in self.lines("start")[seen:]):
            assert time.monotonic() < deadline, f"{worker.name} gets no work"
            await self.done(await self.create_many(20))

    async def all_recorded(self) -> None:
        """Wait until each partition of the log was recorded at a later time than now."""
        since_ms = now_ms()
        behind = "SELECT 1 FROM checkpoints WHERE tick_ms <= $1"

        async def look() -> bool:
            return not await self.store.query(behind, since_ms)

        await until(look)

    async def instance_of(self, scheduler: Process) -> str:
        """Return the name under which a scheduler owns partitions. Its log has it."""

        def look() -> str | None:
            return next(
                (
                    line.split("instance=")[1].split()[0]
                    for line in scheduler.output.splitlines()
                    if "instance=" in line
                ),
                None,
            )

        return await until(look)  # type: ignore[no-any-return]

    def kill(self, process: Process) -> None:
        process.kill()
        self.faults.append(Fault(KILLED, str(process.pid), now_ms()))

    def freeze(self, process: Process) -> None:
        process.freeze()
        self.faults.append(Fault(FROZEN, str(process.pid), now_ms()))

    def wake(self, process: Process) -> None:
        for fault in self.faults:
            if fault.victim == str(process.pid) and fault.until_ms is None:
                fault.until_ms = now_ms()
        process.wake()

    @contextmanager
    def guest(self, process: Process) -> Iterator[Process]:
        """Let a process take part in the cluster for a while, and kill it at the end."""
        try:
            yield process
        finally:
            self.kill(process)

    def note_cut_off(self, process: Process) -> None:
        self.faults.append(Fault("cut off", str(process.pid), now_ms()))

    def note_fault(self, kind: str) -> None:
        """Note a fault of a server that every process uses."""
        self.faults.append(Fault(kind, EVERYONE, now_ms()))

    def _launch(
        self,
        kind: str,
        words: Sequence[str],
        *,
        servers: Servers | None = None,
        clock_off_sec: float | None = None,
        **settings: object,
    ) -> Process:
        chosen = {f"NOONDAY_{key.upper()}": str(value) for key, value in (self.settings | settings).items()}
        env = self._env | (servers or self.servers).variables() | chosen
        process = Process(f"{kind}-{len(self.processes)}", kind, words, self.folder, env, clock_off_sec)
        self.processes.append(process)
        return process

    # -- requests ------------------------------------------------------------------------------------------------------

    async def ask(
        self, method: str, path: str, body: Any = None, *, api: Process | None = None, **more: str
    ) -> Answered:
        """Send one request, once. Raises OSError or aiohttp.ClientError if it is not answered."""
        headers = {"Authorization": f"Bearer {_token()}", **more}
        async with self._session.request(
            method, f"{(api or self.one('api')).url}{path}", json=body, headers=headers
        ) as response:
            text = await response.read()
            return response.status, json.loads(text) if text else None, response.headers

    async def get(self, path: str) -> Any:
        status, answer, _ = await self.ask("GET", path)
        assert status == 200, answer
        return answer

    async def create(self, handler: str = "act", payload: Any = None, **fields: Any) -> Job:
        """Create a one-shot that is due at once, unless `fields` (in the words of the wire) say otherwise."""
        return (await self.create_all([job_body(handler, payload, **fields)]))[0]

    async def create_many(self, count: int, *, within_sec: float = 0.0, **fields: Any) -> list[Job]:
        """Create one-shots that are due one after the other, the last one at the end of `within_sec`.

        Most do nothing; some take time, fail at first, or snooze. All succeed in the end.
        """
        steps = [round(within_sec * (place + 1) / count, 3) for place in range(count)]
        bodies = [
            job_body("act", payload, type="DELAYED", delaySec=delay, **fields)
            for delay, payload in zip(steps, cycle(_PAYLOADS), strict=False)
        ]
        return await self.create_all(bodies)

    async def create_rhythm(self, count: int, for_sec: float) -> list[Job]:
        """Create recurring jobs with one time a second that end after a while.

        Each time is decided once, through all faults.
        """
        end = {"endAt": (datetime.now(UTC) + timedelta(seconds=for_sec)).isoformat(), "catchUp": {"policy": "ALL"}}
        kinds = cycle([{"type": "INTERVAL", "everySec": 1}, {"type": "CRON", "schedule": "* * * * * *"}])
        overlaps = cycle(["ALLOW", "SKIP", "BUFFER_ONE"])
        return await self.create_all(
            [
                job_body("act", {"sec": 0.1}, overlap=overlap, **kind, **end)
                for _, kind, overlap in zip(range(count), kinds, overlaps, strict=False)
            ]
        )

    async def create_all(self, bodies: list[Job]) -> list[Job]:
        status, answer, _ = await self.ask("POST", "/v1/jobs/batch?atomic=true", {"jobs": bodies})
        assert status in (200, 201), answer
        jobs: list[Job] = answer["jobs"]
        self.answers += [Answer("create", job["jobId"], now_ms()) for job in jobs]
        return jobs

    def new_hold(self) -> Path:
        """Return a file for the handler `stay` to wait for: `{"until": str(hold)}`.

        `release_all` creates the file at the latest.
        """
        self._holds.append(self.folder / f"release-{len(self._holds)}")
        return self._holds[-1]

    def release_all(self) -> None:
        for hold in self._holds:
            hold.touch()

    # -- results -------------------------------------------------------------------------------------------------------

    async def done(self, jobs: Sequence[Job], within_sec: float = PATIENCE_SEC) -> None:
        """Wait until each of these one-shots has succeeded."""
        deadline = time.monotonic() + within_sec
        while (states := await self.states(jobs)) != {"SUCCEEDED": len(jobs)}:
            assert time.monotonic() < deadline, f"not within {within_sec:g} s: {states} of {len(jobs)}"
            await asyncio.sleep(0.05)

    async def quiet(self) -> None:
        """Wait until no execution is open, and none will be due."""

        async def look() -> bool:
            return not await self.store.query(UNFINISHED)

        await until(look)

    async def states(self, jobs: Sequence[Job]) -> Counter[str]:
        """Return how many of these one-shots are in each state; WAITING are those that have not been fired."""
        rows = await self.store.query(
            """SELECT x.state, count(*) FROM unnest($1::uuid[]) j (id) LEFT JOIN executions x ON x.job_id = j.id GROUP BY 1""",
            [job["jobId"] for job in jobs],
        )
        return Counter({"WAITING" if state is None else State(state).name: count for state, count in rows})

    async def execution(self, job: Job, state: str, within_sec: float = PATIENCE_SEC) -> Any:
        """Wait until the one execution of a one-shot is in a state, and return its row."""

        async def look() -> Any:
            rows = await self.store.query("SELECT * FROM executions WHERE job_id = $1", job["jobId"])
            return next((row for row in rows if State(row["state"]).name == state), None)

        return await until(look, within_sec)

    async def owners(self) -> Counter[str]:
        """How many partitions each instance owns."""
        return Counter(dict(await self.store.query("SELECT owner, count(*) FROM partitions GROUP BY owner")))

    async def owned_by(self, count: int, without: str = "") -> float:
        """Wait until so many schedulers own all partitions, none of them `without`. Returns how many seconds that took."""
        began = time.monotonic()

        async def look() -> bool:
            owners = await self.owners()
            return len(owners) == count and without not in owners and "" not in owners

        await until(look)
        return time.monotonic() - began

    async def epochs(self) -> dict[int, int]:
        return dict(await self.store.query("SELECT partition, epoch FROM partitions"))

    def lines(self, what: str | None = None, job: Job | None = None) -> list[dict[str, Any]]:
        """The lines that the handlers wrote, in order."""
        if not self.log.exists():
            return []
        # The last line may be incomplete while a handler writes it.
        whole, _, _ = self.log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if what in (None, line["what"]) and (job is None or job["jobId"] == line["job"])]

    async def started(self, job: Job, times: int = 1) -> dict[str, Any]:
        """Wait until the handler of a job was entered so many times, and return its last line."""
        return await until(lambda: len(lines := self.lines("start", job)) >= times and lines[-1])  # type: ignore[no-any-return]

    async def lateness(self, jobs: Sequence[Job]) -> float:
        """Return the lateness in seconds of the latest of these executions, if each started once."""
        rows = await self.store.query(
            "SELECT max(started_ms - due_ms) FROM executions WHERE job_id = ANY ($1::uuid[]) AND dispatch = 1",
            [job["jobId"] for job in jobs],
        )
        return float(rows[0][0]) / 1000

    async def metric(self, process: Process, name: str, **labels: str) -> float:
        """Return the sum of all series of a metric of a process that have these labels."""
        async with self._session.get(f"{process.url}/metrics") as response:
            families = text_string_to_metric_families(await response.text())
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    @asynccontextmanager
    async def without_workers_at_first(self) -> AsyncIterator[None]:
        """Start one process of each other role. Check at the end that no promise is broken, and kill all workers."""
        await self.have(api=1, scheduler=1, recorder=1)
        yield
        self.release_all()
        await self.quiet()
        problems = await self.problems()
        for worker in self.alive("worker"):
            worker.kill()
        assert not problems

    async def problems(self) -> list[str]:
        """Wait for quiet, and return every promise that was broken since the last call."""
        since_ms, self._checked_ms = self._checked_ms, now_ms()
        return problems_in(await self.store.copy(), self.answers, self.lines(), self.faults, since_ms)

    async def _clean(self) -> None:
        await self.store.drop()
        delete_topics(KafkaOptions(self.servers.kafka, prefix=self.name))
        async with Redis.from_url(self.servers.redis) as redis:
            if keys := [key async for key in redis.scan_iter(f"{self.name}:*", count=1000)]:
                await redis.delete(*keys)


@asynccontextmanager
async def cluster_on(folder: Path, servers: Servers, **settings: object) -> AsyncIterator[Cluster]:
    async with Cluster(folder, servers, **settings) as cluster:
        yield cluster


def _token() -> str:
    return mint(
        SECRET, tenant="default", subject="scenario", scopes=["operator"], ttl_seconds=86_400, now=int(time.time())
    )
