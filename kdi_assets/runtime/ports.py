"""Ports on the loopback for the processes that a checkout starts."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

# Below the range from which kernels draw the ports of outgoing connections: there, a client that keeps trying to reach
# a broker that is just being restarted may be given the very port it tries, connect to itself, and hold it.
CHOICE = range(20_000, 32_768)


def free_port(preferred: int | None = None) -> int:
    """A port of 127.0.0.1 on which nothing listens: ``preferred`` when it is free, else a random one.

    Raises:
        OSError: A hundred random ports were all taken.
    """
    for port in _candidates(preferred):
        if is_free(port):
            return port
    raise OSError("no free port on 127.0.0.1")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do; without it, closed connections that still linger would make their server's port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _candidates(preferred: int | None) -> Iterator[int]:
    if preferred is not None:
        yield preferred
    yield from random.sample(CHOICE, 100)
