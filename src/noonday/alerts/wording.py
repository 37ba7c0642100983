"""What a notice says."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from noonday.model.alert import AlertKind
from noonday.model.job import text_of
from noonday.model.notice import Digest, Line

SUBJECTS = 20
"""Of so many things a notice says what happened to them; of the others, how many they are."""
LONGEST_NAME = 80
EVENT = "noonday.alerts"

_WORDS = {
    AlertKind.FAILED: ("failed and is tried again", "failed and are tried again"),
    AlertKind.EXHAUSTED: ("dead letter", "dead letters"),
    AlertKind.STOPPED: ("stopped", "stopped"),
    AlertKind.DISABLED: ("disabled", "disabled"),
    AlertKind.MISSED: ("missed", "missed"),
    AlertKind.SLOW: ("slow", "slow"),
    AlertKind.RECOVERED: ("recovered", "recovered"),
}
"""One, and several. In the order in which they are told."""


def subject_of(digest: Digest) -> str:
    """`[noonday] nightly: 3 dead letters, 1 recovered`."""
    if not digest.counts:
        return f"[noonday] {digest.preference}: this is a test"
    whose = name_of(digest.lines[0]) if digest.subjects == 1 else f"{_number(digest.subjects)} {_things(digest)}"
    return f"[noonday] {whose}: {counted(digest.counts)}"


def text_of_digest(digest: Digest) -> str:
    """The whole message, as plain text."""
    if not digest.counts:
        return f"This is a test of the alert preference {digest.preference!r}.\n\n{_whose(digest)}\n"
    span = f"{text_of(digest.first_ms)} to {text_of(digest.last_ms)}"
    told = [_told(list(lines)) for _, lines in groupby(digest.lines, key=lambda line: line.about)]
    more = [f"... and {_number(digest.untold)} more. `noonday alert list` shows them."] if digest.untold else []
    return "\n\n".join([f"{counted(digest.counts)}\n{span}", *told, *more, _whose(digest)]) + "\n"


def event_of(digest: Digest, at_ms: int) -> dict[str, Any]:
    """The body of an operational webhook."""
    data = {
        "tenant": digest.tenant,
        "preference": digest.preference,
        "notice_id": digest.id,
        "test": not digest.counts,
        "counts": dict(digest.counts),
        "alerts": [_entry(line) for line in digest.lines],
        "more": digest.untold,
    }
    return {"type": EVENT, "timestamp": text_of(at_ms), "data": data}


def counted(counts: Mapping[AlertKind, int]) -> str:
    return ", ".join(f"{_number(counts[kind])} {_word(kind, counts[kind])}" for kind in _WORDS if kind in counts)


def name_of(line: Line) -> str:
    """What it happened to, as people know it."""
    name = line.job_name or line.endpoint or line.job_id or "other jobs"
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _told(lines: Sequence[Line]) -> str:
    """What happened to one thing: a failure and what mended it are told together."""
    last = max(lines, key=lambda line: (line.last_ms, line.kind is AlertKind.RECOVERED))
    failures = [line for line in lines if line.kind is not AlertKind.RECOVERED]
    said = [counted({line.kind: line.count for line in failures})] if failures else []
    if len(failures) < len(lines):
        said.append("it works again" if last.kind is AlertKind.RECOVERED else "it had recovered in between")
    head = f"{_plain(name_of(last))}: {', '.join(said)}"
    worst = max(failures, key=lambda line: line.last_ms) if failures else last
    return "\n".join([head, *(f"  {each}" for each in _details(worst, lines))])


def _details(line: Line, lines: Sequence[Line]) -> list[str]:
    first_ms, last_ms = min(each.first_ms for each in lines), max(each.last_ms for each in lines)
    when = text_of(first_ms) if first_ms == last_ms else f"{text_of(first_ms)} to {text_of(last_ms)}"
    named = {"job": line.job_id, "execution": line.execution_id, "pool": line.pool, "endpoint": line.endpoint}
    places = ", ".join(f"{what} {_plain(name)}" for what, name in named.items() if name)
    return [each for each in (when, places, _plain(line.message)) if each]


def _entry(line: Line) -> dict[str, Any]:
    return {
        "id": line.alert_id,
        "kind": line.kind.value,
        "count": line.count,
        "job_id": line.job_id or None,
        "name": line.job_name,
        "pool": line.pool or None,
        "execution_id": line.execution_id or None,
        "endpoint": line.endpoint,
        "message": line.message,
        "first_at": text_of(line.first_ms),
        "last_at": text_of(line.last_ms),
    }


def _things(digest: Digest) -> str:
    return "jobs and endpoints" if AlertKind.DISABLED in digest.counts else "jobs"


def _whose(digest: Digest) -> str:
    return f"Sent to you by Noonday, tenant {digest.tenant}, because of the alert preference {digest.preference!r}."


def _word(kind: AlertKind, count: int) -> str:
    return _WORDS[kind][count != 1]


def _number(count: int) -> str:
    return f"{count:,}"


def _plain(text: str) -> str:
    """On one line, without what could make a program that shows it do something else."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
