"""The slow half of a checkpoint: what is copied, written, synced and read back off the loop.

A job touches nothing that the loop owns: what it needs was taken down before, what it made is carried back. If it
raises, the files that it made are gone again as far as possible, and nothing of it counts.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from xxhash import xxh3_64

from engine.checkpoint.files import TailsUse
from engine.checkpoint.pin import PinJob, UnpinJob
from engine.checkpoint.plan import Group
from engine.checkpoint.sources import Readers, Source, source_of
from engine.errors import StoreForeign
from engine.formats.snapshot import (
    META_DIR,
    BadSnapshot,
    Globals,
    SegmentEntry,
    TopicImage,
    encode_sections,
    snapshot_path,
)
from engine.fs import Fs, create, write_whole
from engine.segment.build import Built, Run, build
from engine.segment.damaged import DamagedSegment
from engine.segment.segment import TOPICS_DIR, Segment
from engine.segment.write import TailsWriter, read_back, remove, remove_empty, write_deletes, write_segment
from engine.store.snapshots import entry_of
from engine.tagset import TagSet
from engine.topic.block import Block
from engine.topic.damaged import DamagedFrames
from engine.topic.state import Topic
from engine.types import TopicConfig
from engine.wal.chain import TMP_SUFFIX

STOP_NS: Final = 5_000_000_000
"""How long a stop waits for a checkpoint: without one the next start has more of the log to read, that is all."""
_WRITE_BYTES: Final = 1 << 20

OpenReaders = Callable[[Fs], Readers]


class Taken(Protocol):
    """One topic as it was taken down (engine/core/images.py)."""

    @property
    def image(self) -> TopicImage: ...

    @property
    def config(self) -> TopicConfig: ...

    @property
    def deletes(self) -> list[tuple[Segment, SegmentEntry, list[tuple[int, int]]]]: ...


class Copy:
    """Some neighbouring blocks of a topic on their way into one segment or piece.

    segment, tags   what became of them, once the job is done; None when what was read was damaged
    damage          which records cannot be had
    """

    __slots__ = ("_refusal", "blocks", "count", "damage", "first_seq", "segment", "sources", "tags", "topic")

    def __init__(self, topic: Topic, blocks: list[Block], sources: list[Source]) -> None:
        self.topic = topic
        self.blocks = blocks
        self.sources = sources
        self.first_seq = blocks[0].first_seq
        self.count = blocks[-1].last_seq - self.first_seq + 1
        self.segment: Segment | None = None
        self.tags: TagSet | None = None
        self.damage: list[DamagedSegment | DamagedFrames] = []
        self._refusal: StoreForeign | None = None
        """Why a file cannot be used at all, though none of its records counts as lost."""

    @classmethod
    def of(cls, topic: Topic, group: Group) -> Copy:
        """A copy of the blocks as they are now, which keep their bounds until it is let go of."""
        for block in group.blocks:
            if block.open:
                block.close()
            block.sealing = True
        return cls(topic, group.blocks, [source_of(topic, block) for block in group.blocks])

    @property
    def why(self) -> str | None:
        """What is damaged, or of no use; None when nothing is."""
        met = self.damage[0] if self.damage else self._refusal
        return None if met is None else str(met)

    @property
    def may_pass(self) -> bool:
        """Whether another attempt may find more: nothing was met but bytes that the disk refuses."""
        return self._refusal is None and all(found.unread for found in self.damage)

    def check_damage(self) -> None:
        """Raise for records that are in no older segment either: they have to be told as lost before anything else."""
        if self.why is not None and not all(block.segment for block in self.blocks):
            raise OSError(errno.EIO, f"topic {self.topic.name!r}: {self.why}")

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    def build(self, readers: Readers) -> Built | None:
        """The bytes; None when nothing is live any more, or some of it does not check (`why`). Raises `OSError`."""
        runs: list[Run] = []
        for source in self.sources:
            try:
                runs += source.runs(readers)
            except (DamagedSegment, DamagedFrames) as error:
                self.damage.append(error)
            except StoreForeign as error:
                self._refusal = error
        self.sources = []
        if self.why is not None:
            return None
        return build(self.topic.id, self.first_seq, self.count, runs) if runs else None


class SealJob:
    """Write segments."""

    def __init__(
        self,
        copies: list[Copy],
        open_readers: OpenReaders,
        store_id: bytes,
        now_ms: int,
        number: int,
        durable: set[str],
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self.copies = copies
        self.damage: list[DamagedSegment | DamagedFrames] = []
        """What could not be read."""
        self._is_late = is_late
        self._open_readers = open_readers
        self._store_id = store_id
        self._now_ms = now_ms
        self._number = number
        self._durable = durable

    def run(self, fs: Fs) -> None:
        """Raises `OSError`; the segments that were finished before stay, and count."""
        readers = self._open_readers(fs)
        try:
            for copy in self.copies:
                if self._is_late():
                    raise given_up()
                built = copy.build(readers)
                self.damage += copy.damage
                if built is not None:
                    copy.segment = write_segment(fs, self._store_id, self._now_ms, self._number, built, self._durable)
                    copy.tags = built.tag_set
        finally:
            readers.close()
        for copy in self.copies:
            copy.check_damage()


class Piece:
    """What of a captured topic goes into the tails file or into a segment, and what its entry will say."""

    __slots__ = ("captured", "copy", "live", "replaces", "rows", "size")

    def __init__(
        self,
        captured: Taken,
        copy: Copy,
        live: int,
        size: int,
        replaces: list[Segment],
        rows: list[tuple[int, int]] | None = None,
    ) -> None:
        self.captured = captured
        self.copy = copy
        self.live = live
        self.size = size
        self.replaces = replaces
        """Older segments and pieces that it holds the records of."""
        self.rows = rows
        """Of a segment: ranges of its rows that were deleted when it was taken down."""

    def name(self) -> None:
        """Let the image name what became of it, in the place of what it replaces; that, if nothing did. Whoever has
        done so for all of them sorts its entries."""
        segment, captured = self.copy.segment, self.captured
        if segment is None:
            if self.rows:  # no .del file says so
                base = self.copy.first_seq
                deleted = [(base + first, base + last) for first, last in self.rows]
                captured.image.deleted = sorted([*captured.image.deleted, *deleted])
            return
        gone = {(old.first_seq, old.number, old.offset) for old in self.replaces}
        entry = entry_of(segment, self.live, self.size, self.copy.tags)
        image = captured.image
        if gone:
            image.segments = [old for old in image.segments if _place(old) not in gone]
            captured.deletes[:] = [found for found in captured.deletes if _place(found[1]) not in gone]
        image.segments.append(entry)
        if self.rows:
            captured.deletes.append((segment, entry, self.rows))


def _place(entry: SegmentEntry) -> tuple[int, int, int]:
    return entry.first, entry.number, entry.offset


def given_up() -> OSError:
    """Why there is no checkpoint when a stop would have had to wait for it too long."""
    return OSError(errno.ECANCELED, "given up for the stop; the next start reads the log instead")


class SnapshotJob:
    """Write the tails file, the deleted rows of segments, and the snapshot that names all of it.

    The log is on disk up to everything that was captured before this is run.
    """

    def __init__(
        self,
        captured: Sequence[Taken],
        pieces: list[Piece],
        globals_: Globals,
        open_readers: OpenReaders,
        store_id: bytes,
        is_late: Callable[[], bool] = lambda: False,
        sealed: Sequence[Piece] = (),
    ) -> None:
        """`pieces` go into the tails file; `sealed` are segments that were written already."""
        self.captured = captured
        self.pieces = pieces
        self._sealed = sealed
        self.globals = globals_
        self.damage: list[DamagedSegment | DamagedFrames] = []
        """What could not be read."""
        self.tails_bytes = 0
        """Size of the tails file; 0 when there was nothing to put into one."""
        self.snapshot_bytes = 0
        self.tails_use = TailsUse()
        self._open_readers = open_readers
        self._store_id = store_id
        self._is_late = is_late
        self._made: list[str] = []

    def run(self, fs: Fs) -> None:
        """Raises `OSError`: then nothing of it is there, or at least nothing names it."""
        try:
            if self.pieces:
                self._write_tails(fs)
            self._name_pieces()
            for found in self.captured:
                for segment, entry, rows in found.deletes:
                    self._write_deletes(fs, segment, entry, rows)
            self._write_snapshot(fs)
            self._note_used()
        except BaseException:
            self._take_back(fs)
            raise

    def _take_back(self, fs: Fs) -> None:
        """Remove what was made, unless the snapshot may be on the disk: what it names stays with it then."""
        path = snapshot_path(self.globals.number)
        if path in self._made:
            try:
                if fs.exists(path):
                    fs.unlink(path)
                fs.fsync_dir(META_DIR)
            except OSError:
                return
        remove(fs, self._made)

    def _write_tails(self, fs: Fs) -> None:
        writer = TailsWriter(fs, self._store_id, self.globals.created_ms, self.globals.number)
        self._made.append(writer.path)
        readers = self._open_readers(fs)
        try:
            for piece in self.pieces:
                if self._is_late():
                    raise given_up()
                built = piece.copy.build(readers)
                if built is not None:
                    piece.copy.segment, piece.copy.tags = writer.add(built), built.tag_set
                self.damage += piece.copy.damage
            for piece in self.pieces:
                piece.copy.check_damage()
            self.tails_bytes = writer.size
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        finally:
            readers.close()

    def _name_pieces(self) -> None:
        images: dict[int, TopicImage] = {}
        for piece in (*self._sealed, *self.pieces):
            piece.name()
            images[piece.captured.image.id] = piece.captured.image
        for image in images.values():
            image.segments.sort(key=lambda entry: entry.first)

    def _note_used(self) -> None:
        for found in self.captured:
            for entry in found.image.segments:
                if entry.offset:
                    self.tails_use.add(entry)

    def _write_deletes(self, fs: Fs, segment: Segment, entry: SegmentEntry, rows: list[tuple[int, int]]) -> None:
        if not rows and not entry.deletes:
            return
        version = entry.deletes + 1
        while fs.exists(segment.del_path(version)):  # a failed attempt's, which could not be removed
            version += 1
        entry.digest = write_deletes(fs, self._store_id, self.globals.created_ms, segment, version, rows)
        entry.deletes = version
        self._made.append(segment.del_path(version))

    def _write_snapshot(self, fs: Fs) -> None:
        path = snapshot_path(self.globals.number)
        temporary = path + TMP_SUFFIX
        if fs.exists(temporary):
            fs.unlink(temporary)
        handle = create(fs, temporary)
        self._made.append(temporary)
        try:
            written, offset, waiting = xxh3_64(), 0, b""
            topics = ((found.image, found.config) for found in self.captured)
            for part in encode_sections(topics, self.globals, self._store_id):
                written.update(part)
                waiting += part
                if len(waiting) >= _WRITE_BYTES:
                    write_whole(fs, handle, (waiting,), offset)
                    offset, waiting = offset + len(waiting), b""
            write_whole(fs, handle, (waiting,), offset)
            self.snapshot_bytes = offset + len(waiting)
            fs.fdatasync(handle)
            read_back(fs, handle, path, self.snapshot_bytes, written.intdigest())
        except BadSnapshot as error:
            raise OSError(errno.EIO, f"what was taken down makes no sense: {error}") from error
        finally:
            fs.close(handle)
        self._made.append(path)
        fs.rename(temporary, path)
        fs.fsync_dir(META_DIR)


class RemoveJob:
    """Remove files that no kept snapshot names, and the directories of topics in which nothing is left.

    What cannot be removed is a leftover for the next start; `left` names it, with the reason.
    """

    def __init__(self, paths: list[str], durable: set[str]) -> None:
        """`durable`: directories that are known to be on disk; those that go are taken out."""
        self.paths = paths
        self.left: list[str] = []
        self._durable = durable

    def run(self, fs: Fs) -> None:
        self.left = remove(fs, self.paths)
        for directory in sorted({path.rpartition("/")[0] for path in self.paths}):
            if directory.startswith(f"{TOPICS_DIR}/") and remove_empty(fs, directory):
                self._durable.discard(directory)


Job = SealJob | SnapshotJob | RemoveJob | PinJob | UnpinJob
