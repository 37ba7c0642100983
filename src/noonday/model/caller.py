"""The caller of the API: its tenant, its subject and its scopes."""

import re
from dataclasses import dataclass, replace

from noonday.model.errors import Forbidden
from noonday.model.ids import TenantId

SCOPES = ("read", "write", "admin", "operator")
"""Scopes of tokens. Each one includes those before it. All but `operator` are confined to the token's tenant."""
WORKER = "worker"
"""Scope of a remote worker: it takes executions of the token's tenant, and nothing else. No other scope includes it."""
ALL_SCOPES = (*SCOPES, WORKER)

# Letters of the larger scripts, by range: no regular expression can name all printable characters. A slash is left out,
# because a name must fit into a path.
TENANT_PATTERN = (
    "^[ -.0-~\u00a1-\u00ac\u00ae-\u024f\u0400-\u052f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]{1,100}$"
)
TENANT_RULE = "1 to 100 letters, digits, spaces or ASCII punctuation other than a slash"
_tenant = re.compile(TENANT_PATTERN)


def is_tenant_name(name: str) -> bool:
    """Return whether `name` is a valid tenant name, in tokens, paths and headers alike."""
    return _tenant.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated subject of a request, acting for a tenant."""

    tenant: TenantId
    """The tenant whose data the request is about."""
    subject: str
    scopes: frozenset[str]
    is_visitor: bool = False
    """True if an operator reads another tenant than the token's. Payloads are withheld then."""
    operation: str | None = None
    """The bulk operation that acts for the subject."""

    def may(self, scope: str) -> bool:
        if scope == WORKER:
            return WORKER in self.scopes
        return not self.scopes.isdisjoint(SCOPES[SCOPES.index(scope) :])

    def require(self, scope: str) -> None:
        """Raise Forbidden unless the caller has `scope`, or one that includes it."""
        if not self.may(scope):
            held = sorted(self.scopes)
            raise Forbidden(f"needs scope {scope}; held: {', '.join(held) or 'none'}", required=scope, held=held)

    def require_for(self, tenant: str, scope: str) -> None:
        """Raise Forbidden unless the caller has `scope` in `tenant`. Another tenant than its own requires `operator`."""
        self.require(scope if tenant == self.tenant else "operator")

    def visiting(self, tenant: TenantId) -> "Caller":
        """Return the caller as a reader of another tenant. Raises Forbidden without the scope `operator`."""
        self.require("operator")
        return self if tenant == self.tenant else replace(self, tenant=tenant, is_visitor=True)
