"""The whole hostile corpus against one daemon: each case has a right outcome in time, and nobody else pays for it.

Beside the attackers a normal client writes and reads; the daemon's memory stays within a bound, and nothing in its log
is a bug.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.daemon.kit import DaemonProcess, NoAnswer, daemon_process, post, request
from tests.daemon.socket_kit import Raw
from tests.hostile.corpus import CLOSED, Case, corpus

MIB = 1024 * 1024
CASES = corpus()
GROUPS = sorted({case.name.partition(":")[0].partition(" /")[0] for case in CASES})
CASES_MIN = 400
WAIT_S = 20.0
"""When a case counts as hanging."""
GROWTH_BYTES_MAX = 96 * MIB


def test_the_corpus_is_as_large_as_it_must_be_and_says_nothing_twice() -> None:
    assert len({case.data for case in CASES}) >= CASES_MIN
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    flags = ("--max-body-bytes", "2MiB", "--max-request-buffer-bytes", "16MiB", "--header-timeout-ms", "60000")
    with daemon_process(*flags) as running:
        running.write("t", 1)
        running.ask(request("PUT", "/v0/topics/q", {"type": "queue"}))
        yield running


def outcome(daemon: DaemonProcess, case: Case) -> int:
    """What a case gets; raises `NoAnswer` when that is nothing, in time."""
    if case.kind == "websocket":
        with Raw(daemon) as raw:
            raw.wire.sock.settimeout(WAIT_S)
            raw.send(case.data)
            return raw.closing()
    with daemon.wire() as wire:
        wire.sock.settimeout(WAIT_S)
        try:
            wire.send(case.data)
        except ConnectionError:
            pass
        if case.kind == "any":
            # It has had its say; half of it ends properly, half of it just vanishes.
            if len(case.name) % 2:
                wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return CLOSED
        try:
            return wire.answer(case.data.partition(b" ")[0].decode("latin-1")).status
        except NoAnswer as why:
            if "in time" in str(why):
                raise
            return CLOSED


class Neighbour:
    """A normal client that goes on beside: how long each of its requests took."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.took_s: list[float] = []
        self.faults: list[object] = []
        self._daemon = daemon
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        # On a busy machine the governor may hold back writes, which is not what is looked for here.
        write = post("/v0/topics/beside", {"records": [{"data": 1}], "disable_backpressure": True})
        read = request("GET", "/v0/topics/beside")
        with self._daemon.wire() as wire:
            while not self._over.is_set() or not self.took_s:
                for asked in (write, read):
                    began = time.perf_counter()
                    wire.send(asked)
                    answer = wire.answer()
                    self.took_s.append(time.perf_counter() - began)
                    if answer.status not in (200, 201):
                        self.faults.append(answer)
                time.sleep(0.002)

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_each_case_has_a_right_outcome_and_the_neighbour_notices_nothing(daemon: DaemonProcess, group: str) -> None:
    cases = [case for case in CASES if case.name.partition(":")[0].partition(" /")[0] == group]
    before = daemon.resident_bytes()
    wrong = []
    with Neighbour(daemon) as neighbour:
        for case in cases:
            try:
                got = outcome(daemon, case)
            except NoAnswer:
                wrong.append(f"{case.name}: it hangs")
                continue
            if case.right and got not in case.right:
                wrong.append(f"{case.name}: {got}, not {sorted(case.right)}")
    assert not wrong, "\n".join(wrong)
    assert neighbour.faults == []
    assert neighbour.took_s, "the neighbour has not had one answer"
    # Generous, for the machine may be busy with other things: what is excluded is a daemon that stands still.
    assert max(neighbour.took_s) < 5
    assert daemon.resident_bytes() - before < GROWTH_BYTES_MAX
    daemon.is_well()
