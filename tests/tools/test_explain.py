"""`explain`: every end that a record can meet, told by the frame that did it."""

from __future__ import annotations

import pytest

from engine.tools.explain import Explanation, explain
from engine.tools.log_file import LogScan
from tests.sim.clock import ManualClock
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.sim.world import TINY, World
from tests.store.made import Made
from tests.tools.stores import flip, log_of


def tree() -> Tree:
    world = World().start()
    world.append("orders", 3, tag="red")
    world.delete("orders", seqs=(2,))
    world.put("capped", cap_records=2)
    for _ in range(3):
        world.append("capped", 1)
    world.append("gone", 1)
    world.drop("gone")
    return world.stop().disk.cached_tree()


def told(store: Tree, name: str, seq: int) -> Explanation:
    return explain(StillDisk(store, "boot-1"), ManualClock(), name, seq, lambda _: None, TINY)


def test_a_live_record_is_where_it_is_said_to_be() -> None:
    store = tree()
    found = told(store, "orders", 3)
    content = store[found.file]
    assert content is not None
    assert found.state == "live"
    assert found.offset is not None
    assert found.length is not None
    assert content[found.offset : found.offset + found.length].startswith(b'{"$seq":3,')
    assert [event.what for event in found.events] == ["the topic was created", "written, with seqs 1-3"]


@pytest.mark.parametrize(
    ("name", "seq", "state", "reason", "last"),
    [
        ("orders", 2, "deleted", None, "deleted by a delete"),
        ("capped", 1, "evicted", "cap", "evicted (cap) by the write of seqs 3-3"),
        ("orders", 4, "never_written", None, "the topic was created"),
        ("gone", 1, "topic_not_found", None, "the topic was dropped"),
    ],
)
def test_an_end_is_told_by_what_did_it(name: str, seq: int, state: str, reason: str | None, last: str) -> None:
    found = told(tree(), name, seq)
    assert (found.state, found.reason) == (state, reason)
    assert found.events[-1].what == last
    assert found.events[-1].file


def test_a_damaged_write_is_told() -> None:
    store = tree()
    path = log_of(store)
    frame = next(frame for frame in LogScan(StillDisk(store, "boot-1"), path).items() if frame.header.records == 3)
    found = told(flip(store, path, frame.offset + 100), "orders", 1)
    assert (found.state, found.reason) == ("lost", "corruption")
    assert found.events[-1].what == "lost: the write of seqs 1-3 does not check"
    assert found.events[-1].offset == frame.offset


def test_a_name_that_never_was_has_no_story() -> None:
    found = told(tree(), "nobody", 1)
    assert (found.state, found.events) == ("topic_not_found", [])


@pytest.mark.parametrize("own_files", [False, True])
def test_a_record_in_a_segment_is_where_it_is_said_to_be(own_files: bool) -> None:
    made = Made(own_files=own_files)
    disk = StillDisk(made.tree, "boot-1")
    found = explain(disk, made.clock, "a", 50, lambda _: None, made.settings)
    content = made.tree[found.file]
    assert content is not None
    assert found.state == "live"
    assert found.offset is not None
    assert found.length is not None
    assert content[found.offset : found.offset + found.length].startswith(b'{"$seq":50,')
    assert found.events[0].what == "in the snapshot that a start begins from: live"
    gone = explain(disk, made.clock, "a", 70, lambda _: None, made.settings)
    assert (gone.state, gone.events[-1].what) == ("deleted", "deleted by a delete")
    assert explain(disk, made.clock, "a", 3, lambda _: None, made.settings).state == "deleted"
    assert explain(disk, made.clock, "b", 1, lambda _: None, made.settings).reason == "cap"
