"""A daemon whose history is in a bucket: nothing but the reads of it notices how the bucket is, and metrics count what
the server's own log counts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.support import run
from tests.daemon.kit import DaemonProcess, clean_environment, post, records_of, request, serving
from tests.daemon.test_cold import SEGMENT, checkpoint, fill
from tests.objects.proxy import Proxy, refusing
from tests.objects.server import ENVIRON, Server
from tests.waiting import until

pytestmark = pytest.mark.slow


def environment(place: str, **more: str) -> dict[str, str]:
    return clean_environment(
        **ENVIRON,
        TOPICS_COLD_URL=place,
        TOPICS_COLD_DEADLINE_MS="3000",
        TOPICS_HOT_RETAIN_SEGMENTS="1",
        TOPICS_SEGMENT_MAX_EVENTS=str(SEGMENT),
        TOPICS_CACHE_BYTES="1MiB",
        **more,
    )


def metric(daemon: DaemonProcess, name: str) -> dict[str, float]:
    """The samples of a metric by their `op`; "" where there is none."""
    text = daemon.ask(request("GET", "/v0/metrics")).body.decode()
    found = {}
    for line in text.splitlines():
        if line.startswith((name + "{", name + " ")):
            labels, _, value = line.rpartition(" ")
            found[labels.partition('op="')[2].partition('"')[0]] = float(value)
    return found


def local_data(directory: Path) -> int:
    return len(list(directory.glob("data/topics/*/*.data")))


def moved(directory: Path, daemon: DaemonProcess, first: int, rounds: int) -> int:
    """Fill segments until only one of them is here."""
    for round_ in range(rounds):
        fill(daemon, first + round_ * SEGMENT)
        checkpoint(daemon)

    def gone() -> bool:
        daemon.write("other", 1)
        checkpoint(daemon)
        return local_data(directory) == 1

    until(gone)
    return first + rounds * SEGMENT


def test_history_moves_to_a_bucket_and_metrics_count_what_its_server_counts(
    tmp_path: Path, bucket_server: Server
) -> None:
    place = bucket_server.place("daemon")
    with serving(tmp_path, environ=environment(place)) as daemon:
        total = moved(tmp_path, daemon, 0, 4)
        page = daemon.read("t", limit=1000)
        assert [value["number"] for value in records_of(page)] == list(range(total))
    with serving(tmp_path, environ=environment(place)) as daemon:
        before = bucket_server.requests("daemon")
        made = metric(daemon, "topics_cold_requests_total")
        page = daemon.read("t", limit=1000)
        assert [value["number"] for value in records_of(page)] == list(range(total))
        until(lambda: daemon.ask(request("GET", "/v0/topics/t/records/1")).status == 200)
        now = metric(daemon, "topics_cold_requests_total")
        asked = bucket_server.requests("daemon") - before
        assert {op: now[op] - made[op] for op in now if now[op] != made[op]} == dict(asked)
        assert metric(daemon, "topics_cold_bytes_total")["get"] > total * 100
        cost = metric(daemon, "topics_object_store_cost_dollars_total")
        assert cost["get"] == pytest.approx(now["get"] * 0.4e-6)
        pin = json.loads(daemon.ask(post("/v0/admin/exports", {})).body)
        manifest = json.loads((Path(pin["path"]) / "manifest.json").read_text().partition("\n")[0])
        assert manifest["cold"] == place


def test_F68_a_bucket_that_refuses_or_hangs_costs_only_the_reads_that_need_it_and_moves_catch_up(
    tmp_path: Path, bucket_server: Server
) -> None:
    with Proxy(bucket_server.port) as proxy:
        place = bucket_server.place("failing", proxy.port)
        with serving(tmp_path, environ=environment(place)) as daemon:
            moved(tmp_path, daemon, 0, 3)
        with serving(tmp_path, environ=environment(place)) as daemon:
            for before in (refusing(503, "SlowDown"), refusing(400, "ExpiredToken")):
                proxy.before = before
                answer = daemon.ask(request("GET", "/v0/topics/t/records/1"))
                assert (answer.status, answer.code) == (503, "cold_unavailable")
        proxy.before = lambda method, path: None
        bucket_server.pause()
        try:
            with serving(tmp_path, environ=environment(place)) as daemon, daemon.wire() as waiting:
                waiting.send(request("GET", "/v0/topics/t/records/1"))
                for round_ in range(3, 6):
                    fill(daemon, round_ * SEGMENT)
                    checkpoint(daemon)
                assert daemon.ask(request("GET", "/v0/topics/t/records/550")).status == 200
                assert daemon.ask(post("/v0/topics/t/delete", {"before_seq": 50})).status == 200
                checkpoint(daemon)
                answer = waiting.answer()
                assert (answer.status, answer.code) == (503, "cold_unavailable")
        finally:
            bucket_server.go_on()
        with serving(tmp_path, environ=environment(place)) as daemon:
            until(lambda: daemon.ask(request("GET", "/v0/topics/t/records/60")).status == 200)
            moved(tmp_path, daemon, 600, 1)
            page = daemon.read("t", from_seq=50, limit=1000)
            assert [value["number"] for value in records_of(page)] == list(range(50, 700))


def test_tools_read_the_bucket_and_name_what_it_lacks(tmp_path: Path, bucket_server: Server) -> None:
    from topics_objects.place import parse_bucket
    from topics_objects.s3 import S3Objects

    place = bucket_server.place("tools")
    environ = {**clean_environment(), **ENVIRON}
    with serving(tmp_path, environ=environment(place)) as daemon:
        moved(tmp_path, daemon, 0, 3)
    data = str(tmp_path / "data")
    whole = run("fsck", data, "--cold", place, environment=environ)
    assert whole.returncode == 0, whole.stderr
    os.environ.update(ENVIRON)
    try:
        objects = S3Objects(parse_bucket(place))
        listed = objects.list("topics/0000000000000001/").names
        victim = next(name for name in listed if name.endswith(".data"))
        objects.delete(f"topics/0000000000000001/{victim}")
        objects.put("topics/0000000000000001/seg-00000000000000000901-0000000099.data", b"stray", new=True)
    finally:
        for name in ENVIRON:
            del os.environ[name]
    lacking = run("fsck", data, "--cold", place, environment=environ)
    assert lacking.returncode == 4
    assert victim in lacking.stdout.decode()
    assert "seg-00000000000000000901" in lacking.stdout.decode()
    quick = run("fsck", data, "--cold", place, "--quick", environment=environ)
    assert quick.returncode == 4
    assert victim in quick.stdout.decode()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"TOPICS_COLD_URL": "http://b/p"}, "s3://bucket/prefix"),
        ({"TOPICS_COLD_URL": "s3://b/p", "TOPICS_COLD_DIR": "/tmp/x"}, "choose one"),
        ({"TOPICS_COLD_PRICES": "fly=1"}, "unknown operation"),
    ],
)
def test_a_place_that_cannot_be_is_refused_at_the_start(settings: dict[str, str], said: str) -> None:
    from topics_daemon.config import Mistakes, Wants, load

    with pytest.raises(Mistakes, match=said):
        load(Wants({}), settings)
