"""Work streams of real daemons: whoever goes away frees its jobs, slow readers, caps, keys, stops and kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.types import TopicType
from tests.daemon.kit import (
    DaemonProcess,
    Events,
    NoAnswer,
    clean_environment,
    daemon_process,
    post,
    request,
    start,
)
from tests.store.checkpoint import checkpoint

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
LEASE_MS = 3_600_000
"""So long that no test waits for a deadline."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process("--stall-timeout-ms", "1500", "--max-sse-connections", "20") as running:
        yield running


def queue(daemon: DaemonProcess, name: str, *datas: Any, **config: Any) -> None:
    answer = daemon.ask(request("PUT", f"/v0/topics/{name}", {"type": "queue", "lease_ms": LEASE_MS, **config}))
    assert answer.status == 201, answer
    if datas:
        daemon.write(name, *datas)


def work(daemon: DaemonProcess, name: str, **query: Any) -> Events:
    more = "".join(f"&{field}={value}" for field, value in query.items())
    return Events(daemon, f"/v0/topics/{name}/work?node=w{more}")


def jobs(events: Events, count: int) -> list[dict[str, Any]]:
    found = []
    for _ in range(count):
        name, data, ident = events.next()
        assert (name, ident) == ("job", str(data["$seq"]))
        found.append(data)
    return found


