"""Many small batches of a topic become few, and no plain reader sees a row twice or not at all.

    plan ─► every old file checked ─► a new tree of the topic in staging ─► synced ─► one exchange of two directories
        ─► gaps table likewise ─► the old tree is removed

The new tree has the merged batches, and hard links to the files of those that stay. The switch is an exchange of
`DIR/topic=<t>` and the new tree (`renameat2`): at any moment the path is one of the two. What a reader may have met:

- it lists and then opens, all before or all behind the switch: the same rows;
- it has listed before, and opens behind it: "no such file", for no old file is in a merged batch. It reads again;
- it opens files while it is still listing others (`find -exec`): it may see old and new ones. Such readers are to be
  stopped meanwhile, and so are programs that remember which batches they have seen.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow.parquet as pq

from engine.export.decode import gathered
from topics_lake.errors import LakeError
from topics_lake.exchange import exchange
from topics_lake.files import FORMATS, FileMade, FileWriter, digest_of, parquet_batches, sync_dir
from topics_lake.gaps import mend_gaps
from topics_lake.lake import BATCH_FILE, Batch, Lake, batch_dir, put, topic_dir

BATCH_BYTES: Final = 512 * 1024 * 1024
"""Batches are joined up to so many bytes of files."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a topic is to be joined."""

    batch_bytes: int = BATCH_BYTES
    max_file_bytes: int = 128 * 1024 * 1024
    compression: str = "zstd"
    keep: int = 0
    """So many of the newest batches stay as they are."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one topic."""

    topic: str
    batches_before: int
    batches: int
    files_before: int
    files: int | None
    """Null in a dry run: it follows from what is written."""
    bytes_before: int
    bytes: int


def compact(
    lake: Lake, topic: str, plan: Plan, *, dry_run: bool = False, step: Callable[[str], None] = lambda name: None
) -> Compacted:
    """Join the small batches of a topic. The lake's turn is the caller's. Raises `LakeError`.

    `step` hears the name of each step before it is taken, for tests that end there.
    """
    if not dry_run:
        mend_gaps(lake, topic)
    groups = list(_groups([lake.batch(topic, *start) for start in lake.starts(topic)], plan))
    before = [batch for group in groups for batch in group]
    if dry_run or len(groups) == len(before):
        told = _told(topic, before, before)
        return msgspec.structs.replace(told, batches=len(groups), files=None) if dry_run else told
    _refuse_foreign(lake, topic, before)
    run = os.path.join(lake.staging, f"run-{secrets.token_hex(8)}")
    tree = os.path.join(run, topic_dir(topic))
    os.makedirs(tree)
    try:
        step("merge")
        after = [_placed(lake, group, tree, plan, step) for group in groups]
        for directory, _, _ in os.walk(tree):
            sync_dir(directory)
        step("switch")
        # Whoever comes after a death between the two exchanges makes the gaps table again.
        put(lake.stale_gaps(topic), b"")
        sync_dir(lake.staging)
        try:
            exchange(tree, os.path.join(lake.path, topic_dir(topic)))
        except LakeError:
            os.unlink(lake.stale_gaps(topic))
            raise
        step("switched")
        sync_dir(lake.path)
        mend_gaps(lake, topic)
        step("end")
    finally:
        shutil.rmtree(run, ignore_errors=True)
    return _told(topic, before, after)


def _told(topic: str, before: list[Batch], after: list[Batch]) -> Compacted:
    return Compacted(
        topic=topic,
        batches_before=len(before),
        batches=len(after),
        files_before=sum(len(batch.files) for batch in before),
        files=sum(len(batch.files) for batch in after),
        bytes_before=_size(before),
        bytes=_size(after),
    )


def _size(batches: Sequence[Batch]) -> int:
    return sum(file.bytes for batch in batches for file in batch.files)


def _groups(batches: list[Batch], plan: Plan) -> Iterator[list[Batch]]:
    """Batches that become one, each group in order; those that stay are alone."""
    until = len(batches) - plan.keep
    held: list[Batch] = []
    for index, batch in enumerate(batches):
        fits = _size([*held, batch]) <= plan.batch_bytes and index < until
        if held and not (fits and _joins(held[-1], batch)):
            yield held
            held = []
        held.append(batch)
    if held:
        yield held


def _joins(one: Batch, other: Batch) -> bool:
    """Whether one batch goes on where the other ends, and has rows of the same kind."""
    alike = ("epoch", "file_format", "partition_by", "columns", "transformed", "schema")
    return other.first == one.last + 1 and all(getattr(one, name) == getattr(other, name) for name in alike)


