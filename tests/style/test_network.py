"""The fence of tests/conftest.py stands: a test cannot reach another machine, and can reach this one."""

from __future__ import annotations

import socket

import pytest


def test_another_machine_is_out_of_reach() -> None:
    with socket.socket() as client, pytest.raises(PermissionError):
        client.connect(("192.0.2.1", 9))
    with pytest.raises(PermissionError):
        socket.create_connection(("example.invalid", 80), timeout=1)


def test_this_machine_is_within_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.sendall(b"x")
