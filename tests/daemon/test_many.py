"""Writes to several topics, large ones to one, and reads of several go in slices: what becomes of them is the same."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.http2_kit import JSON
from tests.daemon.http2_kit import Client as Http2
from tests.daemon.kit import DaemonProcess, daemon_process, post, request
from tests.daemon.socket_kit import Client
from topics_daemon.routes.diff import TOPICS_AT_ONCE

LAUNCHER = Path(__file__).with_name("thin_slices.py")
RESTING = Path(__file__).with_name("resting.py")
ONE = {"records": [{"data": 1}]}
PATH = "/v0/topics/t"
FIELDS = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", PATH), JSON]
NAMES = map("many-{}".format, itertools.count())


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(launcher=LAUNCHER) as running:
        yield running


def many(*names: str, **more: object) -> bytes:
    return post("/v0/write", {"topics": dict.fromkeys(names, ONE), **more})


def exists(daemon: DaemonProcess, name: str) -> bool:
    return daemon.ask(request("GET", f"/v0/topics/{name}")).status == 200


def test_what_is_sliced_is_answered_as_a_whole(daemon: DaemonProcess) -> None:
    names = [next(NAMES) for _ in range(50)]
    first = daemon.ask(many(*names))
    assert first.status == 200
    assert [first.json["ok"], first.json["failed"], list(first.json["topics"])] == [50, 0, names]
    assert all(part["created"] and part["seqs"] == [1] for part in first.json["topics"].values())
    topics = dict.fromkeys(names, ONE) | {"no name!": ONE}
    assert daemon.ask(post("/v0/write", {"topics": topics})).status == 400
    bodies = {names[0]: ONE, names[1]: {"records": []}, names[2]: {**ONE, "create": False}, next(NAMES): {"create": 1}}
    some = daemon.ask(post("/v0/write", {"topics": bodies, "colour": 1}))
    assert (some.status, some.json["ok"], some.json["failed"]) == (207, 2, 2)
    assert some.json["warnings"] == ["unknown field colour"]
    assert some.json["topics"][names[0]]["head_seq"] == 2, "nothing was written by what was refused as a whole"


def test_others_are_served_while_it_is_under_way(daemon: DaemonProcess) -> None:
    for _ in range(5):  # we may be held up ourselves for as long as it takes
        names = [next(NAMES) for _ in range(1000)]
        with daemon.wire() as wire:
            wire.send(many(*names))
            while not exists(daemon, names[0]):
                time.sleep(0.0001)
            seen_between = not exists(daemon, names[-1])
            assert wire.answer().json["ok"] == 1000
        assert exists(daemon, names[-1])
        if seen_between:
            break
    else:
        pytest.fail("the first topic was never there before the last one")


def test_what_follows_on_its_connection_comes_after_it(daemon: DaemonProcess) -> None:
    names = [next(NAMES) for _ in range(100)]
    with daemon.wire() as wire:
        wire.send(many(*names) + post(f"/v0/topics/{names[-1]}", ONE) + many(*names))
        assert wire.answer().json["topics"][names[-1]]["seqs"] == [1]
        assert wire.answer().json["seqs"] == [2]
        assert wire.answer().json["topics"][names[-1]]["seqs"] == [3]


def test_it_goes_on_when_whoever_asked_is_gone(daemon: DaemonProcess) -> None:
    names = [next(NAMES) for _ in range(300)]
    with daemon.wire() as wire:
        wire.send(many(*names))
        while not exists(daemon, names[0]):
            time.sleep(0.0001)
    until = time.monotonic() + 10
    while not exists(daemon, names[-1]):
        assert time.monotonic() < until, "each part was taken"
        time.sleep(0.01)
    daemon.is_well()


def test_a_stop_waits_for_it() -> None:
    names = [f"stop-{number}" for number in range(300)]
    with daemon_process(launcher=LAUNCHER) as running, running.wire() as wire:
        wire.send(many(*names))
        while not exists(running, names[0]):
            time.sleep(0.0001)
        assert running.stop() == 0
        assert wire.answer().json["ok"] == len(names)


LARGE = {"records": [{"data": "x" * 2000}]}


def test_a_large_write_in_steps_keeps_its_place_among_others(daemon: DaemonProcess) -> None:
    name = next(NAMES)
    path = f"/v0/topics/{name}"
    sent = [
        (post(path, LARGE), [1]),
        (post(path, ONE), [2]),
        (many(name), [3]),
        (post(path, LARGE, "Idempotency-Key: k"), [4]),
        (post(path, {**LARGE, "idempotency_key": "k", "node": None}), [4]),
        (post(path, "x" * 3000 + "\ny", kind="text/x-lines"), [5, 6]),
        (post(path, ONE), [7]),
        (post(f"{path}?return_seqs=false", LARGE), None),
    ]
    with daemon.wire() as wire:
        wire.send(b"".join(text for text, _ in sent))
        for _, seqs in sent:
            answer = wire.answer()
            assert answer.status in (200, 201)
            assert answer.json.get("topics", {}).get(name, answer.json).get("seqs") == seqs


def test_a_large_write_that_is_refused_costs_its_answer_alone(daemon: DaemonProcess) -> None:
    path = f"/v0/topics/{next(NAMES)}"
    bad = post(path, '{"records":[{"data":1},' + " " * 2000)
    absent = post(path, {**LARGE, "create": False})
    full = post(path, {"records": [{"data": "x" * 2000, "meta": 7}]})
    with daemon.wire() as wire:
        wire.send(bad + absent + full + post(path, LARGE))
        assert [wire.answer().status for _ in range(4)] == [400, 404, 400, 201]
        wire.send(post(path, LARGE))
    daemon.is_well()


@pytest.fixture(scope="module")
def resting() -> Iterator[DaemonProcess]:
    with daemon_process(launcher=RESTING) as running:
        yield running


def test_a_large_write_whose_client_is_gone_meanwhile_is_written_and_is_no_bug(resting: DaemonProcess) -> None:
    for _ in range(20):  # what is reset before it is taken off its connection is nothing that anybody sent
        name = next(NAMES)
        with resting.wire() as wire:
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.send(post(f"/v0/topics/{name}", LARGE))
            time.sleep(0.15)
        time.sleep(0.5)
        resting.is_well()
        if exists(resting, name):
            break
    else:
        pytest.fail("no write was taken")


@pytest.mark.slow
def test_a_body_that_is_there_is_not_slow_while_others_come_first() -> None:
    body = json.dumps({"records": [{"data": "x" * 70_000}]}).encode()
    with daemon_process("--body-timeout-ms", "300", launcher=RESTING) as running:
        wires = [running.wire() for _ in range(5)]
        for wire in wires:
            wire.send(post(PATH, body))
        assert sorted(wire.answer().json["first_seq"] for wire in wires) == [*range(1, 6)]
        with Http2(running) as client:
            client.read()
            text = json.dumps({"records": [{"data": "x" * 1000}]}).encode()
            for number in (numbers := range(1, 5, 2)):
                client.h2.send_headers(number, FIELDS)
                for at in range(0, len(text), 20):
                    client.h2.send_data(number, text[at : at + 20], end_stream=at + 20 >= len(text))
            client.flush()
            assert {client.answer(number)[0] for number in numbers} == {200}


@pytest.mark.parametrize("many_topics", [False, True], ids=["one topic", "several"])
def test_what_a_key_may_not_any_more_is_not_done_between_two_steps(tmp_path: Path, many_topics: bool) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a\nb\n")
    keys.chmod(0o600)
    with daemon_process("--api-keys-file", str(keys), launcher=RESTING) as running:
        path, topics = (PATH, LARGE) if not many_topics else ("/v0/write", {"topics": {"t": ONE, "u": ONE}})
        time.sleep(0.15)  # until the rest behind the last request is over
        with running.wire() as wire:
            wire.send(post(path, topics, "Authorization: Bearer b"))
            time.sleep(0.02)  # it is taken off its connection, and its next steps are a tenth of a second away
            keys.write_text("a\n")
            running.process.send_signal(signal.SIGHUP)
            assert wire.answer().status == 401
        assert running.ask(request("GET", "/v0/topics/t", None, "Authorization: Bearer a")).status == 404


def test_what_follows_a_large_write_on_a_socket_comes_after_it(resting: DaemonProcess) -> None:
    """Its `op` comes last, so it is taken apart as an HTTP request is."""
    name = next(NAMES)
    large = {"topic": name, **LARGE, "request_id": 1, "op": "publish"}
    with Client(resting) as client:
        client.ws.send(json.dumps(large))
        time.sleep(0.02)
        client.say("publish", topic=name, **ONE, request_id=2)
        answers = {answer["request_id"]: answer["seqs"] for answer in (client.next(), client.next())}
    assert answers == {1: [1], 2: [2]}


def test_a_rest_that_ends_between_two_questions_leaves_nobody_waiting() -> None:
    with daemon_process(launcher=RESTING, environ={"REST_ENDS": "1"}) as running, Http2(running) as client:
        client.read()
        said = client.h2.data_to_send
        hello, requests = said(), list[int]()
        for number in range(1, 41, 2):
            client.h2.send_headers(number, FIELDS)
            client.h2.send_data(number, json.dumps(ONE).encode(), end_stream=True)
            requests.append(number)
        client.raw(hello + said())
        assert {client.answer(number)[0] for number in requests} == {200, 201}


def test_a_read_of_many_topics_lets_others_come_in_between(daemon: DaemonProcess) -> None:
    names = [next(NAMES) for _ in range(8 * TOPICS_AT_ONCE)]
    there, none = names[:-1], names[-1]
    assert daemon.ask(many(*there)).status == 200
    ask = post("/v0/diff", {"topics": {name: {} for name in names}})

    def counted() -> int:
        page = daemon.ask(request("GET", "/v0/metrics")).body
        return sum(map(int, re.findall(rb'requests_total\{route="POST /v0/diff",[^}]*\} (\d+)', page)))

    with daemon.wire() as reader, daemon.wire() as writer:
        before = counted()
        os.kill(daemon.pid, signal.SIGSTOP)
        reader.send(ask + post(f"/v0/topics/{there[0]}", ONE))
        writer.send(post(f"/v0/topics/{there[-1]}", ONE))
        os.kill(daemon.pid, signal.SIGCONT)
        assert writer.answer().json["seqs"] == [2]
        parts = reader.answer().json["topics"]
        assert reader.answer().json["seqs"] == [2], "what follows on its connection comes after it"
    assert list(parts) == names
    assert parts[none]["error"]["code"] == "topic_not_found"
    heads = [parts[name]["head_seq"] for name in there]
    assert heads == [*[1] * (len(there) - 1), 2], "the last topic was written to before it was read"
    assert counted() == before + 1, "it is no long poll"


def test_a_look_at_the_store_lets_others_come_in_between(daemon: DaemonProcess) -> None:
    names = [next(NAMES) for _ in range(200)]
    assert daemon.ask(many(*names)).status == 200
    look = request("GET", "/v0/admin/store")
    with daemon.wire() as looker, daemon.wire() as writer:
        before = daemon.ask(look).json
        os.kill(daemon.pid, signal.SIGSTOP)
        looker.send(look)
        writer.send(post(f"/v0/topics/{names[-1]}", ONE))
        os.kill(daemon.pid, signal.SIGCONT)
        assert writer.answer().status == 200
        shown = looker.answer().json
    assert shown["records_live"] == before["records_live"] + 1, "it was written to while topics were looked at"
    assert shown.keys() == before.keys()