def _refuse_foreign(lake: Lake, topic: str, batches: list[Batch]) -> None:
    """The switch takes whole directories away: what no export wrote must not go with them."""
    parent = os.path.join(lake.path, topic_dir(topic))
    known = {batch_dir(batch.epoch, batch.first): batch for batch in batches}
    for name in sorted(os.listdir(parent)):
        batch = known.get(name)
        wanted = set() if batch is None else {file.path for file in batch.files} | {BATCH_FILE}
        found = {
            os.path.relpath(os.path.join(root, file), os.path.join(parent, name))
            for root, _, files in os.walk(os.path.join(parent, name))
            for file in files
        }
        foreign = sorted(found - wanted) if batch is not None else [""]
        if foreign:
            path = os.path.join(parent, name, foreign[0])
            raise LakeError(f"{path} is no file of an export", "conflict", "take it away, and run this again")


def _placed(lake: Lake, group: list[Batch], tree: str, plan: Plan, step: Callable[[str], None]) -> Batch:
    """A group as one batch in the new tree."""
    first = group[0]
    made = os.path.join(tree, batch_dir(first.epoch, first.first))
    os.makedirs(made)
    if len(group) == 1:
        source = lake.directory(first.topic, first.epoch, first.first)
        for path in (BATCH_FILE, *(file.path for file in first.files)):
            os.makedirs(os.path.dirname(os.path.join(made, path)), exist_ok=True)
            os.link(os.path.join(source, path), os.path.join(made, path))
        return first
    files = list(_merged(lake, group, made, plan, step))
    if sum(file.rows for file in files) != sum(file.rows for batch in group for file in batch.files):
        raise LakeError(f"the rows of {made} do not add up", "internal", "nothing was changed")
    batch = msgspec.structs.replace(
        group[-1],
        first=first.first,
        rows=sum(batch.rows for batch in group),
        deleted=sum(batch.deleted for batch in group),
        gaps=[gap for batch in group for gap in batch.gaps],
        misfits=sum(batch.misfits for batch in group),
        files=files,
        merged=sum(max(batch.merged, 1) for batch in group),
    )
    step("manifest")
    put(os.path.join(made, BATCH_FILE), msgspec.json.format(msgspec.json.encode(batch), indent=1))
    return batch


def _merged(lake: Lake, group: list[Batch], made: str, plan: Plan, step: Callable[[str], None]) -> Iterator[FileMade]:
    """The rows of a group in new files, each period (`date=…`) in its own directory as before, ascending."""
    places: dict[str, list[tuple[int, str, FileMade]]] = {}
    for batch in group:
        source = lake.directory(batch.topic, batch.epoch, batch.first)
        for file in batch.files:
            path = os.path.join(source, file.path)
            places.setdefault(os.path.dirname(file.path), []).append((file.min_seq, path, file))
    form = group[0].file_format
    for place, sources in sorted(places.items()):
        os.makedirs(os.path.join(made, place), exist_ok=True)
        for number, paths in enumerate(_bundles(sorted(sources, key=lambda each: each[0]), plan)):
            step("file")
            name = os.path.join(place, f"part-{number:05d}-{secrets.token_hex(8)}{FORMATS[form]}")
            yield _joined(paths, os.path.join(made, name), name, group[0], plan)


def _bundles(sources: list[tuple[int, str, FileMade]], plan: Plan) -> Iterator[list[tuple[str, int]]]:
    """(path, rows) of files that become one, about so large as an export would have made it; each is checked before."""
    held: list[tuple[str, int]] = []
    size = 0
    for _, path, file in sources:
        try:
            right = os.path.getsize(path) == file.bytes and digest_of(path) == file.xxh3_128
        except OSError as error:
            raise LakeError(f"{path} cannot be read: {error.strerror}", "lake_damaged") from error
        if not right:
            what = f"{path} was touched: it is not the file that was written"
            raise LakeError(what, "lake_damaged", "nothing was changed; `topics export --verify` looks at everything")
        if held and size + file.bytes > plan.max_file_bytes:
            yield held
            held, size = [], 0
        held.append((path, file.rows))
        size += file.bytes
    if held:
        yield held


def _joined(sources: list[tuple[str, int]], target: str, name: str, kind: Batch, plan: Plan) -> FileMade:
    form = kind.file_format
    schema = pq.read_schema(sources[0][0]) if form == "parquet" else None
    writer = FileWriter(target, form, plan.compression, schema, raw=not kind.transformed)
    try:
        if form == "parquet":
            for batch in gathered(batch for path, _ in sources for batch in parquet_batches(path)):
                writer.write(batch)
        else:
            # Text stays the bytes that it is.
            for path, rows in sources:
                writer.copy(path, rows)
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    return writer.made(name)
