"""How the golden files of format version 1 were made. They are not made again.

The two answer different questions. `v1-vectors.json`: what is written today is what was always written, byte by byte;
a difference there is a new version. `v1-store.json`: what the first writer of version 1 left behind is still read.
Today's writer leaves another store within the same version (LOCK has had its optional member `starts` since there are
leases), and that is why the old one is kept: `tests/formats/test_formats_doc.py` opens it and goes on in it.

`python -m tests.golden.make_v1` writes what is not there yet and says what differs, of the store by file.
"""

from __future__ import annotations

import pathlib
from typing import Any, Final

import msgspec

from engine.commands import Batch
from engine.formats.append import encode_append_body
from engine.formats.attach import AttachBody, encode_attach_body
from engine.formats.control import (
    ConfigBody,
    ControlBody,
    CreateBody,
    CursorPutBody,
    DeleteBody,
    DropBody,
    GapBody,
    MarkBody,
    ReserveBody,
    encode_control_body,
)
from engine.formats.forward import (
    Group,
    Landing,
    Range,
    RouterBody,
    RouterDropBody,
    encode_forward_head,
    encode_router_body,
)
from engine.formats.frame import FrameType, body_check, pack_header, padding, seed_of
from engine.formats.header import FORMAT_VERSION, FileHeader, FileKind, pack_file_header
from engine.formats.manifest import LockInfo, LockState, Manifest, ShardEntry, StoreInfo, encode_meta
from engine.formats.moving import MoveBody, MoveState
from engine.formats.snapshot import (
    DroppedTopic,
    FloorImage,
    Globals,
    SegmentEntry,
    ShardCut,
    TopicImage,
    encode_sections,
)
from engine.fragment import render
from engine.fs import read_file
from engine.queue.events import (
    DeadLetterBody,
    Extended,
    Leased,
    LeaseEvent,
    Nacked,
    NackedJob,
    Released,
    Undelivered,
    encode_dead_letter_body,
    encode_lease_body,
)
from engine.queue.snapshot import KnownJob, QueueSnapshot
from engine.segment.build import Run, build
from engine.segment.write import TailsWriter, write_deletes, write_segment
from engine.types import Durability, Reason, TopicConfig, TopicType
from tests.sim.disk import FakeDisk
from tests.wal.hand import Hand, settings

HERE: Final = pathlib.Path(__file__).parent
STORE_ID: Final = bytes(range(16))
TS: Final = 1_748_450_000_000


def frame(type_: FrameType, flags: int, count: int, body: bytes, *, lsn: int = 4096, topic: int = 3) -> bytes:
    """A frame of the golden store, as in the worked example of FORMATS.md."""
    seed = seed_of(STORE_ID)
    header = pack_header(seed, len(body), type_, flags, 1, count, lsn, 264, 42, 17, topic, 7, TS, 4096)
    return header + body + padding(len(body)) + body_check(body, seed)


def append(batch: Batch, key: bytes | None = None) -> bytes:
    """An Append frame of the golden store."""
    flags, body = encode_append_body(key, b"0123456789abcdef" if key is not None else b"", render(batch, 7, TS))
    return frame(FrameType.APPEND, flags, len(batch), body)


def control(type_: FrameType, body: ControlBody) -> bytes:
    """A control frame of the golden store."""
    return frame(type_, 0, 0, encode_control_body(body))


def lease(event: LeaseEvent) -> bytes:
    """A Lease frame of the golden store."""
    return frame(FrameType.LEASE, 0, 0, encode_lease_body(event))


def dead_letter() -> bytes:
    """A DeadLetter frame of two jobs, whose copies begin at seq 7 of topic 4."""
    copies = Batch([b"1", b"22"], tags=["t", None], metas=[b'{"$dlq":{}}', None])
    flags, body = encode_append_body(None, b"", render(copies, 7, TS))
    head = DeadLetterBody(target=4, first_seq=7, seqs=[9, 5])
    return frame(FrameType.DEAD_LETTER, flags, 2, b"".join(encode_dead_letter_body(head, (body,))))


