"""Parsers of request headers."""

import re
from urllib.parse import unquote

from noonday.api.errors import BadHeader
from noonday.model.caller import TENANT_RULE, is_tenant_name
from noonday.model.ids import TenantId

LONGEST_KEY = 255

# RFC 8941: a string is printable ASCII in double quotes, with \" and \\ for the two special characters.
_QUOTED = rf'"(?:[ !#-\[\]-~]|\\["\\]){{1,{LONGEST_KEY}}}"'
_BARE = rf"[!#-~](?:[ -~]{{0,{LONGEST_KEY - 2}}}[!-~])?"
IDEMPOTENCY_KEY = rf"^(?:{_QUOTED}|{_BARE})$"
IF_MATCH = r'^(?:\*|"[0-9]{1,18}"|[0-9]{1,18})$'

_KEY, _MATCH = re.compile(IDEMPOTENCY_KEY), re.compile(IF_MATCH)
_TRACEPARENT = re.compile("[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def idempotency_key(header: str) -> str:
    """Return the key, sent either quoted (as in the standard) or bare. Raises BadHeader."""
    if not _KEY.fullmatch(header):
        raise BadHeader(
            f"Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters, in double quotes or bare",
            header="Idempotency-Key",
        )
    return re.sub(r"\\(.)", r"\1", header[1:-1]) if header.startswith('"') else header


def tenant_to_read(header: str) -> TenantId:
    """Return the tenant that an operator reads. Non-ASCII characters are percent-encoded. Raises BadHeader."""
    name = unquote(header, errors="replace")
    if not is_tenant_name(name):
        raise BadHeader(f"Noonday-Tenant must be {TENANT_RULE}", header="Noonday-Tenant")
    return TenantId(name)


def version_to_match(header: str | None) -> int | None:
    """Return the version in If-Match, or None if any version matches. Raises BadHeader."""
    if header is None or header == "*":
        return None
    if not _MATCH.fullmatch(header):
        raise BadHeader(
            'If-Match must be * or the ETag of a job: its version in quotes, such as "3"',
            header="If-Match",
            value=header,
        )
    return int(header.strip('"'))


def trace_of(header: str | None) -> str | None:
    """Return the traceparent, or None if it is malformed: the standard says to ignore it."""
    return header if header and _TRACEPARENT.fullmatch(header) else None
