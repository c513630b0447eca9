"""What the tools for closed and damaged stores say: findings, and reports about single files.

A finding is one line of `topics fsck` and one line of its NDJSON; what it says is made here or where it is found, how
it looks is the command line's. Ids are stable: scripts and the table of docs/how-to/damage-and-recovery.md go by them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Severity(StrEnum):
    """How bad it is. Only `DAMAGE` makes the exit status 4."""

    DAMAGE = "damage"
    """Something that was written has changed or vanished."""
    WARNING = "warning"
    """Nothing is lost, and somebody should look."""
    NOTE = "note"
    """Normal, and good to know: what a crash leaves behind, what a start will tidy up."""


class FindingId(StrEnum):
    """What was found."""

    FOREIGN = "foreign"
    """A file of another store, place or format."""
    UNREADABLE = "unreadable"
    """The disk does not give the bytes."""
    WAL_HEADER = "wal-header"
    WAL_FRAME = "wal-frame"
    """A frame whose header is good and whose body is not."""
    WAL_BYTES = "wal-bytes"
    """Bytes that are no frame, or zeros where one was."""
    WAL_TAIL = "wal-tail"
    """What a crash left behind the end of the log."""
    WAL_UNNEEDED = "wal-unneeded"
    """Damage in a part of the log that no start needs."""
    SNAPSHOT = "snapshot"
    SEGMENT_MISSING = "segment-missing"
    SEGMENT_DATA = "segment-data"
    SEGMENT_INDEX = "segment-index"
    SEGMENT_TAGS = "segment-tags"
    SEGMENT_DELETES = "segment-deletes"
    COLD = "cold"
    """The cold tier does not have a file, or does not answer, or nobody said where it is."""
    STRAY = "stray"
    """A file that nothing names."""
    WORK = "work"
    """Segments of the cold tier that somebody began to join."""
    LOST = "lost"
    """A gap that readers meet: records that were lost to damage and said so before."""
    REFUSED = "refused"
    """A start would refuse."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was found."""

    severity: Severity
    id: FindingId
    file: str
    offset: int | None = None
    topic: str | None = None
    seqs: tuple[int, int] | None = None
    """Inclusive."""
    what: str
    next_step: str = ""


class Kind(StrEnum):
    """What a stretch of a file holds."""

    HEADER = "header"
    GOOD = "good"
    DELETED = "deleted"
    DAMAGED = "damaged"
    EMPTY = "empty"
    """Zeros: not written yet, or the rest of a block."""


class Span(msgspec.Struct, frozen=True):
    """A stretch of a file."""

    kind: Kind
    offset: int
    length: int


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one file holds."""

    file: str
    facts: dict[str, Any]
    """Names end in `_bytes` for sizes, `_ts` and `_ms` for times since 1970."""
    findings: list[Finding]
    spans: list[Span]

    @property
    def damaged(self) -> bool:
        """Whether the exit status is 4."""
        return any(finding.severity is Severity.DAMAGE for finding in self.findings)


def add_span(spans: list[Span], kind: Kind, offset: int, length: int) -> None:
    """Take a stretch in; neighbours of one kind become one."""
    if length <= 0:
        return
    if spans and spans[-1].kind is kind and spans[-1].offset + spans[-1].length == offset:
        offset, length = spans[-1].offset, spans[-1].length + length
        spans.pop()
    spans.append(Span(kind, offset, length))
