"""The second reader's half for closed history: snapshots, segments, tails files, written from FORMATS.md alone.

It takes nothing on trust: of whatever a snapshot names each check is made again, the two copies of a fact (a row and
its fragment, an entry and its info, a filter and its table) are compared, and what does not agree is a
`NotAStoreError`.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from xxhash import xxh3_64_intdigest

Tree = dict[str, bytes | None]
Range = tuple[int, int]

FILE_HEADER = struct.Struct("<8sHHI16sQQQQ")
_INFO = struct.Struct("<QQIIIIQQQQ")
_ROW = struct.Struct("<IIQIHHII")
_SECTION = struct.Struct("<IIQ")
assert (FILE_HEADER.size, _INFO.size, _ROW.size, _SECTION.size) == (64, 64, 32, 16)
_SNAPSHOT_NAME = re.compile(r"meta/snapshot-(\d{10})\.snap\Z")
DATA, INDEX, TAGS, DELETES, TAILS, SNAPSHOT = range(2, 8)
ROWS_SUMMED = 64


class NotAStoreError(Exception):
    """Something does not check, or two places say different things."""


def demand(holds: bool, what: str) -> None:
    """Raise `NotAStoreError` unless it holds."""
    if not holds:
        raise NotAStoreError(what)


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """A snapshot that checks."""

    globals: dict[str, Any]
    topics: list[tuple[dict[str, Any], dict[str, Any]]]
    """What it says of each topic, and the topic's configuration."""

    def cut(self, shard: int) -> dict[str, Any] | None:
        """Where the log of a shard goes on; None: it is read from its beginning."""
        found: dict[str, Any]
        for found in self.globals.get("cuts", []):
            if found["shard"] == shard:
                return found
        return None


@dataclass(slots=True)
class ReadSegment:
    """One sealed stretch of a topic."""

    first: int
    records: dict[int, bytes] = field(default_factory=dict)
    tags: dict[int, bytes] = field(default_factory=dict)
    """seq → its tag's part of the fragment."""
    deleted: list[Range] = field(default_factory=list)
    """Seqs that its .del file names."""


def checked_header(content: bytes, path: str, kind: int, run: int, store_id: bytes, ident: int, first: int) -> None:
    """That a file begins with the header that its name asks for."""
    demand(len(content) >= FILE_HEADER.size, f"{path} is shorter than its header")
    magic, version, has_kind, has_run, has_id, has_ident, has_first, _, check = FILE_HEADER.unpack_from(content)
    demand(check == xxh3_64_intdigest(content[:56]), f"{path}: the header does not check")
    demand((magic, version) == (b"topics\r\n", 1), f"{path} is not of this format")
    found = (has_kind, has_run, has_id, has_ident, has_first)
    demand(found == (kind, run, store_id, ident, first), f"{path} is of another place: {found}")


# -- snapshots ---------------------------------------------------------------------------------------------------------


def newest_snapshot(tree: Tree, cold: Tree, store_id: bytes) -> ReadSnapshot | None:
    """The newest snapshot that checks and whose files are there; None where there is none.

    Raises `NotAStoreError` when there are some and none of them will do.
    """
    named = [(int(name[1]), path) for path in tree if (name := _SNAPSHOT_NAME.match(path))]
    problem = None
    for number, path in sorted(named, reverse=True):
        try:
            found = read_snapshot(tree[path] or b"", path, number, store_id)
            missing = [name for name in named_files(found) if (tree.get(name) or cold.get(name)) is None]
            demand(not missing, f"{path} names {missing[:3]}, which are not there")
        except NotAStoreError as error:
            problem = error
            continue
        return found
    if problem is not None:
        raise problem
    return None


def read_snapshot(content: bytes, path: str, number: int, store_id: bytes) -> ReadSnapshot:
    """Header and sections, all of them checked."""
    checked_header(content, path, SNAPSHOT, 0, store_id, 0, number)
    topics: list[tuple[dict[str, Any], dict[str, Any]]] = []
    globals_: list[dict[str, Any]] = []
    sections, ended, at = 0, False, FILE_HEADER.size
    while at < len(content):
        demand(not ended and at + _SECTION.size <= len(content), f"{path}: bytes behind its end, or half a section")
        kind, length, check = _SECTION.unpack_from(content, at)
        payload = content[at + _SECTION.size : at + _SECTION.size + length]
        demand(len(payload) == length, f"{path} is cut short")
        demand(check == xxh3_64_intdigest(payload, kind << 32 | length), f"{path}: section {sections} does not check")
        told = json.loads(payload) if kind in (1, 2, 3) else {}
        if kind == 1:
            topics += [(topic, told["configs"][topic.get("config", 0)]) for topic in told["topics"]]
        elif kind == 2:
            globals_.append(told)
        elif kind == 3:
            ended = True
            demand((told["sections"], told["topics"]) == (sections, len(topics)), f"{path}: its end counts otherwise")
        sections += 1
        at += _SECTION.size + length
    demand(ended and len(globals_) == 1, f"{path} has no end, or not one section of globals")
    demand(globals_[0]["number"] == number, f"{path} says that it is number {globals_[0]['number']}")
    return ReadSnapshot(globals_[0], topics)


