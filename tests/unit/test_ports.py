"""Which ports our servers take."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kdi_assets.runtime.ports import free_port, is_free


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server on the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_free_port_is_taken_as_preferred_and_for_a_taken_one_another_is_chosen(listener: socket.socket) -> None:
    preferred, taken = free_port(), listener.getsockname()[1]

    assert free_port(preferred) == preferred
    assert free_port(taken) != taken


def test_a_port_whose_server_has_gone_is_free_although_its_connections_linger(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    accepted, _ = listener.accept()

    accepted.close()  # the server's side closes first: its end of the connection lingers (TIME_WAIT)
    client.close()
    listener.close()

    assert is_free(port)
