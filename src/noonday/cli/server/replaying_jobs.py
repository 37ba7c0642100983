"""Replay of past dispatches from Kafka as new jobs, with a rate limit and a failure limit."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from noonday.cli.replaying import ReplayLimits, ReportProgress
from noonday.cli.server.local import read_settings
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.replay import read_back
from noonday.model.errors import BadKey, Conflict
from noonday.model.firing import LANES
from noonday.model.job import JobSpec, JobType, Priority, Target
from noonday.model.message import Dispatch
from noonday.model.view import ExecutionView, JobView
from noonday.runtime.clock import SystemClock
from noonday.sdk.client import Client
from noonday.wiring.cluster.servers import kafka_options, keyring_of


class ReplayRequest(msgspec.Struct, frozen=True):
    """Source and destination of a replay."""

    replay_id: str
    pool: str
    into: str
    tenant: str
    from_ms: int
    to_ms: int

    @property
    def tag(self) -> str:
        return f"replay:{self.replay_id}"

    def key_of(self, dispatch: Dispatch) -> str:
        """Return the unique key of the job that replays an execution. Repeated requests create one job."""
        return f"{self.tag}:{self.into}:{dispatch.execution_id}"


class ReplayEstimate(msgspec.Struct, rename="camel"):
    """Numbers of executions that a replay creates."""

    dispatches: int = 0
    executions: int = 0
    of_other_tenants: int = 0
    handlers: Counter[str] = msgspec.field(default_factory=Counter)

    def lines(self) -> list[tuple[str, str]]:
        lines = [("executions", f"{self.executions} ({self.dispatches} dispatches)")]
        lines += [(f"  {handler}", str(count)) for handler, count in self.handlers.most_common()]
        if self.of_other_tenants:
            lines.append(("other tenants", f"{self.of_other_tenants} dispatches, not replayed"))
        return lines


class ReplayProgress(msgspec.Struct):
    """Progress of a replay."""

    created: int = 0
    there_already: int = 0
    """Jobs created by an earlier replay with the same id."""
    failed: int = 0
    unreadable: int = 0

    def __str__(self) -> str:
        text = f"replayed {self.created}, of which {self.failed} failed so far"
        text += f"; {self.there_already} replayed before" if self.there_already else ""
        return text + (f"; {self.unreadable} not decryptable with these keys" if self.unreadable else "")

    @property
    def asked_for(self) -> int:
        return self.created + self.there_already

    def members(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def past_of(config: Path | None, wanted: ReplayRequest) -> "PastDispatches":
    """Return the past executions of the cluster that the settings describe."""
    settings = read_settings(config)
    return PastDispatches(kafka_options(settings), keyring_of(settings), wanted)


class PastDispatches:
    """Past executions of a pool, read from Kafka; each appears once, whatever its number of dispatches."""

    def __init__(self, options: KafkaOptions, keyring: Keyring, wanted: ReplayRequest) -> None:
        self._options = options
        self._keyring = keyring
        self.wanted = wanted

    async def count(self) -> ReplayEstimate:
        found, seen = ReplayEstimate(), set[str]()
        async for dispatches in self._read():
            found.dispatches += len(dispatches)
            found.of_other_tenants += sum(each.tenant != self.wanted.tenant for each in dispatches)
            new = self._new(dispatches, seen)
            found.executions += len(new)
            found.handlers.update(each.handler for each in new)
        return found

    async def executions(self) -> AsyncIterator[list[Dispatch]]:
        seen: set[str] = set()
        async for dispatches in self._read():
            if new := self._new(dispatches, seen):
                yield new

    def _new(self, dispatches: Sequence[Dispatch], seen: set[str]) -> list[Dispatch]:
        """Return the last dispatch of each execution that was not seen before."""
        ours = {each.execution_id: each for each in dispatches if each.tenant == self.wanted.tenant}
        new = [each for name, each in ours.items() if name not in seen]
        seen.update(ours)
        return new

    def spec_of(self, dispatch: Dispatch) -> JobSpec:
        """Return a one-time job with the handler and payload of a dispatch. Raises BadKey."""
        return JobSpec(
            type=JobType.ONE_TIME,
            target=Target(self.wanted.into, dispatch.handler),
            name=dispatch.name,
            payload=self._payload_of(dispatch),
            priority=Priority(LANES[dispatch.lane]),
            timeout_sec=dispatch.timeout_sec,
            heartbeat_timeout_sec=dispatch.heartbeat_timeout_sec,
            unique_key=self.wanted.key_of(dispatch),
            tags=(self.wanted.tag,),
        )

    def _payload_of(self, dispatch: Dispatch) -> object:
        if dispatch.payload is None:
            return None
        context = context_of(dispatch.tenant, dispatch.job_id)
        payload: object = msgspec.json.decode(self._keyring.open(dispatch.payload, context))
        return payload

    def _read(self) -> AsyncIterator[list[Dispatch]]:
        wanted = self.wanted
        return read_back(self._options, self._keyring, wanted.pool, wanted.from_ms, wanted.to_ms)


class Replay:
    """Creates the jobs of a replay through the API, within its rate limit and failure limit."""

    def __init__(
        self,
        client: Client,
        past: PastDispatches,
        rate: float,
        most_failures: int,
        progress: ReportProgress = lambda created, failed: None,
    ) -> None:
        self._client = client
        self._past = past
        self._progress = progress
        self._made = ReplayProgress()
        self._limits = ReplayLimits(
            self._made,
            self._latest,
            rate=rate,
            most_failures=most_failures,
            remaining="Created jobs",
            clock=SystemClock(),
        )

    async def run(self) -> ReplayProgress:
        """Create all jobs. Raises Conflict if too many fail, or if the token belongs to another tenant."""
        self._limits.begin()
        async for dispatches in self._past.executions():
            specs = self._specs_of(dispatches)
            while specs:
                # The first request creates one job, because its response shows the tenant of the token.
                size = self._limits.batch_size if self._made.asked_for else 1
                await self._create(specs[:size])
                specs = specs[size:]
                await self._limits.after_batch(self._progress)
        await self._limits.look()
        return self._made

    def _specs_of(self, dispatches: Sequence[Dispatch]) -> list[JobSpec]:
        specs = []
        for dispatch in dispatches:
            try:
                specs.append(self._past.spec_of(dispatch))
            except BadKey:
                self._made.unreadable += 1
        return specs

    async def _create(self, specs: Sequence[JobSpec]) -> None:
        for answer in await self._client.create_many(specs, atomic=True):
            if not isinstance(answer, JobView):
                raise answer.error()
            if answer.tenant != self._past.wanted.tenant:
                raise Conflict(
                    f"the token belongs to tenant {answer.tenant}; pass a token of tenant {self._past.wanted.tenant}"
                )
            self._note(answer)

    def _note(self, job: JobView) -> None:
        """Count a job. An active job is new; a finished one was created by an earlier replay."""
        if job.state == "ACTIVE":
            self._made.created += 1
            self._limits.watch(job.job_id)
        else:
            self._made.there_already += 1

    async def _latest(self, job_id: str) -> ExecutionView | None:
        job = await self._client.get_job(job_id, executions=1)
        return job.executions[0] if job.executions else None
