"""The notes of handlers, and what they say when they are compared with what was asked for."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from bench import BenchFailed
from bench.figures import Lateness, lateness


class Call(msgspec.Struct, frozen=True):
    number: int
    at_us: int
    is_end: bool = False


def read_calls(paths: Iterable[Path]) -> list[Call]:
    """In the order of time. A line that a killed process has not finished does not count. Raises BenchFailed."""
    calls = [_call(line, path) for path in paths if path.exists() for line in _whole_lines(path)]
    return sorted(calls, key=lambda call: call.at_us)


class Verdict(msgspec.Struct, frozen=True):
    lost: int
    """Not recorded as done, or never seen by a handler."""
    duplicated: int
    early: int
    lateness_ms: Lateness


def judge_calls(calls: Sequence[Call], due_ms: Callable[[int], int], numbers: range, recorded: int) -> Verdict:
    """Compare the starts of the numbers that were asked for with their due times. `recorded` is what the store says is done."""
    starts = [call for call in calls if not call.is_end and call.number in numbers]
    seen = {call.number for call in starts}
    late_us = [call.at_us - due_ms(call.number) * 1000 for call in starts]
    return Verdict(
        lost=len(numbers) - min(len(seen), recorded),
        duplicated=len(starts) - len(seen),
        early=sum(late < 0 for late in late_us),
        lateness_ms=lateness([late / 1000 for late in late_us]),
    )


class Outage(msgspec.Struct, frozen=True):
    """What became of jobs when a process was killed."""

    lost: int
    """Never came to an end, within the time that was waited."""
    duplicated: int
    """Came to an end more than once."""
    early: int
    again: int
    """Were started more than once."""
    again_sec: float | None
    """From the kill until the last of those was started again."""
    flows_sec: float | None
    """The greatest lateness of a job that fell due after the kill: so long nothing flowed. None if one never started."""


def judge_outage(calls: Sequence[Call], due_ms: Callable[[int], int], numbers: range, killed_us: int) -> Outage:
    mine = [call for call in calls if call.number in numbers]
    ends = Counter(call.number for call in mine if call.is_end)
    starts = Counter(call.number for call in mine if not call.is_end)
    first: dict[int, int] = {}
    for call in mine:
        if not call.is_end:
            first.setdefault(call.number, call.at_us)
    again = [call.at_us for call in mine if not call.is_end and call.at_us > max(killed_us, first[call.number])]
    after = [number for number in numbers if due_ms(number) * 1000 > killed_us]
    late_us = [first[number] - due_ms(number) * 1000 for number in after if number in first]
    return Outage(
        lost=sum(number not in ends for number in numbers),
        duplicated=sum(count - 1 for count in ends.values()),
        early=sum(at_us < due_ms(number) * 1000 for number, at_us in first.items()),
        again=sum(count > 1 for count in starts.values()),
        again_sec=round((max(again) - killed_us) / 1e6, 3) if again else None,
        flows_sec=round(max(late_us) / 1e6, 3) if late_us and len(late_us) == len(after) else None,
    )


def _whole_lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def _call(line: str, path: Path) -> Call:
    words = line.split()
    if len(words) in (2, 3) and words[0].isdecimal() and words[1].isdecimal() and words[2:] in ([], ["end"]):
        return Call(int(words[0]), int(words[1]), len(words) == 3)
    raise BenchFailed(
        f"{path} has the line {line[:100]!r}: expected `NUMBER MICROSECONDS` or `NUMBER MICROSECONDS end`"
    )
