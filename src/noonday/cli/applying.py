"""Compare the jobs of a set of files with those of a server, and make the server's equal."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from noonday.cli.job_files import OF_FILES, JobSet, WantedJob
from noonday.model.errors import Conflict, InvalidInput, NoondayError, NotFound, PayloadTooLarge, VersionMismatch
from noonday.model.job import JobSpec, JobType, anchor_of, check, instant_of, rule_of, wire_name
from noonday.model.view import JobView
from noonday.sdk.problems import Problem
from noonday.sdk.sync import SyncClient

TIMES = 3
"""Number of next times that are shown."""
LIVE = ("ACTIVE", "PAUSED")
OF_CODE = "code:"
"""Prefix of the unique keys of jobs that an application declares in code."""
_LONGEST_KEY = 200
_FIELDS = tuple(field.name for field in msgspec.structs.fields(JobSpec))
_TIMING = frozenset(
    ["type", "run_at", "delay_sec", "schedule", "timezone", "dst", "every_sec", "phase_sec", "start_at", "end_at"]
)


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    GONE = "gone"
    SAME = "same"


class MemberChange(NamedTuple):
    """A member of a job that the files change."""

    pointer: str
    before: Any
    after: Any


class Step(NamedTuple):
    """What `apply` does about one job."""

    action: Action
    name: str
    wanted: JobSpec | None = None
    present: JobView | None = None
    differences: tuple[MemberChange, ...] = ()

    @property
    def changes_times(self) -> bool:
        names = {wire_name(name) for name in _TIMING}
        return any(each.pointer[1:] in names for each in self.differences)


def plan(client: SyncClient, files: JobSet, now_ms: int) -> list[Step]:
    """Return what makes the server's jobs equal to those of the files.

    Raises InvalidInput with every flaw of the jobs to create or change, and Conflict if several jobs have the same name.
    """
    of_set = [job for job in client.list_jobs(tag=files.tag, limit=500).items() if job.state != "CANCELLED"]
    matcher = _Matcher(client, files, of_set)
    steps = [_step(matcher.find(one), one, files) for one in files.jobs]
    _check_all(zip(files.jobs, steps, strict=True), now_ms)
    kept = {step.present.job_id for step in steps if step.present}
    gone = [job for job in of_set if job.job_id not in kept and job.state in LIVE]
    return steps + [Step(Action.GONE, label_of(job), present=job) for job in gone]


def perform(client: SyncClient, steps: Sequence[Step], *, prune: bool) -> Iterator[tuple[Step, NoondayError | None]]:
    """Carry out the steps, and yield each with its error. Repeating them after a crash continues where they ended."""
    new = [step for step in steps if step.action is Action.CREATE]
    created = client.create_many([step.wanted for step in new if step.wanted]) if new else []
    for step, answer in zip(new, created, strict=True):
        yield step, answer.error() if isinstance(answer, Problem) else None
    for step in steps:
        if step.action is Action.CHANGE or (step.action is Action.GONE and prune):
            yield step, _attempt(client, step)


def next_times(spec: JobSpec, anchor_ms: int, now_ms: int) -> list[int]:
    """Return the next times of a job, without its spread."""
    return rule_of(spec, anchor_ms).take(now_ms, TIMES)


def times_after(step: Step, now_ms: int) -> list[int]:
    if step.wanted is None:
        return []
    return next_times(step.wanted, anchor_of(step.wanted, now_ms), now_ms)


def times_before(step: Step, now_ms: int) -> list[int]:
    job = step.present
    if job is None or job.next_fire_at is None:
        return []
    if job.type in (JobType.ONE_TIME, JobType.DELAYED):
        return [round(job.next_fire_at.timestamp() * 1000)]
    return next_times(spec_of(job), round(job.updated_at.timestamp() * 1000), now_ms)


def spec_of(job: JobView) -> JobSpec:
    """Return the definition of a job."""
    return JobSpec(**{name: getattr(job, name) for name in _FIELDS})


def label_of(job: JobView) -> str:
    return job.name or job.unique_key or job.job_id


def _attempt(client: SyncClient, step: Step) -> NoondayError | None:
    assert step.present is not None
    try:
        if step.wanted is None:
            client.delete(step.present.job_id)
        else:
            client.replace(step.present.job_id, step.wanted, if_version=step.present.version)
    except (InvalidInput, Conflict, NotFound, PayloadTooLarge) as refused:
        return refused
    except VersionMismatch as changed:
        return Conflict(f"job {step.name!r} was changed meanwhile: {changed.detail}; run the command again")
    return None


class _Matcher:
    """Finds the jobs of the server that the jobs of the files stand for."""

    def __init__(self, client: SyncClient, files: JobSet, of_set: Iterable[JobView]) -> None:
        self._client = client
        self._files = files
        self._by_key = {job.unique_key: job for job in of_set if job.unique_key is not None}
        self._by_name: dict[str, list[JobView]] = {}
        for job in of_set:
            if job.name is not None:
                self._by_name.setdefault(job.name, []).append(job)

    def find(self, one: WantedJob) -> JobView | None:
        found = self._of_key(one.spec.unique_key or key_of(self._files, one.spec.name or ""))
        if found is not None or one.spec.unique_key is not None or one.spec.name is None:
            return found
        return self._of_name(one)

    def _of_key(self, key: str) -> JobView | None:
        if key in self._by_key:
            return self._by_key[key]
        return next(self._client.list_jobs(unique_key=key, limit=1).items(), None)

    def _of_name(self, one: WantedJob) -> JobView | None:
        name = one.spec.name or ""
        named = self._by_name.get(name) or list(next(iter(self._client.list_jobs(name=name, limit=500))).jobs)
        live = [job for job in named if job.state in LIVE]
        if len(live) > 1:
            ids = ", ".join(job.job_id for job in live)
            raise Conflict(
                f"{one.place}: several jobs are named {name!r} ({ids}): give the job in the file a uniqueKey"
            )
        if live and (live[0].unique_key or "").startswith(OF_CODE):
            raise Conflict(
                f"{one.place}: job {name!r} is declared in code ({live[0].job_id}): remove it from the file, or from the code"
            )
        return live[0] if live else None


def key_of(files: JobSet, name: str) -> str:
    """Return the unique key of a job that has none in its file, so that two simultaneous `apply` create one job."""
    key = f"{files.tag}/{name}"
    return key if len(key) <= _LONGEST_KEY else f"{files.tag}/{blake2b(name.encode(), digest_size=16).hexdigest()}"


def _step(present: JobView | None, one: WantedJob, files: JobSet) -> Step:
    tags = tuple(tag for tag in one.spec.tags if not tag.startswith(OF_FILES))
    wanted = msgspec.structs.replace(one.spec, tags=(*tags, files.tag))
    if present is None:
        key = one.spec.unique_key or key_of(files, one.spec.name or "")
        return Step(Action.CREATE, one.label, msgspec.structs.replace(wanted, unique_key=key))
    wanted = msgspec.structs.replace(wanted, unique_key=present.unique_key)
    if wanted.spread_sec is None:
        wanted = msgspec.structs.replace(wanted, spread_sec=present.spread_sec)  # may be the tenant's default
    differences = tuple(_differences(spec_of(present), wanted))
    action = Action.CHANGE if differences else Action.SAME
    return Step(action, one.label, wanted, present, differences)


def _differences(before: JobSpec, after: JobSpec) -> Iterator[MemberChange]:
    for name in _FIELDS:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield MemberChange(f"/{wire_name(name)}", msgspec.to_builtins(old), msgspec.to_builtins(new))


def _check_all(steps: Iterable[tuple[WantedJob, Step]], now_ms: int) -> None:
    flaws = []
    for one, step in steps:
        if step.action in (Action.CREATE, Action.CHANGE) and step.wanted is not None:
            try:
                check(step.wanted, now_ms)
            except InvalidInput as bad:
                flaws += [msgspec.structs.replace(flaw, pointer=f"{one.place}: {flaw.pointer}") for flaw in bad.flaws]
    if flaws:
        raise InvalidInput(f"{len(flaws)} values are not valid; nothing was changed", flaws)


def times_text(times: Iterable[int]) -> list[str]:
    return [f"{instant_of(at):%Y-%m-%d %H:%M:%SZ}" for at in times]
