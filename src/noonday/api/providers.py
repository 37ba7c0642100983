"""/v1/providers: accounts at providers that deliver notifications. Names are snake_case."""

from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.routing import Route
from noonday.model.notifications.wire import ProviderSpec, ProviderView

ProviderName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class ProviderList(msgspec.Struct, frozen=True):
    providers: Annotated[list[ProviderView], msgspec.Meta(description="By order and name")]


async def put_provider(context: RequestContext, name: ProviderName, body: ProviderSpec) -> ProviderView:
    """Create a provider account, or replace it. An account that was stopped starts again.

    Secrets are stored encrypted and never shown. Without `secrets` the stored ones are kept, provided that `kind` and `settings`
    are unchanged. 409 if the tenant has 50 accounts.
    """
    return await context.notifications.accounts.put(context.caller, name, body, context.idem)


async def get_provider(context: RequestContext, name: ProviderName) -> ProviderView:
    """Get a provider account without its secrets."""
    return await context.notifications.accounts.get(context.caller, name)


async def list_providers(context: RequestContext) -> ProviderList:
    """List the provider accounts of the tenant, in the order in which they are tried."""
    return ProviderList(await context.notifications.accounts.list_accounts(context.caller))


async def delete_provider(context: RequestContext, name: ProviderName) -> None:
    """Delete a provider account with its secrets."""
    await context.notifications.accounts.delete(context.caller, name, context.idem)


_ONE = "/v1/providers/{name}"
ROUTES = (
    Route("GET", "/v1/providers", list_providers, scope="read"),
    Route("GET", _ONE, get_provider, scope="read"),
    Route("PUT", _ONE, put_provider, scope="admin"),
    Route("DELETE", _ONE, delete_provider, scope="admin", status=204),
)