def forward(*, carried: bool) -> bytes:
    """A Forward frame of two groups; `carried`: with the records that its ranges name."""
    groups = [
        Group(300, 0, (Range(7, 8, 0), Range(300, 300, 2)), [Landing(11, 1, 0), Landing(2**40, 9, TS - 5)]),
        Group(8, 6, (Range(7, 7, 31),), [Landing(12, 128, TS)]),
    ]
    head = encode_forward_head(groups, TS)
    if not carried:
        return frame(FrameType.FORWARD, 0, 0, head)
    records = Batch([b"1", b"22"], tags=["t", None], nodes=["n", None])
    flags, body = encode_append_body(None, b"", render(records, 7, TS))
    return frame(FrameType.FORWARD, flags, 2, head + body)


def whole_router() -> RouterBody:
    """A router in which every member occurs."""
    return RouterBody(
        number=11,
        name="in>out",
        source=3,
        cursor=8,
        forwarded=2,
        preserve_node=False,
        preserve_tag=False,
        create_dest=False,
        filter=["tag", "Glob", "eu:*"],
        allow_cycle=True,
        guarantee="at_least_once",
    )


def places_snapshot() -> tuple[list[tuple[TopicImage, TopicConfig]], Globals]:
    """A snapshot of a topic with cursors, routers and copies, and of a queue."""
    topic = TopicImage(
        id=4,
        name="out",
        epoch=4,
        from_lsn=4096,
        head=9,
        earliest=10,
        cursors=[("reader", 7, TS), ("writer", 0, TS + 1)],
        routers=[whole_router(), RouterBody(number=12, name="in2", source=5)],
        hops=[(1, 2, 1), (5, 9, 31)],
    )
    jobs = [
        KnownJob(3, 2, 1, TS + 9, 2**32, "n", TS, None),
        KnownJob(4, 1, 2, TS + 5, 0, "", 0, b"\x91\x00"),
    ]
    known = QueueSnapshot(
        at=TS, live=3, acked=1, dead_lettered=1, deleted=1, evicted=2, lost=1, cursor=4, repeat=True, jobs=jobs
    )
    piece = SegmentEntry(first=3, count=3, number=7, offset=64, data_len=99, first_ts=TS, last_ts=TS, live=3, size=12)
    queue = TopicImage(
        id=6, name="jobs", epoch=6, from_lsn=0, head=5, earliest=3, count=3, size=12, segments=[piece], queue=known
    )
    return [(topic, TopicConfig()), (queue, TopicConfig(type=TopicType.QUEUE))], Globals(number=7, epoch=12)


def whole_attach() -> AttachBody:
    """A topic with a segment, a gap and a deletion that came from another store."""
    segment = SegmentEntry(first=4, count=5, number=0, data_len=400, first_ts=TS, last_ts=TS + 9, live=4, size=30)
    image = TopicImage(
        id=3,
        name="orders:eu",
        epoch=9,
        from_lsn=0,
        head=12,
        earliest=4,
        count=4,
        size=30,
        last_write_ts=TS,
        quiet=True,
        gaps=[(9, 12, Reason.CRASH)],
        deleted=[(5, 5)],
        cursors=[("reader", 7, TS)],
        segments=[segment],
    )
    return AttachBody(token="00-7-1", image=image, config=TopicConfig())


