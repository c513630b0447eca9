"""What the daemon has done with goes back to the system, and what it does leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.daemon.kit import DaemonProcess, clean_environment, daemon_process, post, request
from tests.daemon.socket_kit import Raw
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


PAGES = 4
"""Pages of a mebibyte that lie in the cold tier, where each of them has to be waited for."""
ROUNDS = 12


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon with a mebibyte of memory for records, and four times that in segments that left its disk."""
    environ = clean_environment(
        TOPICS_COLD_DIR=str(tmp_path_factory.mktemp("cold")),
        TOPICS_HOT_RETAIN_SEGMENTS="1",
        TOPICS_SEGMENT_MAX_EVENTS="1000",
        TOPICS_CACHE_BYTES="1MiB",
    )
    with daemon_process(environ=environ) as daemon:
        for _ in range(PAGES + 1):
            assert daemon.ask(request("POST", "/v0/topics/t?return_seqs=false", RECORDS)).status < 300
            assert daemon.ask(request("POST", "/v0/admin/checkpoint")).status == 200
        deadline = time.monotonic() + WITHIN_S
        while len(list((daemon.directory / "data").glob("topics/*/*.data"))) > 1:
            assert time.monotonic() < deadline, "the segments stay where they are"
            daemon.write("other", 1)
            assert daemon.ask(request("POST", "/v0/admin/checkpoint")).status == 200
        yield daemon


def _diff(seq: int) -> bytes:
    return post("/v0/topics/t/diff", {"from_seq": seq, "limit": 1000})


def _lines(seq: int) -> bytes:
    return post("/v0/topics/t/diff", {"from_seq": seq, "limit": 1000}, "Accept: application/x-ndjson")


def _many(seq: int) -> bytes:
    return post("/v0/diff", {"topics": {"t": {"from_seq": seq, "limit": 1000}}})


@pytest.mark.parametrize("asked", [_diff, _lines, _many])
def test_reading_history_leaves_nothing_in_memory(history: DaemonProcess, asked: Callable[[int], bytes]) -> None:
    sizes = []
    for _ in range(ROUNDS):
        for page in range(PAGES):
            answer = history.ask(asked(1000 * page))
            assert answer.status == 200
            assert len(answer.body) > 1_000_000
        sizes.append(history.resident_bytes())
    assert sizes[-1] - sizes[2] < 16 * MIB, f"it grows: {[size // MIB for size in sizes]} MiB"


LARGE = b"x" * 2_000_000


def test_bodies_that_are_refused_leave_nothing_in_memory(history: DaemonProcess) -> None:
    sizes = []
    for _ in range(12):
        for path, body in (("/v0/topics/t", LARGE), ("/v0/write", b'{"topics":{"t":{"records":"%b"}}}' % LARGE)):
            assert history.ask(post(path, body)).status == 400
        sizes.append(history.resident_bytes())
    assert sizes[-1] - sizes[2] < 16 * MIB, f"it grows: {[size // MIB for size in sizes]} MiB"


def test_messages_that_are_cut_off_leave_nothing_in_memory(history: DaemonProcess) -> None:
    sizes = []
    for _ in range(12):
        with Raw(history) as wire:
            wire.send(b"\x81\xff" + (2 * len(LARGE)).to_bytes(8, "big") + bytes(4) + LARGE)
            assert history.ask(request("GET", "/v0/health")).status == 200
        sizes.append(history.resident_bytes())
    assert sizes[-1] - sizes[2] < 12 * MIB, f"it grows: {[size // MIB for size in sizes]} MiB"
