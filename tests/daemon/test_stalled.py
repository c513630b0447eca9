"""Many readers that take nothing, beside some that do: memory stays within its bound, and nobody misses anything."""

from __future__ import annotations

import json
import resource
import select
import socket
import time
from pathlib import Path

import pytest

from tests.daemon.kit import DaemonProcess, daemon_process, post, request, watch
from topics_daemon.exchange import AHEAD_BYTES

pytestmark = pytest.mark.slow

STALLED, HEALTHY = 1000, 100
FRAME_BYTES = 16 * 1024
WATCHER_BYTES = 20 * 1024
"""What a watcher may cost besides what waits for it (performance.md)."""
SLACK_BYTES = 48 * 1024 * 1024
"""The records themselves, in the cache and on their way."""
WRITES, RECORDS = 40, 5
DATA = "x" * 4000


def open_stream(daemon: DaemonProcess, receive_bytes: int = 0) -> socket.socket:
    """A watcher of the topic whose stream has begun."""
    url = watch(daemon, {"t": {"tail": True}}, max_batch_bytes=FRAME_BYTES)
    sock = socket.socket()
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.settimeout(30)
    sock.connect(("127.0.0.1", daemon.port))
    sock.sendall(request("GET", url, None, "Accept: text/event-stream"))
    assert sock.recv(12) == b"HTTP/1.1 200"
    return sock


def everything(streams: list[socket.socket], last: int, within_s: float) -> dict[socket.socket, bytearray]:
    """What streams say until each has said that it is at `last`."""
    heard = {stream: bytearray() for stream in streams}
    open_ = {stream.fileno(): stream for stream in streams}
    poller = select.poll()
    for fd in open_:
        poller.register(fd, select.POLLIN)
    end = b'"to_seq":%d,' % last
    deadline = time.monotonic() + within_s
    while open_:
        assert time.monotonic() < deadline, f"{len(open_)} of {len(streams)} lack something after {within_s} s"
        for fd, _ in poller.poll(1000):
            stream = open_[fd]
            data = stream.recv(1 << 18)
            assert data, f"a stream was ended: {bytes(heard[stream][-300:])!r}"
            heard[stream] += data
            if end in heard[stream][-FRAME_BYTES * 2 :] and heard[stream].endswith(b"\n\n"):
                poller.unregister(fd)
                del open_[fd]
    return heard


def seqs(heard: bytearray) -> list[int]:
    """The seqs of all records of a stream, in the order in which they came."""
    found: list[int] = []
    for event in heard.split(b"\n\n"):
        if b"event: record" in event:
            data = event[event.index(b"data: ") + 6 :]
            found += [record["$seq"] for record in json.loads(data)["records"]]
    return found


def unread_in_kernel(port: int) -> int:
    """Bytes that the kernel holds of what this port has sent and nobody has taken: its send queues."""
    total = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port:
            total += int(fields[4].partition(":")[0], 16)
    return total


def test_a_thousand_stalled_watchers_cost_what_they_may_and_a_hundred_others_get_everything() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = STALLED + HEALTHY + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} descriptors, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    streams: list[socket.socket] = []
    try:
        with daemon_process("--stall-timeout-ms", "600000") as daemon:
            daemon.write("t", 0)
            before = daemon.resident_bytes()
            stalled = [open_stream(daemon, 4096) for _ in range(STALLED)]
            streams += stalled
            healthy = [open_stream(daemon) for _ in range(HEALTHY)]
            streams += healthy
            opened = daemon.resident_bytes() - before
            assert opened <= (STALLED + HEALTHY) * WATCHER_BYTES + SLACK_BYTES / 4, f"{opened} bytes for all watchers"
            body = {"records": [{"data": DATA}] * RECORDS}
            for _ in range(WRITES):
                assert daemon.ask(post("/v0/topics/t", body)).status == 200
            last = 1 + WRITES * RECORDS
            for heard in everything(healthy, last, 120).values():
                assert seqs(heard) == list(range(2, last + 1))
            grown = daemon.resident_bytes() - before
            bound = STALLED * (AHEAD_BYTES + FRAME_BYTES) + (STALLED + HEALTHY) * WATCHER_BYTES + SLACK_BYTES
            assert grown <= bound, f"{grown >> 20} MiB, {bound >> 20} MiB may be held"
            lagging = daemon.ask(request("GET", "/v0/metrics", None, "Accept: application/json")).json["metrics"]
            assert lagging["topics_watch_lagging"]["series"][0]["value"] > STALLED / 2, "they do hold something back"
            in_kernel = unread_in_kernel(daemon.port)
            assert in_kernel <= (STALLED + HEALTHY) * 3 * AHEAD_BYTES, f"{in_kernel >> 20} MiB in the kernel"
            # Whoever reads on after all gets what it missed from the log.
            assert seqs(everything(stalled[:5], last, 60)[stalled[0]]) == list(range(2, last + 1))
            daemon.is_well()
            for stream in streams:
                stream.close()
    finally:
        for stream in streams:
            stream.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
