"""A lake looked at as a whole: every file, every row's digest, every count."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from topics_lake.errors import LakeError
from topics_lake.files import RowDigest, digest_of, read_rows
from topics_lake.gaps import read_gaps
from topics_lake.lake import BATCH_FILE, Batch, Lake


class TopicChecked(msgspec.Struct, kw_only=True):
    """What there is of one epoch of a topic, in all of its batches."""

    topic: str
    epoch: int
    batches: int = 0
    first: int = 0
    last: int = 0
    rows: int = 0
    deleted: int = 0
    in_gaps: int = 0
    wrong: list[str] = []
    """One line for each thing that is not as it was written."""


def verify(lake: Lake, names: list[str]) -> Iterator[TopicChecked]:
    """Check topics, each epoch by itself. Nothing is raised for what is wrong: it is listed, by file."""
    for name in names:
        starts = lake.starts(name)
        for epoch in sorted({epoch for epoch, _ in starts}):
            yield _checked(lake, name, epoch, [first for each, first in starts if each == epoch])


def _checked(lake: Lake, name: str, epoch: int, firsts: list[int]) -> TopicChecked:
    checked = TopicChecked(topic=name, epoch=epoch, first=firsts[0], wrong=[])
    for first in firsts:
        try:
            batch = lake.batch(name, epoch, first)
        except LakeError as error:
            checked.wrong.append(error.what)
            continue
        if checked.batches and first != checked.last + 1:
            checked.wrong.append(f"seqs {checked.last + 1}-{first - 1} of epoch {epoch} are in no batch")
        checked.wrong += _batch(lake, batch, epoch, first)
        checked.batches += 1
        checked.last = batch.last
        checked.rows += batch.rows
        checked.deleted += batch.deleted
        checked.in_gaps += batch.in_gaps
    return checked


def _batch(lake: Lake, batch: Batch, epoch: int, first: int) -> Iterator[str]:
    directory = lake.directory(batch.topic, epoch, first)
    if (batch.epoch, batch.first) != (epoch, first):
        yield f"{directory}/{BATCH_FILE} is of another batch"
    if not batch.adds_up:
        yield f"{directory}: exported + deleted + in gaps is not last - first + 1"
    known = {file.path for file in batch.files} | {BATCH_FILE}
    for root, _, names in os.walk(directory):
        for name in names:
            path = os.path.relpath(os.path.join(root, name), directory)
            if path not in known:
                yield f"{directory}/{path} is not a file of the batch"
    for file in batch.files:
        path = os.path.join(directory, file.path)
        try:
            if os.path.getsize(path) != file.bytes or digest_of(path) != file.xxh3_128:
                yield f"{path} was touched: it is not the file that was written"
                continue
            if batch.transformed:
                continue  # what a query has made is known by its file alone
            digest = RowDigest()
            for part in read_rows(path, batch.file_format):
                digest.add(part)
        except FileNotFoundError:
            yield f"{path} is missing"
            continue
        except (OSError, ValueError) as error:
            yield f"{path} cannot be read: {error}"
            continue
        found = (digest.rows, digest.min_seq, digest.max_seq, digest.hex())
        if found != (file.rows, file.min_seq, file.max_seq, file.rows_xxh3_128):
            yield f"{path} does not hold the rows that were written"
    if read_gaps(lake, batch) != batch.gaps:
        yield f"the gaps table of {directory} does not say what the batch says"
