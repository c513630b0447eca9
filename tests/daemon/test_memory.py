"""What the daemon has done with goes back to the system."""

from __future__ import annotations

import time

import pytest

from tests.daemon.kit import DaemonProcess, daemon_process, request
from topics_daemon.memory import give_back

pytestmark = pytest.mark.slow

MIB = 1 << 20
RECORDS = {"records": [{"data": "x" * 1000}] * 1000}
WITHIN_S = 60.0


def _falls_below(daemon: DaemonProcess, size: int) -> bool:
    deadline = time.monotonic() + WITHIN_S
    while daemon.resident_bytes() > size:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_the_memory_of_a_long_queue_is_that_of_an_empty_one_after_a_checkpoint() -> None:
    if not give_back():
        pytest.skip("the C library has no malloc_trim")
    with daemon_process() as daemon:
        empty = daemon.resident_bytes()
        assert daemon.ask(request("PUT", "/v0/topics/q", {"type": "queue"})).status == 201
        for _ in range(80):
            assert daemon.ask(request("POST", "/v0/topics/q?return_seqs=false", RECORDS)).status == 200
        assert daemon.resident_bytes() > empty + 40 * MIB, "the records are in memory before"
        assert daemon.ask(request("POST", "/v0/admin/checkpoint")).status == 200
        assert _falls_below(daemon, empty + 16 * MIB), f"{daemon.resident_bytes() / MIB:.0f} MiB"
