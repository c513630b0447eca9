"""Who sends much does not hold the loop: others are looked at after a slice, and who has more stands in line."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.daemon.kit import DaemonProcess, Wire, daemon_process, post, request
from topics_daemon import shares
from topics_daemon.shares import ALONE_SLICE_NS, PACE_MAX, REST_NS_MAX, SLICE_NS, Shares

BATCH = 1000


class Bench:
    """Shares on a loop that is turned by hand, and a clock that work moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 1
        self.due: list[Callable[[], None]] = []
        self.did: list[str] = []
        monkeypatch.setattr(shares, "time", SimpleNamespace(perf_counter_ns=lambda: self.now_ns))
        self.later: list[tuple[float, Callable[[], None]]] = []
        loop = SimpleNamespace(call_soon=self.due.append, call_later=lambda *timer: self.later.append(timer))
        self.daemon = SimpleNamespace(loop=loop, wake=self.wake, connections=[], coarse_s=0.0)
        self.daemon.turn_due = False
        self.shares = Shares(cast(Any, self.daemon))

    def wake(self) -> None:
        if not self.daemon.turn_due:
            self.daemon.turn_due = True
            self.due.append(self.turn)

    def turn(self) -> None:
        self.daemon.turn_due = False
        self.did.append("turn")
        self.shares.renew()

    def tick(self, *heard: float) -> None:
        """The coarse timer; connections were heard of at these ticks, which are numbered."""
        self.daemon.coarse_s += 1.0
        self.daemon.connections = [SimpleNamespace(heard=at) for at in heard]
        self.shares.look()

    def round(self) -> list[str]:
        """What the next round of the loop does."""
        due, self.due[:] = list(self.due), []
        self.did = []
        for call in due:
            call()
        return self.did


class Client:
    """Somebody with so many requests, each of which takes so long."""

    def __init__(self, bench: Bench, name: str, count: int, each_ns: int, *, little: bool = False) -> None:
        self.bench, self.name, self.left, self.each_ns, self.little = bench, name, count, each_ns, little
        self.in_line = False

    def go_on(self) -> None:
        while self.left and not self.bench.shares.comes_later(self, little=self.little):
            self.left -= 1
            self.bench.did.append(self.name)
            self.bench.now_ns += self.each_ns


