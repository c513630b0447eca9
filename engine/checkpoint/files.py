"""Which files of checkpoints, and how much of the log, are still needed: what goes when, and how much of each tails
file is some topic's.

A file goes when neither kept snapshot names it, never before: whoever lets go of one says from which snapshot on none
names it, and it is given out once the older kept one has that number. A tails file is shared by many topics; it goes
with the last piece that one of them has, and is *worn*, worth copying what is left of it, when most of it is nobody's.

Owned by the loop. It removes nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.formats.segment import ROW_LEN
from engine.formats.snapshot import SegmentEntry, ShardCut, tails_path
from engine.segment.segment import Segment
from engine.topic.block import Block


def log_starts(older: Iterable[ShardCut], newer: Iterable[ShardCut], blocks: Iterable[Block]) -> dict[int, int]:
    """Where the log of each shard begins to be needed: where both kept snapshots end, or before, where it alone has one
    of these blocks."""
    cuts = {cut.shard: cut.lsn for cut in newer}
    starts = {cut.shard: min(cut.lsn, cuts.get(cut.shard, 0)) for cut in older}
    for block in blocks:
        if block.lsns is not None and block.shard in starts:
            starts[block.shard] = min(starts[block.shard], block.lsns[0])
    return starts


class TailsUse:
    """How many bytes of each tails file, by its number, are some topic's."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}

    def add(self, piece: Segment | SegmentEntry) -> None:
        """A piece of one."""
        self.bytes[piece.number] = self.bytes.get(piece.number, 0) + piece.data_len + ROW_LEN * piece.count


class Files:
    """The files that the kept snapshots and the topics need."""

    def __init__(self, pieces: Iterable[Segment], sizes: Mapping[int, int]) -> None:
        """`pieces`: those that topics have at the start; `sizes`: bytes of the tails files, by number."""
        self._superfluous: list[tuple[int, list[str]]] = []
        """(number, paths): no snapshot from that number on names them."""
        self._pieces: dict[int, int] = {}
        """How many pieces of each tails file are some topic's."""
        self._sizes = dict(sizes)
        used = TailsUse()
        for piece in pieces:
            self.has_piece(piece)
            used.add(piece)
        self._used = used.bytes

    @classmethod
    def at_start(
        cls, there: Sequence[Segment], retired: Sequence[Segment], tails: Mapping[str, int | None], newest: int
    ) -> Files:
        """The files at a start. `retired`: what replay has dropped, and is still to be taken off; `tails`: lengths of
        tails files; `newest`: number of the newer kept snapshot, 0 for none."""
        pieces = [segment for segment in (*there, *retired) if segment.in_tails]
        files = cls(pieces, {piece.number: tails.get(piece.data_path) or 0 for piece in pieces})
        for segment in there:
            # Their local data may be there still, if the older snapshot does not say that they are cold.
            if newest and segment.cold:
                files.drop(newest, [segment.data_path])
        return files

    # -- tails files ---------------------------------------------------------------------------------------------------

    def has_piece(self, piece: Segment) -> None:
        """A topic has a piece of a tails file."""
        self._pieces[piece.number] = self._pieces.get(piece.number, 0) + 1

    def wrote_tails(self, number: int, size: int) -> None:
        """There is a new tails file."""
        self._sizes[number] = size

    def tails_are_used(self, number: int, used: TailsUse) -> None:
        """Checkpoint `number` is done: so much of each tails file is used. Its own goes if nobody has a piece of it."""
        self._used = used.bytes
        if number in self._sizes and not self._pieces.get(number):
            self.drop(number + 1, [tails_path(number)])
            self._forget(number)

    def is_worn(self, number: int) -> bool:
        """Whether most of a tails file is nobody's any more."""
        size = self._sizes.get(number, 0)
        return 2 * self._used.get(number, size) < size

    def _forget(self, number: int) -> None:
        for known in (self._pieces, self._sizes, self._used):
            known.pop(number, None)

    # -- what goes -----------------------------------------------------------------------------------------------------

    def drop(self, absent_from: int, paths: list[str]) -> None:
        """No snapshot from a number on names these files; 0: none does."""
        if paths:
            self._superfluous.append((absent_from, paths))

    def retire(self, segment: Segment, absent_from: int) -> None:
        """No topic has this segment any more; no snapshot from a number on names it."""
        if not segment.in_tails:
            # The data of a cold one may be here, too, until both kept snapshots say that it is cold.
            self.drop(absent_from, [*segment.paths(), segment.data_path] if segment.cold else segment.paths())
            return
        left = self._pieces.get(segment.number, 1) - 1
        self._pieces[segment.number] = left
        if not left:
            self.drop(absent_from, [tails_path(segment.number)])
            self._forget(segment.number)

    def take(self, oldest: int) -> list[str]:
        """What is to be removed now that the older kept snapshot has this number; 0 while there is only one."""
        paths = [path for number, paths in self._superfluous if number <= oldest for path in paths]
        self._superfluous = [entry for entry in self._superfluous if entry[0] > oldest]
        return paths
