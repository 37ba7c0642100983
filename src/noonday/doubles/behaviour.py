"""How a double treats one call."""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec

MAX_DELAY_MS = 300_000
MAX_RECEIPTS = 20


class Cut(StrEnum):
    """When the connection is cut instead of answering."""

    BEFORE = "BEFORE"
    """The message is not accepted."""
    AFTER = "AFTER"
    """The message is accepted, and its sender is not told."""


class Behaviour(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Answer to one call: accepted unless it says otherwise."""

    code: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    """Refusal in the words of the provider, such as `550 5.1.1` (SMTP) or `21610` (Twilio)."""
    at: Literal["GREETING", "MAIL", "RCPT", "DATA", "BODY"] = "RCPT"
    """SMTP: the step that it applies to. BODY is the reply after the final dot."""
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_DELAY_MS)] = 0
    """Time before the answer."""
    cut: Cut | None = None
    receipts: Annotated[list[str], msgspec.Meta(max_length=MAX_RECEIPTS)] | None = None
    """Receipts that follow, in this order; with an error code after a colon: `["sent", "undelivered:30003"]`. None: the usual."""
    receipts_delay_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_DELAY_MS)] = 0
    """Time before each receipt."""


ACCEPT = Behaviour()
