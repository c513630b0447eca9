"""A second reader of the formats, written from FORMATS.md alone.

It shares no code with the engine and knows nothing of recovery's verdicts: it takes the bytes of a directory, begins
with the newest snapshot (`second_history.py`), follows each shard's frames from there for as long as they are valid and
chained, and says what topics there are, what records they hold, what they have lost, which keys and cursors they know,
and which routers copy between them (`second_routers.py`). That is what the engine has to find too.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from xxhash import xxh3_64_intdigest

from tests.sim.second_history import (
    FILE_HEADER,
    NotAStoreError,
    Range,
    ReadSnapshot,
    Tree,
    counted_bytes,
    demand,
    newest_snapshot,
    read_segment,
    segment_path,
)
from tests.sim.second_routers import HOPS_MAX, Group, Landing, ReadRouter, copy_of, read_forward, seq_of

_LOG_NAME = re.compile(r"wal/shard-(\d\d)/wal-(\d{20})-(\d+)\.log\Z")
_FRAME_HEADER = struct.Struct("<IIBBBBIQIIQQQQQQ")
assert _FRAME_HEADER.size == 80
BLOCK = 4096
APPEND, CREATE, CONFIG, DROP, DELETE, GAP, MARK, RESERVE = range(1, 9)
ROUTER_PUT, ROUTER_DROP, CURSOR_PUT, FORWARD, LEASE, DEAD_LETTER, MOVE, ATTACH = range(16, 24)


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
class ReadQueue:
    """What is known of a queue's jobs beyond their records."""

    acked: int = 0
    dead_lettered: int = 0
    deleted: int = 0
    lost: int = 0
    evicted: int = 0
    """As the snapshot had it: caps and ages need no frame."""
    deliveries: dict[int, int] = field(default_factory=dict)
    """seq → how often it was delivered, of jobs of which the log or the snapshot says it."""

    def forget(self, seqs: Iterable[int]) -> None:
        """Jobs are gone."""
        for seq in seqs:
            self.deliveries.pop(seq, None)