def whole_snapshot() -> tuple[list[tuple[TopicImage, TopicConfig]], Globals]:
    """A snapshot in which every member occurs."""
    segment = SegmentEntry(
        first=4,
        count=5,
        present=4,
        number=2,
        data_len=400,
        first_ts=TS,
        last_ts=TS + 9,
        flags=4,
        live=3,
        size=30,
        deletes=1,
        digest=2**64 - 1,
        cold=True,
        worn=True,
        tags=b"\0\xff",
    )
    piece = SegmentEntry(first=10, count=2, number=7, offset=64, data_len=90, first_ts=TS, last_ts=TS, live=2, size=8)
    topic = TopicImage(
        id=3,
        name="orders:eu",
        epoch=3,
        shard=1,
        from_lsn=8192,
        head=12,
        earliest=4,
        count=5,
        size=38,
        last_write_ts=TS,
        quiet=True,
        reserved=70000,
        floor=FloorImage(seq=4, last_ts=TS, unknown_from=2, ranges=[(1, Reason.CAP), (3, Reason.CRASH)]),
        gaps=[(12, 12, Reason.CORRUPTION)],
        ghosts=[(12, 12, 1, 9)],
        lost=[(12, 12)],
        deleted=[(9, 9)],
        keys=[(b"k\xff", 10, 2, bytes(16), TS)],
        segments=[segment, piece],
    )
    idle = TopicImage(id=4, name="idle", epoch=4, from_lsn=4096)
    globals_ = Globals(
        number=7,
        predecessor=6,
        created_ms=TS,
        last_ts=TS + 1,
        order=99,
        tick=50,
        epoch=5,
        shards=2,
        closed_names=["never"],
        cuts=[ShardCut(shard=0, lsn=0), ShardCut(shard=1, lsn=4096, last_lsn=200, last_end=400, end_lsn=8200)],
        dropped=[DroppedTopic(id=5, name="gone", closed=True)],
    )
    return [(topic, TopicConfig(cap_records=9, durability=Durability.FSYNC)), (idle, TopicConfig())], globals_


def segments() -> dict[str, bytes]:
    """The files of a segment and a tails file, by name."""
    disk = FakeDisk()
    disk.mkdir("meta")
    runs = []
    for seq, batch in ((7, Batch([b"1"], tags=["t"])), (9, Batch([b"22"]))):
        made = render(batch, seq, TS)
        runs.append(Run(seq, made.fragments, made.strides, TS, made.node_lens, made.meta_lens, made.tag_lens))
    built = build(3, 7, 3, runs)
    segment = write_segment(disk, STORE_ID, TS, 2, built)
    write_deletes(disk, STORE_ID, TS, segment, 1, [(2, 2)])
    tails = TailsWriter(disk, STORE_ID, TS, 2)
    tails.add(build(4, 9, 1, runs[1:]))
    tails.add(built)
    tails.finish()
    return {
        "SEGMENT data": read_file(disk, segment.data_path),
        "SEGMENT idx": read_file(disk, segment.idx_path),
        "SEGMENT tags": read_file(disk, segment.tags_path),
        "SEGMENT del": read_file(disk, segment.del_path(1)),
        "TAILS": read_file(disk, tails.path),
    }


