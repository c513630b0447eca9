"""The files of one shard's log, and which of them owns a position.

A shard is an endless stream of bytes; a position in it is an lsn. A log file holds the stretch that begins at the
`first_lsn` in its name, after one block of header, so its place is arithmetic:

    offset in the file  =  DATA_START + (lsn − first_lsn)            both are multiples of 4096 at a block's start

A recovery after an unclean stop begins a new *run*: a file whose first lsn lies inside what older runs hold and which
supersedes them from there on. So *an lsn belongs, among the files that begin at or before it, to the one with the
highest (run, first_lsn)*. A file below another one of a higher run owns nothing at all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

DATA_START: Final = 4096
"""Where frames begin in a log file: the header has a block of its own, which is never written again."""
WAL_DIR: Final = "wal"
TMP_SUFFIX: Final = ".tmp"

_NAME: Final = re.compile(r"wal-(\d{20})-(\d+)\.log\Z")
_DIR: Final = re.compile(r"shard-(\d{2})\Z")


class LogFile(NamedTuple):
    """A log file as its name and size say."""

    shard: int
    first_lsn: int
    run: int
    size: int
    """In bytes, header block included."""

    @property
    def path(self) -> str:
        """Where it lies below the root."""
        return log_path(self.shard, self.first_lsn, self.run)

    @property
    def end_lsn(self) -> int:
        """The first lsn that no longer fits."""
        return self.first_lsn + self.size - DATA_START

    def offset(self, lsn: int) -> int:
        """Where a position lies in the file."""
        return DATA_START + lsn - self.first_lsn


class Piece(NamedTuple):
    """The part of the stream that a file owns."""

    file: LogFile
    end_lsn: int
    """Where the next owner begins, or where the file ends if that is before."""


def shard_dir(shard: int) -> str:
    """The directory of a shard's log files."""
    return f"{WAL_DIR}/shard-{shard:02d}"


def log_path(shard: int, first_lsn: int, run: int) -> str:
    """The path of a log file."""
    return f"{shard_dir(shard)}/wal-{first_lsn:020d}-{run}.log"


def parse_shard_dir(name: str) -> int | None:
    """The number of the shard that a directory below `wal` is for, or None for a name that is not ours."""
    match = _DIR.match(name)
    return int(match[1]) if match else None


def parse_log_name(name: str) -> tuple[int, int] | None:
    """(first_lsn, run) of a log file's name, or None for a name that is not ours."""
    match = _NAME.match(name)
    return (int(match[1]), int(match[2])) if match else None


def file_of(chain: list[LogFile], lsn: int) -> LogFile:
    """The file of a chain of owners that owns a position."""
    return chain[bisect_right(chain, lsn, key=_first_lsn) - 1]


def _first_lsn(file: LogFile) -> int:
    return file.first_lsn


def owners(files: Iterable[LogFile]) -> tuple[list[LogFile], list[LogFile]]:
    """The files that own something, in the order of the stream, and those that own nothing."""
    chain: list[LogFile] = []
    superseded: list[LogFile] = []
    for file in sorted(files, key=lambda file: (file.first_lsn, -file.run)):
        (superseded if chain and chain[-1].run > file.run else chain).append(file)
    return chain, superseded


def pieces(chain: list[LogFile]) -> list[Piece]:
    """What each file of a chain owns."""
    ends = [file.first_lsn for file in chain[1:]] + [file.end_lsn for file in chain[-1:]]
    return [Piece(file, min(end, file.end_lsn)) for file, end in zip(chain, ends, strict=True)]
