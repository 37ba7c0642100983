"""Who is asking, for which tenant, and what they may do."""

from dataclasses import dataclass

from noonday.model.errors import Forbidden
from noonday.model.ids import TenantId

SCOPES = ("read", "write", "admin")
"""What a token may allow; each one includes those before it."""


@dataclass(frozen=True, slots=True)
class Caller:
    tenant: TenantId
    subject: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        return not self.scopes.isdisjoint(SCOPES[SCOPES.index(scope) :])

    def require(self, scope: str) -> None:
        """Raise Forbidden unless the caller holds `scope`, or one that includes it."""
        if not self.may(scope):
            held = sorted(self.scopes)
            raise Forbidden(f"needs scope {scope}; held: {', '.join(held) or 'none'}", required=scope, held=held)
