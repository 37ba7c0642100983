"""One document a work, for programs. Every one of them has the members of `Figures`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from bench.figures import Created, Figures, Lateness, change_percent, middle
from bench.rest import Compared, RestSize, Side

Document = dict[str, Any]


def of_rounds(rounds: Sequence[Figures], **asked: Any) -> Document:
    """The median round, what was asked for, and the rate of every round. What went wrong is counted in all of them."""
    document = _plain(middle(rounds)) | _wrongs(rounds) | asked
    if len(rounds) > 1:
        document["rounds"] = [_plain(figures) for figures in rounds]
    return document


def of_rest(size: RestSize, compared: Compared) -> Document:
    """The burst with jobs at rest, as if it were alone; then everything with and without them."""
    before, after = compared.before, compared.after
    wrong = _wrongs(compared.measured)
    wrong["lost"] += compared.stored.lost
    wrong["duplicated"] += compared.stored.duplicated
    return (
        _plain(after.burst)
        | wrong
        | {
            "work": "rest",
            "at_rest": size.at_rest.one_shots,
            "crons": size.at_rest.crons,
            "stored_per_s": compared.stored.created_per_s,
            "startup_sec": after.idle.startup_sec,
            "idle_rss_mb": after.idle.rss_mb,
            "before": _side(before),
            "after": _side(after),
            "change_percent": _changes(size, before, after),
        }
    )


def of_tenants(rounds: Sequence[Figures], alone: Sequence[Figures] = (), without: Sequence[Figures] = ()) -> Document:
    """The median round, by its rate. With what a tenant had alone: how much later its p95 was beside others. With what there was
    without limits: what they cost."""
    figures = _by_rate(rounds)
    document = _plain(figures) | _wrongs([*rounds, *alone, *without])
    if len(rounds) > 1:
        document["rounds"] = [_plain(each) for each in rounds]
    document["alone"] = _plain(_by_rate(alone)) if alone else None
    document["without"] = _plain(_by_rate(without)) if without else None
    document["later_p95_ms"] = {
        name: round(document["tenants"][name]["lateness_ms"]["p95"] - got["lateness_ms"]["p95"], 1)
        for name, got in (document["alone"] or {"tenants": {}})["tenants"].items()
    }
    if without:
        before = _by_rate(without)
        document["change_percent"] = {
            "recorded_per_s": change_percent(before.recorded_per_s, figures.recorded_per_s),
            "cpu_us_per_job": change_percent(before.cpu_us_per_job, figures.cpu_us_per_job),
        }
    return document


def _by_rate(rounds: Sequence[Figures]) -> Figures:
    return sorted(rounds, key=lambda each: each.recorded_per_s)[(len(rounds) - 1) // 2]


def of_create(created: Sequence[Created], mode: str, settings: Document) -> Document:
    """Nothing falls due here: a job is recorded when its creation is acknowledged. The rate is that of the first way."""
    first = created[0]
    return {
        "work": "create",
        "mode": mode,
        "jobs": sum(each.jobs for each in created),
        "recorded_per_s": first.created_per_s,
        "lateness_ms": _plain(Lateness()),
        "lost": sum(each.lost for each in created),
        "duplicated": sum(each.duplicated for each in created),
        "early": 0,
        "cpu_us_per_job": first.cpu_us_per_job,
        "cpu_us_per_job_by": first.cpu_us_per_job_by,
        "rss_mb": first.rss_mb,
        "settings": settings,
        "ways": [_plain(each) for each in created],
    }


def is_flawless(document: Document) -> bool:
    return not (document["lost"] or document["duplicated"] or document["early"])


def _plain(value: msgspec.Struct) -> Document:
    plain: Document = msgspec.to_builtins(value)
    return plain


def _wrongs(measured: Sequence[Figures]) -> dict[str, int]:
    return {
        "lost": sum(figures.lost for figures in measured),
        "duplicated": sum(figures.duplicated for figures in measured),
        "early": sum(figures.early for figures in measured),
    }


def _side(side: Side) -> Document:
    return {
        "burst": _plain(side.burst),
        "bursts_per_s": [figures.recorded_per_s for figures in side.bursts],
        "streams": [_plain(figures) for figures in side.streams],
        "startup_sec": side.idle.startup_sec,
        "idle_rss_mb": side.idle.rss_mb,
        "file_mb": side.file_mb,
    }


def _changes(size: RestSize, before: Side, after: Side) -> Document:
    streams = zip(size.streams, before.lateness_of_streams, after.lateness_of_streams, strict=True)
    return {
        "recorded_per_s": change_percent(before.burst.recorded_per_s, after.burst.recorded_per_s),
        "cpu_us_per_job": change_percent(before.burst.cpu_us_per_job, after.burst.cpu_us_per_job),
        "burst_p99_ms": change_percent(before.burst.lateness_ms.p99, after.burst.lateness_ms.p99),
        "streams_p99_ms": [
            {"rate": stream.rate, "change": change_percent(was.p99, now.p99)} for stream, was, now in streams
        ],
    }
