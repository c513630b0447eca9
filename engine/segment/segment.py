"""A segment: a stretch of a topic's closed history that lies in files, and what is known of it without reading them.

A *segment* has files of its own, named by its first seq and by the checkpoint that made it; a *piece* lies in the
`tails` file of a checkpoint. The same code reads both. Names come from numbers only and are never used again.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from engine.formats.header import FILE_HEADER_LEN
from engine.formats.segment import CHECK_LEN, FLAG_TAGS, INFO_LEN, ROW_LEN, sums_len
from engine.formats.snapshot import tails_path

CHUNK_RECORDS: Final = 256
"""Rows that are read, checked and kept together."""
TOPICS_DIR: Final = "topics"


_PATH: Final = re.compile(rf"{TOPICS_DIR}/([0-9a-f]{{16}})/seg-(\d{{20}})-(\d{{10}})\.(?:data|idx|tags|\d+\.del)\Z")


def parse_segment_path(path: str) -> tuple[int, int, int] | None:
    """Topic id, first seq and number of the segment that a file belongs to; None for a path of something else."""
    match = _PATH.match(path)
    return None if match is None else (int(match[1], 16), int(match[2]), int(match[3]))


def topic_dir(topic_id: int) -> str:
    """Where a topic's segments are."""
    return f"{TOPICS_DIR}/{topic_id:016x}"


@lru_cache(maxsize=256)
def stem_of(topic_id: int, first_seq: int, number: int) -> str:
    """Path of a segment's files but for the suffix. Kept for those that are being read: each asks several times."""
    return f"{topic_dir(topic_id)}/seg-{first_seq:020d}-{number:010d}"


class Segment:
    """One segment or piece. What is not said to change never does; what does is changed by the owner of the store.

    number           of the checkpoint that made it
    offset           where the piece begins in its tails file; 0 for a segment with files of its own
    flags            which parts occur (`engine.formats.segment.FLAG_…`)
    del_version      changes: version of its `.del` file that the next snapshot names; 0 for none
    del_digest       changes: check of that file
    deletes_dirty    changes: rows were deleted that no `.del` file names yet
    cold             changes: its `.data` is in the cold tier
    worn             changes: something of it was damaged and mended while it was read; it is worth writing again
    own              changes: its index says that it is that of this segment, or cannot say
    sound            changes: first rows of groups that were found to be what was written (engine/segment/few.py)
    bad              changes: ascending inclusive ranges of rows known to be damaged, which readers pass over
    """

    __slots__ = (
        "bad",
        "cold",
        "count",
        "data_len",
        "del_digest",
        "del_version",
        "deletes_dirty",
        "first_seq",
        "first_ts",
        "flags",
        "last_ts",
        "number",
        "offset",
        "own",
        "present",
        "sound",
        "topic_id",
        "worn",
    )

    def __init__(
        self,
        topic_id: int,
        first_seq: int,
        count: int,
        present: int,
        number: int,
        offset: int,
        data_len: int,
        first_ts: int,
        last_ts: int,
        flags: int,
    ) -> None:
        self.topic_id = topic_id
        self.first_seq = first_seq
        self.count = count
        self.present = present
        self.number = number
        self.offset = offset
        self.data_len = data_len
        self.first_ts = first_ts
        self.last_ts = last_ts
        self.flags = flags
        self.del_version = 0
        self.del_digest = 0
        self.deletes_dirty = False
        self.cold = False
        self.worn = False
        self.own = False
        self.sound: set[int] | None = None
        self.bad: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return f"<{self.data_path} seqs {self.first_seq}…{self.last_seq}>"

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    @property
    def in_tails(self) -> bool:
        """Whether it is a piece of a tails file."""
        return self.offset > 0

    @property
    def has_tag(self) -> bool:
        return bool(self.flags & FLAG_TAGS)

    # -- files ---------------------------------------------------------------------------------------------------------

    @property
    def stem(self) -> str:
        """The path of its files without their endings."""
        return stem_of(self.topic_id, self.first_seq, self.number)

    @property
    def idx_path(self) -> str:
        return tails_path(self.number) if self.offset else self.stem + ".idx"

    @property
    def data_path(self) -> str:
        return tails_path(self.number) if self.offset else self.stem + ".data"

    @property
    def tags_path(self) -> str:
        """There is one only for a segment with files of its own in which some record has a tag."""
        return self.stem + ".tags"

    def del_path(self, version: int) -> str:
        """The file of the deleted rows, in that version of it."""
        return f"{self.stem}.{version}.del"

    def paths(self) -> list[str]:
        """All files of its own that must be there; empty for a piece. The data of a cold one need not."""
        if self.offset:
            return []
        paths = [self.idx_path] if self.cold else [self.data_path, self.idx_path]
        if self.flags & FLAG_TAGS:
            paths.append(self.tags_path)
        if self.del_version:
            paths.append(self.del_path(self.del_version))
        return paths

    # -- where things are in them --------------------------------------------------------------------------------------

    @property
    def info_offset(self) -> int:
        return self.offset or FILE_HEADER_LEN

    @property
    def rows_offset(self) -> int:
        return (self.offset or FILE_HEADER_LEN) + INFO_LEN

    @property
    def sums_offset(self) -> int:
        return self.rows_offset + self.count * ROW_LEN

    @property
    def data_offset(self) -> int:
        """Where the fragments begin in `data_path`."""
        return self.sums_offset + sums_len(self.count) if self.offset else FILE_HEADER_LEN

    @property
    def idx_size(self) -> int:
        """Bytes of the `.idx` file; meaningless for a piece."""
        return self.sums_offset + sums_len(self.count)

    @property
    def data_size(self) -> int:
        """Bytes of `data_path` up to the end of this segment's data and its check; the whole file unless a piece."""
        return self.data_offset + self.data_len + CHECK_LEN
