"""Each test gets its own ports."""

import socket
import subprocess
import sys

from servers import free_port, free_ports, is_free


def test_every_port_is_given_once() -> None:
    ports = free_ports(20) + free_ports(20)
    assert len(set(ports)) == 40


def test_a_port_that_is_listened_on_is_not_free() -> None:
    port = free_port()
    assert is_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)


def test_a_port_is_not_given_to_another_process_while_we_live() -> None:
    port = free_port()
    ask = f"from servers import ports; ports.RANGE = range({port}, {port + 1}); print(ports.free_ports(1))"
    assert subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout == "[]\n"