@dataclass(slots=True)
class ReadTopic:
    """What a snapshot and the frames behind it say of one topic."""

    id: int
    name: str
    epoch: int
    config: dict[str, Any]
    shard: int = 0
    from_lsn: int = 0
    head: int = 0
    earliest: int = 1
    """As the snapshot has it."""
    records: dict[int, bytes] = field(default_factory=dict)
    losses: list[tuple[int, int, str]] = field(default_factory=list)
    keys: dict[bytes, tuple[int, int, bytes, int]] = field(default_factory=dict)
    """Idempotency keys: first seq, how many, digest, time."""
    reserved: int = 0
    cursors: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name → seq and when it was set."""
    hops: dict[int, int] = field(default_factory=dict)
    """seq of a copy → how often it was forwarded."""
    queue: ReadQueue = field(default_factory=ReadQueue)
    move: dict[str, Any] | None = None
    """Where it has gone; None: it is here."""
    moves: int = 0
    """How often it was offered to another store."""
    bounded: bool = False
    """Some configuration of it had caps or an age, so that records may be gone without a frame that says so."""
    fresh: bool = True
    """No frame behind the snapshot is about it: what the snapshot counts is what is there."""
    counted: tuple[int, int] | None = None
    """The records and bytes that the snapshot counts."""

    def configure(self, config: dict[str, Any]) -> None:
        """It has this configuration from here on."""
        self.config = config
        self.bounded = self.bounded or any(config[bound] for bound in ("ttl_ms", "cap_records", "cap_bytes"))

    def lose(self, first: int, last: int, reason: str) -> None:
        """Seqs are a gap."""
        self.queue.lost += len(self.remove([(first, last)]))
        self.head = max(self.head, last)
        self.losses.append((first, last, reason))

    def remove(self, ranges: Iterable[Range]) -> list[int]:
        """Records are gone; returns which were there."""
        gone = [seq for first, last in ranges for seq in self.records if first <= seq <= last]
        for seq in gone:
            del self.records[seq]
        self.queue.forget(gone)
        return gone


@dataclass(frozen=True, slots=True)
class ReadStore:
    """Everything in a directory that the formats speak of."""

    snapshot: ReadSnapshot | None
    frames: list[ReadFrame]
    """Those behind the cuts, in `order`."""


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


def read_store(tree: Tree, cold: Tree | None = None) -> ReadStore:
    """The newest usable snapshot of a store, and all frames behind its cuts that are valid and chained."""
    store_id = bytes.fromhex(read_small(tree["STORE"] or b"")["store_id"])
    seed = xxh3_64_intdigest(store_id)
    snapshot = newest_snapshot(tree, cold or {}, store_id)
    shards: dict[int, list[_LogFile]] = {}
    for path, content in tree.items():
        named = _LOG_NAME.match(path)
        if named is None or content is None:
            continue
        shard, first, run = (int(part) for part in named.groups())
        if _checks_as_log(content, store_id, shard, first, run):
            shards.setdefault(shard, []).append(_LogFile(first, run, content))
    frames = []
    for shard, files in shards.items():
        cut = None if snapshot is None else snapshot.cut(shard)
        frames += _shard_frames(seed, shard, files, cut)
    return ReadStore(snapshot, sorted(frames, key=lambda frame: frame.order))


def read_frames(tree: Tree) -> list[ReadFrame]:
    """The frames of `read_store`."""
    return read_store(tree).frames


def log_problem(tree: Tree, store: ReadStore) -> str | None:
    """What MANIFEST or a snapshot says of an undamaged store's log, and is not so; None for nothing."""
    content = tree.get("meta/MANIFEST")
    if content is None:
        return None
    ends = {frame.shard: frame.lsn + (88 + len(frame.body) + 7) // 8 * 8 for frame in store.frames}
    for told in read_small(content)["shards"]:
        shard = told["shard"]
        cut = None if store.snapshot is None else store.snapshot.cut(shard)
        # The log of a store that was restored begins behind its snapshot, and holds nothing yet.
        begins = 0 if cut is None else cut["lsn"] if cut.get("last_lsn", -1) < 0 else cut.get("last_end", 0)
        end = max(ends.get(shard, 0), begins)
        proven = max(told["end_lsn"], 0 if cut is None else cut.get("end_lsn", 0))
        if end < proven:
            return f"the log of shard {shard} was on disk up to {proven}; its frames end at {end}"
        if cut is not None and told["start_lsn"] > cut["lsn"]:
            return f"the kept log of shard {shard} begins at {told['start_lsn']}, behind the cut {cut['lsn']}"
    return None


def _checks_as_log(content: bytes, store_id: bytes, shard: int, first: int, run: int) -> bool:
    if len(content) < BLOCK:
        return False
    magic, version, kind, has_run, has_id, has_shard, has_first, _, check = FILE_HEADER.unpack_from(content)
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


def _shard_frames(seed: int, shard: int, files: list[_LogFile], cut: dict[str, Any] | None) -> list[ReadFrame]:
    """The chain of one shard, from the cut on; without one from the beginning of its files."""
    frames: list[ReadFrame] = []
    place, last = min(log.first for log in files), None
    if cut is not None:
        place = cut["lsn"]
        last = cut.get("last_lsn", -1)
        last = None if last < 0 else last
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
    """The idempotency key with the digest behind it, and the fragments of an Append."""
    body, at, key = frame.body, 0, None
    if frame.flags & 1:
        length = struct.unpack_from("<H", body)[0] - 1
        at = 2 + length + 16
        key = body[2:at]
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


@dataclass(frozen=True, slots=True)
class ReadAll:
    """What a snapshot and the frames behind it leave."""

    topics: dict[str, ReadTopic]
    """By name, records beyond caps and ages included."""
    routers: dict[int, ReadRouter]
    """By number."""
    attached: set[str]
    """Tokens of offers that were taken."""


def read_all(store: ReadStore, tree: Tree, cold: Tree | None = None) -> ReadAll:
    """The topics and routers of a store."""
    replay = _Replay(tree, cold or {}, {frame.topic_id for frame in store.frames if frame.type == DROP})
    if store.snapshot is not None:
        replay.begin(store.snapshot)
    for frame in store.frames:
        replay.take(frame)
    there = replay.topics.keys()
    routers = {one.number: one for one in replay.routers.values() if {one.source, one.dest} <= there}
    return ReadAll({topic.name: topic for topic in replay.topics.values()}, routers, replay.attached)


def read_topics(store: ReadStore, tree: Tree, cold: Tree | None = None) -> dict[str, ReadTopic]:
    """The topics of `read_all`."""
    return read_all(store, tree, cold).topics


class _Replay:
    """Topics by id, routers by number, and the topics whose frames are passed over."""

    def __init__(self, tree: Tree, cold: Tree, dropped: set[int]) -> None:
        self.topics: dict[int, ReadTopic] = {}
        self.routers: dict[int, ReadRouter] = {}
        self.attached: set[str] = set()
        self._tree, self._cold, self._dropped = tree, cold, dropped
        self._store_id = bytes.fromhex(read_small(tree["STORE"] or b"")["store_id"])
        self._passed: set[int] = set()

    # -- what the snapshot says ------------------------------------------------------------------------------------

    def begin(self, snapshot: ReadSnapshot) -> None:
        """Take a snapshot's topics."""
        self._passed = {dropped["id"] for dropped in snapshot.globals.get("dropped", [])}
        self.attached = set(snapshot.globals.get("attached", []))
        newest: dict[str, dict[str, Any]] = {}
        for image, _ in snapshot.topics:
            other = newest.setdefault(image["name"], image)
            if other["id"] < image["id"]:
                newest[image["name"]] = image
        for image, config in snapshot.topics:
            if newest[image["name"]] is not image:
                self._passed.add(image["id"])
            elif image["id"] not in self._passed:
                self.topics[image["id"]] = _topic_of(image, config, self._tree, self._cold, self._store_id)
                for told in image.get("routers", []):
                    self._add(ReadRouter.of(told, image["id"]))

    # -- what the frames say ---------------------------------------------------------------------------------------

    def take(self, frame: ReadFrame) -> None:
        """One frame, in order."""
        if frame.type == MARK:
            for topic_id, head in json.loads(frame.body).get("heads", []):
                if topic_id in self.topics and not self._has(topic_id, frame):
                    self.topics[topic_id].head = max(self.topics[topic_id].head, head)
            return
        if frame.type == DEAD_LETTER:
            self._take_copies(frame)
        if frame.type == FORWARD:
            self._forward(frame)
            return
        if frame.type == ATTACH:
            self.attached.add(json.loads(frame.body)["token"])
        if frame.topic_id in self._passed or self._has(frame.topic_id, frame):
            return
        if frame.type in (CREATE, ATTACH):
            (self._create if frame.type == CREATE else self._attach)(frame)
            return
        topic = self.topics.get(frame.topic_id)
        demand(topic is not None, f"a frame of type {frame.type} at {frame.lsn} is of no topic")
        assert topic is not None
        topic.fresh = False
        if frame.type == DROP:
            self._leave(frame.topic_id)
        elif frame.type == ROUTER_PUT:
            told = json.loads(frame.body)
            if told["number"] in self.routers:
                self.routers[told["number"]].define(told)
            else:
                self._add(ReadRouter.of(told, frame.topic_id))
        elif frame.type == ROUTER_DROP:
            self.routers.pop(json.loads(frame.body)["number"], None)
        else:
            _apply(topic, frame)

    def _has(self, topic_id: int, frame: ReadFrame) -> bool:
        """Whether the topic's image holds what the frame says."""
        topic = self.topics.get(topic_id)
        return topic is not None and topic.shard == frame.shard and frame.lsn < topic.from_lsn

    def _create(self, frame: ReadFrame) -> None:
        told = json.loads(frame.body)
        if self._gets_name(frame.topic_id, told["name"]):
            made = ReadTopic(frame.topic_id, told["name"], told["epoch"], {}, fresh=False)
            made.configure(told["config"])
            self.topics[frame.topic_id] = made

    def _attach(self, frame: ReadFrame) -> None:
        told = json.loads(frame.body)
        image = told["image"]
        demand(image["id"] == frame.topic_id, f"the image of an Attach is of topic {image['id']}")
        demand(all(entry["number"] == 0 for entry in image.get("segments", [])), "a segment that came has a number")
        if not self._gets_name(frame.topic_id, image["name"]):
            return
        paths = [segment_path(frame.topic_id, entry, "data") for entry in image.get("segments", [])]
        if frame.topic_id in self._dropped and any(
            (self._tree.get(path) or self._cold.get(path)) is None for path in paths
        ):
            self._passed.add(frame.topic_id)  # its files went when it was dropped
            return
        self.topics[frame.topic_id] = _topic_of(image, told["config"], self._tree, self._cold, self._store_id)

    def _gets_name(self, topic_id: int, name: str) -> bool:
        """Whether a topic that begins has its name from here on; another one is gone then."""
        for other in [one.id for one in self.topics.values() if one.name == name]:
            if other > topic_id:
                self._passed.add(topic_id)
                return False
            self._leave(other)
            self._passed.add(other)
        return True

    def _leave(self, topic_id: int) -> None:
        """A topic is gone, and its routers."""
        del self.topics[topic_id]
        self.routers = {one.number: one for one in self.routers.values() if topic_id not in (one.source, one.dest)}

    def _add(self, router: ReadRouter) -> None:
        for other in list(self.routers.values()):
            if other.name == router.name:
                if other.number > router.number:
                    return
                del self.routers[other.number]
        self.routers[router.number] = router

    def _forward(self, frame: ReadFrame) -> None:
        groups, rest = read_forward(frame.body, frame.ts)
        source = self.topics.get(frame.topic_id)
        records = {} if source is None else source.records
        if frame.count:
            records = {seq_of(fragment): fragment for fragment in read_append(replace(frame, body=rest))[1]}
        else:
            demand(not rest, "a Forward that carries nothing ends with its groups")
        for group in groups:
            texts = [(records.get(seq), hops) for seq, hops in group.seqs]
            for landing in group.landings:
                router = self.routers.get(landing.number)
                if router is not None and router.cursor < group.to and router.dest in self.topics:
                    self._land(self.topics[router.dest], router, group, landing, texts)
                    router.cursor = group.to

    def _land(
        self,
        dest: ReadTopic,
        router: ReadRouter,
        group: Group,
        landing: Landing,
        texts: list[tuple[bytes | None, int]],
    ) -> None:
        total = group.lost + len(texts)
        if dest.config["durability"] == "ephemeral" or (total and landing.first <= dest.head):
            router.forwarded += len(texts)
            return
        if total and landing.first > dest.head + 1:
            dest.lose(dest.head + 1, landing.first - 1, "crash")
        if group.lost:
            dest.lose(landing.first, landing.first + group.lost - 1, "source_trim")
        least = landing.floor
        for seq, (text, hops) in enumerate(texts, landing.first + group.lost):
            if text is None:
                dest.lose(seq, seq, "source_trim")
                continue
            dest.records[seq], least = copy_of(text, seq, least, router.definition)
            dest.hops[seq] = min(hops + 1, HOPS_MAX)
            dest.head = seq
            router.forwarded += 1
        dest.fresh = dest.fresh and not total

    def _take_copies(self, frame: ReadFrame) -> None:
        line, _, copies = frame.body.partition(b"\n")
        told = json.loads(line)
        target = self.topics.get(told["target"])
        if target is None or target.head >= told["first_seq"]:
            return
        _, fragments = read_append(replace(frame, body=copies))
        target.records.update(enumerate(fragments, told["first_seq"]))
        target.head = told["first_seq"] + len(fragments) - 1
        target.fresh = False


def _apply(topic: ReadTopic, frame: ReadFrame) -> None:
    """What a frame does to the topic that its header names."""
    queue = topic.queue
    if frame.type == APPEND:
        key, fragments = read_append(frame)
        topic.records.update(enumerate(fragments, frame.first_seq))
        topic.head = max(topic.head, frame.first_seq + frame.count - 1)
        if key is not None:
            topic.keys[key[:-16]] = (frame.first_seq, frame.count, key[-16:], frame.ts)
        return
    line = frame.body.partition(b"\n")[0] if frame.type == DEAD_LETTER else frame.body
    told = json.loads(line)
    if frame.type == CONFIG:
        topic.configure(told["config"])
    elif frame.type == RESERVE:
        topic.reserved = max(topic.reserved, told["upto"])
    elif frame.type == DELETE:
        gone = len(topic.remove(told["ranges"]))
        queue.acked += gone if told.get("acked") else 0
        queue.dead_lettered += gone if told.get("moved") else 0
        queue.deleted += 0 if told.get("acked") or told.get("moved") else gone
    elif frame.type == GAP:
        topic.lose(told["from"], told["to"], told["reason"])
    elif frame.type == CURSOR_PUT:
        topic.cursors.pop(told["name"], None)
        if told["seq"] is not None:
            topic.cursors[told["name"]] = (told["seq"], frame.ts)
    elif frame.type == DEAD_LETTER:
        queue.dead_lettered += len(topic.remove([(seq, seq) for seq in told["seqs"]]))
    elif frame.type == LEASE:
        _apply_lease(topic, told)
    elif frame.type == MOVE:
        topic.move = None if told["state"] == "stays" else told
        topic.moves = told["generation"]


def _apply_lease(topic: ReadTopic, told: dict[str, Any]) -> None:
    """How often jobs were delivered, as an event has it; the others say nothing of that."""
    if told["event"] in ("claim", "nack", "undeliver"):
        for job in told["jobs"]:
            seq, deliveries = job[:2]
            topic.queue.deliveries.pop(seq, None)
            if seq in topic.records and deliveries:
                topic.queue.deliveries[seq] = deliveries


def _topic_of(image: dict[str, Any], config: dict[str, Any], tree: Tree, cold: Tree, store_id: bytes) -> ReadTopic:
    """A topic as a snapshot has it; what the snapshot counts must be what its files hold."""
    topic = ReadTopic(image["id"], image["name"], image["epoch"], {}, image.get("shard", 0), image["from_lsn"])
    topic.configure(config)
    topic.head, topic.earliest = image.get("head", 0), image.get("earliest", 1)
    topic.reserved = image.get("reserved", 0)
    topic.move, topic.moves = image.get("move"), image.get("moves", 0)
    floor = image.get("floor")
    if floor is not None:
        low = 1
        for last, reason in floor.get("ranges", []):
            topic.losses.append((low, last, reason))
            low = last + 1
    topic.losses += [(first, last, reason) for first, last, reason in image.get("gaps", [])]
    hidden = [*image.get("deleted", []), *((first, last) for first, last, _ in image.get("gaps", []))]
    after, counts = 0, (0, 0)
    for entry in image.get("segments", []):
        demand(entry["first"] >= after, f"{topic.name}: a segment begins inside the one before")
        after = entry["first"] + entry["count"]
        segment = read_segment(tree, cold, store_id, topic.id, entry)
        gone = [(0, topic.earliest - 1), *hidden, *segment.deleted]
        live = {
            seq: text for seq, text in segment.records.items() if not any(first <= seq <= last for first, last in gone)
        }
        counted = (len(live), sum(map(counted_bytes, live.values())))
        if not config["ttl_ms"]:
            told = (entry["live"], entry["size"])
            demand(counted == told, f"{topic.name}: segment {entry['first']} has {counted} live, its entry says {told}")
        counts = (counts[0] + entry["live"], counts[1] + entry["size"])
        topic.records |= live
    topic.counted = (image.get("count", 0), image.get("size", 0))
    demand(counts == topic.counted, f"{topic.name}: segments of {counts}, a topic of {topic.counted}")
    demand(after <= topic.head + 1, f"{topic.name}: a segment ends behind the head")
    for key, first, count, digest, ts in image.get("keys", []):
        topic.keys[base64.b64decode(key)] = (first, count, base64.b64decode(digest), ts)
    topic.cursors = {name: (seq, ts) for name, seq, ts in image.get("cursors", [])}
    for first, last, hops in image.get("hops", []):
        topic.hops.update(dict.fromkeys(range(first, last + 1), hops))
    queue = image.get("queue")
    if queue is not None:
        counters = {name: queue[name] for name in ("acked", "dead_lettered", "deleted", "lost", "evicted")}
        topic.queue = ReadQueue(**counters, deliveries={job[0]: job[1] for job in queue["jobs"] if job[1]})
    return topic