def segment_path(topic_id: int, entry: dict[str, Any], kind: str) -> str:
    """A file of a segment that has files of its own."""
    return f"topics/{topic_id:016x}/seg-{entry['first']:020d}-{entry['number']:010d}.{kind}"


def tails_path(number: int) -> str:
    """The file with the pieces that a checkpoint wrote."""
    return f"meta/tails-{number:010d}.data"


def named_files(snapshot: ReadSnapshot) -> Iterator[str]:
    """Every file that must be there for a snapshot to be used."""
    for topic, _ in snapshot.topics:
        for entry in topic.get("segments", []):
            if entry.get("offset", 0):
                yield tails_path(entry["number"])
                continue
            yield segment_path(topic["id"], entry, "idx")
            if not entry.get("cold"):
                yield segment_path(topic["id"], entry, "data")
            if entry.get("flags", 0) & 4:
                yield segment_path(topic["id"], entry, "tags")
            if entry.get("deletes", 0):
                yield segment_path(topic["id"], entry, f"{entry['deletes']}.del")


# -- segments ----------------------------------------------------------------------------------------------------------


def read_segment(tree: Tree, cold: Tree, store_id: bytes, topic_id: int, entry: dict[str, Any]) -> ReadSegment:
    """The records of one segment of a topic, from its own files or from its piece."""
    if entry.get("offset", 0):
        content, at = _whole_tails(tree, entry["number"], store_id), entry["offset"]
        demand(at % 8 == 0 and at >= FILE_HEADER.size, "a piece does not begin at a multiple of 8")
        index = _index_at(content, at, topic_id, entry)
        begin = at + index.size
        segment = _with_rows(index, content[begin : begin + index.data_len + 8], entry)
    else:
        path = segment_path(topic_id, entry, "idx")
        content = tree.get(path) or b""
        checked_header(content, path, INDEX, entry["number"], store_id, topic_id, entry["first"])
        index = _index_at(content, FILE_HEADER.size, topic_id, entry)
        demand(len(content) == FILE_HEADER.size + index.size, f"{path}: bytes behind its sums")
        path = segment_path(topic_id, entry, "data")
        data = tree.get(path) or cold.get(path) or b""
        checked_header(data, path, DATA, entry["number"], store_id, topic_id, entry["first"])
        segment = _with_rows(index, data[FILE_HEADER.size :], entry)
        if entry.get("flags", 0) & 4:
            path = segment_path(topic_id, entry, "tags")
            content = tree.get(path) or b""
            checked_header(content, path, TAGS, entry["number"], store_id, topic_id, entry["first"])
            filter_ = _check_tags(content[FILE_HEADER.size :], segment, path)
            demand(entry.get("tags") is None or base64.b64decode(entry["tags"]) == filter_, f"{path}: another filter")
    if entry.get("tags") is not None:
        _check_filter(base64.b64decode(entry["tags"]), set(segment.tags.values()), f"entry {entry['first']}")
    if entry.get("deletes", 0):
        segment.deleted = _read_deletes(tree, store_id, topic_id, entry)
    return segment


def _whole_tails(tree: Tree, number: int, store_id: bytes) -> bytes:
    path = tails_path(number)
    content = tree.get(path) or b""
    checked_header(content, path, TAILS, number, store_id, 0, number)
    return content


@dataclass(frozen=True, slots=True)
class _Index:
    """Info and rows, checked against their sums; the sums of data are the caller's."""

    first: int
    data_len: int
    present: int
    rows: list[tuple[int, ...]]
    data_sums: list[int]
    size: int


