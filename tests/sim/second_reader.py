"""A second reader of the formats, written from FORMATS.md alone.

It shares no code with the engine and knows nothing of recovery's verdicts: it takes the bytes of a directory, follows
each shard's frames for as long as they are valid and chained, and says what records they hold. That is what the engine
has to find too.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field, replace
from typing import Any

from xxhash import xxh3_64_intdigest

Tree = dict[str, bytes | None]

_LOG_NAME = re.compile(r"wal/shard-(\d\d)/wal-(\d{20})-(\d+)\.log\Z")
_FILE_HEADER = struct.Struct("<8sHHI16sQQQQ")
_FRAME_HEADER = struct.Struct("<IIBBBBIQIIQQQQQQ")
assert _FILE_HEADER.size == 64
assert _FRAME_HEADER.size == 80
BLOCK = 4096
APPEND, CREATE, CONFIG, DROP, DELETE, GAP, MARK, RESERVE = range(1, 9)
DEAD_LETTER = 21


class NotAStoreError(Exception):
    """STORE does not check, or a file is not what its name says."""


@dataclass(frozen=True, slots=True)
class ReadFrame:
    """One valid frame."""

    shard: int
    lsn: int
    type: int
    flags: int
    count: int
    order: int
    tick: int
    tick_shards: int
    topic_id: int
    first_seq: int
    ts: int
    body: bytes


@dataclass(slots=True)
class ReadTopic:
    """What the frames say of one topic."""

    name: str
    epoch: int
    config: dict[str, Any]
    records: dict[int, bytes] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    bounded: bool = False
    """Some configuration of it had caps or an age, so that records may be gone without a frame that says so."""


@dataclass(frozen=True, slots=True)
class _LogFile:
    first: int
    run: int
    content: bytes

    @property
    def end(self) -> int:
        return self.first + len(self.content) - BLOCK


def read_small(content: bytes) -> dict[str, Any]:
    """STORE, LOCK or MANIFEST: a line of JSON and a line with its check."""
    lines = content.split(b"\n")
    if len(lines) != 3 or lines[2] or lines[1] != b"%016x" % xxh3_64_intdigest(lines[0]):
        raise NotAStoreError("a small file does not check")
    value = json.loads(lines[0])
    assert isinstance(value, dict)
    return value


def read_frames(tree: Tree) -> list[ReadFrame]:
    """All frames of a store that are valid and chained from the beginning of their shard, in `order`."""
    store_id = bytes.fromhex(read_small(tree["STORE"] or b"")["store_id"])
    seed = xxh3_64_intdigest(store_id)
    shards: dict[int, list[_LogFile]] = {}
    for path, content in tree.items():
        named = _LOG_NAME.match(path)
        if named is None or content is None:
            continue
        shard, first, run = (int(part) for part in named.groups())
        if _checks_as_log(content, store_id, shard, first, run):
            shards.setdefault(shard, []).append(_LogFile(first, run, content))
    frames = [frame for shard, files in shards.items() for frame in _shard_frames(seed, shard, files)]
    return sorted(frames, key=lambda frame: frame.order)


def _checks_as_log(content: bytes, store_id: bytes, shard: int, first: int, run: int) -> bool:
    if len(content) < BLOCK:
        return False
    magic, version, kind, has_run, has_id, has_shard, has_first, _, check = _FILE_HEADER.unpack_from(content)
    return (
        check == xxh3_64_intdigest(content[:56])
        and (magic, version, kind) == (b"topics\r\n", 1, 1)
        and (has_run, has_id, has_shard, has_first) == (run, store_id, shard, first)
    )


def _owner(files: list[_LogFile], lsn: int) -> _LogFile | None:
    begun = [log for log in files if log.first <= lsn]
    return max(begun, key=lambda log: (log.run, log.first)) if begun else None


def _owned_end(files: list[_LogFile], log: _LogFile) -> int:
    """Up to where a file owns the stream from any of its positions on."""
    later = [other.first for other in files if (other.run, other.first) > (log.run, log.first)]
    return min([log.end, *(first for first in later if first > log.first)])


def _shard_frames(seed: int, shard: int, files: list[_LogFile]) -> list[ReadFrame]:
    frames: list[ReadFrame] = []
    place, last = min(log.first for log in files), None
    while True:
        found = None
        for lsn in _candidates(files, place):
            found = _frame_at(seed, shard, files, lsn, last)
            if found is not None:
                break
        if found is None:
            return frames
        frames.append(found)
        last = found.lsn
        place = found.lsn + (88 + len(found.body) + 7) // 8 * 8


def _candidates(files: list[_LogFile], place: int) -> list[int]:
    """Where the next frame may begin: right here, or at a later block up to the end of what there is."""
    end = max(log.end for log in files)
    first_block = -(-place // BLOCK) * BLOCK
    return [place, *(lsn for lsn in range(first_block, end, BLOCK) if lsn != place)]


def _frame_at(seed: int, shard: int, files: list[_LogFile], lsn: int, last: int | None) -> ReadFrame | None:
    log = _owner(files, lsn)
    if log is None:
        return None
    at = BLOCK + lsn - log.first
    if at + 80 > len(log.content):
        return None
    (check, length, kind, flags, tick_shards, zero, count, has_lsn, back, none, order, tick, topic, first, ts, _) = (
        _FRAME_HEADER.unpack_from(log.content, at)
    )
    if check != xxh3_64_intdigest(log.content[at + 4 : at + 80], seed) & 0xFFFFFFFF:
        return None
    if has_lsn != lsn or not length or zero or none or back != (0 if last is None else lsn - last):
        return None
    size = (88 + length + 7) // 8 * 8
    if lsn + size > _owned_end(files, log):
        return None
    body = log.content[at + 80 : at + 80 + length]
    (body_check,) = struct.unpack_from("<Q", log.content, at + size - 8)
    if len(body) != length or body_check != xxh3_64_intdigest(body, seed):
        return None
    return ReadFrame(shard, lsn, kind, flags, count, order, tick, tick_shards, topic, first, ts, body)


def read_append(frame: ReadFrame) -> tuple[bytes | None, list[bytes]]:
    """The idempotency key and the fragments of an Append."""
    body, at, key = frame.body, 0, None
    if frame.flags & 1:
        length = struct.unpack_from("<H", body)[0] - 1
        key = body[2 : 2 + length]
        at = 2 + length + 16
    strides = struct.unpack_from(f"<{frame.count}I", body, at)
    at += 4 * frame.count
    for flag, width in ((2, 2), (4, 4), (8, 2)):
        if frame.flags & flag:
            at += width * frame.count
    fragments = []
    for index, stride in enumerate(strides):
        fragments.append(body[at : at + stride - 1])
        at += stride
        if index + 1 < frame.count and body[at - 1 : at] != b",":
            raise AssertionError("fragments are joined by commas")
    if at - 1 != len(body):
        raise AssertionError("an Append's body ends with its last fragment")
    return key, fragments


def read_topics(frames: list[ReadFrame]) -> dict[str, ReadTopic]:
    """The topics that a row of frames leaves, with the records that no Delete took (caps and ages aside)."""
    by_id: dict[int, ReadTopic] = {}
    for frame in frames:
        if frame.type == APPEND:
            key, fragments = read_append(frame)
            topic = by_id[frame.topic_id]
            topic.records.update(enumerate(fragments, frame.first_seq))
            if key is not None:
                topic.keys.append(key)
        elif frame.type == CREATE:
            told = json.loads(frame.body)
            for topic_id in [topic_id for topic_id, topic in by_id.items() if topic.name == told["name"]]:
                del by_id[topic_id]
            by_id[frame.topic_id] = ReadTopic(told["name"], told["epoch"], {})
            _configure(by_id[frame.topic_id], told["config"])
        elif frame.type == CONFIG:
            _configure(by_id[frame.topic_id], json.loads(frame.body)["config"])
        elif frame.type == DROP:
            del by_id[frame.topic_id]
        elif frame.type == DELETE:
            _remove(by_id[frame.topic_id], json.loads(frame.body)["ranges"])
        elif frame.type == DEAD_LETTER:
            line, _, copies = frame.body.partition(b"\n")
            told = json.loads(line)
            _remove(by_id[frame.topic_id], [[seq, seq] for seq in told["seqs"]])
            if told["target"] in by_id:
                _, fragments = read_append(replace(frame, body=copies))
                by_id[told["target"]].records.update(enumerate(fragments, told["first_seq"]))
        elif frame.type == GAP:
            told = json.loads(frame.body)
            _remove(by_id[frame.topic_id], [[told["from"], told["to"]]])
    return {topic.name: topic for topic in by_id.values()}


def _configure(topic: ReadTopic, config: dict[str, Any]) -> None:
    topic.config = config
    topic.bounded = topic.bounded or any(config[bound] for bound in ("ttl_ms", "cap_records", "cap_bytes"))


def _remove(topic: ReadTopic, ranges: list[list[int]]) -> None:
    for first, last in ranges:
        for seq in [seq for seq in topic.records if first <= seq <= last]:
            del topic.records[seq]
