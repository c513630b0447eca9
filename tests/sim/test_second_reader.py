"""The second reader reads what was written, shares nothing with the engine, and takes no damage for truth."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

import tests.sim.second_history as second_history
import tests.sim.second_reader as second_reader
from engine.types import Match
from tests.sim.agreement import disagreement
from tests.sim.media import Tree
from tests.sim.scenarios_history import SMALL
from tests.sim.second_history import NotAStoreError
from tests.sim.second_reader import read_frames, read_store, read_topics
from tests.sim.view import look
from tests.sim.world import World


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


@pytest.mark.parametrize("module", [second_reader, second_history])
def test_it_shares_no_code_with_the_engine(module: object) -> None:
    tree = ast.parse(Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8"))
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = {name for name in names if name.partition(".")[0] in ("engine", "tests", "topics_daemon", "topics_cli")}
    assert ours <= {"tests.sim.second_history"}
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
