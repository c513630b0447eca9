"""A lake: a directory that exports go to, batch by batch, and that plain readers read at any moment.

    DIR/topic=<t>/batch=<epoch>-<first seq, 20 digits>/part-….parquet   rows
                                                      /_batch.json      what they are, and what is not among them
    DIR.gaps/topic=<t>/batch=…/gaps-<last seq>.parquet                  the gaps of the batch, as a table
    DIR.staging/LOCK                                                    whose turn it is
    DIR.staging/<run>/…                                                 what is being made
    DIR.staging/topic=<t>.json                                          how far a range without rows went

A batch becomes visible by one `rename` of a whole directory, which commits rows and position together: the position of
a topic is what its newest batch says. Readers that glob DIR never meet anything else. `_batch.json` begins with `_`,
which Spark, pyarrow and pandas pass over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from topics_lake.errors import LakeError
from topics_lake.files import FileMade, sync_dir

BATCH_FORMAT: Final = 1
_REMOVALS: Final = 20
"""How often a directory of staging is removed that fills again meanwhile."""
BATCH_FILE: Final = "_batch.json"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BATCH: Final = re.compile(r"batch=(\d+)-(\d{20})\Z")


class GapRow(msgspec.Struct, frozen=True, kw_only=True):
    """Seqs that were lost before they could be exported. `last` is null where it is not known any more."""

    epoch: int
    first: int
    last: int | None
    reason: str


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """`_batch.json`: of every seq in `first … last` one is true: exported, deleted, or in a gap."""

    format: int = BATCH_FORMAT
    topic: str
    epoch: int
    first: int
    last: int
    rows: int
    deleted: int
    gaps: list[GapRow]
    """Those of another epoch are what was lost when the topic was recreated; they do not count."""
    store_id: str
    pin: str
    pin_xxh3_128: str
    """Digest of the pin's manifest."""
    checkpoint: int
    created_ms: int
    file_format: str
    partition_by: str
    columns: list[str]
    files: list[FileMade]
    transformed: bool = False
    """Rows were chosen or changed on the way: their number and bytes are not those of the topic."""
    schema: str = ""
    """Of the columns that were read out of `data`, as JSON of Spark."""
    misfits: int = 0
    """Rows whose `data` did not fit that schema; it is there all the same, as it is."""
    merged: int = 0
    """How many batches of exports this one was joined from; 0: it is one itself."""

    @property
    def in_gaps(self) -> int:
        """Seqs of the range that are in gaps."""
        return sum(gap.last - gap.first + 1 for gap in self.gaps if gap.epoch == self.epoch and gap.last is not None)

    @property
    def adds_up(self) -> bool:
        """exported + deleted + in gaps = last - first + 1."""
        exported = self.rows if self.transformed else sum(file.rows for file in self.files)
        return exported + self.deleted + self.in_gaps == self.last - self.first + 1


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a topic was exported, and how far it was seen to reach without having rows."""

    epoch: int
    last: int
    known_to: int


def topic_dir(topic: str) -> str:
    """The directory of a topic, escaped as Hive does."""
    return f"topic={quote(topic, safe='')}"


def batch_dir(epoch: int, first: int) -> str:
    """The directory of a batch in that of its topic."""
    return f"batch={epoch}-{first:020d}"


class Lake:
    """One lake."""

    def __init__(self, path: str) -> None:
        """`path` need not be there yet. Raises `LakeError` for what is no directory of a file system."""
        if _SCHEME.match(path):
            hint = "export to a directory, and copy whole batches from there"
            raise LakeError(
                f"{path}: object stores are not supported yet, for a rename is the commit", "unsupported", hint
            )
        self.path = os.path.abspath(path)
        self.gaps = self.path + ".gaps"
        self.staging = self.path + ".staging"

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The one export of this lake that runs; what dead ones left in staging is gone. Raises `LakeError`."""
        for directory in (self.path, self.gaps, self.staging):
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                what = f"{directory} cannot be made: {error.strerror}"
                raise LakeError(what, "bad_out", "give another directory: --to DIR") from error
        if len({os.stat(directory).st_dev for directory in (self.path, self.staging)}) != 1:
            hint = "they must be on one file system, so that a rename can move a batch"
            raise LakeError(f"{self.path} and {self.staging} lie on two file systems", "invalid_request", hint)
        handle = os.open(os.path.join(self.staging, "LOCK"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                what = f"another export to {self.path} is running"
                raise LakeError(what, "locked", "wait until it has ended") from error
            self._clean()
            yield
        finally:
            os.close(handle)

    def _clean(self) -> None:
        for name in os.listdir(self.staging):
            if name.startswith("run-"):
                _remove(os.path.join(self.staging, name))

    # -- what is there -------------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """Topics that have a batch, or had."""
        if not os.path.isdir(self.path):
            return []
        return sorted(unquote(name[6:]) for name in os.listdir(self.path) if name.startswith("topic="))

    def starts(self, topic: str) -> list[tuple[int, int]]:
        """(epoch, first seq) of every batch, ascending."""
        directory = os.path.join(self.path, topic_dir(topic))
        if not os.path.isdir(directory):
            return []
        found = (_BATCH.match(name) for name in os.listdir(directory))
        return sorted((int(match[1]), int(match[2])) for match in found if match is not None)

    def directory(self, topic: str, epoch: int, first: int) -> str:
        """The path of a batch."""
        return os.path.join(self.path, topic_dir(topic), batch_dir(epoch, first))

    def batch(self, topic: str, epoch: int, first: int) -> Batch:
        """What a batch says of itself. Raises `LakeError` where that cannot be read."""
        path = os.path.join(self.directory(topic, epoch, first), BATCH_FILE)
        try:
            with open(path, "rb") as file:
                found = msgspec.json.decode(file.read(), type=Batch)
        except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
            hint = "put it back from a copy; `--verify` looks at the whole lake"
            raise LakeError(f"{path} cannot be read: {error}", "lake_damaged", hint) from error
        if found.format > BATCH_FORMAT:
            raise LakeError(f"{path} has format {found.format}, newer than {BATCH_FORMAT}", "lake_newer")
        return found

    def position(self, topic: str) -> Position | None:
        """How far a topic has been exported; None when never."""
        starts = self.starts(topic)
        seen = self._seen(topic)
        if not starts:
            return seen
        newest = self.batch(topic, *starts[-1])
        known = newest.last
        if seen is not None and seen.epoch == newest.epoch:
            known = max(known, seen.known_to)
        if seen is not None and seen.epoch > newest.epoch:
            return seen
        return Position(epoch=newest.epoch, last=newest.last, known_to=known)

    def stale_gaps(self, topic: str) -> str:
        """A file that is there while the gaps table of a topic may be that of batches which have been joined."""
        return os.path.join(self.staging, f"stale-gaps.{topic_dir(topic)}")

    def _seen_path(self, topic: str) -> str:
        return os.path.join(self.staging, topic_dir(topic) + ".json")

    def _seen(self, topic: str) -> Position | None:
        try:
            with open(self._seen_path(topic), "rb") as file:
                return msgspec.json.decode(file.read(), type=Position)
        except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
            return None

    def see(self, topic: str, position: Position) -> None:
        """Take down how far a topic reaches that has no rows to export."""
        replace(self._seen_path(topic), msgspec.json.encode(position))

    # -- committing ----------------------------------------------------------------------------------------------------

    def commit(self, made: str, batch: Batch) -> None:
        """Make the directory `made` of staging, which has all files of the batch, visible. Raises `LakeError`."""
        target = self.directory(batch.topic, batch.epoch, batch.first)
        parent = os.path.dirname(target)
        os.makedirs(parent, exist_ok=True)
        sync_dir(self.path)
        try:
            os.rename(made, target)
        except OSError as error:
            what = f"{target} cannot be put in place: {error.strerror}"
            raise LakeError(what, "conflict", "another export was faster; run this again") from error
        sync_dir(parent)


def _remove(path: str) -> None:
    """Remove a tree, in which tasks of a driver that was killed may still be writing for a moment."""
    for _ in range(_REMOVALS):
        try:
            shutil.rmtree(path)
            return
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
    shutil.rmtree(path, ignore_errors=True)


def replace(path: str, content: bytes) -> None:
    """Replace a small file whole, and bring it to the disk."""
    with open(path + ".tmp", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    sync_dir(os.path.dirname(path))


def put(path: str, content: bytes) -> None:
    """Write a new file, and bring it to the disk."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
