"""An export: everything of some topics that a lake does not have yet, exactly once, with what is missing made visible.

    lock, clean staging ─► for each topic: position ─► range of the pin ─► tasks ─► files in staging
        ─► checked against the pin ─► _batch.json ─► synced ─► one rename ─► gaps table

Tasks run in this process, or wherever a `Runner` sends them (Spark); all that they need is the path of the pin and of
staging. A task that is tried again writes under another name, and only what the runner reports is taken over.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from engine.errors import StoreError
from engine.export.columns import numbers_of
from engine.export.decode import gathered
from engine.export.reader import Pin, PinnedTopic
from engine.formats.export import MANIFEST_NAME
from topics_lake.errors import LakeError, unwritten
from topics_lake.files import FORMATS, RAW, FileMade, FileWriter, check_footer, digest_of, sync_dir
from topics_lake.gaps import mend_gaps, write_gaps
from topics_lake.lake import BATCH_FILE, Batch, GapRow, Lake, Position, put
from topics_lake.pinned import open_pin

TASK_BYTES: Final = 256 * 1024 * 1024
"""Payload of one task, about, unless the settings say otherwise."""
_TABLES: Final = ("delta", "iceberg")
_PARTITIONS: Final = {"none": "", "date": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How an export is done."""

    format: str = "parquet"
    compression: str = "zstd"
    partition_by: str = "none"
    max_file_bytes: int = 128 * 1024 * 1024
    max_rows: int = 0
    """Most rows of a topic in this run; 0: no bound."""
    from_seq: int = 1
    """Where a topic begins that was never exported."""
    until_seq: int = 0
    """Where the run ends; 0: at the head."""
    task_bytes: int = TASK_BYTES
    full: bool = False
    on_corrupt: str = "fail"

    def check(self) -> None:
        """Raise `LakeError` for what cannot be."""
        if self.format in _TABLES:
            what = f"--format {self.format} is not supported yet: tables with a log of their own are not written"
            raise LakeError(what, "unsupported", "export parquet, and let Spark add each new batch to the table")
        for name, given, known in (
            ("format", self.format, FORMATS),
            ("partition-by", self.partition_by, _PARTITIONS),
            ("on-corrupt", self.on_corrupt, ("fail", "gap")),
        ):
            if given not in known:
                raise LakeError(f"--{name} {given!r} is none of {', '.join(known)}", "usage")
        if self.from_seq < 1:
            raise LakeError(f"--from {self.from_seq}: seqs begin at 1", "usage")
        if 0 < self.until_seq < self.from_seq:
            raise LakeError(f"--until {self.until_seq} lies before --from {self.from_seq}", "usage")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A range of one topic, for one file or a few."""

    pin: str
    topic: str
    first: int
    last: int
    number: int
    attempts: str
    """Directory that files are written to."""
    settings: Settings


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner has made of rows that it did not leave as they are."""

    rows: int
    """Records that were read…"""
    low: int
    high: int
    """…of these seqs."""
    misfits: int
    columns: list[str]
    schema: str
    transformed: bool
    """Rows were chosen or made by a query."""


class TaskDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a task has made."""

    number: int
    files: list[FileMade]
    """With their attempts' names as paths."""
    places: list[str]
    """Where each belongs in the batch."""
    damaged: list[tuple[int, int]]
    shape: Shape | None = None
    """The same for all tasks of a range."""


