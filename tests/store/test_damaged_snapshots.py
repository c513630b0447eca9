"""Snapshots, tails and segments that are damaged or gone: the older snapshot, the log, a gap, or a refusal."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import pytest

from engine.core import Core
from engine.errors import StoreDamaged
from engine.formats.manifest import MANIFEST_PATH, Manifest, decode_meta, encode_meta
from engine.limits import EngineSettings, OnCorruption
from engine.types import Reason
from tests.sim.disk import FakeDisk
from tests.sim.images import power_cuts
from tests.sim.media import Tree, tree_hash
from tests.sim.view import TopicView, look
from tests.store import made
from tests.store.made import SNAP1, SNAP2

pytestmark = pytest.mark.slow


class Made(made.Made):
    """The same store, with where its snapshots cut the log, and what a start shows of it."""

    def __init__(self, *, own_files: bool = False, trimmed: bool = False) -> None:
        super().__init__(own_files=own_files)
        self.cuts = {1: 0, 2: 0}
        for number in (1, 2):
            gone = SNAP2 if number == 1 else SNAP1
            core = self.start({gone: None})
            assert core.store.snapshot is not None
            self.cuts[number] = core.store.snapshot.cut(0).lsn
        self.whole = self.see({})
        if trimmed:
            self.trim(self.cuts[1])

    def trim(self, lsn: int) -> None:
        """What a checkpoint does to the log at its end."""
        content = self.tree[MANIFEST_PATH]
        assert content is not None
        manifest = decode_meta(content, Manifest)
        [entry] = manifest.shards
        entry = msgspec.structs.replace(entry, start_lsn=lsn)
        self.tree[MANIFEST_PATH] = encode_meta(Manifest(store_id=manifest.store_id, shards=[entry]))
        for path, first, end in self.logs():
            if end <= lsn:
                assert first < lsn
                del self.tree[path]

    def logs(self) -> list[tuple[str, int, int]]:
        """(path, first lsn, end lsn) of every log file."""
        found = []
        for path, content in sorted(self.tree.items()):
            if path.endswith(".log") and content is not None:
                first = int(path.rpartition("/")[2].split("-")[1])
                found.append((path, first, first + len(content) - 4096))
        return found

    def disk(self, changes: Mapping[str, bytes | None] | None = None, boot: str = "boot-1") -> FakeDisk:
        tree = dict(self.tree)
        for path, content in (changes or {}).items():
            assert path in tree, path
            if content is None:
                del tree[path]
            else:
                tree[path] = content
        return FakeDisk.of_tree(tree, boot=boot)

    def start(
        self,
        changes: Mapping[str, bytes | None],
        policy: OnCorruption = OnCorruption.ISOLATE,
        disk: FakeDisk | None = None,
    ) -> Core:
        disk = disk if disk is not None else self.disk(changes)
        settings: EngineSettings = msgspec.structs.replace(self.settings, on_corruption=policy)
        return Core.open(disk, self.clock.restart(), settings)

    def see(self, changes: Mapping[str, bytes | None]) -> dict[str, TopicView]:
        return look(self.start(changes)).topics

    def flipped(self, path: str, at: int = -30) -> bytes:
        content = self.tree[path]
        assert content is not None
        broken = bytearray(content)
        broken[at] ^= 4
        return bytes(broken)

    def files(self, *ends: str) -> list[str]:
        return sorted(path for path in self.tree if path.endswith(ends))

    def refuses(
        self, changes: Mapping[str, bytes | None], match: str, policy: OnCorruption = OnCorruption.ISOLATE
    ) -> None:
        disk = self.disk(changes)
        before = disk.cached_tree()
        with pytest.raises(StoreDamaged, match=match):
            self.start(changes, policy, disk)
        assert disk.cached_tree() == before


def test_both_ways_and_both_snapshots_give_the_same() -> None:
    for own_files in (False, True):
        made = Made(own_files=own_files)
        assert made.see({SNAP2: None}) == made.whole
        assert made.see({SNAP1: None, SNAP2: None}) == made.whole
        assert 0 < made.cuts[1] < made.cuts[2]
        assert len(made.logs()) > 3


def test_F33_a_bad_newest_snapshot_is_put_aside_and_the_older_one_used() -> None:
    made = Made(trimmed=True)
    content = made.tree[SNAP2]
    assert content is not None
    for broken in (made.flipped(SNAP2), made.flipped(SNAP2, 40), made.flipped(SNAP2, 70), content[:-1], b""):
        disk = made.disk({SNAP2: broken})
        core = made.start({}, disk=disk)
        assert look(core).topics == made.whole
        assert any("snapshot-0000000002.snap is damaged" in line for line in core.store.report)
        assert any("snapshot-0000000001.snap is used instead" in line for line in core.store.report)
        assert not disk.exists(SNAP2)
        assert disk.cached_tree()["quarantine/snapshot-0000000002.snap"] == broken
        assert core.store.last_number == 2
        again = made.start({}, disk=disk.killed())
        assert look(again).topics == made.whole
        assert not any("damaged" in line for line in again.store.report)


def test_F34_the_older_snapshot_without_its_log_is_refused() -> None:
    made = Made(trimmed=True)
    made.trim(made.cuts[2])
    made.refuses({SNAP2: made.flipped(SNAP2)}, "needed from lsn")
    made.refuses({SNAP2: None}, "needed from lsn")


def test_F35_both_snapshots_bad() -> None:
    made = Made()
    bad = {SNAP1: made.flipped(SNAP1), SNAP2: made.flipped(SNAP2)}
    core = made.start(bad)
    assert look(core).topics == made.whole
    assert any("from its log alone" in line for line in core.store.report)
    made = Made(trimmed=True)
    made.refuses(bad, "no snapshot checks.*does not reach back")
    made.refuses({SNAP1: None, SNAP2: None}, "holds no snapshot, but meta/MANIFEST says")
    made.refuses({SNAP1: None, SNAP2: made.flipped(SNAP2)}, "no snapshot checks")


def test_log_that_the_snapshot_does_not_need_may_be_damaged_or_gone() -> None:
    made = Made()
    below = [path for path, _, end in made.logs() if end <= made.cuts[2]]
    assert len(below) > 2
    for path in below:
        for content in (None, b"", made.flipped(path, 10), made.flipped(path, 5000)):
            assert made.see({path: content}) == made.whole, path


def test_F30_log_that_the_snapshot_needs_is_missed() -> None:
    made = Made(trimmed=True)
    needed = [path for path, _, end in made.logs() if end > made.cuts[2]]
    for path in needed:
        made.refuses({path: None}, "missing|needed|begins at")
        made.refuses({path: made.tree[path][:5000]}, "cut short|begins at|needed")  # type: ignore[index]  # a file


def test_zeros_at_the_cut_are_damage_because_the_snapshot_knows_better() -> None:
    made = Made(trimmed=True)
    [(path, first, _)] = [log for log in made.logs() if log[1] <= made.cuts[2] < log[2]]
    content = made.tree[path]
    assert content is not None
    at = 4096 + made.cuts[2] - first
    zeroed = content[:at] + bytes(len(content) - at)
    # The frames behind the cut were synced before the snapshot was written, and MANIFEST is older than that.
    snapshot_end = made.start({}).store.snapshot
    assert snapshot_end is not None
    if snapshot_end.cut(0).end_lsn > made.cuts[2]:
        made.refuses({path: zeroed}, "row I")


def test_a_missing_or_short_tails_file_costs_nothing_while_the_older_snapshot_has_its_own() -> None:
    made = Made(trimmed=True)
    path = "meta/tails-0000000002.data"
    content = made.tree[path]
    assert content is not None
    for broken in (None, content[:-20], b""):
        core = made.start({path: broken})
        assert look(core).topics == made.whole
        assert any("tails-0000000002" in line for line in core.store.report)


def test_F63_a_segment_that_both_snapshots_miss_is_a_gap() -> None:
    made = Made(own_files=True, trimmed=True)
    one = made.start({SNAP2: None}).catalog.visible["a"].topic
    segments = {block.segment.data_path: block.segment for block in one.tail.blocks if block.segment is not None}
    path, segment = next(iter(segments.items()))
    newer = [p for p in made.files(".data") if "-0000000002." in p and f"{segment.topic_id:016x}" in p]
    changes: Mapping[str, bytes | None] = {path: None, **dict.fromkeys(newer)}
    core = made.start(changes)
    topic = core.catalog.visible["a"].topic
    assert topic.damage()
    lost = {seq for first, last in topic.damage() for seq in range(first, last + 1)}
    records = look(core).topics["a"].records
    whole = made.whole["a"].records
    assert {seq for seq in whole if seq not in lost} == set(records)
    assert lost & set(whole)
    assert not {3, 4} & (lost | set(records)), "what was deleted is neither lost nor back"
    assert all(Reason.CORRUPTION for gap in topic.gaps)
    assert look(core).topics["b"] == made.whole["b"]
    made.refuses(changes, "it is missing", OnCorruption.REFUSE)
    disk = made.disk(changes)
    first = look(made.start({}, disk=disk)).topics
    assert look(made.start({}, disk=disk.killed())).topics == first


def test_F63_a_bad_or_missing_del_file_never_brings_back_what_was_deleted() -> None:
    made = Made(own_files=True, trimmed=True)
    dels = made.files(".del")
    assert dels
    for damage in (lambda path: None, made.flipped):
        broken: dict[str, bytes | None] = {path: damage(path) for path in dels}
        records = made.see(broken)["a"].records
        assert not {3, 4, 70, 1} & set(records)
        assert set(records) < set(made.whole["a"].records)


def test_leftovers_go_after_a_crash_and_only_then() -> None:
    made = Made(own_files=True, trimmed=True)
    strays = {
        "meta/tails-0000000003.data": b"half",
        "meta/snapshot-0000000003.snap.tmp": b"half",
        f"topics/{1:016x}/seg-{1:020d}-{9:010d}.idx": b"half",
        f"topics/{99:016x}/seg-{1:020d}-{4:010d}.1.del": b"half",
    }
    mine: Tree = {"meta/notes.snap": b"mine", f"topics/{1:016x}/seg-1-1.data": b"mine"}
    made.tree = {**made.tree, f"topics/{99:016x}": None, **strays, **mine}
    disk = made.disk()
    core = made.start({}, disk=disk)
    assert core.store.last_number == 9
    assert look(core).topics == made.whole
    left = disk.cached_tree()
    assert all(left[path] == content for path, content in mine.items())
    assert not [path for path in strays if path in left]
    assert SNAP1 in left
    assert SNAP2 in left


def test_leftovers_stay_while_something_cannot_be_read() -> None:
    made = Made(own_files=True, trimmed=True)
    made.tree["meta/tails-0000000003.data"] = b"half"
    disk = made.disk({SNAP2: made.flipped(SNAP2)})
    core = made.start({}, disk=disk)
    assert disk.exists("meta/tails-0000000003.data")
    assert any("stay" in line for line in core.store.report)


def test_files_below_the_beginning_of_the_log_go() -> None:
    made = Made(own_files=True)
    before = made.logs()
    trimmed = Made(own_files=True, trimmed=True)
    trimmed.tree = {**made.tree, MANIFEST_PATH: trimmed.tree[MANIFEST_PATH], **trimmed.tree}
    disk = trimmed.disk()
    core = trimmed.start({}, disk=disk)
    assert look(core).topics == trimmed.whole
    gone = [path for path, _, end in before if end <= trimmed.cuts[1]]
    assert gone
    assert not [path for path in gone if disk.exists(path)]


def test_every_flipped_byte_of_a_snapshot_gives_the_same_store() -> None:
    made = Made()
    content = made.tree[SNAP2]
    assert content is not None
    for at in range(0, len(content), 97):
        assert made.see({SNAP2: made.flipped(SNAP2, at)}) == made.whole


def test_F41_a_crash_at_any_step_of_such_a_start_converges() -> None:
    made = Made(own_files=True, trimmed=True)
    made.tree["meta/tails-0000000003.data"] = b"half"
    made.tree[f"topics/{1:016x}/seg-{1:020d}-{3:010d}.idx"] = b"half"
    for changes in ({}, {SNAP2: made.flipped(SNAP2)}):
        disk = made.disk(changes)
        images = images_of(disk, partial(made.start, {}, disk=disk))
        assert len(images) > 20
        for image in images:
            topics = look(made.start({}, disk=image)).topics
            assert {name: view.records for name, view in topics.items()} == {
                name: view.records for name, view in made.whole.items()
            }


def images_of(disk: FakeDisk, act: Callable[[], object]) -> list[FakeDisk]:
    """Every disk that a kill or a power failure can leave at any step of an action, without repeats."""
    rng = random.Random(1)
    seen: set[bytes] = set()
    images: list[FakeDisk] = []

    def crash(now: FakeDisk, _what: str) -> None:
        now.on_step = None
        for image in (now.killed(), *(now.powered_off(cut, boot="boot-3") for cut in power_cuts(now, rng, sample=3))):
            digest = tree_hash(image.cached_tree()) + image.boot.encode()
            if digest not in seen:
                seen.add(digest)
                images.append(image)
        now.on_step = crash

    disk.on_step = crash
    act()
    disk.on_step = None
    return images