def vectors() -> dict[str, bytes]:
    """Every structure of the formats, by name."""
    config = TopicConfig(ttl_ms=1000, cap_records=5)
    entry = ShardEntry(shard=0, start_lsn=0, first_lsn=61440, run=2, size=65536, end_lsn=70000)
    return {
        "append one tagged": append(Batch([b'{"a":1}'], tags=["t"])),
        "append bare": append(Batch([b"1"])),
        "append keyed": append(Batch([b"1", b"22"]), b"key-\xc3\xa9"),
        "append all columns": append(
            Batch(
                [b"1", b'"two"', b"[3, 3]"],
                tags=[None, "a\u00e9", "b\n"],
                nodes=["n", None, "m" * 128],
                metas=[b'{"k":1}', b"{}", None],
            ),
            b"k",
        ),
        "create": control(FrameType.CREATE, CreateBody(name="orders", epoch=9, config=config)),
        "config": control(FrameType.CONFIG, ConfigBody(config=config)),
        "drop": control(FrameType.DROP, DropBody()),
        "delete": control(FrameType.DELETE, DeleteBody(ranges=[(1, 2), (7, 7)])),
        "gap": control(FrameType.GAP, GapBody(first=8, last=262151, reason=Reason.CRASH)),
        "mark": control(FrameType.MARK, MarkBody(heads=[(3, 7)], quiet=[3, 4])),
        "reserve": control(FrameType.RESERVE, ReserveBody(upto=65536)),
        "router put": frame(FrameType.ROUTER_PUT, 0, 0, encode_router_body(whole_router())),
        "router put bare": frame(
            FrameType.ROUTER_PUT, 0, 0, encode_router_body(RouterBody(number=12, name="in2", source=5))
        ),
        "router drop": frame(FrameType.ROUTER_DROP, 0, 0, encode_router_body(RouterDropBody(number=11))),
        "cursor put": control(FrameType.CURSOR_PUT, CursorPutBody(name="reader", seq=7)),
        "cursor gone": control(FrameType.CURSOR_PUT, CursorPutBody(name="reader", seq=None)),
        "forward": forward(carried=False),
        "forward with records": forward(carried=True),
        "delete acked": control(FrameType.DELETE, DeleteBody(ranges=[(1, 2)], acked=True)),
        "delete moved": control(FrameType.DELETE, DeleteBody(ranges=[(7, 7)], moved=True)),
        "lease claim": lease(Leased(TS, "n", TS + 30_000, 2**32 + 1, ((7, 1), (9, 3)), repeat=True)),
        "lease extend": lease(Extended(TS, TS + 60_000, ((7, 2**32 + 1),))),
        "lease nack": lease(Nacked(TS, "n", (NackedJob(7, 1, TS, TS + 500),), reason="later")),
        "lease release": lease(Released(TS, ((7, 2**32 + 1),))),
        "lease undeliver": lease(Undelivered(TS, ((7, 0),))),
        "dead letter": dead_letter(),
        "move": control(
            FrameType.MOVE,
            MoveBody(state=MoveState.TAKEN, to="s3://b/p", token="00-3-1", generation=1, url="http://h:4000"),
        ),
        "attach": frame(FrameType.ATTACH, 0, 0, encode_attach_body(whole_attach())),
        "file header": pack_file_header(FileHeader(FORMAT_VERSION, FileKind.WAL, 1, STORE_ID, 0, 0, TS)),
        "STORE": encode_meta(StoreInfo(store_id=STORE_ID.hex(), format=1, created_ms=TS)),
        "LOCK": encode_meta(LockInfo(boot_id="b", state=LockState.RUNNING, pid=1, started_ms=TS)),
        "MANIFEST": encode_meta(Manifest(store_id=STORE_ID.hex(), shards=[entry])),
        "Snapshot": b"".join(encode_sections(*whole_snapshot(), STORE_ID)),
        "Snapshot of places": b"".join(encode_sections(*places_snapshot(), STORE_ID)),
        **segments(),
    }


def store() -> dict[str, Any]:
    """A whole store that was killed: two topics, three log files, a run; path → size and the bytes before the zeros."""
    disk = FakeDisk()
    config = settings(file_kib=16, fill_kib=4, reserve_kib=2)
    hand = Hand(disk, config)
    hand.create(1, "orders")
    for number in range(9):
        hand.append(1, number, "x" * 700, sync=number % 3 == 0)
    disk = disk.killed()
    hand = Hand(disk, config)
    hand.create(2, "other")
    hand.append(2, 0)
    hand.append(1, 9, "x" * 700)
    tree = disk.cached_tree()
    return {
        path: None if content is None else {"size": len(content), "hex": content.rstrip(b"\0").hex()}
        for path, content in tree.items()
    }


def main() -> None:
    """Say what differs; write what is not there yet."""
    made: dict[str, dict[str, Any]] = {
        "v1-vectors.json": {name: value.hex() for name, value in vectors().items()},
        "v1-store.json": store(),
    }
    for name, content in made.items():
        path = HERE / name
        if not path.exists():
            path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
        pinned = msgspec.json.decode(path.read_bytes())
        differs = sorted(key for key in pinned.keys() | content.keys() if pinned.get(key) != content.get(key))
        meaning = (
            "a new format version" if name == "v1-vectors.json" else "today's writer; the old store is what counts"
        )
        print(name, f"differs in {', '.join(differs)}: {meaning}" if differs else "is the same")


if __name__ == "__main__":
    main()