class TopicDone(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one topic."""

    topic: str
    epoch: int
    first: int
    last: int
    rows: int = 0
    deleted: int = 0
    in_gaps: int = 0
    misfits: int = 0
    """Rows whose `data` does not fit the schema that was asked for."""
    files: int = 0
    bytes: int = 0
    batch: str | None = None
    """Path of the batch; null when there was nothing to export."""
    gaps: list[GapRow] = []


class Runner(Protocol):
    """Runs tasks, in any order and anywhere, each at least once; gives the result of one whole try of each."""

    def run(self, tasks: Sequence[Task]) -> Iterator[TaskDone]:
        """Raises what a task raises, as `LakeError` where it was one."""
        ...


class Here:
    """Tasks one after the other in this process."""

    def run(self, tasks: Sequence[Task]) -> Iterator[TaskDone]:
        """The results, in order."""
        return map(run_task, tasks)


def run_task(task: Task) -> TaskDone:
    """Decode a range and write its files. Raises `LakeError`."""
    damaged: list[tuple[int, int]] = []

    def hears(first: int, last: int, path: str) -> None:
        damaged.append((first, last))

    pin = open_pin(task.pin)
    made: list[FileMade] = []
    places: list[str] = []
    writers: dict[str, FileWriter] = {}
    try:
        topic = pin.topic(task.topic)
        batches = topic.batches(task.first, task.last, hears if task.settings.on_corrupt == "gap" else None)
        for batch in gathered(batches):
            for place, part in _parts(batch, task.settings.partition_by):
                writer = writers.get(place)
                if writer is None:
                    writer = writers[place] = new_file(task)
                writer.write(part)
                if writer.size >= task.settings.max_file_bytes:
                    finish_file(writers, place, made, places)
        for place in sorted(writers):
            finish_file(writers, place, made, places)
    except StoreError as error:
        hint = "`topics fsck` says more; --on-corrupt gap leaves damaged records out, as gaps"
        raise LakeError(str(error), "store_damaged", hint) from error
    finally:
        for writer in writers.values():
            writer.abandon()
    return TaskDone(number=task.number, files=made, places=places, damaged=damaged)


def new_file(task: Task, schema: Any = RAW, *, raw: bool = True) -> FileWriter:
    """A file of a task, under a name of this attempt."""
    name = f"part-{task.number:05d}-{secrets.token_hex(8)}{FORMATS[task.settings.format]}"
    path = os.path.join(task.attempts, name)
    return FileWriter(path, task.settings.format, task.settings.compression, schema, raw=raw)


def finish_file(writers: dict[str, FileWriter], place: str, made: list[FileMade], places: list[str]) -> None:
    """Close the file of a place, and take down what there is to say about it."""
    writer = writers.pop(place)
    try:
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    made.append(writer.made(os.path.basename(writer.path)))
    places.append(place)


def _parts(batch: Any, partition_by: str) -> Iterator[tuple[str, Any]]:
    """A batch by the directories below its own that its rows belong to; times ascend, so each is a slice."""
    if not _PARTITIONS[partition_by]:
        yield "", batch
        return
    stamps = numbers_of(batch.column("ts_ms"))
    step = 86_400_000 if partition_by == "date" else 3_600_000
    at = 0
    while at < len(stamps):
        period = int(stamps[at]) // step
        end = int(stamps.searchsorted((period + 1) * step))
        yield place_of(period, partition_by), batch.slice(at, end - at)
        at = end


def place_of(period: int, partition_by: str) -> str:
    """The directory of a day or an hour since 1970."""
    when = dt.datetime.fromtimestamp(period * (86_400 if partition_by == "date" else 3_600), dt.UTC)
    return f"{partition_by}={when.strftime(_PARTITIONS[partition_by])}"


class Export:
    """One run over some topics."""

    def __init__(
        self,
        lake: Lake,
        pin_path: str,
        settings: Settings,
        runner: Runner | None = None,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`step` hears the name of each step before it is taken, for tests that end there."""
        settings.check()
        self._lake = lake
        self._pin_path = pin_path
        self._pin: Pin = open_pin(pin_path)
        self._settings = settings
        self._runner: Runner = runner or Here()
        self._step = step
        self._run = os.path.join(lake.staging, f"run-{secrets.token_hex(8)}")

    def plan(self, name: str) -> TopicDone:
        """What would be exported of a topic: nothing is written. Raises `LakeError`."""
        topic = self._topic(name)
        first, last, _ = self._range(name, topic)
        lost = topic.losses(first, last) if first <= last else topic.losses(1, 0)
        rows = max(last - first + 1, 0) - lost.deleted_count - lost.gap_count
        return TopicDone(
            topic=name,
            epoch=topic.epoch,
            first=first,
            last=last,
            rows=rows,
            deleted=lost.deleted_count,
            in_gaps=lost.gap_count,
        )

    def run(self, names: Sequence[str]) -> Iterator[TopicDone]:
        """Export topics one after the other; each is committed by itself. The lake's turn is the caller's."""
        os.makedirs(self._run)
        try:
            for name in names:
                try:
                    done = self._one(name)
                except OSError as error:
                    raise unwritten(error, self._lake.path) from error
                yield done
        finally:
            shutil.rmtree(self._run, ignore_errors=True)

    def _topic(self, name: str) -> PinnedTopic:
        try:
            return self._pin.topic(name)
        except KeyError as error:
            raise LakeError(f"there is no topic {name!r}", "topic_not_found") from error
        except StoreError as error:
            raise LakeError(str(error), "invalid_request") from error

    def _range(self, name: str, topic: PinnedTopic) -> tuple[int, int, list[GapRow]]:
        """First and last seq to export, and what was lost with an earlier epoch of the topic."""
        settings = self._settings
        position = None if settings.full else self._lake.position(name)
        before: list[GapRow] = []
        first = settings.from_seq
        if position is not None and position.epoch == topic.epoch:
            first = position.last + 1
        elif position is not None:
            if position.epoch > topic.epoch:
                what = f"topic {name!r} was exported in epoch {position.epoch}, and is of epoch {topic.epoch} here"
                raise LakeError(what, "recreated", "is this an older backup? Then it belongs into another directory")
            first = 1
            known = position.known_to if position.known_to > position.last else None
            gap = GapRow(epoch=position.epoch, first=position.last + 1, last=known, reason="recreated")
            before.append(gap)
        last = min(topic.head, settings.until_seq) if settings.until_seq else topic.head
        if settings.max_rows:
            last = _bounded(topic, first, last, settings.max_rows)
        return first, last, before

    def _one(self, name: str) -> TopicDone:
        lake, settings = self._lake, self._settings
        topic = self._topic(name)
        mend_gaps(lake, name)
        if settings.full and lake.starts(name):
            what = f"{lake.path} has batches of topic {name!r} already"
            raise LakeError(
                what, "conflict", "--full exports into a directory that has none; remove them, or use another"
            )
        first, last, before = self._range(name, topic)
        done = TopicDone(topic=name, epoch=topic.epoch, first=first, last=last)
        if first > last:
            return done
        lost = topic.losses(first, last)
        if lost.deleted_count + lost.gap_count == last - first + 1:
            position = lake.position(name)
            exported = first - 1 if position is None or position.epoch != topic.epoch else position.last
            if position is None or position.epoch == topic.epoch:
                lake.see(name, Position(epoch=topic.epoch, last=exported, known_to=last))
            return done
        batch, made = self._make(name, topic, first, last, before)
        self._step("commit")
        lake.commit(made, batch)
        self._step("gaps")
        write_gaps(lake, batch)
        self._step("end")
        return msgspec.structs.replace(
            done,
            rows=batch.rows,
            deleted=batch.deleted,
            in_gaps=batch.in_gaps,
            misfits=batch.misfits,
            files=len(batch.files),
            bytes=sum(file.bytes for file in batch.files),
            batch=lake.directory(name, topic.epoch, first),
            gaps=batch.gaps,
        )

    def _make(self, name: str, topic: PinnedTopic, first: int, last: int, before: list[GapRow]) -> tuple[Batch, str]:
        """Write a batch in staging: its directory holds all that will be visible."""
        lost = topic.losses(first, last)
        attempts, made = (os.path.join(self._run, f"{name}.{what}") for what in ("attempts", "batch"))
        os.makedirs(attempts)
        os.makedirs(made)
        self._step("tasks")
        tasks = list(self._tasks(name, topic, first, last, attempts))
        results = sorted(self._runner.run(tasks), key=lambda result: result.number)
        self._step("files")
        files = [file for result in results for file in self._placed(result, attempts, made)]
        damaged = [(a, b) for result in results for a, b in result.damaged]
        gaps = [GapRow(epoch=topic.epoch, first=gap.first, last=gap.last, reason=gap.reason) for gap in lost.gaps]
        gaps += [GapRow(epoch=topic.epoch, first=a, last=b, reason="corruption") for a, b in damaged]
        manifest = self._pin.manifest
        shape = results[0].shape if results else None
        batch = Batch(
            topic=name,
            epoch=topic.epoch,
            first=first,
            last=last,
            rows=sum(file.rows for file in files) if shape is None else shape.rows,
            deleted=lost.deleted_count,
            gaps=before + sorted(gaps, key=lambda gap: gap.first),
            store_id=manifest.store_id,
            pin=manifest.id,
            pin_xxh3_128=digest_of(os.path.join(self._pin_path, MANIFEST_NAME)),
            checkpoint=manifest.checkpoint,
            created_ms=time.time_ns() // 1_000_000,
            file_format=self._settings.format,
            partition_by=self._settings.partition_by,
            columns=list(RAW.names) if shape is None else shape.columns,
            files=files,
            transformed=shape is not None and shape.transformed,
            schema="" if shape is None else shape.schema,
            misfits=0 if shape is None else shape.misfits,
        )
        self._check(batch, topic, results)
        self._step("manifest")
        put(os.path.join(made, BATCH_FILE), msgspec.json.format(msgspec.json.encode(batch), indent=1))
        for directory, _, _ in os.walk(made):
            sync_dir(directory)
        return batch, made

    @staticmethod
    def _placed(result: TaskDone, attempts: str, made: str) -> Iterator[FileMade]:
        for file, place in zip(result.files, result.places, strict=True):
            path = os.path.join(place, file.path)
            os.makedirs(os.path.join(made, place), exist_ok=True)
            os.rename(os.path.join(attempts, file.path), os.path.join(made, path))
            if path.endswith(FORMATS["parquet"]):
                check_footer(os.path.join(made, path), file)
            yield msgspec.structs.replace(file, path=path)

    @staticmethod
    def _check(batch: Batch, topic: PinnedTopic, results: list[TaskDone]) -> None:
        """Raise `LakeError` unless what was written is exactly what the pin holds."""
        live = topic.live(batch.first, batch.last)
        low, high = live[0][0], live[-1][1]
        seqs = [seq for file in batch.files for seq in (file.min_seq, file.max_seq)]
        shape = results[0].shape if results else None
        if shape is not None and shape.transformed:
            seqs = [shape.low, shape.high]
        damaged = any(result.damaged for result in results)
        ends = (min(seqs, default=low), max(seqs, default=high)) == (low, high)
        if not batch.adds_up or not (ends or damaged):
            what = f"topic {batch.topic!r}, seqs {batch.first}-{batch.last}: {batch.rows} rows were written, "
            what += f"{batch.deleted} are deleted and {batch.in_gaps} in gaps, which does not add up"
            hint = "nothing was committed"
            if batch.transformed:
                raise LakeError(what, "usage", f"{hint}; a query reads every record once, without LIMIT")
            raise LakeError(what, "internal", hint)

    def _tasks(self, name: str, topic: PinnedTopic, first: int, last: int, attempts: str) -> Iterator[Task]:
        """The range cut at pieces, about `TASK_BYTES` each."""
        start, size, number = first, 0, 0

        def task(end: int) -> Task:
            return Task(
                pin=self._pin_path,
                topic=name,
                first=start,
                last=end,
                number=number,
                attempts=attempts,
                settings=self._settings,
            )

        for piece in topic.pieces_of(first, last):
            size += piece.data_bytes
            if size >= self._settings.task_bytes and piece.last_seq < last:
                yield task(piece.last_seq)
                start, size, number = piece.last_seq + 1, 0, number + 1
        yield task(last)


def _bounded(topic: PinnedTopic, first: int, last: int, rows: int) -> int:
    """The last seq up to which there are at most `rows` live ones."""
    for low, high in topic.live(first, last):
        if high - low + 1 >= rows:
            return low + rows - 1
        rows -= high - low + 1
    return last
