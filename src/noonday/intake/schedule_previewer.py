"""Schedule previewer: describes a schedule and its next times."""

from noonday.model import cron_parsing
from noonday.model.errors import InvalidInput
from noonday.model.filters import PreviewRequest
from noonday.model.job import JobType, instant_of, ms_of
from noonday.model.schedule import CronRule, IntervalRule, Occurrence, Rule, describe
from noonday.model.view import Preview, PreviewTime
from noonday.model.zones import zone
from noonday.ports.clock import Clock
from noonday.ports.offload import MayContinue, Offload

_YEAR_9999_MS = 253_370_764_800_000
"""Upper bound of previewed times: Python's dates end with the year 9999."""


class SchedulePreviewer:
    """Previews schedules without creating jobs."""

    def __init__(self, clock: Clock, offload: Offload) -> None:
        """`offload` computes fire times off the event loop."""
        self._clock = clock
        self._offload = offload

    async def preview(self, request: PreviewRequest) -> Preview:
        """Describe a schedule and list its next times. Raises InvalidInput."""
        rule, text = _rule_of(request)
        from_ms = ms_of(request.from_)
        after_ms = self._clock.now_ms() if from_ms is None else from_ms
        occurrences, is_least = await self._offload.run(lambda may: _described(rule, after_ms, request.count, may))
        return Preview(
            description=text,
            timezone=rule.timezone if isinstance(rule, CronRule) else None,
            times=tuple(
                PreviewTime(utc=instant_of(each.at_ms), local=each.local, dst=each.dst) for each in occurrences
            ),
            is_least=is_least,
        )


def _described(rule: Rule, after_ms: int, count: int, may_continue: MayContinue) -> tuple[list[Occurrence], bool]:
    times, is_least = rule.take_while(after_ms, count, _YEAR_9999_MS - 1, may_continue)
    return [describe(time, rule) for time in times], is_least


def _rule_of(request: PreviewRequest) -> tuple[Rule, str]:
    """Return the rule of a schedule and its description."""
    if request.type is JobType.CRON:
        return _cron(request)
    if request.type is JobType.INTERVAL:
        return _interval(request)
    raise InvalidInput.of("/type", "only schedules of type CRON and INTERVAL can be previewed", request.type.value)


def _cron(request: PreviewRequest) -> tuple[Rule, str]:
    if request.schedule is None:
        raise InvalidInput.of("/schedule", "a preview of type CRON needs schedule")
    cron_parsing.parse(request.schedule)
    timezone = "UTC" if request.timezone is None else request.timezone
    zone(timezone)
    rule = CronRule(request.schedule, timezone, request.dst.gap, request.dst.repeat)
    return rule, cron_parsing.explain(request.schedule)


def _interval(request: PreviewRequest) -> tuple[Rule, str]:
    if request.every_sec is None or not 1 <= request.every_sec <= 10**9:
        raise InvalidInput.of("/everySec", "a preview of type INTERVAL needs everySec from 1 to 1e9", request.every_sec)
    if not 0 <= request.phase_sec <= 10**9:
        raise InvalidInput.of("/phaseSec", "must be from 0 to 1e9", request.phase_sec)
    every = IntervalRule(round(request.every_sec * 1000), round(request.phase_sec * 1000))
    return every, f"Every {request.every_sec:g} seconds"
