"""Ends of pauses: a job is resumed once, at the end of its last pause, and neither before nor much later."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.simulation.history import Answer, History, Span
from tests.simulation.lateness import LATE_MS, uncovered
from tests.simulation.rows import Resumed, Rows

ROUND_MS = 1_000
"""Time in ms after which a resumer learns of an end that was stored meanwhile."""
SAME_MS = 50


def check_ends_of_pauses(rows: Rows, history: History, faults: Sequence[Span], now_ms: int) -> Iterator[str]:
    by_job: dict[str, list[Answer]] = defaultdict(list)
    for answer in history.asked("pause", "resume", "delete"):
        by_job[answer.target].append(answer)
    for job, resumed in rows.resumed.items():
        for each in resumed:
            yield from _flaws(job, each, by_job[job], faults, history.skew_ms)
    for job, requests in by_job.items():
        ends = {each.until_ms for each in rows.resumed.get(job, ())}
        for end_ms, known_until_ms in _sure_ends(requests, now_ms):
            late_ms = uncovered(end_ms, known_until_ms, faults)
            if end_ms not in ends and late_ms > ROUND_MS + LATE_MS + history.skew_ms:
                yield f"until: job {job} was to be resumed at {end_ms}, and was not until {known_until_ms}"


def _flaws(job: str, each: Resumed, requests: Sequence[Answer], faults: Sequence[Span], skew_ms: int) -> Iterator[str]:
    slack_ms = SAME_MS + skew_ms
    if any(a.verb == "resume" and a.asked_ms - slack_ms <= each.at_ms <= a.at_ms + slack_ms for a in requests):
        return
    pauses = [
        a for a in requests if a.verb == "pause" and a.value == each.until_ms and a.asked_ms <= each.at_ms + slack_ms
    ]
    if each.until_ms is None or not pauses:
        yield f"until: nobody asked to resume job {job} at {each.at_ms}"
        return
    if each.at_ms < each.until_ms - skew_ms:
        yield f"until: job {job} was resumed at {each.at_ms}, ahead of the end of its pause at {each.until_ms}"
    asked_ms = max(a.at_ms for a in pauses)
    later = [a for a in requests if a.is_certain and a.asked_ms > asked_ms and a.at_ms + slack_ms < each.at_ms]
    if any(a.value != each.until_ms for a in later):
        yield f"until: job {job} was resumed at {each.at_ms} by an end of a pause that was replaced or taken back"
    known_ms = max(each.until_ms, min(a.asked_ms for a in pauses))
    if uncovered(known_ms, each.at_ms, faults) > ROUND_MS + LATE_MS + skew_ms:
        yield f"until: job {job} was to be resumed at {each.until_ms}, and was at {each.at_ms}"


def _sure_ends(requests: Sequence[Answer], now_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of pauses that no request may have replaced, and until when there was no other request."""
    for number, pause in enumerate(requests):
        if pause.action != "pause" or pause.value is None:
            continue
        following = requests[number + 1] if number + 1 < len(requests) else None
        if number and not requests[number - 1].is_certain:
            continue  # it may have taken effect after the pause
        yield pause.value, now_ms if following is None else following.asked_ms
