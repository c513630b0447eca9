"""Writing: durable when it returns, and nothing when it fails."""

from __future__ import annotations

import pytest

from engine.fs import Fs
from engine.segment.reader import SegmentFiles
from engine.segment.segment import Segment
from engine.segment.whose import read_deletes
from engine.segment.write import TailsWriter, write_deletes, write_segment
from tests.segment.kit import NOW, STORE, check_all, disk_of, plain, small, written
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.media import Cut

ERRORS = (Effect.EIO, Effect.ENOSPC, Effect.EMFILE, Effect.PARTIAL_EIO, Effect.FAILED_SYNC)
ONLY = {Effect.PARTIAL_EIO: Call.WRITE, Effect.FAILED_SYNC: Call.SYNC}
"""Effects of one kind of call."""
NOTHING = Cut(upto=-1)
"""A power failure that lets nothing through that was not synced."""


def files_of(disk: FakeDisk) -> list[str]:
    return [path for path, content in disk.cached_tree().items() if content is not None]


def everything(disk: Fs) -> tuple[Segment, Segment, int]:
    """One of each: a segment, a piece, deleted rows."""
    segment = written(disk, small(), number=1)
    piece = written(disk, small(), number=2, piece=True)
    return segment, piece, write_deletes(disk, STORE, NOW, segment, 1, [(1, 2)])


def test_what_was_written_is_there_after_the_power_fails() -> None:
    disk = FakeDisk()
    disk.mkdir("meta")
    disk.fsync_dir("")
    segment, piece, digest = everything(disk)
    after = disk.powered_off(NOTHING)
    with SegmentFiles(after, STORE) as files:
        check_all(files, segment, small())
        check_all(files, piece, small())
    assert read_deletes(after, STORE, segment, 1, digest) == [(1, 2)]


def test_a_directory_that_a_killed_process_made_is_not_taken_for_a_durable_one() -> None:
    disk = FakeDisk()
    disk.mkdir("topics")
    disk.mkdir("topics/0000000000000003")
    segment = write_segment(disk, STORE, NOW, 1, small().built())
    with SegmentFiles(disk.powered_off(NOTHING), STORE) as files:
        check_all(files, segment, small())


def test_directories_known_to_be_durable_are_not_synced_again() -> None:
    disk, durable = FakeDisk(), set[str]()
    counted = FaultFs(disk)
    write_segment(counted, STORE, NOW, 1, small().built(), durable)
    assert counted.calls[Call.SYNC_DIR] == 3
    write_segment(counted, STORE, NOW, 2, small().built(), durable)
    assert counted.calls[Call.SYNC_DIR] == 4


@pytest.mark.parametrize("effect", ERRORS)
def test_F20_F23_an_error_at_any_call_leaves_nothing_that_counts(effect: Effect) -> None:
    counted = FaultFs(FakeDisk())
    everything(counted)
    tried = 0
    for call in (Call.CREATE, Call.WRITE, Call.SYNC, Call.SYNC_DIR, Call.READ, Call.MKDIR):
        if effect in ONLY and call is not ONLY[effect]:
            continue
        for at in range(counted.calls[call]):
            disk = FakeDisk()
            faulty = FaultFs(disk, [Fault(call, at, effect)])
            with pytest.raises(OSError):  # noqa: PT011  # which one is the fault's choice
                everything(faulty)
            assert not disk._handles
            made = files_of(disk)
            assert not any("tails" in path for path in made) or "meta/tails-0000000002.data" in made
            # What counts is what was returned: each of the three is whole, or no file of it is there.
            stems = {path.split(".")[0] for path in made}
            for stem in stems:
                kinds = {path.split(".")[-1] for path in made if path.startswith(stem)} - {"del"}
                assert kinds in ({"data", "idx", "tags"}, {"data"}), (call, at, made)
            tried += 1
    assert tried >= 3


def test_a_short_write_is_completed() -> None:
    disk = FakeDisk()
    faulty = FaultFs(disk, [Fault(Call.WRITE, 0, Effect.SHORT, lasting=True)])
    sample = plain(600)
    segment = write_segment(faulty, STORE, NOW, 1, sample.built())
    with SegmentFiles(disk, STORE) as files:
        check_all(files, segment, sample)


def test_what_does_not_read_back_does_not_count() -> None:
    class Lying(FakeDisk):
        """Reads other bytes than were written."""

        def pread(self, handle: int, length: int, offset: int) -> bytes:
            return super().pread(handle, length, offset).replace(b'"$ts"', b'"$tx"')

    disk = Lying()
    with pytest.raises(OSError, match="read back"):
        write_segment(disk, STORE, NOW, 1, small().built())
    assert files_of(disk) == []
    disk.mkdir("meta")
    writer = TailsWriter(disk, STORE, NOW, 1)
    writer.add(small().built())
    with pytest.raises(OSError, match="read back"):
        writer.finish()
    assert files_of(disk) == []


def test_files_that_are_there_are_never_written_over() -> None:
    disk, segment = disk_of(small())
    before = disk.cached_tree()
    with pytest.raises(FileExistsError):
        write_segment(disk, STORE, NOW, segment.number, small(90).built())
    assert disk.cached_tree() == before


def test_a_tails_file_can_be_abandoned_and_holds_many_pieces() -> None:
    disk = FakeDisk()
    disk.mkdir("meta")
    writer = TailsWriter(disk, STORE, NOW, 1)
    writer.add(small().built())
    writer.abandon()
    writer.abandon()
    assert files_of(disk) == []
    writer = TailsWriter(disk, STORE, NOW, 2)
    made = [
        (writer.add(sample.built(topic)), sample) for topic in range(300) for sample in [plain(1 + topic % 5, topic)]
    ]
    assert all(segment.offset % 8 == 0 for segment, _ in made)
    size = writer.size
    writer.finish()
    assert len(disk.cached_tree()["meta/tails-0000000002.data"] or b"") == size
    with SegmentFiles(disk, STORE) as files:
        for segment, sample in made:
            check_all(files, segment, sample)
