"""The works: which jobs there are, and when each is due."""

from collections.abc import Sequence

import msgspec

from noonday.model.job import JobSpec, JobType, Target, instant_of
from noonday.model.tasks.wire import TaskPayload, TaskSpec, TaskType
from noonday.model.view import TenantSettings
from noonday.tasks.translating import to_job_spec
from noonday.webhooks.addresses import Networks
from noonday.webhooks.bounds import CallBounds

TARGET = Target("bench", "bench.note")
WAITING = Target("bench", "bench.wait")
BODY = {"type": "bench.called", "data": {"text": "x" * 200}}

BOUNDS = CallBounds(Networks(["127.0.0.0/8"]), timeout_sec=3_600)
"""Of the server that is measured, which calls a receiver beside it."""


class Burst(msgspec.Struct, frozen=True, tag="burst"):
    """One-shots that are all due at one instant."""

    jobs: int

    @property
    def lasts_ms(self) -> int:
        return 0

    def spec(self, place: int, begin_ms: int) -> JobSpec:
        return one_shot(begin_ms)

    def times(self, place: int, begin_ms: int) -> Sequence[int]:
        return (begin_ms,)


class Stream(msgspec.Struct, frozen=True, tag="stream"):
    """One-shots whose times are spread evenly."""

    rate: float
    seconds: float

    @property
    def jobs(self) -> int:
        return max(1, round(self.rate * self.seconds))

    @property
    def lasts_ms(self) -> int:
        return round(self.seconds * 1000)

    def spec(self, place: int, begin_ms: int) -> JobSpec:
        return one_shot(self._due_ms(place, begin_ms))

    def times(self, place: int, begin_ms: int) -> Sequence[int]:
        return (self._due_ms(place, begin_ms),)

    def _due_ms(self, place: int, begin_ms: int) -> int:
        return begin_ms + int(place * 1000 / self.rate)


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """One-shots that are all due at one instant, and whose handlers then wait, as for somebody's answer."""

    jobs: int
    seconds: float

    @property
    def lasts_ms(self) -> int:
        return round(self.seconds * 1000)

    def spec(self, place: int, begin_ms: int) -> JobSpec:
        return msgspec.structs.replace(one_shot(begin_ms), target=WAITING, payload=self.seconds)

    def times(self, place: int, begin_ms: int) -> Sequence[int]:
        return (begin_ms,)


class Webhooks(msgspec.Struct, frozen=True, tag="webhooks"):
    """Tasks that are all due at one instant, and call somebody who answers after a while."""

    jobs: int
    seconds: float
    url: str = ""

    @property
    def lasts_ms(self) -> int:
        return round(self.seconds * 1000)

    def spec(self, place: int, begin_ms: int) -> JobSpec:
        task = TaskSpec(
            type=TaskType.ONE_TIME,
            payload=TaskPayload(webhook_url=self.url, body=BODY),
            scheduled_at=instant_of(begin_ms),
            timeout_seconds=self.seconds + 60,
        )
        return to_job_spec(task, begin_ms - 1, BOUNDS)

    def times(self, place: int, begin_ms: int) -> Sequence[int]:
        return (begin_ms,)


class Crons(msgspec.Struct, frozen=True, tag="crons"):
    """Periodic jobs, each of which fires every so many seconds.

    Their phases are spread evenly over the period, or all the same if `bunched`. With `by_cron` they are cron expressions
    with a field for seconds, so their times are whole seconds and the period divides a minute.
    """

    jobs: int
    every_sec: int
    seconds: float
    bunched: bool = False
    by_cron: bool = False

    @property
    def lasts_ms(self) -> int:
        return round(self.seconds * 1000)

    def spec(self, place: int, begin_ms: int) -> JobSpec:
        start, end = instant_of(begin_ms), instant_of(begin_ms + self.lasts_ms - 1)
        phase_ms = self._phase_ms(place)
        if not self.by_cron:
            return JobSpec(
                type=JobType.INTERVAL,
                target=TARGET,
                every_sec=self.every_sec,
                phase_sec=phase_ms / 1000,
                start_at=start,
                end_at=end,
            )
        seconds = ",".join(map(str, range(phase_ms // 1000, 60, self.every_sec)))
        return JobSpec(
            type=JobType.CRON,
            target=TARGET,
            schedule=f"{seconds} * * * * *",
            timezone="UTC",
            start_at=start,
            end_at=end,
        )

    def times(self, place: int, begin_ms: int) -> Sequence[int]:
        every_ms = self.every_sec * 1000
        first = begin_ms + (self._phase_ms(place) - begin_ms) % every_ms
        return range(first, begin_ms + self.lasts_ms, every_ms)

    def _phase_ms(self, place: int) -> int:
        if self.bunched:
            return 0
        phase_ms = place * self.every_sec * 1000 // self.jobs
        return phase_ms // 1000 * 1000 if self.by_cron else phase_ms


class Party(msgspec.Struct, frozen=True):
    """A tenant that takes part."""

    tenant: str
    jobs: int
    settings: TenantSettings = TenantSettings()


class Tenants(msgspec.Struct, frozen=True, tag="tenants"):
    """One-shots of several tenants that are all due at one instant."""

    parties: tuple[Party, ...]

    @property
    def jobs(self) -> int:
        return sum(party.jobs for party in self.parties)

    @property
    def lasts_ms(self) -> int:
        return 0

    def spec(self, place: int, begin_ms: int) -> JobSpec:
        return one_shot(begin_ms)

    def times(self, place: int, begin_ms: int) -> Sequence[int]:
        return (begin_ms,)

    def tenant_of(self, place: int) -> str:
        """Those of one tenant come one after the other."""
        for party in self.parties:
            if place < party.jobs:
                return party.tenant
            place -= party.jobs
        raise IndexError(place)


Work = Burst | Stream | Crons | Waiting | Webhooks | Tenants

_DAY_MS = 86_400_000
_ZONES = ("UTC", "America/Los_Angeles", "Europe/Berlin", "Asia/Tokyo")


class AtRest(msgspec.Struct, frozen=True, tag="at-rest"):
    """What lies in the store while something else is measured: one-shots and crons, none of them due for days."""

    one_shots: int
    crons: int

    @property
    def jobs(self) -> int:
        return self.one_shots + self.crons

    def spec(self, place: int, now_ms: int) -> JobSpec:
        if place >= self.one_shots:
            return self._cron(place, now_ms)
        ahead_ms = 30 * _DAY_MS + place * 300 * _DAY_MS // self.one_shots
        return one_shot(now_ms + ahead_ms)

    def _cron(self, place: int, now_ms: int) -> JobSpec:
        # A day that is neither near nor missing in any month.
        day = (instant_of(now_ms + 10 * _DAY_MS).day - 1) % 28 + 1
        minute, hour = place % 60, place // 60 % 24
        zone = _ZONES[place % len(_ZONES)]
        return JobSpec(type=JobType.CRON, target=TARGET, schedule=f"{minute} {hour} {day} * *", timezone=zone)


def one_shot(due_ms: int) -> JobSpec:
    return JobSpec(type=JobType.ONE_TIME, target=TARGET, run_at=instant_of(due_ms))
