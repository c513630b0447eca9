"""Reads that have to wait for a disk: requests, long polls, streams and several topics go on when it has answered."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.kit import DaemonProcess, Events, clean_environment, daemon_process, post, records_of, request, watch

pytestmark = pytest.mark.slow

LAUNCHER = Path(__file__).with_name("late.py")


class Late:
    """A daemon some of whose records are on a slow disk, and the files that say how slow."""

    def __init__(self, daemon: DaemonProcess, faults: Path) -> None:
        self.daemon = daemon
        self._faults = faults

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """For the length of a block the disk behaves like this."""
        (self._faults / name).touch()
        try:
            yield
        finally:
            self.end(name)

    def end(self, name: str) -> None:
        """The disk behaves again."""
        (self._faults / name).unlink(missing_ok=True)

    def reads(self, name: str) -> int:
        """How many reads of a topic have begun."""
        file = self._faults / "reads"
        return sum(f"'{name}'" in line for line in file.read_text().splitlines()) if file.exists() else 0

    def until_read(self, *names: str, count: int = 1) -> None:
        """Wait until so many reads of these topics have begun."""
        until = time.monotonic() + 20
        while sum(map(self.reads, names)) < count:
            assert time.monotonic() < until, "no read has begun"
            time.sleep(0.01)


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Late]:
    faults = tmp_path_factory.mktemp("faults")
    with daemon_process(environ=clean_environment(FAULTS=str(faults)), launcher=LAUNCHER) as daemon:
        yield Late(daemon, faults)


def test_a_page_a_record_and_a_delete_are_answered_after_their_reads(late: Late) -> None:
    late.daemon.write("late-one", 1, 2, 3)
    assert records_of(late.daemon.read("late-one")) == [1, 2, 3]
    assert late.daemon.ask(request("GET", "/v0/topics/late-one/records/2")).json["data"] == 2
    assert late.daemon.ask(post("/v0/topics/late-one/delete", {"seqs": [2]})).json["deleted"] == 1
    assert records_of(late.daemon.read("late-one")) == [1, 3]
    assert late.reads("late-one") == 4
    lines = late.daemon.ask(post("/v0/topics/late-one/diff", {}, "Accept: application/x-ndjson"))
    assert lines.body.count(b"\n") == 3
    late.daemon.is_well()


def test_what_a_client_sends_after_a_read_sees_what_the_read_saw_before(late: Late) -> None:
    late.daemon.write("late-order", 1)
    with late.daemon.wire() as wire, late.fault("hang"):
        wire.send(
            post("/v0/topics/late-order/diff", {})
            + post("/v0/topics/late-order", {"records": [{"data": 2}]})
            + post("/v0/topics/late-order", {"records": [{"data": 3}]})
            + post("/v0/topics/late-order/diff", {})
        )
        late.until_read("late-order")
        assert late.daemon.ask(request("GET", "/v0/topics/late-order")).json["head_seq"] == 1
        late.end("hang")
        assert records_of(wire.answer().json) == [1]
        assert [wire.answer().json["first_seq"] for _ in range(2)] == [2, 3]
        assert records_of(wire.answer().json) == [1, 2, 3]


def test_a_client_that_says_close_gets_its_answer_and_then_the_end(late: Late) -> None:
    late.daemon.write("late-close", 1)
    with late.daemon.wire() as wire:
        wire.send(post("/v0/topics/late-close/diff", {}, "Connection: close"))
        answer = wire.answer()
        assert records_of(answer.json) == [1]
        assert answer.headers["connection"] == "close"
        assert wire.closed()


def test_the_loop_and_other_readers_go_on_while_reads_hang(late: Late) -> None:
    late.daemon.write("late-hung", 1)
    late.daemon.write("swift", 1)
    wires = [late.daemon.wire() for _ in range(20)]
    with late.fault("hang"):
        for number, wire in enumerate(wires):
            wire.send(post("/v0/topics/late-hung/diff", {"limit": 1 + number % 10}))
        late.until_read("late-hung", count=4)
        assert records_of(late.daemon.read("swift")) == [1]
        late.daemon.write("late-cold-beside", 1)
        assert records_of(late.daemon.read("late-cold-beside")) == [1]
    for wire in wires:
        assert records_of(wire.answer().json) == [1]
        wire.close()
    # Whoever wants the same shares one read.
    assert late.reads("late-hung") == 10


def test_who_goes_away_leaves_nothing_behind_and_what_nobody_wants_is_not_begun(late: Late) -> None:
    late.daemon.write("late-gone", 1)
    with late.fault("hang"):
        wires = [late.daemon.wire() for _ in range(30)]
        for number, wire in enumerate(wires):
            wire.send(post("/v0/topics/late-gone/diff", {"limit": 1 + number}))
        late.until_read("late-gone", count=4)
        time.sleep(0.2)
        for wire in wires:
            # A reset: one that only closes might have closed its side alone, and still read.
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.close()
        time.sleep(0.3)
    time.sleep(0.2)
    assert late.reads("late-gone") == 4
    assert records_of(late.daemon.read("late-gone")) == [1]
    late.daemon.is_well()


def test_the_cold_tier_has_a_deadline_and_what_comes_later_is_read(late: Late) -> None:
    late.daemon.write("late-cold", 1)
    late.daemon.write("late-warm", 1)
    with late.fault("freeze"), late.daemon.wire() as wire:
        began = time.monotonic()
        wire.send(post("/v0/topics/late-cold/diff", {}))
        late.until_read("late-cold")
        assert records_of(late.daemon.read("late-warm")) == [1]
        answer = wire.answer()
        assert 0.9 < time.monotonic() - began < 3
        assert (answer.status, answer.code) == (503, "cold_unavailable")
        assert answer.headers["retry-after"] == "5"
        wire.send(post("/v0/topics/late-warm/diff", {}))
        assert records_of(wire.answer().json) == [1]
    assert records_of(late.daemon.read("late-cold")) == [1]


def test_what_is_lost_is_an_error_of_that_topic_alone(late: Late) -> None:
    late.daemon.write("late-lost", 1)
    late.daemon.write("found", 1)
    with late.fault("broken"):
        answer = late.daemon.ask(post("/v0/topics/late-lost/diff", {}))
        assert (answer.status, answer.code) == (409, "topic_damaged")
        many = late.daemon.ask(post("/v0/diff", {"topics": {"late-lost": {}, "found": {}}})).json["topics"]
        assert many["late-lost"]["error"]["code"] == "topic_damaged"
        assert records_of(many["found"]) == [1]


def test_several_topics_are_read_one_after_the_other(late: Late) -> None:
    for number in range(5):
        late.daemon.write(f"late-many-{number}", number)
    late.daemon.write("many", "hot")
    topics: dict[str, object] = {**{f"late-many-{number}": {} for number in range(5)}, "many": {}}
    answer = late.daemon.ask(post("/v0/diff", {"topics": topics})).json["topics"]
    assert list(answer) == list(topics)
    assert [records_of(page) for page in answer.values()] == [[0], [1], [2], [3], [4], ["hot"]]


def test_several_topics_with_a_cold_one_wait_for_one_deadline_only(late: Late) -> None:
    for number in range(4):
        late.daemon.write(f"late-cold-{number}", number)
    late.daemon.write("late-near", "near")
    topics: dict[str, object] = {**{f"late-cold-{number}": {} for number in range(4)}, "late-near": {}}
    with late.fault("freeze"):
        began = time.monotonic()
        answer = late.daemon.ask(post("/v0/diff", {"topics": topics, "max_wait_ms": 60_000})).json["topics"]
        assert time.monotonic() - began < 2
    assert [answer[f"late-cold-{number}"]["error"]["code"] for number in range(4)] == ["cold_unavailable"] * 4
    assert records_of(answer["late-near"]) == ["near"]


@pytest.mark.parametrize("path", ["/v0/topics/late-poll/diff", "/v0/diff"])
def test_a_long_poll_that_is_woken_waits_for_its_read_too(late: Late, path: str) -> None:
    head = late.daemon.write("late-poll", 1)["head_seq"]
    page = {"from_seq": head}
    body = {**page, "wait_ms": 10_000} if "topics" in path else {"topics": {"late-poll": page}, "max_wait_ms": 10_000}
    with late.daemon.wire() as wire:
        wire.send(post(path, body))
        time.sleep(0.1)
        before = late.reads("late-poll")
        with late.fault("hang"):
            late.daemon.write("late-poll", 2)
            late.until_read("late-poll", count=before + 1)
            late.daemon.write("late-poll", 3)
        answer = wire.answer().json
        assert records_of(answer.get("topics", {}).get("late-poll") or answer) == [2, 3]
    with late.daemon.wire() as wire, late.fault("hang"):
        wire.send(post(path, body))
        time.sleep(0.1)
        late.daemon.write("late-poll", 4)
        time.sleep(0.1)
    late.daemon.is_well()


def test_a_long_poll_ends_in_time_with_what_its_read_brings(late: Late) -> None:
    head = late.daemon.write("late-timed", 1)["head_seq"]
    with late.daemon.wire() as wire:
        wire.send(post("/v0/topics/late-timed/diff", {"from_seq": head, "wait_ms": 2000}))
        time.sleep(0.1)
        with late.fault("hang"):
            late.daemon.write("late-timed", 2)
            time.sleep(2.2)
        assert records_of(wire.answer().json) == [2]


def test_a_stream_waits_for_its_read_while_its_other_topics_and_other_streams_go_on(late: Late) -> None:
    daemon = late.daemon
    daemon.write("late-stream", 1, 2, 3)
    daemon.write("late-second", 1)
    daemon.write("live", 1)
    with late.fault("hang"):
        url = watch(daemon, {"late-stream": {}, "late-second": {}, "live": {}}, limit=2)
        with Events(daemon, url) as events, Events(daemon, watch(daemon, {"live": {}})) as other:
            assert [events.next()[0] for _ in range(2)] == ["record", "caught-up"]
            assert [other.next()[0] for _ in range(2)] == ["record", "caught-up"]
            daemon.write("late-stream", 4)
            daemon.write("late-second", 2)
            daemon.write("live", 2)
            for reader in (events, other):
                name, data, _ = reader.next()
                assert (name, data["topic"], records_of(data)) == ("record", "live", [2])
            late.until_read("late-stream", "late-second")
            assert late.reads("late-stream") + late.reads("late-second") == 1
            late.end("hang")
            seen: dict[str, list[int]] = {}
            caught_up: set[str] = set()
            while len(caught_up) < 2:
                name, data, _ = events.next()
                if name == "record":
                    seen.setdefault(data["topic"], []).extend(records_of(data))
                elif name == "caught-up":
                    caught_up.add(data["topic"])
            assert seen == {"late-stream": [1, 2, 3, 4], "late-second": [1, 2]}


def test_a_stream_is_told_what_the_cold_tier_does_not_give_and_tries_again(late: Late) -> None:
    daemon = late.daemon
    daemon.write("late-cold-stream", 1)
    shown = {"code": 503, "error": "cold_unavailable", "retry_after_ms": 5000, "topics": ["late-cold-stream"]}
    with late.fault("freeze"), Events(daemon, watch(daemon, {"late-cold-stream": {}})) as events:
        assert events.next()[:2] == ("error", shown)
        late.end("freeze")
        name, data, _ = events.next()
        assert (name, records_of(data)) == ("record", [1])


def test_many_streams_at_one_place_share_a_read_and_one_that_goes_takes_it_from_nobody(late: Late) -> None:
    daemon = late.daemon
    daemon.write("late-shared", 1)
    with late.fault("hang"):
        streams = [Events(daemon, watch(daemon, {"late-shared": {}})) for _ in range(10)]
        late.until_read("late-shared")
        time.sleep(0.1)
        streams.pop(0).close()
        time.sleep(0.1)
    for events in streams:
        name, data, _ = events.next()
        assert (name, records_of(data)) == ("record", [1])
        events.close()
    assert late.reads("late-shared") == 1


def test_a_topic_that_is_dropped_during_its_read_is_told_so(late: Late) -> None:
    daemon = late.daemon
    daemon.write("late-dropped", 1)
    daemon.write("late-behind", 1)
    with late.fault("hang"), Events(daemon, watch(daemon, {"late-dropped": {}, "late-behind": {}})) as events:
        with daemon.wire() as wire:
            wire.send(post("/v0/topics/late-dropped/diff", {}))
            late.until_read("late-dropped", count=2)
            daemon.ask(request("DELETE", "/v0/topics/late-dropped"))
            assert events.next()[0] == "topic-deleted"
            late.end("hang")
            assert wire.answer().code == "topic_not_found"
        name, data, _ = events.next()
        assert (name, data["topic"]) == ("record", "late-behind")


def test_a_bug_in_a_read_costs_the_answers_that_need_it(tmp_path: Path) -> None:
    with daemon_process(environ=clean_environment(FAULTS=str(tmp_path)), launcher=LAUNCHER) as daemon:
        late = Late(daemon, tmp_path)
        daemon.write("late-bug", 1)
        with late.fault("bug"):
            answer = daemon.ask(post("/v0/topics/late-bug/diff", {}))
            assert (answer.status, answer.code) == (500, "internal")
            many = daemon.ask(post("/v0/diff", {"topics": {"late-bug": {}}}))
            assert (many.status, many.code) == (500, "internal")
        assert records_of(daemon.read("late-bug")) == [1]
        assert "KeyError" in daemon.log
        assert daemon.stop() == 0


def test_a_stop_does_not_wait_for_reads_that_hang(tmp_path: Path) -> None:
    environ = clean_environment(FAULTS=str(tmp_path))
    with daemon_process("--drain-ms", "300", environ=environ, launcher=LAUNCHER) as daemon:
        late = Late(daemon, tmp_path)
        daemon.write("late-stop", 1)
        with late.fault("hang"), daemon.wire() as wire:
            wire.send(post("/v0/topics/late-stop/diff", {}))
            late.until_read("late-stop")
            began = time.monotonic()
            assert daemon.stop() == 0
            assert time.monotonic() - began < 5
