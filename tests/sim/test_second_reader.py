"""The second reader reads what was written, shares nothing with the engine, and takes no damage for truth."""

from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path

import pytest

import tests.sim.second_history as second_history
import tests.sim.second_reader as second_reader
import tests.sim.second_routers as second_routers
from engine.routers.hops import Hops
from engine.topic.place import Place
from engine.types import Durability, Match
from tests.sim.agreement import disagreement
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.routers import Net
from tests.sim.scenarios_history import SMALL
from tests.sim.second_history import NotAStoreError
from tests.sim.second_reader import read_all, read_frames, read_store, read_topics
from tests.sim.second_routers import copy_of, read_forward
from tests.sim.view import look
from tests.sim.world import TINY, World


def history() -> World:
    """A store with each kind of file of closed history in it."""
    world = World(settings=SMALL).start()
    world.append("t", 4, tag="red", node="n")
    world.append("t", 4, tag="blue", meta=b'{"k":1}')
    world.append("t", 3, key="k")
    world.append("u", 1, node='"\\é', tag="ü\n")
    world.checkpoint()
    world.delete("t", seqs=(2, 7))
    world.delete("t", match=Match("Eq", "blue"))
    world.append("t", 2)
    world.checkpoint()
    world.append("t", 1, key="l")
    return world


def test_it_reads_what_was_written() -> None:
    world = World().start()
    records = world.append("t", 3, key="k", tag="red", node="n", meta=b'{"a":1}')
    world.delete("t", seqs=(2,))
    world.append("u")
    world.drop("u")
    tree = world.disk.cached_tree()
    frames = read_frames(tree)
    assert [frame.order for frame in frames] == list(range(1, len(frames) + 1))
    topics = read_topics(read_store(tree), tree)
    assert list(topics) == ["t"]
    assert sorted(topics["t"].records) == [1, 3]
    assert records[0].data in topics["t"].records[1]
    assert list(topics["t"].keys) == [b"k"]


def test_it_reads_snapshots_segments_and_the_log_behind_them() -> None:
    tree = history().disk.cached_tree()
    kinds = {path.rpartition(".")[2] for path in tree if "/seg-" in path}
    assert kinds == {"data", "idx", "tags", "del"}
    assert any(path.startswith("meta/tails-") for path in tree)
    store = read_store(tree)
    assert store.snapshot is not None
    assert store.snapshot.globals["number"] == 2
    topics = read_topics(store, tree)
    assert sorted(topics["t"].records) == [1, 3, 4, 9, 10, 11, 12, 13, 14]
    assert sorted(topics["t"].keys) == [b"k", b"l"]
    assert topics["t"].head == 14
    assert b'"$tag":"\xc3\xbc\\n"' in topics["u"].records[1]


def network() -> Net:
    """Routers and a cursor: in a snapshot, and in the log behind it."""
    net = Net(FakeDisk(), ManualClock(), TINY, Durability.DISK)
    net.topics("a", "b", "c")
    net.router("a", "b", preserve_tag=False)
    net.write("a", 3, tag="x")
    net.wait(net.core.cursors.put("a", "reader", 2))
    net.wait(net.core.cursors.put("a", "gone", 1))
    net.idle()
    net.wait(net.core.checkpoint())
    net.router("b", "c", filter=Match("Glob", "x"))
    net.wait(net.core.cursors.drop("a", "gone"))
    net.write("a", 2, tag="y")
    net.idle()
    net.restart("kill")
    return net


def test_it_reads_routers_their_copies_and_cursors() -> None:
    tree = network().disk.cached_tree()
    store = read_store(tree)
    assert store.snapshot is not None
    read = read_all(store, tree)
    a, b = read.topics["a"], read.topics["b"]
    assert {name: seq for name, (seq, _) in a.cursors.items()} == {"reader": 2}
    assert b.hops == dict.fromkeys(range(1, 6), 1)
    assert [b'"$tag"' in text for text in b.records.values()] == [False] * 5
    assert [(one.name, one.cursor, one.forwarded) for one in read.routers.values()] == [("a>b", 5, 5), ("b>c", 5, 0)]
    assert read.routers[max(read.routers)].definition["filter"] == ["tag", "Glob", "x*"]


def test_routers_and_cursors_that_differ_from_the_files_are_told() -> None:
    net = network()
    tree, boot = net.disk.cached_tree(), net.disk.boot
    core = net.core
    slot = core.catalog.visible["b"]

    def told() -> str:
        return str(disagreement(tree, boot, look(core), core, net.clock, net.settings))

    assert told() == "None"
    router = core.catalog.routers.by_name["a>b"]
    for name in ("cursor", "forwarded"):
        setattr(router, name, getattr(router, name) - 1)
        assert "routers" in told(), name
        setattr(router, name, getattr(router, name) + 1)
    slot.hops = Hops([(1, 5, 2)])
    assert "forwarded 1 times" in told()
    slot.hops = None
    assert "forwarded 1 times" in told()
    slot.hops = Hops([(1, 5, 1)])
    core.catalog.visible["a"].cursors = {"reader": Place(3, 1)}
    assert "cursors" in told()


