"""The limit of nesting in JSON.

A JSON parser uses one level of its stack for each level of nesting, and how much stack is left depends on its caller. So the
limit for input is far below what any parser can handle.
"""

from itertools import accumulate

MOST_LEVELS = 100

_STEPS = [0] * 256
for _bracket in b"[{":
    _STEPS[_bracket] = 1
for _bracket in b"]}":
    _STEPS[_bracket] = -1
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(text: bytes) -> bool:
    """Return whether well-formed JSON has more than MOST_LEVELS levels."""
    if text.count(b"[") + text.count(b"{") <= MOST_LEVELS:
        return False
    return levels_of(text) > MOST_LEVELS


def levels_of(text: bytes) -> int:
    """Return the number of levels of well-formed JSON: 0 for a number, 1 for a list of numbers."""
    without_escapes = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(without_escapes.split(b'"')[::2])
    return max(accumulate(_STEPS[bracket] for bracket in outside_strings.translate(None, _OTHERS)), default=0)
