"""A delete that finds many records by their tags goes in steps: what becomes of them is the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.kit import DaemonProcess, Wire, daemon_process, post, request

LAUNCHER = Path(__file__).with_name("thin_slices.py")
COUNT = 3000
MINE = {"match": ["tag", "Glob", "mine*"]}
NAMES = map("deleted-{}".format, itertools.count())


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(launcher=LAUNCHER) as running:
        yield running


@pytest.fixture
def name(daemon: DaemonProcess) -> str:
    """A topic of which every other record is meant."""
    name = next(NAMES)
    write(daemon, name, COUNT)
    return name


def write(daemon: DaemonProcess, name: str, count: int) -> None:
    records = [{"data": seq, "tag": "mine-too" if seq % 2 else "other"} for seq in range(1, count + 1)]
    assert daemon.ask(post(f"/v0/topics/{name}", {"records": records})).status in (200, 201)


def delete(name: str, **more: object) -> bytes:
    return post(f"/v0/topics/{name}/delete", {**MINE, **more})


def count(daemon: DaemonProcess, name: str) -> int:
    return int(daemon.ask(request("GET", f"/v0/topics/{name}")).json["count"])


def begun(daemon: DaemonProcess, wire: Wire, name: str) -> bool:
    """Whether a delete was seen when it had begun and was not over."""
    wire.send(delete(name))
    while (left := count(daemon, name)) == COUNT:
        time.sleep(0.0001)
    return left > COUNT // 2


def test_it_is_answered_as_one(daemon: DaemonProcess, name: str) -> None:
    answer = daemon.ask(delete(name, before_seq=COUNT - 1, colour=1)).json
    assert answer.pop("performance")["wal_append_ms"] > 0
    live = COUNT - (COUNT - 2) // 2
    assert answer.pop("bytes") > live
    shown = {"topic": name, "earliest_seq": 2, "head_seq": COUNT, "count": live, "warnings": ["unknown field colour"]}
    assert answer == {**shown, "deleted": COUNT - live}
    seqs = [COUNT - 1, 1, 2]
    assert daemon.ask(delete(name, seqs=seqs)).json["deleted"] == 1
    page = daemon.ask(post(f"/v0/topics/{name}/diff", {"limit": 1000, **MINE}))
    assert (page.json["records"], page.json["tombstone"]) == ([], None)


def test_others_are_served_meanwhile_and_what_they_write_stays(daemon: DaemonProcess) -> None:
    for _ in range(5):  # we may be held up ourselves for as long as it takes
        name = next(NAMES)
        write(daemon, name, COUNT)
        with daemon.wire() as wire:
            in_between = begun(daemon, wire, name)
            write(daemon, name, 2)
            answer = wire.answer().json
        assert (answer["deleted"], count(daemon, name)) == (COUNT // 2, COUNT // 2 + 2)
        if in_between and answer["head_seq"] == COUNT + 2:
            break
    else:
        pytest.fail("nobody was served between its first step and its last one")


def test_what_follows_on_its_connection_comes_after_it(daemon: DaemonProcess, name: str) -> None:
    with daemon.wire() as wire:
        wire.send(delete(name) + delete(name) + request("GET", f"/v0/topics/{name}"))
        assert [wire.answer().json["deleted"] for _ in range(2)] == [COUNT // 2, 0]
        assert wire.answer().json["count"] == COUNT // 2


def test_it_goes_on_when_whoever_asked_is_gone(daemon: DaemonProcess, name: str) -> None:
    with daemon.wire() as wire:
        begun(daemon, wire, name)
    until = time.monotonic() + 10
    while count(daemon, name) > COUNT // 2:
        assert time.monotonic() < until, "the rest is there for good"
        time.sleep(0.01)


def test_it_takes_nothing_of_a_topic_that_has_the_name_meanwhile(daemon: DaemonProcess) -> None:
    for _ in range(5):  # as above
        name = next(NAMES)
        write(daemon, name, COUNT)
        with daemon.wire() as wire:
            begun(daemon, wire, name)
            daemon.ask(request("DELETE", f"/v0/topics/{name}"))
            write(daemon, name, COUNT)
            answer = wire.answer()
        assert count(daemon, name) == COUNT
        if answer.status == 404:
            break
    else:
        pytest.fail("the topic was never gone in the midst of it")
