"""A pin (or a backup) as what an export takes out of it: topics, and of each its records and why others are missing.

Of every seq in `1 … head` exactly one is true: it is exported, it was deleted, or it lies in a gap with a reason.
`Losses` holds the second and third, so `exported + deleted + in gaps = last - first + 1` can be asked of any range.
Nothing here writes, and nothing that happens to the store after the pin was made changes what is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from engine.checkpoint.pin import read_manifest
from engine.errors import StoreDamaged
from engine.export.columns import SEQ_MAX
from engine.export.decode import Damaged, PieceReader, Ranges, outside, refuse_damage
from engine.formats.export import ExportManifest, ExportPiece, ExportTopic
from engine.fs import Fs
from engine.types import Durability, Reason


class Loss(NamedTuple):
    """Seqs `first … last`, inclusive, that are not there for a reason."""

    first: int
    last: int
    reason: str


class Losses(NamedTuple):
    """What of a range of seqs is not exported."""

    deleted: Ranges
    """Ascending inclusive ranges."""
    gaps: list[Loss]

    @property
    def deleted_count(self) -> int:
        return sum(last - first + 1 for first, last in self.deleted)

    @property
    def gap_count(self) -> int:
        return sum(gap.last - gap.first + 1 for gap in self.gaps)


class PinnedTopic:
    """One topic of a pin."""

    def __init__(self, fs: Fs, manifest: ExportManifest, topic: ExportTopic) -> None:
        """Raises `StoreDamaged` when its seqs do not fit a column, or its records are in memory alone."""
        if topic.durability is Durability.EPHEMERAL:
            raise StoreDamaged(f"topic {topic.name!r} is ephemeral: its records are in no file, and cannot be exported")
        if topic.head_seq > SEQ_MAX:
            raise StoreDamaged(f"topic {topic.name!r} has seqs beyond 2^63 - 1, which no column can hold")
        self.name = topic.name
        self.epoch = topic.epoch
        self.head = topic.head_seq
        self.pieces = topic.pieces
        self._fs = fs
        self._store_id = bytes.fromhex(manifest.store_id)
        self._topic = topic
        self._oldest_ts = max(manifest.ts - topic.ttl_ms, 0) if topic.ttl_ms else 0
        lost = [(gap.first, gap.last) for gap in topic.gaps]
        self._dead = sorted([(1, topic.earliest_seq - 1), *topic.deleted, *lost])
        self._expired_upto = self._first_unexpired() - 1

    def _reader(self, damaged: Damaged) -> PieceReader:
        return PieceReader(self._fs, self._store_id, self._topic, self._dead, self._oldest_ts, damaged)

    def _first_unexpired(self) -> int:
        earliest = self._topic.earliest_seq
        if not self._oldest_ts:
            return earliest
        reader = self._reader(refuse_damage(self.name))
        first = self.pieces[-1].last_seq + 1 if self.pieces else earliest
        for piece in self.pieces:
            young = reader.first_unexpired(piece)
            if young <= piece.last_seq:
                first = young
                break
        return max(first, earliest)

    def losses(self, first: int, last: int) -> Losses:
        """What of `first … last` is not there, and why."""
        topic, last = self._topic, min(last, self.head)
        gaps = [Loss(gap.first, gap.last, gap.reason.value) for gap in (*topic.losses, *topic.gaps)]
        deleted = [(topic.floor_seq, topic.earliest_seq - 1), *topic.deleted]
        known = sorted((low, high) for low, high in deleted + [gap[:2] for gap in gaps] if low <= high)
        for low, high in outside(known, topic.earliest_seq, self._expired_upto):
            gaps.append(Loss(low, high, Reason.TTL.value))
        inside = [(max(low, first), min(high, last)) for low, high in deleted]
        cut = [Loss(max(gap.first, first), min(gap.last, last), gap.reason) for gap in gaps]
        return Losses(
            [(low, high) for low, high in inside if low <= high], sorted(gap for gap in cut if gap.first <= gap.last)
        )

    def live(self, first: int, last: int) -> Ranges:
        """The seqs of `first … last` that have a record, as ranges."""
        lost = self.losses(first, last)
        return outside(sorted([*lost.deleted, *(gap[:2] for gap in lost.gaps)]), first, min(last, self.head))

    def pieces_of(self, first: int, last: int) -> list[ExportPiece]:
        """The pieces that hold records of `first … last`."""
        return [piece for piece in self.pieces if piece.last_seq >= first and piece.first_seq <= last and piece.live]

    def batches(self, first: int, last: int, damaged: Damaged | None = None) -> Iterator[Any]:
        """The live records of `first … last` as Arrow batches of `columns.SCHEMA`, ascending.

        `damaged` hears of damaged ones, which are left out; without it they raise `DamagedRecords`.
        """
        reader = self._reader(damaged or refuse_damage(self.name))
        first, last = max(first, self._topic.earliest_seq, 1), min(last, self.head)
        for piece in self.pieces_of(first, last):
            yield from reader.batches(piece, first, last)


class Pin:
    """A pinned set of files, as `POST /v0/admin/exports` or `topics backup` made it."""

    def __init__(self, fs: Fs) -> None:
        """Raises `StoreDamaged` where there is no whole one, and `OSError`."""
        self.fs = fs
        self.manifest = read_manifest(fs)
        self._topics = {topic.name: topic for topic in self.manifest.topics}

    @property
    def names(self) -> list[str]:
        return sorted(self._topics)

    def topic(self, name: str) -> PinnedTopic:
        """One topic. Raises `KeyError` when the pin has none of that name."""
        return PinnedTopic(self.fs, self.manifest, self._topics[name])
