"""TOPICS_ON_CORRUPTION=salvage: whatever is hit, the store starts, says what is lost, and gives no seq twice."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from engine.commands import Batch, DeleteSelector
from engine.core import Core
from engine.errors import StoreError, StoreForeign
from engine.formats.frame import FrameType
from engine.limits import KIB, SYNC_WINDOW, OnCorruption
from engine.store.recovery import Frame, open_store
from engine.types import ConfigChanges, Durability, Reason
from tests.core.hand import SMALL, Hand
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.view import TopicView, look
from tests.store.checkpoint import checkpoint

pytestmark = pytest.mark.slow

SETTINGS = msgspec.structs.replace(SMALL, wal_file_bytes=16 * KIB, wal_reserve_bytes=2 * KIB, wal_fill_bytes=8 * KIB)
SALVAGE = msgspec.structs.replace(SETTINGS, on_corruption=OnCorruption.SALVAGE)


def place(path: str) -> int:
    """The first lsn of a log file."""
    return int(path[-26:-6])


class Made:
    """A store with every type of frame, in several files; with a snapshot in the middle if wanted."""

    def __init__(self, *, clean: bool = False, snapshot: bool = False, sync: bool = True) -> None:
        hand = self.hand = Hand(settings=SETTINGS)
        hand.create("a")
        hand.create("capped", cap_records=3)
        hand.create("memory", durability="ephemeral")
        for number in range(12):
            hand.write("a", "x" * 700, number)
            hand.write("capped", number)
        hand.take(hand.core.delete("a", DeleteSelector(seqs=(2, 5))))
        if snapshot:
            checkpoint(hand.core, hand.disk, 1, sync=hand.sync)
        hand.create("gone")
        hand.write("gone", 1)
        hand.write("memory", 1, 2)
        hand.take(hand.core.put_topic("capped", ConfigChanges(cap_records=5)))
        hand.take(hand.core.drop_topic("gone"))
        for number in range(12):
            hand.write("a", "y" * 700, number)
            hand.write("late", number)
        hand.take(hand.core.delete("a", DeleteSelector(seqs=(20,))))
        if sync:
            hand.quieten()
        self.heads = {name: slot.tip for name, slot in hand.core.catalog.tip.items()}
        self.dropped = {2, 5, 20}
        self.whole = look(hand.core).topics
        self.store_id = hand.core.store.store_id
        if clean:
            hand.core.close()
            self.tree: Tree = hand.disk.cached_tree()
        else:
            self.tree = hand.disk.killed().cached_tree()

    def start(self, changes: Mapping[str, bytes | None], boot: str = "boot-1") -> tuple[Core, FakeDisk]:
        tree = {
            path: content
            for path, content in {**self.tree, **changes}.items()
            if path not in changes or content is not None
        }
        disk = FakeDisk.of_tree(tree, boot=boot)
        return self.open(disk), disk

    def open(self, disk: FakeDisk) -> Core:
        return Core.open(disk, self.hand.clock.restart(), SALVAGE)

    def logs(self) -> list[str]:
        return sorted(path for path in self.tree if path.endswith(".log"))

    def hit(self, frame: Frame, at: int) -> dict[str, bytes | None]:
        """The log with a byte of a frame changed."""
        path = next(log for log in reversed(self.logs()) if place(log) <= frame.lsn)
        return {path: broken(self.tree[path], 4096 + frame.lsn - place(path) + at)}

    def frames(self) -> list[Frame]:
        disk = FakeDisk.of_tree(dict(self.tree), boot="boot-1")
        return [item for item in open_store(disk, ManualClock(), SETTINGS).frames() if isinstance(item, Frame)]

    def check(self, core: Core, disk: FakeDisk, *, clean_start: bool = False) -> dict[str, TopicView]:
        """What must hold whatever was lost."""
        topics = look(core).topics
        for name, view in topics.items():
            assert view.problem is None, (name, view.problem)
            before = self.whole.get(name)
            if before is not None and not name.startswith("salvaged"):
                for seq, record in view.records.items():
                    known = before.records.get(seq)
                    assert known is None or known == record
            if name in self.heads:
                assert view.next_seq > self.heads[name], f"{name}: seq {view.next_seq} comes twice"
        hand = Hand.__new__(Hand)
        hand.core, hand.fs, hand.disk, hand.clock, hand.settings = core, disk, disk, self.hand.clock, SALVAGE
        for name in list(topics)[:2]:
            hand.write(name, "goes on")
        return topics


def broken(content: bytes | None, at: int, length: int = 1) -> bytes:
    assert content is not None
    changed = bytearray(content)
    for place in range(at, min(at + length, len(changed))):
        changed[place] ^= 0x11
    return bytes(changed)


@pytest.mark.parametrize("snapshot", [False, True])
def test_any_damage_is_passed_over(snapshot: bool) -> None:
    made = Made(snapshot=snapshot)
    tried = 0
    for path in made.logs():
        content = made.tree[path]
        assert content is not None
        for at in range(4096, len(content), 397):
            if not any(content[at : at + 9]):
                continue
            for length in (1, 9, 700):
                core, disk = made.start({path: broken(content, at, length)})
                made.check(core, disk)
                tried += 1
    assert tried > 100


def test_recovery_from_a_salvage_is_the_salvage() -> None:
    made = Made()
    for frame in made.frames():
        for spot in (20, 81):
            core, disk = made.start(made.hit(frame, spot))
            first = look(core).topics
            again = made.open(disk.killed())
            assert look(again).topics == first, (FrameType(frame.type), spot)


def test_what_a_lost_control_frame_costs() -> None:
    made = Made()
    whole = made.start({})[0]
    seen: set[FrameType] = set()
    for frame in made.frames():
        kind = FrameType(frame.type)
        if kind is FrameType.APPEND:
            continue
        core, disk = made.start(made.hit(frame, 81))
        topics = made.check(core, disk)
        said = " ".join(core.store.report)
        assert f"a {kind.name.capitalize() if kind is FrameType.MARK else kind.name}" in said
        seen.add(kind)
        if kind in (FrameType.MARK, FrameType.DROP):
            assert topics.keys() == look(whole).topics.keys()
            assert not any(view.damage for view in topics.values())
        if kind is FrameType.CREATE:
            name = f"salvaged-{frame.topic_id:x}"
            assert name in said or frame.topic_id == made.hand.core.catalog.visible["memory"].topic.id
        if kind is FrameType.DELETE:
            assert "may be readable again" in said
    assert seen >= {FrameType.CREATE, FrameType.CONFIG, FrameType.DROP, FrameType.DELETE, FrameType.MARK}


def test_a_topic_that_shows_where_it_got_to_needs_no_window() -> None:
    made = Made(sync=False)
    frames = [frame for frame in made.frames() if frame.type == FrameType.APPEND]
    victim = frames[4]
    core, _ = made.start(made.hit(victim, 20))
    topics = look(core).topics
    # Its header is gone, so nobody knows what it was; the next write of the same topic shows it.
    assert topics["a"].damage or topics["capped"].damage
    assert topics["a"].head == made.heads["a"]
    assert topics["late"].head == made.heads["late"]


def test_a_topic_that_stays_doubtful_goes_on_behind_a_window() -> None:
    made = Made(sync=False)
    last = made.frames()[-1]
    core, _ = made.start(made.hit(last, 81))
    assert last.type == FrameType.DELETE
    view = look(core).topics["a"]
    assert view.head == made.heads["a"] + SYNC_WINDOW
    assert view.damage[-1] == (made.heads["a"] + 1, made.heads["a"] + SYNC_WINDOW)
    gaps = list(core.catalog.visible["a"].topic.gaps)
    assert gaps[-1].reason is Reason.CORRUPTION
    assert look(core).topics["late"].head == made.heads["late"]
    assert not made.start({})[0].catalog.visible["a"].topic.damage()


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_missing_and_short_log_files_are_passed_over(clean: bool, boot: str) -> None:
    made = Made(clean=clean)
    for path in made.logs():
        content = made.tree[path]
        assert content is not None
        for left in (None, content[:4096], content[:9000], b""):
            core, disk = made.start({path: left}, boot)
            if any("missing" in line or "cut short" in line for line in core.store.report):
                assert any("passed over" in line for line in core.store.report)
            made.check(core, disk)


def test_a_store_that_is_not_ours_is_refused_whatever_the_policy() -> None:
    made = Made()
    path = made.logs()[0]
    other = Hand(FakeDisk(boot="elsewhere"), settings=SETTINGS)
    with pytest.raises(StoreForeign):
        made.start({path: other.disk.killed().cached_tree()[path]})


@pytest.mark.parametrize("snapshot", [False, True])
def test_salvage_is_never_advised_by_a_start_that_refuses_under_it(snapshot: bool) -> None:
    made = Made(snapshot=snapshot, clean=True)
    other = Hand(FakeDisk(boot="elsewhere"), settings=SETTINGS).disk.killed().cached_tree()
    whole = [*made.logs(), *(path for path in made.tree if path.endswith((".snap", "STORE", "LOCK", "MANIFEST")))]
    wrongs: list[Tree] = [{path: content} for path in whole for content in (None, b"", other.get(path, b"x"))]
    wrongs.append(dict.fromkeys(made.logs()))
    wrongs.append(dict.fromkeys(path for path in made.tree if path.startswith("wal/shard-00")))
    refusals = []
    for wrong in wrongs:
        try:
            made.start(wrong)
        except StoreError as error:
            refusals.append(str(error))
    assert len(refusals) > 6
    for said in refusals:
        assert "salvage" not in said
        assert "topics recover DIR --to NEW" in said


def test_ephemeral_seqs_are_not_given_out_again_when_their_reservation_is_lost() -> None:
    made = Made()
    assert made.whole["memory"].config.durability is Durability.EPHEMERAL
    [frame] = [frame for frame in made.frames() if frame.type == FrameType.RESERVE]
    core, _ = made.start(made.hit(frame, 82))
    assert core.catalog.tip["memory"].tip >= 2
    core.append("memory", Batch.of([3]))
    core.turn()
    assert core.catalog.tip["memory"].tip > SYNC_WINDOW
