"""Request headers with a grammar of their own."""

import re

from noonday.api.errors import BadHeader

LONGEST_KEY = 255

# RFC 8941: a string is printable ASCII in double quotes, with \" and \\ for the two special characters.
_QUOTED = rf'"(?:[ !#-\[\]-~]|\\["\\]){{1,{LONGEST_KEY}}}"'
_BARE = rf"[!#-~](?:[ -~]{{0,{LONGEST_KEY - 2}}}[!-~])?"
IDEMPOTENCY_KEY = rf"^(?:{_QUOTED}|{_BARE})$"
IF_MATCH = r'^(?:\*|"[0-9]{1,18}"|[0-9]{1,18})$'

_KEY, _MATCH = re.compile(IDEMPOTENCY_KEY), re.compile(IF_MATCH)


def idempotency_key(header: str) -> str:
    """The key itself, whether it came quoted, as the standard has it, or bare, as many send it."""
    if not _KEY.fullmatch(header):
        raise BadHeader(
            f"Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters, in double quotes or bare",
            header="Idempotency-Key",
        )
    return re.sub(r"\\(.)", r"\1", header[1:-1]) if header.startswith('"') else header


def version_to_match(header: str | None) -> int | None:
    """The version that If-Match asks for; None if any will do."""
    if header is None or header == "*":
        return None
    if not _MATCH.fullmatch(header):
        raise BadHeader(
            'If-Match must be * or the ETag of a job, which is its version in quotes, such as "3"',
            header="If-Match",
            value=header,
        )
    return int(header.strip('"'))