def test_it_reads_the_golden_forwards() -> None:
    pinned = json.loads((Path(__file__).parents[1] / "golden" / "v1-vectors.json").read_bytes())
    ts = 1_748_450_000_000
    for name, carries in (("forward", False), ("forward with records", True)):
        frame = bytes.fromhex(pinned[name])
        groups, rest = read_forward(frame[80 : 80 + int.from_bytes(frame[4:8], "little")], ts)
        assert bool(rest) is carries
        assert groups == [
            (300, 0, [(7, 0), (8, 0), (300, 2)], [(11, 1, 0), (2**40, 9, ts - 5)]),
            (8, 6, [(7, 31)], [(12, 128, ts)]),
        ]


def test_a_copy_keeps_what_its_router_preserves() -> None:
    text = b'{"$seq":7,"$ts":50,"$node":"n\\"","data":{"a":1,"$tag":"x"},"meta":{"k":"}"},"$tag":"t,\\""}'
    whole = {"preserve_node": True, "preserve_tag": True}
    assert copy_of(text, 9, 60, whole) == (text.replace(b'7,"$ts":50', b'9,"$ts":60'), 60)
    bare, ts = copy_of(text, 9, 0, {"preserve_node": False, "preserve_tag": False})
    assert (bare, ts) == (b'{"$seq":9,"$ts":50,"data":{"a":1,"$tag":"x"},"meta":{"k":"}"}}', 50)
    inner = b'{"$seq":7,"$ts":50,"data":{"a":1,"$tag":"x"}}'
    assert copy_of(inner, 7, 0, {"preserve_node": False, "preserve_tag": False}) == (inner, 50)


@pytest.mark.parametrize("module", [second_reader, second_history, second_routers])
def test_it_shares_no_code_with_the_engine(module: object) -> None:
    tree = ast.parse(Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8"))
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = {name for name in names if name.partition(".")[0] in ("engine", "tests", "topics_daemon", "topics_cli")}
    assert ours <= {"tests.sim.second_history", "tests.sim.second_routers"}
    assert names, "nothing was looked at"


def _named_paths(tree: Tree) -> list[str]:
    """The files of history that the newest snapshot names, and the snapshot."""
    snapshot = read_store(tree).snapshot
    assert snapshot is not None
    return [*dict.fromkeys(second_history.named_files(snapshot)), "meta/snapshot-0000000002.snap"]


@pytest.mark.slow
def test_no_flipped_bit_of_what_it_reads_is_taken_for_truth() -> None:
    tree = history().disk.cached_tree()
    spared = 0
    for path in _named_paths(tree):
        content = tree[path] or b""
        for place in range(0, len(content), 5):
            flipped = bytearray(content)
            flipped[place] ^= 1 << place % 8
            damaged: Tree = {**tree, path: bytes(flipped)}
            try:
                store = read_store(damaged)
                read_topics(store, damaged)
            except NotAStoreError:
                continue
            # A bad newest snapshot is no loss; and between the pieces of a tails file nothing is checked.
            assert store.snapshot is not None
            assert store.snapshot.globals["number"] == 1 or path.startswith("meta/tails-"), f"{path}:{place}"
            spared += path.startswith("meta/tails-")
    assert spared < 40


def test_a_view_that_differs_from_the_files_is_told() -> None:
    world = history().kill()
    tree, boot = world.disk.cached_tree(), world.disk.boot
    world.start()
    view, core = look(world.core), world.core

    def told(**changes: object) -> str | None:
        topic = dataclasses.replace(view.topics["t"], **changes)  # type: ignore[arg-type]  # each test gives one member
        seen = dataclasses.replace(view, topics={**view.topics, "t": topic})
        return disagreement(tree, boot, seen, core, world.clock, world.settings)

    assert told() is None
    records = view.topics["t"].records
    record, ts, text = records[3]
    assert told(records={seq: held for seq, held in records.items() if seq != 3}) is not None
    assert told(records={**records, 2: records[3]}) is not None
    assert told(records={**records, 3: (record, ts, text + b" ")}) is not None
    assert told(head=13) is not None
    assert told(epoch=99) is not None
    assert (
        told(pages=(dataclasses.replace(view.topics["t"].pages[0], tombstone=(2, 2, "crash", 1, 1, 14)),)) is not None
    )
    core.catalog.visible["t"].topic.idempotency.release()
    assert "keys" in str(told())