def _index_at(content: bytes, at: int, topic_id: int, entry: dict[str, Any]) -> _Index:
    where = f"segment {entry['first']} of topic {topic_id:x}"
    demand(at + _INFO.size <= len(content), f"{where}: no info")
    *told, sums_check, check = _INFO.unpack_from(content, at)
    count = told[2]
    demand(check == xxh3_64_intdigest(content[at : at + 56]), f"{where}: its info does not check")
    present = entry.get("present", -1)
    wanted = [topic_id, entry["first"], entry["count"], entry["count"] if present < 0 else present, entry["data_len"]]
    wanted += [entry.get("flags", 0), entry["first_ts"], entry["last_ts"]]
    demand(told == wanted, f"{where}: its info says {told}, the snapshot {wanted}")
    begin = at + _INFO.size
    end = begin + count * _ROW.size
    groups = -(-count // ROWS_SUMMED)
    sums = content[end : end + groups * 16]
    demand(len(sums) == groups * 16, f"{where}: its index is cut short")
    demand(sums_check == xxh3_64_intdigest(sums), f"{where}: its sums do not check")
    numbers = struct.unpack(f"<{groups * 2}Q", sums)
    for group in range(groups):
        low = begin + group * ROWS_SUMMED * _ROW.size
        part = content[low : min(low + ROWS_SUMMED * _ROW.size, end)]
        demand(numbers[2 * group] == xxh3_64_intdigest(part), f"{where}: rows of group {group} do not check")
    rows = list(_ROW.iter_unpack(content[begin:end]))
    return _Index(told[1], told[4], told[3], rows, list(numbers[1::2]), end + groups * 16 - at)


def _with_rows(index: _Index, data: bytes, entry: dict[str, Any]) -> ReadSegment:
    """The records of an index; `data` is the fragments and the check behind them, and nothing else."""
    where = f"segment {index.first}"
    demand(len(data) == index.data_len + 8, f"{where}: {len(data)} bytes of data, not {index.data_len + 8}")
    fragments = data[: index.data_len]
    demand(data[-8:] == struct.pack("<Q", xxh3_64_intdigest(fragments)), f"{where}: its data does not check")
    segment = ReadSegment(index.first)
    place, ts, flags = 0, entry["first_ts"], 0
    for seq, row in enumerate(index.rows, index.first):
        offset, length, row_ts, meta_len, node_len, tag_len, check, none = row
        demand(offset == place and none == 0, f"{where}: row of seq {seq} begins at {offset}, not {place}")
        if not length:
            demand((meta_len, node_len, tag_len, check, row_ts) == (0, 0, 0, 0, ts), f"{where}: row {seq} of nothing")
            continue
        text = fragments[offset : offset + length]
        demand(check == xxh3_64_intdigest(text) & 0xFFFFFFFF, f"{where}: seq {seq} does not check")
        end = offset + length
        demand(end == index.data_len or fragments[end : end + 1] == b",", f"{where}: no comma behind seq {seq}")
        segment.records[seq] = text
        _check_parts(text, seq, row_ts, (node_len, meta_len, tag_len))
        if tag_len:
            segment.tags[seq] = text[len(text) - 1 - tag_len : -1]
        flags |= bool(node_len) | bool(meta_len) << 1 | bool(tag_len) << 2
        demand(row_ts >= ts, f"{where}: time falls at seq {seq}")
        place, ts = end + 1, row_ts
    demand(place == index.data_len + 1, f"{where}: bytes that no row owns")
    demand(len(segment.records) == index.present, f"{where}: {len(segment.records)} records, not {index.present}")
    demand(not flags & ~entry.get("flags", 0), f"{where}: a record has what its flags say that none has")
    demand(ts == entry["last_ts"], f"{where}: its last time is {ts}")
    for group, told in enumerate(index.data_sums):
        rows = [row for row in index.rows[group * ROWS_SUMMED : (group + 1) * ROWS_SUMMED] if row[1]]
        low = rows[0][0] if rows else 0
        high = rows[-1][0] + rows[-1][1] if rows else 0
        demand(told == xxh3_64_intdigest(fragments[low:high]), f"{where}: data of group {group} does not check")
    return segment


def _check_parts(text: bytes, seq: int, ts: int, lengths: tuple[int, int, int]) -> None:
    """That a fragment is made of the parts that its row gives the lengths of."""
    node_len, meta_len, tag_len = lengths
    head = b'{"$seq":%d,"$ts":%d,' % (seq, ts)
    demand(text.startswith(head) and text.endswith(b"}"), f"seq {seq} begins with {text[:40]!r}")
    node = text[len(head) : len(head) + node_len]
    demand(not node or (node.startswith(b'"$node":"') and node.endswith(b'",')), f"seq {seq}: node {node!r}")
    demand(text.startswith(b'"data":', len(head) + node_len), f"seq {seq}: no data behind its node")
    end = len(text) - 1
    tag = text[end - tag_len : end]
    demand(not tag or (tag.startswith(b',"$tag":"') and tag.endswith(b'"')), f"seq {seq}: tag {tag!r}")
    meta = text[end - tag_len - meta_len : end - tag_len]
    demand(not meta or (meta.startswith(b',"meta":{') and meta.endswith(b"}")), f"seq {seq}: meta {meta!r}")


def counted_bytes(text: bytes) -> int:
    """What a record counts for: its data and meta, and its node and tag as they stand there, without their quotes."""
    told = json.loads(text)
    frame = b'{"$seq":%d,"$ts":%d,"data":}' % (told["$seq"], told["$ts"])
    around = {"$node": b'"$node":"",', "meta": b',"meta":', "$tag": b',"$tag":""'}
    return len(text) - len(frame) - sum(len(part) for name, part in around.items() if name in told)


# -- tags and deletes ----------------------------------------------------------------------------------------------


def _check_tags(content: bytes, segment: ReadSegment, path: str) -> bytes:
    """A .tags file behind its header says what the fragments say; returns its filter."""
    (length,) = struct.unpack_from("<I", content)
    filter_ = content[4 : 4 + length]
    at = 4 + length
    demand(content[at : at + 8] == struct.pack("<Q", xxh3_64_intdigest(content[:at])), f"{path}: bad filter check")
    _check_filter(filter_, set(segment.tags.values()), path)
    table = content[at + 8 : -8]
    demand(content[-8:] == struct.pack("<Q", xxh3_64_intdigest(table)), f"{path}: bad table check")
    tags, rows, text_len = struct.unpack_from("<III", table)
    demand(len(table) == 12 + 8 * tags + 4 * rows + text_len, f"{path}: a table of another size")
    text_ends = struct.unpack_from(f"<{tags}I", table, 12)
    row_ends = struct.unpack_from(f"<{tags}I", table, 12 + 4 * tags)
    numbers = struct.unpack_from(f"<{rows}I", table, 12 + 8 * tags)
    texts = table[12 + 8 * tags + 4 * rows :]
    found: dict[int, bytes] = {}
    last = b""
    for index in range(tags):
        text = texts[text_ends[index - 1] if index else 0 : text_ends[index]]
        mine = numbers[row_ends[index - 1] if index else 0 : row_ends[index]]
        demand(text > last and list(mine) == sorted(set(mine)) and bool(mine), f"{path}: not in order at {text!r}")
        found |= dict.fromkeys((segment.first + row for row in mine), b',"$tag":' + text)
        last = text
    demand(found == segment.tags, f"{path} says {found}, the fragments {segment.tags}")
    return filter_


def _check_filter(filter_: bytes, parts: set[bytes], path: str) -> None:
    width, count, text_len = struct.unpack_from("<III", filter_)
    at, texts = 12, []
    while at < 12 + text_len:
        (length,) = struct.unpack_from("<H", filter_, at)
        texts.append(filter_[at + 2 : at + 2 + length])
        at += 2 + length
    demand(
        at == 12 + text_len and len(filter_) == at + width * (count if width else 0), f"{path}: a filter of odd size"
    )
    if not width:
        demand(len(texts) == count and set(texts) == parts, f"{path}: the filter has {texts}, the records {parts}")
        return
    demand(width in (2, 4) and texts == [min(parts), max(parts)], f"{path}: the filter's bounds differ")
    hashes = struct.unpack_from(f"<{count}{'H' if width == 2 else 'I'}", filter_, at)
    mask = (1 << 8 * width) - 1
    demand(list(hashes) == sorted({xxh3_64_intdigest(part) & mask for part in parts}), f"{path}: other hashes")


def _read_deletes(tree: Tree, store_id: bytes, topic_id: int, entry: dict[str, Any]) -> list[Range]:
    path = segment_path(topic_id, entry, f"{entry['deletes']}.del")
    content = tree.get(path) or b""
    checked_header(content, path, DELETES, entry["deletes"], store_id, topic_id, entry["first"])
    body = content[FILE_HEADER.size :]
    (digest,) = struct.unpack("<Q", body[-8:])
    demand(digest == xxh3_64_intdigest(body[:-8]) == entry["digest"], f"{path} is not what the snapshot means")
    number, count = struct.unpack_from("<II", body)
    demand((number, len(body)) == (entry["number"], 16 + 8 * count), f"{path} is of another segment, or size")
    ranges = list(struct.iter_unpack("<II", body[8:-8]))
    last = -1
    for low, high in ranges:
        demand(last < low <= high < entry["count"], f"{path}: {low}…{high} is not in order")
        last = high
    return [(entry["first"] + low, entry["first"] + high) for low, high in ranges]
