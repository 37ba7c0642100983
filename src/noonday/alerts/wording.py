"""Text of notices: subject, message, and body of operational webhooks."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from noonday.model.alert import AlertKind
from noonday.model.job import text_of
from noonday.model.notice import Digest, DigestItem, single_line

SUBJECTS = 20
"""Jobs and endpoints that a notice describes; it only counts the others."""
LONGEST_NAME = 80
EVENT = "noonday.alerts"

_NOUNS = {
    AlertKind.FAILED: ("first attempt failed", "first attempts failed"),
    AlertKind.EXHAUSTED: ("dead letter", "dead letters"),
    AlertKind.STOPPED: ("stopped", "stopped"),
    AlertKind.DISABLED: ("disabled", "disabled"),
    AlertKind.MISSED: ("missed", "missed"),
    AlertKind.SLOW: ("slow", "slow"),
    AlertKind.RECOVERED: ("recovered", "recovered"),
}
"""Singular and plural, in the order in which a notice lists them."""

_VERBS = {
    AlertKind.FAILED: "failed and will be retried",
    AlertKind.EXHAUSTED: "failed",
    AlertKind.STOPPED: "stopped",
    AlertKind.DISABLED: "disabled",
    AlertKind.MISSED: "did not run on time",
    AlertKind.SLOW: "running longer than usual",
    AlertKind.RECOVERED: "recovered",
}
"""Follow the name of a job or endpoint in the subject of a notice about one event."""


def dead_execution_of(digest: Digest) -> str | None:
    """Return the execution that a digest is about if it is about one dead letter and nothing else."""
    return digest.lines[0].execution_id or None if digest.counts == {AlertKind.EXHAUSTED: 1} else None


def subject_of(digest: Digest, attempts: int | None = None) -> str:
    """Build the subject: `[noonday] nightly failed after 3 attempts`, `[noonday] nightly: 3 dead letters, 1 recovered`.

    `attempts` is the number of attempts of `dead_execution_of(digest)`, if known.
    """
    if not digest.counts:
        return f"[noonday] test of alert preference {digest.preference}"
    if digest.subjects > 1:
        return f"[noonday] {_number(digest.subjects)} {_subject_noun(digest)}: {_counts(digest.counts)}"
    name = name_of(digest.lines[0])
    if attempts and dead_execution_of(digest):
        return f"[noonday] {name} failed after {_number(attempts)} {'attempt' if attempts == 1 else 'attempts'}"
    if sum(digest.counts.values()) == 1:
        (kind,) = digest.counts
        return f"[noonday] {name} {_VERBS[kind]}"
    return f"[noonday] {name}: {_counts(digest.counts)}"


def text_of_digest(digest: Digest) -> str:
    """Build the whole message as plain text."""
    if not digest.counts:
        return f"This is a test of the alert preference {digest.preference!r}.\n\n{_footer(digest)}\n"
    span = f"{text_of(digest.first_ms)} to {text_of(digest.last_ms)}"
    sections = [_section(list(lines)) for _, lines in groupby(digest.lines, key=lambda line: line.about)]
    more = [f"... and {_number(digest.omitted)} more. `noonday alert list` lists them."] if digest.omitted else []
    return "\n\n".join([f"{_counts(digest.counts)}\n{span}", *sections, *more, _footer(digest)]) + "\n"


def event_of(digest: Digest, at_ms: int) -> dict[str, Any]:
    """Build the body of an operational webhook."""
    data = {
        "tenant": digest.tenant,
        "preference": digest.preference,
        "notice_id": digest.id,
        "test": not digest.counts,
        "counts": dict(digest.counts),
        "alerts": [_entry(line) for line in digest.lines],
        "more": digest.omitted,
    }
    return {"type": EVENT, "timestamp": text_of(at_ms), "data": data}


def name_of(line: DigestItem) -> str:
    """Return the name of the job or endpoint of a line, cut to `LONGEST_NAME` characters."""
    name = line.job_name or line.endpoint or line.job_id or "other jobs"
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _counts(counts: Mapping[AlertKind, int]) -> str:
    return ", ".join(f"{_number(counts[kind])} {_noun(kind, counts[kind])}" for kind in _NOUNS if kind in counts)


def _section(lines: Sequence[DigestItem]) -> str:
    """Describe one job or endpoint: its failures, and whether it recovered."""
    last = max(lines, key=lambda line: (line.last_ms, line.kind is AlertKind.RECOVERED))
    failures = [line for line in lines if line.kind is not AlertKind.RECOVERED]
    events = [_counts({line.kind: line.count for line in failures})] if failures else []
    if len(failures) < len(lines):
        events.append("recovered" if last.kind is AlertKind.RECOVERED else "recovered and failed again")
    head = f"{single_line(name_of(last))}: {', '.join(events)}"
    latest = max(failures, key=lambda line: line.last_ms) if failures else last
    return "\n".join([head, *(f"  {detail}" for detail in _details(latest, lines))])


def _details(line: DigestItem, lines: Sequence[DigestItem]) -> list[str]:
    first_ms, last_ms = min(each.first_ms for each in lines), max(each.last_ms for each in lines)
    span = text_of(first_ms) if first_ms == last_ms else f"{text_of(first_ms)} to {text_of(last_ms)}"
    fields = {"job": line.job_id, "execution": line.execution_id, "pool": line.pool, "endpoint": line.endpoint}
    references = ", ".join(f"{label} {single_line(value)}" for label, value in fields.items() if value)
    is_handler = line.kind in (AlertKind.FAILED, AlertKind.EXHAUSTED) and line.endpoint is None
    look = f"noonday execution show {line.execution_id} --traceback" if is_handler and line.execution_id else ""
    return [detail for detail in (span, references, single_line(line.message), look) if detail]


def _entry(line: DigestItem) -> dict[str, Any]:
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


def _subject_noun(digest: Digest) -> str:
    return "jobs and endpoints" if AlertKind.DISABLED in digest.counts else "jobs"


def _footer(digest: Digest) -> str:
    return f"Sent by Noonday for tenant {digest.tenant}, alert preference {digest.preference!r}."


def _noun(kind: AlertKind, count: int) -> str:
    return _NOUNS[kind][count != 1]


def _number(count: int) -> str:
    return f"{count:,}"
