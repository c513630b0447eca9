"""Small objects of a real bucket are joined by a daemon that dies at each step, and by the tool; every record once."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from tests.cli.support import run
from tests.daemon.kit import DaemonProcess, clean_environment, records_of, request, start
from tests.daemon.test_cold import checkpoint
from tests.objects.proxy import Answer, Proxy, times, truncated
from tests.objects.server import ENVIRON, Server
from tests.objects.test_daemon import environment, metric
from tests.waiting import until

pytestmark = pytest.mark.slow

EACH = 50
SEGMENTS = 5
"""Small ones, of which all but the last move."""


def early(place: str) -> dict[str, str]:
    """A daemon whose segments are small, and stay so."""
    return {**environment(place), "TOPICS_SEGMENT_MAX_EVENTS": str(EACH), "TOPICS_COLD_MERGE_MIN": "0"}


def joining(place: str) -> dict[str, str]:
    """One whose segments are large, and which joins small ones."""
    return {**environment(place), "TOPICS_SEGMENT_MAX_EVENTS": "1000", "TOPICS_COLD_MERGE_MIN": "3"}


def objects(server: Server, prefix: str, kind: str) -> list[str]:
    """The objects below a prefix whose keys contain something."""
    from topics_objects.place import parse_bucket
    from topics_objects.s3 import S3Objects

    os.environ.update(ENVIRON)
    try:
        bucket = S3Objects(parse_bucket(server.place(prefix)))
        found = [f"work/{name}" for name in bucket.list("work/").names]
        for topic in bucket.list("topics/").names:
            found += [f"topics/{topic}/{name}" for name in bucket.list(f"topics/{topic}/").names]
    finally:
        for name in ENVIRON:
            del os.environ[name]
    return [key for key in found if kind in key]


def begin(directory: Path, place: str, topic: str) -> None:
    """Small segments of a topic in the bucket."""
    daemon = start(directory, environ=early(place))
    for at in range(SEGMENTS):
        values = [{"number": at * EACH + number, "pad": "x" * 80} for number in range(EACH)]
        daemon.write(topic, *values, tag="odd" if at % 2 else "even")
        checkpoint(daemon)
    until(lambda: metric(daemon, "topics_cold_moved_total")[""] >= SEGMENTS - 1)
    nudge(daemon)
    assert daemon.stop() == 0


_ages: Final = itertools.count(86_400_000)


def nudge(daemon: DaemonProcess) -> None:
    """A checkpoint that has something to take down, and makes no segment."""
    answer = daemon.ask(request("PUT", "/v0/topics/other", {"ttl_ms": next(_ages)}))
    assert answer.status in (200, 201), answer
    checkpoint(daemon)


def numbers(daemon: DaemonProcess, topic: str) -> list[int]:
    page = records_of(daemon.read(topic, limit=1000))
    return [value["number"] for value in page]


def settle(daemon: DaemonProcess, server: Server, prefix: str, topic: str) -> None:
    """Until nothing is left of works, and one object of the small ones."""

    def settled() -> bool:
        nudge(daemon)
        data = [key for key in objects(server, prefix, ".data") if f"/{topic}/" in key]
        return len(data) == 1 and not objects(server, prefix, "work/")

    until(settled, within_s=90)


STEPS = (
    ("PUT", "work/", 1),
    ("PUT", ".data", 1),
    ("PUT", "work/", 2),
    ("DELETE", ".data", 2),
    ("DELETE", "work/", 1),
)


def test_a_daemon_that_dies_at_each_step_of_a_join_loses_nothing_and_leaves_nothing(
    tmp_path: Path, bucket_server: Server
) -> None:
    with Proxy(bucket_server.port) as proxy:
        direct, place = bucket_server.place("steps"), bucket_server.place("steps", proxy.port)
        for at, (method, part, nth) in enumerate(STEPS):
            topic = f"t{at}"
            begin(tmp_path, direct, topic)
            daemon = start(tmp_path, environ=joining(place))
            seen = 0

            def dies(
                asked: str,
                path: str,
                answer: Answer,
                pid: int = daemon.pid,
                step: tuple[str, str, int] = (method, part, nth),
            ) -> Answer:
                nonlocal seen
                if asked == step[0] and step[1] in path:
                    seen += 1
                    if seen == step[2]:
                        os.kill(pid, signal.SIGKILL)
                return answer

            proxy.fault = dies
            end = time.monotonic() + 60
            while daemon.process.poll() is None:
                assert time.monotonic() < end, f"it never comes to {method} {part}"
                try:
                    nudge(daemon)
                except (OSError, AssertionError, EOFError):
                    time.sleep(0.05)
            proxy.fault = None
            daemon = start(tmp_path, environ=joining(direct))
            assert numbers(daemon, topic) == list(range(SEGMENTS * EACH))
            settle(daemon, bucket_server, "steps", max(path.name for path in (tmp_path / "data" / "topics").iterdir()))
            assert numbers(daemon, topic) == list(range(SEGMENTS * EACH))
            assert daemon.stop() == 0
        found = run("fsck", str(tmp_path / "data"), "--cold", direct, environment={**clean_environment(), **ENVIRON})
        assert found.returncode == 0, found.stdout
        assert b"nobody's" not in found.stderr
        assert f"{len(STEPS)} segments is in the cold tier".encode() in found.stderr


def test_the_tool_says_what_it_would_do_and_does_it_through_a_network_that_errs(
    tmp_path: Path, bucket_server: Server
) -> None:
    with Proxy(bucket_server.port) as proxy:
        place = bucket_server.place("tool", proxy.port)
        begin(tmp_path, place, "t")
        data = str(tmp_path / "data")
        environ = {**joining(place), **ENVIRON}
        before = objects(bucket_server, "tool", "")
        would = run("cold", "compact", data, "--dry-run", environment=environ)
        assert would.returncode == 0, would.stderr
        assert f"join\tt\t1-{(SEGMENTS - 1) * EACH}\t{SEGMENTS - 1} segments" in would.stdout.decode()
        assert objects(bucket_server, "tool", "") == before
        proxy.fault = times(2, truncated)
        did = run("cold", "compact", data, "--yes", "-o", "json", environment=environ)
        assert did.returncode == 0, did.stderr
        report = json.loads(did.stdout)[0]
        assert (report["made"], report["merged"]) == (1, SEGMENTS - 1)
        assert report["requests"]["put"] >= 4
        assert len(objects(bucket_server, "tool", ".data")) == 1
        assert not objects(bucket_server, "tool", "work/")
        stray = "topics/00000000000000aa/seg-00000000000000000901-0000000099.data"
        assert bucket_server.ask("PUT", f"/history/tool/{stray}", b"stray") == 200
        would = run("cold", "sweep", data, "--dry-run", environment=environ)
        assert f"remove\t{stray}" in would.stdout.decode()
        did = run("cold", "sweep", data, "--yes", environment=environ)
        assert did.returncode == 0, did.stderr
        assert f"removed\t{stray}" in did.stdout.decode()
        assert not objects(bucket_server, "tool", "00aa")
        daemon = start(tmp_path, environ=joining(place))
        assert numbers(daemon, "t") == list(range(SEGMENTS * EACH))
        used = run("cold", "sweep", data, "--yes", environment=environ)
        assert used.returncode == 1
        assert b"store_locked" in used.stderr
        assert daemon.stop() == 0
