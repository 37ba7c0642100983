"""Request headers with a grammar of their own."""

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
    """The key itself, whether it came quoted, as the standard has it, or bare, as many send it."""
    if not _KEY.fullmatch(header):
        raise BadHeader(
            f"Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters, in double quotes or bare",
            header="Idempotency-Key",
        )
    return re.sub(r"\\(.)", r"\1", header[1:-1]) if header.startswith('"') else header


def tenant_to_read(header: str) -> TenantId:
    """The tenant that an operator wants to read. Characters beyond ASCII are sent percent-encoded, as in a path."""
    name = unquote(header, errors="replace")
    if not is_tenant_name(name):
        raise BadHeader(f"Noonday-Tenant must be {TENANT_RULE}", header="Noonday-Tenant")
    return TenantId(name)


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


def trace_of(header: str | None) -> str | None:
    """The traceparent if it is one. The standard has it that an ill-formed one is ignored."""
    return header if header and _TRACEPARENT.fullmatch(header) else None
