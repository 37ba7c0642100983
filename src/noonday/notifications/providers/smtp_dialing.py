"""Sockets to mail servers, at checked addresses only."""

import asyncio
import socket
from collections import OrderedDict
from ipaddress import ip_address

from aiohttp.abc import AbstractResolver, ResolveResult

from noonday.notifications.providers.hosts import ProviderHosts
from noonday.webhooks.dialing import CheckingResolver, RefusedAddress

DIAL_SEC = 5.0
"""Timeout of dialling one address in seconds, so that the next address of the host also has a chance."""

MAX_TENANTS = 1_000
"""Number of tenants whose limit of names is remembered."""


class Dialer:
    """Dials mail servers. A tenant resolves a few names at a time, so that its slow names do not delay others."""

    def __init__(self, hosts: ProviderHosts, resolver: AbstractResolver) -> None:
        self._hosts = hosts
        self._inner = resolver
        self._resolvers: OrderedDict[tuple[str, bool], CheckingResolver] = OrderedDict()

    async def dial(self, tenant: str, host: str, port: int) -> socket.socket:
        """Return a socket that is connected to an allowed address of the host.

        Every address is checked, and only a checked address is dialled. Raises OSError, RefusedAddress if the host has an address
        that may not be dialled.
        """
        if (literal := _literal(host, port)) is not None:
            if self._hosts.networks_for(host, port).refusal_of(literal["host"]) is not None:
                raise RefusedAddress(host)
            return await _connect(literal)
        error: OSError | None = None
        for address in await self._resolver_of(tenant, host, port).resolve(host, port):
            try:
                return await _connect(address)
            except OSError as failed:
                error = failed
        raise error or OSError(f"{host} has no address")

    def _resolver_of(self, tenant: str, host: str, port: int) -> CheckingResolver:
        key = (tenant, self._hosts.is_operated(host, port))
        resolver = self._resolvers.pop(key, None)
        if resolver is None:
            resolver = CheckingResolver(self._hosts.networks_for(host, port), self._inner)
        self._resolvers[key] = resolver
        if len(self._resolvers) > MAX_TENANTS:
            self._resolvers.popitem(last=False)
        return resolver


def _literal(host: str, port: int) -> ResolveResult | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return ResolveResult(hostname=host, host=str(address), port=port, family=family, proto=0, flags=0)


async def _connect(address: ResolveResult) -> socket.socket:
    connection = socket.socket(address["family"], socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(DIAL_SEC):
            await asyncio.get_running_loop().sock_connect(connection, (address["host"], address["port"]))
    except BaseException:
        connection.close()
        raise
    return connection
