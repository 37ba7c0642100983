"""Sockets to mail servers, at checked addresses only."""

import asyncio
import socket
from ipaddress import ip_address

from aiohttp.abc import AbstractResolver, ResolveResult

from noonday.notifications.providers.hosts import ProviderHosts
from noonday.webhooks.dialing import CheckingResolver, RefusedAddress

DIAL_SEC = 5.0
"""Timeout of dialling one address in seconds, so that the next address of the host also has a chance."""


async def dial(hosts: ProviderHosts, resolver: AbstractResolver, host: str, port: int) -> socket.socket:
    """Return a socket that is connected to an allowed address of the host.

    Every address is checked, and only a checked address is dialled. Raises OSError, RefusedAddress if the host has an address
    that may not be dialled.
    """
    networks = hosts.networks_for(host, port)
    if (literal := _literal(host, port)) is not None:
        if networks.refusal_of(literal["host"]) is not None:
            raise RefusedAddress(host)
        return await _connect(literal)
    error: OSError | None = None
    for address in await CheckingResolver(networks, resolver).resolve(host, port):
        try:
            return await _connect(address)
        except OSError as failed:
            error = failed
    raise error or OSError(f"{host} has no address")


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