def test_who_has_more_than_a_slice_goes_on_after_the_turn_that_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    Client(bench, "a", 5, SLICE_NS // 2).go_on()
    assert bench.did == ["a", "a"]
    assert bench.round() == ["turn", "a", "a"]
    assert bench.round() == ["turn", "a"]
    assert bench.round() == [], "nobody stands in line: a slice by itself asks for no turn of the engine"
    assert not bench.due, "nothing goes on by itself"


def test_bulk_rests_after_a_slice_while_writes_run_ahead_of_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.shares.pace = 0.75
    Client(bench, "a", 5, SLICE_NS // 2).go_on()
    assert bench.round() == ["turn"], "the slice was used up"
    ((rest_s, go_on),) = bench.later
    assert rest_s == pytest.approx(3 * SLICE_NS / 1e9), "three quarters of the time"
    late = Client(bench, "b", 1, SLICE_NS // 2)
    late.go_on()
    assert late.left == 1, "who comes meanwhile rests as well"
    bench.later.clear()
    bench.now_ns += SLICE_NS
    go_on()
    assert [rest_s for rest_s, _ in bench.later] == [pytest.approx(2 * SLICE_NS / 1e9)], "a timer may be early"
    bench.now_ns += 2 * SLICE_NS
    bench.did = []
    bench.later.pop()[1]()
    assert bench.did == ["a", "a"]


def test_one_slice_is_not_paid_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.shares.slow_down(2.0)
    assert bench.shares.pace == PACE_MAX
    Client(bench, "a", 2, 40 * SLICE_NS).go_on()
    bench.round()
    assert [rest_s for rest_s, _ in bench.later] == [pytest.approx(REST_NS_MAX / 1e9)]


def test_who_takes_less_than_a_slice_rests_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.shares.pace = 0.5
    Client(bench, "a", 1, SLICE_NS // 2).go_on()
    bench.wake()  # it has written
    assert bench.round() == ["turn"]
    second = Client(bench, "b", 1, SLICE_NS // 2)
    second.go_on()
    assert second.left == 1
    bench.shares.pace = 0.0
    bench.round()
    bench.now_ns += SLICE_NS
    bench.later.pop()[1]()
    assert not second.left


def test_several_share_one_slice_and_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    for name in "abc":
        Client(bench, name, 2, SLICE_NS).go_on()
    assert bench.did == ["a"]
    assert [bench.round() for _ in range(5)] == [["turn", name] for name in "abcbc"]


def test_who_has_little_takes_turns_with_who_has_much(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    for name in "abcd":
        Client(bench, name, 4, SLICE_NS).go_on()
    for name in "xyz":
        Client(bench, name, 1, SLICE_NS, little=True).go_on()
    served = "".join(bench.round()[1] for _ in range(15))
    assert served == "xaybzcdabcdabcd", "each in turn, whichever line is the longer one"


def test_one_request_is_taken_however_long_it_is_and_however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    client = Client(bench, "a", 3, 50 * SLICE_NS)
    client.go_on()
    for left in (1, 0):
        bench.now_ns += 100 * SLICE_NS
        bench.round()
        assert client.left == left


def test_one_request_is_taken_though_its_time_is_up_before_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)

    def later() -> int:
        bench.now_ns += 2 * SLICE_NS
        return bench.now_ns

    monkeypatch.setattr(shares, "time", SimpleNamespace(perf_counter_ns=later))
    for name in "ab":
        Client(bench, name, 3, 0).go_on()
    done = [name for _ in range(12) for name in bench.round() if name != "turn"]
    assert sorted(done) == ["a"] * 2 + ["b"] * 3


def test_a_slice_that_was_not_used_up_does_not_count_against_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    Client(bench, "a", 1, SLICE_NS // 10).go_on()
    bench.round()
    bench.now_ns += 100 * SLICE_NS
    bench.did = []
    Client(bench, "b", 1, SLICE_NS).go_on()
    assert bench.did == ["b"]


@pytest.mark.parametrize(
    ("heard", "slice_ns"), [((2.0,), ALONE_SLICE_NS), ((2.0, 0.0, 1.0), ALONE_SLICE_NS), ((2.0, 2.0), SLICE_NS)]
)
def test_who_alone_sends_anything_has_longer_slices(
    monkeypatch: pytest.MonkeyPatch, heard: tuple[float, ...], slice_ns: int
) -> None:
    bench = Bench(monkeypatch)
    bench.tick()
    bench.tick()
    Client(bench, "a", 1, 0).go_on()
    bench.tick(*heard)
    bench.round()
    Client(bench, "a", 4, slice_ns // 2).go_on()
    assert bench.did == ["a", "a"]
    while bench.due:
        bench.round()
    bench.tick(2.0)  # nobody but old ones, and…
    bench.tick()  # …now nobody has asked: whoever comes next may be one of many
    bench.did = []
    Client(bench, "b", 4, SLICE_NS // 2).go_on()
    assert bench.did == ["b", "b"]


# -- a daemon --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        yield running


def large(topic: str) -> bytes:
    """A write of a thousand records, small ones: it takes longer than it takes room."""
    return post(f"/v0/topics/{topic}?return_seqs=false", "0\n" * BATCH, kind="application/x-ndjson")


def test_a_lone_write_is_answered_amid_those_that_another_has_sent_at_once(daemon: DaemonProcess) -> None:
    count = 150  # several times what a slice of one that is alone takes
    with daemon.wire() as bulk, daemon.wire() as lone:
        for wire in (bulk, lone):
            wire.send(post("/v0/topics/t", {"records": [{"data": 0}]}))
            wire.answer()
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            bulk.send(large("t") * count)  # the kernel takes all of it
            lone.send(post("/v0/topics/t", {"records": [{"data": "lone"}]}))
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        seq = lone.answer().json["first_seq"]
        answers = [bulk.answer() for _ in range(count)]
    assert {answer.status for answer in answers} == {200}
    assert answers[-1].json["last_seq"] == count * BATCH + 3
    assert seq <= count // 2 * BATCH, "it waited for what another had sent"


def test_order_holds_for_what_stands_in_line(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        for _ in range(5):
            wire.send(large("o") + request("GET", "/v0/topics/o"))
        heads = [wire.answer().json["head_seq"] for _ in range(10)]
    assert heads == [n * BATCH for n in range(1, 6) for _ in range(2)]


@pytest.mark.parametrize(("writes", "reads"), [(1, 0), (1, 1), (1, 2), (6, 3000)])
def test_who_has_sent_all_is_answered_in_full_then_closed(daemon: DaemonProcess, writes: int, reads: int) -> None:
    topic = f"sent-{writes}-{reads}"
    with daemon.wire() as wire:
        wire.send(large(topic) * writes + request("GET", f"/v0/topics/{topic}") * reads)
        wire.sock.shutdown(socket.SHUT_WR)
        answers = [wire.answer() for _ in range(writes + reads)]
        assert {answer.status for answer in answers} <= {200, 201}
        assert answers[-1].json["head_seq"] == writes * BATCH
        assert wire.closed()


def test_who_has_sent_all_and_reads_late_is_answered_in_full(daemon: DaemonProcess) -> None:
    count = 40
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/wide", {"records": [{"data": "x" * 500_000}]}))
        wire.answer()
        wire.send(post("/v0/topics/wide/diff", {"from_seq": 0}) * count)  # far more than buffers take
        wire.sock.shutdown(socket.SHUT_WR)
        daemon.is_well()  # somebody else is answered, so what there is room for is written
        assert [len(wire.answer().body) > 500_000 for _ in range(count)] == [True] * count
        assert wire.closed()


def test_a_refusal_behind_a_write_reaches_who_has_sent_all(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(large("refused") + b"POST /v0/topics/refused HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n")
        wire.sock.shutdown(socket.SHUT_WR)
        assert [wire.answer().status for _ in range(2)] == [201, 400]
        assert wire.closed(1.5), "nobody lingers for who sends no more"


def test_who_goes_away_while_standing_in_line_costs_nothing(daemon: DaemonProcess) -> None:
    for _ in range(5):
        with daemon.wire() as wire:
            wire.send(request("GET", "/v0/topics") * 4000)
            Wire.answer(wire)
    daemon.is_well()
