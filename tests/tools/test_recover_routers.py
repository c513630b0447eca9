"""Routers and cursors through `recover`, and what the log's frames of them look like to `wal-inspect`."""

from __future__ import annotations

from engine.core import Core
from engine.formats.frame import FrameType
from engine.routers.router import RouterSpec
from engine.tools.log_file import LogScan, describe
from engine.types import Durability, Match
from tests.core.hand import SMALL, Hand
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.flips import HISTORY
from tests.sim.media import Tree
from tests.sim.routers import Net
from tests.sim.still import StillDisk
from tests.tools.stores import check, flip, log_of
from tests.tools.test_recover import Saved


def drive(hand: Hand) -> None:
    """Everything that routers have to copy is copied."""
    for _ in range(5):
        hand.settle()
        while hand.core.route():
            pass
    hand.settle()


def made() -> Hand:
    """Two routers one behind the other, and cursors: one that stands, one that is gone again."""
    hand = Hand()
    for name in ("a", "b", "c"):
        hand.create(name)
    routers, cursors = hand.core.routers, hand.core.cursors
    hand.take(routers.put("first", "a", "b", RouterSpec(preserve_node=False, start="earliest")))
    hand.take(routers.put("second", "b", "c", RouterSpec(filter=Match("Eq", "x"), start="earliest")))
    hand.take(routers.put("gone", "a", "c2", RouterSpec(start="earliest")))
    hand.take(routers.drop("gone"))
    hand.write("a", 1, 2, 3)
    drive(hand)
    hand.take(cursors.put("a", "reader", 2))
    hand.take(cursors.put("a", "gone", 1))
    hand.take(cursors.drop("a", "gone"))
    return hand


def places(core: Core) -> tuple[list[object], list[object], dict[str, list[int]]]:
    """Routers with how far they are, cursors with their times, and how often each topic's records were forwarded."""
    page, _ = core.routers.page("", 100, "")
    routers: list[object] = [
        (one.router, one.source, one.dest, one.cursor, one.forwarded_total, one.spec) for one in page
    ]
    cursors: list[object] = [(one.name, one.seq, one.updated_ts) for one in core.cursors.all("a")]
    hops = {
        name: [slot.hops.at(seq)[0] for seq in range(1, slot.topic.head + 1)]
        for name, slot in core.catalog.visible.items()
        if slot.hops is not None
    }
    return routers, cursors, hops


def test_recover_keeps_routers_their_places_and_cursors() -> None:
    hand = made()
    before = places(hand.core)
    assert before[1] == [("reader", 2, hand.core.cursors.get("a", "reader").updated_ts)]
    saved = Saved(hand.disk.killed().cached_tree(), settings=SMALL)
    assert saved.report.complete
    assert check(saved.tree)[0] == []
    again = Hand(FakeDisk.of_tree(saved.tree, boot="boot-1"), clock=saved.clock)
    assert places(again.core) == before
    again.write("a", 4)
    drive(again)
    assert again.read("b") == [1, 2, 3, 4], "it goes on where it stood, and copies nothing twice"
    assert again.read("c") == []


def test_a_store_that_was_pieced_together_gives_no_number_of_a_router_again() -> None:
    net = Net(FakeDisk(), ManualClock(), HISTORY, Durability.DISK)
    net.topics("a", "b", "c")
    net.router("a", "b")
    for _ in range(3):
        net.write("a")
        net.wait(net.core.checkpoint())
    tree = net.disk.killed().cached_tree()
    for path in [path for path in tree if path.endswith(".snap")]:
        tree = flip(tree, path, (tree[path] or b"").index(b'"predecessor"'))
    saved = Saved(tree, settings=HISTORY)
    again = Net(FakeDisk.of_tree(saved.tree, boot="boot-1"), saved.clock, HISTORY, Durability.DISK)
    again.router("a", "c")
    assert len({router.number for router in again.core.catalog.routers.by_name.values()}) == 2


def described(tree: Tree) -> dict[FrameType, list[str]]:
    """What is said of the frames of all log files, by type."""
    found: dict[FrameType, list[str]] = {}
    for path in sorted(path for path in tree if path.endswith(".log")):
        for frame in LogScan(StillDisk(tree, "boot-1"), path).items():
            found.setdefault(FrameType(frame.header.type), []).append(describe(frame))
    return found


def test_the_frames_of_routers_and_cursors_are_described() -> None:
    hand = made()
    first = hand.core.catalog.routers.by_name["first"].number
    said = described(hand.disk.killed().cached_tree())
    for name, text in zip(("first", "second", "gone"), said[FrameType.ROUTER_PUT], strict=True):
        assert f'"name":"{name}"' in text
    assert '"filter":["tag","Eq","x"]' in said[FrameType.ROUTER_PUT][1]
    assert len(said[FrameType.ROUTER_DROP]) == 1
    assert said[FrameType.CURSOR_PUT] == [
        '{"name":"reader","seq":2}',
        '{"name":"gone","seq":1}',
        '{"name":"gone","seq":null}',
    ]
    assert f"seqs 1-3 by router {first} at seq 1" in said[FrameType.FORWARD]


def test_copies_of_what_is_damaged_are_damaged_too_and_told() -> None:
    hand = made()
    tree = hand.disk.killed().cached_tree()
    path = log_of(tree)
    saved = Saved(flip(tree, path, (tree[path] or b"").index(b'"$seq":2,')), settings=SMALL)
    assert saved.lost() == [("a", 1, 3), ("b", 1, 3)]
    topics = saved.topics()
    for name in ("a", "b"):
        assert topics[name].damage == ((1, 3),)
        stones = [page.tombstone for page in topics[name].pages if page.tombstone and not page.foreign_epoch]
        assert {reason for _, _, reason, *_ in stones} - {"recreated"} == {"corruption"}
