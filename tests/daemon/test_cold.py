"""A daemon with a cold directory: old segments go there, are read from there, and nobody misses it when it is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.daemon.kit import DaemonProcess, clean_environment, post, records_of, request, serving
from tests.hanging import launcher
from tests.waiting import until

pytestmark = pytest.mark.slow

SEGMENT = 100


def environment(directory: Path) -> dict[str, str]:
    return clean_environment(
        TOPICS_COLD_DIR=str(directory / "cold"),
        TOPICS_HOT_RETAIN_SEGMENTS="1",
        TOPICS_SEGMENT_MAX_EVENTS=str(SEGMENT),
        TOPICS_CACHE_BYTES="1MiB",
    )


def data_files(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("topics/*/*.data")}


def checkpoint(daemon: DaemonProcess) -> None:
    assert daemon.ask(post("/v0/admin/checkpoint", {})).status == 200


def fill(daemon: DaemonProcess, first: int) -> None:
    daemon.write("t", *[{"number": first + at, "pad": "x" * 100} for at in range(SEGMENT)])


def test_old_segments_are_moved_and_read_and_a_tier_that_is_gone_costs_only_their_reads(tmp_path: Path) -> None:
    with serving(tmp_path, environ=environment(tmp_path)) as daemon:
        for round_ in range(4):
            fill(daemon, round_ * SEGMENT)
            checkpoint(daemon)
        until(lambda: len(data_files(tmp_path / "cold")) >= 3)
        for _ in range(3):
            daemon.write("other", 1)
            checkpoint(daemon)
        until(lambda: len(data_files(tmp_path / "data")) == 1)
        assert not data_files(tmp_path / "data") & data_files(tmp_path / "cold")
        page = daemon.read("t", limit=1000)
        assert [value["number"] for value in records_of(page)] == list(range(4 * SEGMENT))
    (tmp_path / "cold").rename(tmp_path / "gone")
    with serving(tmp_path, environ=environment(tmp_path)) as daemon:
        answer = daemon.ask(request("GET", "/v0/topics/t/records/1"))
        assert (answer.status, answer.code) == (503, "cold_unavailable")
        fill(daemon, 400)
        assert daemon.ask(request("GET", "/v0/topics/t/records/450")).status == 200
        checkpoint(daemon)
        (tmp_path / "gone").rename(tmp_path / "cold")
        answer = daemon.ask(request("GET", "/v0/topics/t/records/1"))
        assert answer.status == 200
        assert json.loads(answer.body)["data"]["number"] == 0


def test_F68_a_tier_that_hangs_for_ever_costs_only_the_reads_that_need_it(tmp_path: Path) -> None:
    with serving(tmp_path, environ=environment(tmp_path)) as daemon:
        for round_ in range(3):
            fill(daemon, round_ * SEGMENT)
            checkpoint(daemon)
        until(lambda: len(data_files(tmp_path / "cold")) >= 2)
        for _ in range(3):
            daemon.write("other", 1)
            checkpoint(daemon)
        until(lambda: len(data_files(tmp_path / "data")) == 1)
    sign = tmp_path / "hangs"
    sign.write_text(str(tmp_path / "cold"))
    topicsd = launcher(sign, "topics_daemon.main")
    with serving(tmp_path, environ=environment(tmp_path), launcher=topicsd) as daemon, daemon.wire() as waiting:
        waiting.send(request("GET", "/v0/topics/t/records/1"))
        for round_ in range(3, 6):
            fill(daemon, round_ * SEGMENT)
            checkpoint(daemon)
        assert daemon.ask(request("GET", "/v0/topics/t/records/550")).status == 200
        assert daemon.ask(post("/v0/topics/t/delete", {"before_seq": 50})).status == 200
        checkpoint(daemon)
        answer = waiting.answer()
        assert (answer.status, answer.code) == (503, "cold_unavailable")
        assert b"does not answer" in answer.body
    with serving(tmp_path, environ=environment(tmp_path)) as daemon:
        assert daemon.ask(request("GET", "/v0/topics/t/records/60")).status == 200
