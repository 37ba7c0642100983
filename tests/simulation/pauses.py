"""When jobs were paused, by the requests of their users. The value of a pause is its end, or None."""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.simulation.history import Answer, Span


def spans_of_pauses(answers: Sequence[Answer], now_ms: int) -> Mapping[str, list[Span]]:
    """For each job, when it may have been paused: from the request for a pause to its end, or to the answer of a resume."""
    found: dict[str, list[Span]] = defaultdict(list)
    since: dict[str, tuple[int, int]] = {}
    for answer in answers:
        if answer.verb not in ("pause", "resume"):
            continue
        from_ms, until_ms = since.pop(answer.target, (answer.asked_ms, 0))
        if answer.verb == "resume":
            found[answer.target].append(Span("paused", from_ms, min(until_ms, answer.at_ms)))
            continue
        if 0 < until_ms <= answer.asked_ms:
            found[answer.target].append(Span("paused", from_ms, until_ms))
            from_ms = answer.asked_ms
        end_ms = answer.value or now_ms
        # Without an answer, the former end may still hold.
        since[answer.target] = from_ms, end_ms if answer.is_certain else max(end_ms, until_ms)
    for job, (from_ms, until_ms) in since.items():
        found[job].append(Span("paused", from_ms, until_ms))
    return found


def sure_pauses(answers: Sequence[Answer], skew_ms: int) -> Mapping[str, list[tuple[int, int]]]:
    """For each job, (when a pause was acknowledged, when it ended at the earliest: its end, or the request for a resume)."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    since: dict[str, tuple[int, int]] = {}
    for answer in answers:
        if answer.verb not in ("pause", "resume"):
            continue
        paused_ms, until_ms = since.pop(answer.target, (sys.maxsize, sys.maxsize))
        if answer.verb == "resume" or until_ms <= answer.at_ms:
            if paused_ms < sys.maxsize:
                found[answer.target].append((paused_ms, min(until_ms, answer.asked_ms)))
            paused_ms = until_ms = sys.maxsize
        if answer.action == "pause":
            since[answer.target] = min(paused_ms, answer.at_ms), (answer.value or sys.maxsize) - skew_ms
        elif answer.verb == "pause" and paused_ms < sys.maxsize:
            since[answer.target] = paused_ms, min(until_ms, (answer.value or sys.maxsize) - skew_ms)
    for job, span in since.items():
        found[job].append(span)
    return found
