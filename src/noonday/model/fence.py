"""The times of the fence: how long a dispatch may be started, and what has to be remembered for at least as long.

A worker starts nothing that was fired longer ago than START_WITHIN_MS, by the store's stamp. Every other time here follows from
that one, so that no memory ends while a dispatch that it protects can still start.
"""

START_WITHIN_MS = 300_000
"""A worker starts no dispatch that was fired longer ago."""


def is_out_of_time(fired_ms: int, now_ms: int) -> bool:
    """Return whether a dispatch is too old to start. One that is stamped far ahead was fired before the clock was set back."""
    return abs(now_ms - fired_ms) > START_WITHIN_MS


CLAIM_MS = 30_000
"""Duration of a claim that is neither renewed nor acked. Then another worker may take over."""

ACKED_FOR_MS = START_WITHIN_MS
"""Retention of the note that the log has a dispatch's start or end: as long as a duplicate delivery could still start."""

CLAIMS_KEPT_MS = ACKED_FOR_MS + CLAIM_MS
"""Retention of claims: a claim may be made at the last moment and acked when it is about to lapse."""

ORPHANED_AFTER_MS = START_WITHIN_MS + 60_000
"""A dispatch that no worker reported is an orphan this long after its fire, by the log's own time. The minute is for a start
at the last moment whose report is on its way."""

NEVER_MS = 1 << 60
"""An instant that no clock shows."""

REVOKED_FOR_MS = ORPHANED_AFTER_MS
"""Revocations of dispatches that were fired within this time are restored when their copy was lost."""
