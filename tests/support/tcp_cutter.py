"""A TCP proxy that cuts its own connections. It stands between a process and a server, and a test decides which data get
through.

In the test's own process it is a `Cutter`. As a separate process it obeys lines on a control port, and answers each with its
state:

    python -m tests.support.tcp_cutter --listen 7001 --upstream 127.0.0.1:26379 --control 7002
    cut [server|client], refuse, heal, status
"""

import argparse
import asyncio
import contextlib
import socket
from collections.abc import Iterable
from typing import Literal, Self, get_args

HOST = "127.0.0.1"
CHUNK = 65536

Side = Literal["server", "client"]
BOTH: frozenset[Side] = frozenset(get_args(Side))


class Cutter:
    """A proxy that listens on `port` of 127.0.0.1; the system chooses the port if none is given. Open at first."""

    def __init__(self, upstream_host: str, upstream_port: int, port: int = 0) -> None:
        self.upstream = upstream_host, upstream_port
        self.port = port
        self._cut: frozenset[Side] = frozenset()
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None

    async def __aenter__(self) -> Self:
        self._reserve()
        await self._listen()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.refuse()
        if self._reserved is not None:
            self._reserved.close()

    async def cut(self, towards: Side | None = None) -> None:
        """Make a black hole: connections stay open, and data towards one side, or both, do not arrive.

        New connections are accepted, but no data get through them either way: no handshake survives a cut.
        """
        self._cut = BOTH if towards is None else frozenset({towards})
        await self._listen()

    async def refuse(self) -> None:
        """Reset every connection, and refuse new ones."""
        if self._server is not None:
            server, self._server = self._server, None
            for listening in server.sockets:
                asyncio.get_running_loop().remove_reader(listening)
            # Connections that were just accepted reach `_links` after some turns of the loop; a closed server would leak them.
            for _ in range(5):
                await asyncio.sleep(0)
            # Reserved before it is given up: no other process takes the port in between.
            self._reserve()
            server.close()
        await self._reset(list(self._links))

    async def heal(self) -> None:
        """Let everything through again. A connection that lost bytes is reset: TCP never shows a stream with a gap."""
        self._cut = frozenset()
        await self._reset([link for link in self._links if link.lost_bytes])
        await self._listen()

    @property
    def status(self) -> str:
        """`open`, `cut`, `cut server`, `cut client` or `refuse`, and the number of connections."""
        cut = "cut" if self._cut == BOTH else " ".join(["cut", *self._cut]) if self._cut else "open"
        return f"{'refuse' if self._server is None else cut} {len(self._links)}"

    async def _listen(self) -> None:
        if self._server is None:
            reserved, self._reserved = self._reserved, None
            self._server = await asyncio.start_server(self._accept, sock=reserved)

    def _reserve(self) -> None:
        """Bind without listening: connections are refused, and no other process takes the port."""
        self._reserved = socket.socket()
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            self._reserved.setsockopt(socket.SOL_SOCKET, option, 1)
        self._reserved.bind((HOST, self.port))
        self.port = self._reserved.getsockname()[1]

    async def _reset(self, links: Iterable["_Link"]) -> None:
        for link in links:
            link.work.cancel()
            await link.ended.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(reader, writer)
        link.work = asyncio.create_task(self._carry(link))
        self._links.add(link)
        await asyncio.wait({link.work})
        self._links.discard(link)
        link.end()

    async def _carry(self, link: "_Link") -> None:
        with contextlib.suppress(OSError):  # one side is gone, and the other is about to learn it
            if self._cut:
                link.lost_bytes = True
                await self._pump(link, link.reader, None, "server")
            reader, writer = await asyncio.open_connection(*self.upstream)
            link.writers.append(writer)
            await asyncio.gather(
                self._pump(link, link.reader, writer, "server"),
                self._pump(link, reader, link.writers[0], "client"),
            )
            await link.close()

    async def _pump(
        self, link: "_Link", reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, towards: Side
    ) -> None:
        while data := await reader.read(CHUNK):
            if writer is None or towards in self._cut:
                link.lost_bytes = True
            else:
                writer.write(data)
                await writer.drain()
        if writer is None or towards in self._cut:
            # A cut does not forward the end of one side to the other either.
            link.lost_bytes = True
            await link.ended.wait()
        else:
            writer.write_eof()


class _Link:
    """One connection through the proxy."""

    work: asyncio.Task[None]

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writers = [writer]
        self.lost_bytes = False
        self.ended = asyncio.Event()

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()
        for writer in self.writers:
            await writer.wait_closed()

    def end(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.ended.set()


async def tell(control_port: int, line: str) -> str:
    """Send a line to a cutter in another process. Returns its state."""
    reader, writer = await asyncio.open_connection(HOST, control_port)
    writer.write(f"{line}\n".encode())
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer.decode().strip()


async def obey(cutter: Cutter, line: str) -> str:
    match line.split():
        case ["cut"]:
            await cutter.cut()
        case ["cut", "server" | "client" as side]:
            await cutter.cut(side)
        case ["refuse"]:
            await cutter.refuse()
        case ["heal"]:
            await cutter.heal()
        case ["status"]:
            pass
        case _:
            return "say: cut [server|client], refuse, heal or status"
    return cutter.status


async def run(listen: int, upstream: str, control: int) -> None:
    host, _, port = upstream.rpartition(":")

    async def listen_to(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            writer.write(f"{await obey(cutter, line.decode())}\n".encode())
        writer.close()

    async with (
        Cutter(host, int(port), listen) as cutter,
        await asyncio.start_server(listen_to, HOST, control) as server,
    ):
        print("ready", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--upstream", required=True, metavar="HOST:PORT")
    parser.add_argument("--control", type=int, required=True)
    options = parser.parse_args()
    asyncio.run(run(options.listen, options.upstream, options.control))