def counters(daemon: DaemonProcess, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = daemon.ask(request("GET", f"/v0/topics/{name}")).json["queue"]
    return shown


def settles(daemon: DaemonProcess, name: str, **wanted: int) -> dict[str, Any]:
    """The counters once they are so; fails when they do not become so."""
    deadline = time.monotonic() + 20
    while True:
        found = counters(daemon, name)
        if {field: found[field] for field in wanted} == wanted:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def claimed(daemon: DaemonProcess, name: str, **more: Any) -> list[dict[str, Any]]:
    answer = daemon.ask(post(f"/v0/topics/{name}/claim", {"node": "c", **more}))
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json["claimed"]
    return found


WORKER = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.sendall(f"GET /v0/topics/{sys.argv[2]}/work?node=k&max=3 HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
while True:
    sys.stdout.buffer.write(sock.recv(65536))
    sys.stdout.buffer.flush()
"""


def test_a_killed_worker_frees_its_jobs_at_once_and_only_its_own(daemon: DaemonProcess) -> None:
    queue(daemon, "killed", *range(5))
    other = claimed(daemon, "killed")
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(daemon.port), "killed"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        seen = b""
        while seen.count(b"event: job") < 3:
            seen += os.read(output.fileno(), 65536)
        assert counters(daemon, "killed")["in_flight"] == 4
        process.kill()
        process.wait()
    settles(daemon, "killed", in_flight=1, ready=4)
    freed = claimed(daemon, "killed", max=3)
    assert [(job["$seq"], job["deliveries"]) for job in freed] == [(2, 2), (3, 2), (4, 2)]
    body = {"node": "c", "seqs": [1], "lease_ids": [other[0]["lease_id"]]}
    assert daemon.ask(post("/v0/topics/killed/ack", body)).json["acked"] == 1


def test_what_one_worker_leaves_another_that_waits_gets(daemon: DaemonProcess) -> None:
    queue(daemon, "left", "a")
    first = work(daemon, "left")
    assert jobs(first, 1)[0]["deliveries"] == 1
    with work(daemon, "left") as second:
        first.close()
        assert jobs(second, 1)[0]["deliveries"] == 2


def test_a_reader_that_takes_nothing_gets_no_more_and_is_cut_off_and_its_jobs_are_free(daemon: DaemonProcess) -> None:
    big = "x" * MIB
    queue(daemon, "stuck")
    for _ in range(40):
        daemon.write("stuck", big[:-100])
    before = daemon.resident_bytes()
    with daemon.wire() as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.send(request("GET", "/v0/topics/stuck/work?node=w&max=1000", None))
        deadline = time.monotonic() + 20
        most = 0
        while (found := counters(daemon, "stuck"))["in_flight"] or not most:
            most = max(most, found["in_flight"])
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
        assert most < 20, "it was leased jobs that it never took"
        assert daemon.resident_bytes() - before < 40 * MIB
        assert wire.closed()
    assert counters(daemon, "stuck")["ready"] == 40
    daemon.is_well()


def test_a_slow_reader_gets_every_job_once_it_reads(daemon: DaemonProcess) -> None:
    queue(daemon, "slow")
    for number in range(20):
        daemon.write("slow", f"{number}" + "x" * 300_000)
    with work(daemon, "slow", max=20) as events:
        time.sleep(0.5)
        found = jobs(events, 20)
        assert [job["$seq"] for job in found] == list(range(1, 21))
        assert {job["deliveries"] for job in found} == {1}


def test_streams_of_workers_count_among_the_streams(daemon: DaemonProcess) -> None:
    queue(daemon, "caps")
    streams = []
    try:
        for _ in range(20):
            streams.append(work(daemon, "caps"))
            assert streams[-1].head.startswith("HTTP/1.1 200")
        answer = daemon.ask(request("GET", "/v0/topics/caps/work?node=w"))
        assert answer.status == 429
        assert answer.json["error"]["detail"] == {"limit": "max_sse_connections", "max": 20}
    finally:
        for stream in streams:
            stream.close()
    deadline = time.monotonic() + 20
    while daemon.ask(request("GET", "/v0/metrics")).body.find(b"topics_watchers 0\n") < 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_silence_is_filled_with_comments(daemon: DaemonProcess) -> None:
    queue(daemon, "silent")
    with work(daemon, "silent", heartbeat_ms=1000) as events:
        assert events.block() == [("retry", "2000")]
        fields = events.block()
        assert (len(fields), fields[0][0], fields[0][1][:3]) == (1, "", "hb ")


def test_a_filter_takes_the_jobs_with_its_tag(daemon: DaemonProcess) -> None:
    queue(daemon, "tags")
    records = [{"data": number, "tag": "odd" if number % 2 else "even"} for number in range(6)]
    assert daemon.ask(post("/v0/topics/tags", {"records": records})).status == 200
    with work(daemon, "tags", match="od*", max=9) as events:
        assert [job["data"] for job in jobs(events, 3)] == [1, 3, 5]
        assert counters(daemon, "tags")["ready"] == 3


def test_a_payload_with_line_breaks_is_put_together_again(daemon: DaemonProcess) -> None:
    queue(daemon, "lines")
    daemon.ask(post("/v0/topics/lines", b'{"records":[{"data":{"a":\r\n[1,\r2,\n3]}}]}'))
    with work(daemon, "lines") as events:
        assert jobs(events, 1)[0]["data"] == {"a": [1, 2, 3]}


def test_many_workers_share_the_jobs_and_none_is_done_twice(daemon: DaemonProcess) -> None:
    queue(daemon, "many", *range(300))
    streams = [work(daemon, "many", max=1 + number % 4) for number in range(8)]
    done: list[int] = []
    try:
        while len(done) < 300:
            for stream in streams:
                stream.wire.sock.settimeout(0.02)
                try:
                    job = jobs(stream, 1)[0]
                except NoAnswer:
                    continue
                done.append(job["data"])
                body = {"node": "w", "seqs": [job["$seq"]], "lease_ids": [job["lease_id"]]}
                assert daemon.ask(post("/v0/topics/many/ack", body)).json["acked"] == 1
    finally:
        for stream in streams:
            stream.close()
    assert sorted(done) == list(range(300))
    shown = counters(daemon, "many")
    assert (shown["acked"], shown["ready"], shown["in_flight"], shown["written"]) == (300, 0, 0, 300)


def test_a_key_that_loses_its_rights_loses_its_stream_and_its_jobs(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("admin\nworker:read+write\n")
    keys.chmod(0o600)
    with daemon_process(environ=clean_environment(TOPICS_API_KEYS_FILE=str(keys))) as daemon:
        auth = "Authorization: Bearer "
        for method, path, body in (("PUT", "/v0/topics/q", {"type": "queue"}), ("POST", "/v0/topics/q", JOB)):
            assert daemon.ask(request(method, path, body, auth + "admin")).status in (200, 201)
        with Events(daemon, "/v0/topics/q/work?node=w", auth + "worker") as events:
            assert len(jobs(events, 1)) == 1
            keys.write_text("admin\nworker:read\n")
            daemon.process.send_signal(signal.SIGHUP)
            name, data, _ = events.next()
            assert (name, data) == ("error", {"code": 403, "error": "forbidden"})
            assert events.wire.closed()
        state = daemon.ask(request("GET", "/v0/topics/q", None, auth + "admin")).json
        assert (state["queue"]["in_flight"], state["queue"]["ready"]) == (0, 1)


JOB: dict[str, Any] = {"records": [{"data": "a"}]}


@pytest.mark.parametrize("durable", [False, True], ids=["leases in memory", "durable leases"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_what_a_restart_leaves(durable: bool, how: signal.Signals, tmp_path: Path) -> None:
    """A stop says goodbye and frees all jobs; after a kill durable leases hold for their worker, others are free."""
    daemon = start(tmp_path)
    try:
        queue(daemon, "q", *range(4), leases_durable=durable)
        with work(daemon, "q", max=2) as events:
            held = jobs(events, 2)
            assert daemon.stop(how) == (0 if how is signal.SIGTERM else -signal.SIGKILL)
            if how is signal.SIGTERM:
                assert events.next()[1] == {"code": 503, "error": "server_shutting_down"}
            assert events.wire.closed()
        daemon = start(tmp_path)
        keeps = durable and how is signal.SIGKILL
        shown = counters(daemon, "q")
        assert (shown["in_flight"], shown["ready"]) == ((2, 2) if keeps else (0, 4))
        body = {"node": "w", "seqs": [1], "lease_ids": [held[0]["lease_id"]]}
        assert daemon.ask(post("/v0/topics/q/ack", body)).json["acked"] == int(keeps)
        with work(daemon, "q", max=9) as events:
            assert [job["$seq"] for job in jobs(events, 2 if keeps else 4)] == ([3, 4] if keeps else [1, 2, 3, 4])
    finally:
        if daemon.process.poll() is None:
            daemon.stop()


def test_jobs_in_segments_come_too(tmp_path: Path) -> None:
    with Engine(str(tmp_path / "data")) as engine:
        engine.create("q", type=TopicType.QUEUE)
        engine.write("q", [{"number": number, "pad": "x" * 200} for number in range(2000)], ack_fsync=True)
        checkpoint(engine.core, engine.core.fs, 1, own_files=True, sync=lambda: None)
    daemon = start(tmp_path, environ=clean_environment(TOPICS_CACHE_BYTES="1MiB"))
    try:
        assert list((tmp_path / "data" / "topics").glob("*/seg-*.data"))
        seen: list[int] = []
        with work(daemon, "q", max=100) as events:
            while len(seen) < 2000:
                got = jobs(events, 100)
                seen += [job["data"]["number"] for job in got]
                body = {"node": "w", "seqs": [job["$seq"] for job in got]}
                assert daemon.ask(post("/v0/topics/q/ack", json.dumps(body))).json["acked"] == 100
        assert seen == list(range(2000))
        daemon.is_well()
    finally:
        assert daemon.stop() == 0
