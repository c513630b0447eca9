"""Without uvloop: the same daemon on asyncio's own loop, from the first request to the last event of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.kit import DaemonProcess, Events, daemon_process, post, records_of, request, start, watch

pytestmark = pytest.mark.slow

LAUNCHER = Path(__file__).with_name("plain_loop.py")


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(launcher=LAUNCHER) as running:
        assert "uvloop" not in Path(f"/proc/{running.pid}/maps").read_text()
        yield running


def test_writes_and_reads_work_over_both_doors(daemon: DaemonProcess) -> None:
    assert daemon.ask(post("/v0/topics/t", {"records": [{"data": 1}]}), unix=True).status == 201
    daemon.write("t", 2, ack="fsync")
    assert records_of(daemon.read("t")) == [1, 2]


def test_pipelined_requests_are_answered_in_order(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(b"".join(post("/v0/topics/p", {"records": [{"data": n}]}) for n in range(300)))
        assert [wire.answer().json["last_seq"] for _ in range(300)] == list(range(1, 301))


def test_a_large_page_reaches_a_reader_whole(daemon: DaemonProcess) -> None:
    daemon.write("large", *["x" * 5000] * 1000)
    assert len(daemon.read("large", limit=1000, max_bytes=8 << 20)["records"]) == 1000


def test_a_refused_body_can_be_read_about(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(request("POST", "/v0/topics/t", None, "Content-Type: application/json", "Content-Length: 99999999"))
        assert wire.answer().status == 413
        assert wire.closed()


def test_a_stream_follows_and_a_stop_ends_it(tmp_path: Path) -> None:
    daemon = start(tmp_path, launcher=LAUNCHER)
    daemon.write("s", 1)
    with Events(daemon, watch(daemon, {"s": {}})) as events:
        assert [events.next()[0] for _ in range(2)] == ["record", "caught-up"]
        daemon.write("s", 2)
        assert events.next()[1]["records"][0]["data"] == 2
        assert daemon.stop() == 0
        assert events.next()[1]["error"] == "server_shutting_down"
