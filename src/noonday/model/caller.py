"""Who is asking, for which tenant, and what they may do."""

import re
from dataclasses import dataclass, replace

from noonday.model.errors import Forbidden
from noonday.model.ids import TenantId

SCOPES = ("read", "write", "admin", "operator")
"""Scopes of tokens. Each one includes those before it. All but `operator` are confined to the token's tenant."""

# Letters of the larger scripts, by range: no regular expression can name all printable characters. A slash is left out,
# because a name must fit into a path.
TENANT_PATTERN = (
    "^[ -.0-~\u00a1-\u00ac\u00ae-\u024f\u0400-\u052f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]{1,100}$"
)
TENANT_RULE = "1 to 100 letters, digits, spaces or ASCII punctuation other than a slash"
_tenant = re.compile(TENANT_PATTERN)


def is_tenant_name(name: str) -> bool:
    """Tell whether `name` may name a tenant: in tokens, paths and headers alike."""
    return _tenant.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Caller:
    tenant: TenantId
    """Whose data is asked for."""
    subject: str
    scopes: frozenset[str]
    is_visitor: bool = False
    """An operator reads another tenant than the one of the token: payloads are withheld."""

    def may(self, scope: str) -> bool:
        return not self.scopes.isdisjoint(SCOPES[SCOPES.index(scope) :])

    def require(self, scope: str) -> None:
        """Raise Forbidden unless the caller holds `scope`, or one that includes it."""
        if not self.may(scope):
            held = sorted(self.scopes)
            raise Forbidden(f"needs scope {scope}; held: {', '.join(held) or 'none'}", required=scope, held=held)

    def require_for(self, tenant: str, scope: str) -> None:
        """Raise Forbidden unless the caller holds `scope` in `tenant`; for another tenant that is `operator`."""
        self.require(scope if tenant == self.tenant else "operator")

    def visiting(self, tenant: TenantId) -> "Caller":
        """The caller as a reader of another tenant. Raises Forbidden without the scope `operator`."""
        self.require("operator")
        return self if tenant == self.tenant else replace(self, tenant=tenant, is_visitor=True)
