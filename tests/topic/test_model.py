"""Random lives of a topic against the model: after every command everything that can be asked is compared.

Each life is led four times: by the model, by a topic, by a topic whose cache holds nothing (so that every block is
cold and comes back from the log), and once more from the log alone.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.commands import Batch, DeleteSelector
from engine.formats.append import decode_append_body, encode_append_body
from engine.fragment import Rendered, render
from engine.topic.cache import Cache
from engine.topic.idempotency import Keys, batch_digest
from engine.topic.page import read_newest, read_page
from engine.topic.record import find_live, find_record
from engine.topic.state import Topic
from engine.topic.tags import resolve_delete
from engine.types import Discard, Match, PageRequest, Reason, TopicConfig
from tests.topic.model import LIVE, Model, page_of

DATAS = [
    b"0",
    b'"x"',
    b'{"a":1,"a":2}',
    b'{"n":12345678901234567890}',
    b"[\n1,\r\n 2 ]",
    b'[1,{"$seq":3,"$ts":4}]',
    b'[{},{"$seq":1}]',
    b'{"d":{},"$tag":"t"}',
    '"\U0001f600\\u0000\\n"'.encode(),
    b'"' + b"y" * 300 + b'"',
]
METAS = [None, b"{}", b'{"k":"v","$tag":"t"}', b'{ "a" : "\\n" }']
TAGS = [None, "t", "tt", "u", "", 'q"\\', "é\n"]
NODES = [None, "n", "m", 'q"']
MATCHES = [None, Match("Eq", "t"), Match("Glob", "t"), Match("Eq", 'q"\\'), Match("Glob", ""), Match("Eq", "\ud800")]
CONFIGS = st.builds(
    TopicConfig,
    ttl_ms=st.sampled_from([0, 0, 3, 15]),
    cap_records=st.sampled_from([0, 0, 1, 5, 12]),
    cap_bytes=st.sampled_from([0, 0, 40, 400]),
    discard=st.sampled_from([Discard.OLD, Discard.OLD, Discard.REJECT]),
    dedupe_node=st.booleans(),
    idempotency_window_ms=st.sampled_from([0, 5, 1000]),
)
RECORD = st.tuples(st.sampled_from(DATAS), st.sampled_from(METAS), st.sampled_from(TAGS), st.sampled_from(NODES))
SEQS = st.integers(1, 60)
COMMANDS = st.one_of(
    st.tuples(st.just("append"), st.lists(RECORD, min_size=1, max_size=9), st.booleans()),
    st.tuples(st.just("append"), st.lists(RECORD, min_size=1, max_size=2), st.booleans()),
    st.tuples(st.just("delete"), st.none() | SEQS, st.sampled_from(MATCHES), st.none() | st.lists(SEQS, max_size=6)),
    st.tuples(st.just("gap"), SEQS, st.integers(0, 5), st.sampled_from([Reason.CRASH, Reason.CORRUPTION])),
    st.tuples(st.just("gap beyond"), st.integers(1, 5), st.just(0), st.sampled_from([Reason.CRASH])),
    st.tuples(st.just("config"), CONFIGS),
    st.tuples(st.just("expire")),
)
STEPS = st.lists(st.tuples(st.integers(0, 6), COMMANDS), max_size=14)
REQUESTS = st.builds(
    PageRequest,
    limit=st.sampled_from([1, 2, 7, 256]),
    max_bytes=st.sampled_from([1, 120, 700, 1 << 20]),
    nodes=st.sampled_from([frozenset[str](), frozenset({"n"}), frozenset({"m", 'q"'})]),
    match=st.sampled_from(MATCHES),
    from_ts=st.none() | st.integers(995, 1040),
    to_seq=st.none() | SEQS,
    include_tags=st.booleans(),
    include_meta=st.booleans(),
    include_data=st.booleans(),
    epoch=st.sampled_from([None, None, 1, 2]),
    lines=st.booleans(),
)


class Life:
    """One topic, and the log of what was done to it."""

    def __init__(self, config: TopicConfig, cache_bytes: int) -> None:
        self.frames: dict[int, tuple[int, int, bytes]] = {}
        self.log: list[tuple[Any, ...]] = []
        self.cache = Cache(cache_bytes, self.load)
        self.topic = Topic(1, "t", 1, config, self.cache, Keys())

    def load(self, shard: int, lsn: int) -> Rendered:
        assert shard == 0
        flags, count, body = self.frames[lsn]
        return decode_append_body(flags, count, body).rendered

    def append(self, batch: Batch, ts: int, key: bytes | None) -> None:
        rendered = render(batch, self.topic.head + 1, ts)
        flags, body = encode_append_body(key, batch_digest(batch) if key else b"", rendered)
        lsn = 8 * len(self.frames)
        self.frames[lsn] = (flags, len(batch), body)
        idem = None if key is None else (key, batch_digest(batch))
        self.do("apply_append", self.topic.head + 1, rendered, ts, (0, lsn), idem)

    def do(self, call: str, *arguments: Any) -> Any:
        if call != "expire":
            self.log.append((call, *arguments))
        done = getattr(self.topic, call)(*arguments)
        self.cache.shrink()
        return done


def replayed(life: Life, config: TopicConfig) -> Topic:
    """A new topic from the log of an older one, appends decoded from their frames."""
    cache = Cache(0, life.load)
    topic = Topic(1, "t", 1, config, cache, Keys())
    for call, *arguments in life.log:
        if call == "apply_append":
            arguments[1] = life.load(*arguments[3])
        getattr(topic, call)(*arguments)
    return topic


def picture(topic: Topic, now: int) -> dict[str, Any]:
    """Everything that a topic is, but for how it keeps its bytes."""
    return {
        "head": topic.head,
        "earliest": topic.earliest_seq,
        "count": topic.count,
        "bytes": topic.bytes,
        "floor": (topic.floor.seq, topic.floor.ranges()),
        "gaps": list(topic.gaps),
        "deleted": list(topic.deleted),
        "damage": topic.damage(),
        "written": topic.last_write_ts,
        "keys": topic.idempotency.entries(),
        "live keys": topic.idempotency.store.live,
        "config": topic.config,
        "records": [find_record(topic, seq, now) for seq in range(topic.head + 2)],
    }


def run(step: tuple[Any, ...], now: int, model: Model, lives: list[Life]) -> None:
    """One command, everywhere."""
    match step:
        case ("append", records, keyed):
            datas, metas, tags, nodes = (list(column) for column in zip(*records, strict=True))
            batch = Batch(
                datas,
                tags=tags if any(tag is not None for tag in tags) else None,
                nodes=nodes if any(node is not None for node in nodes) else None,
                metas=metas if any(meta is not None for meta in metas) else None,
            )
            model.append(batch, now)
            for life in lives:
                life.append(batch, now, b"key %d" % (now % 3) if keyed else None)
        case ("delete", before, match, seqs):
            chosen = None if seqs is None else tuple(seqs)
            wanted = model.matching(before, match, chosen, now)
            for life in lives:
                ranges = resolve_delete(life.topic, DeleteSelector(before_seq=before, match=match, seqs=chosen), now)
                covered = [seq for first, last in ranges for seq in range(first, last + 1)]
                assert [seq for seq in covered if model.at(now).slots[seq].fate == LIVE] == wanted
                assert (match is None and chosen is None) or covered == wanted
                assert life.do("apply_delete", ranges, now) == len(wanted)
            assert model.delete(wanted, now) == len(wanted)
        case ("gap" | "gap beyond", first, more, reason):
            if step[0] == "gap beyond":
                first, more = model.head + 1, first - 1
            elif first > model.head:
                return
            model.gap(first, first + more, reason, now)
            for life in lives:
                life.do("apply_gap", first, first + more, reason, now)
        case ("config", config):
            model.configure(config, now)
            for life in lives:
                life.do("apply_config", config, now)
        case ("expire",):
            model.expire(now)
            for life in lives:
                life.do("expire", now)


def compare_pages(topic: Topic, model: Model, request: PageRequest, now: int, visible: int | None) -> None:
    for cursor in range(model.head + 3):
        asked = msgspec.structs.replace(request, from_seq=cursor)
        page = read_page(topic, asked, now, visible)
        wanted = model.page(asked, now, visible)
        records = wanted["records"]
        if request.lines:
            wanted["records"] = b"".join(r.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n" for r in records)
        else:
            wanted["records"] = b",".join(records)
        given = page_of(page)
        if request.from_ts is not None:
            # How far below the floor records are older than `from_ts` is forgotten with them.
            for side in (given, wanted):
                side["tombstone"] = side["tombstone"] and side["tombstone"].gap_to
        assert given == wanted, (asked, now, visible)
        assert page.count == len(records)
        assert page.scanned <= 100 * request.limit
        compare_newest(topic, request, cursor, now)


def compare_newest(topic: Topic, request: PageRequest, cursor: int, now: int) -> None:
    """The short way to what is new gives what a page does, or nothing."""
    whole = PageRequest(
        from_seq=cursor, limit=request.limit, max_bytes=request.max_bytes, include_tags=request.include_tags
    )
    assert whole.whole
    newest = read_newest(topic, whole, cursor)
    if newest is not None:
        page = read_page(topic, whole, now)
        assert (newest, page.next_from_seq, page.tombstone) == (b"".join(page.pieces), topic.head, None), whole


@settings(max_examples=60, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
@given(CONFIGS, STEPS, st.lists(st.tuples(REQUESTS, st.none() | SEQS), min_size=1, max_size=4), st.integers(0, 20))
def test_a_topic_does_what_the_model_does(
    config: TopicConfig, steps: list[Any], reads: list[tuple[PageRequest, int | None]], later: int
) -> None:
    now = 997
    model = Model(config)
    lives = [Life(config, 0), Life(config, 1)]
    for wait, step in steps:
        now += wait
        run(step, now, model, lives)
        for life in lives:
            topic = life.topic
            live = model.live()
            assert (topic.count, topic.bytes) == (len(live), sum(slot.size() for slot in live))
            assert (topic.head, topic.earliest_seq, topic.floor.seq) == (model.head, model.earliest, model.floor)
    warm, cold = lives
    then = model.at(now + later)
    for life in lives:
        view = life.topic.at(now + later)
        assert (view.earliest_seq, view.floor_seq) == (then.earliest, then.floor)
        assert (view.count, view.bytes) == (len(then.live()), sum(slot.size() for slot in then.live()))
        for request, visible in reads:
            if request.from_ts is not None and model.times_forgotten():
                continue  # a page may then begin before a loss that the model knows to be older; see test_page
            if request.from_ts is not None and then.floor > 1:
                # An end inside of what is gone would show how exactly the times there are remembered.
                compare_pages(life.topic, model, msgspec.structs.replace(request, to_seq=None), now + later, None)
                continue
            compare_pages(life.topic, model, request, now + later, visible)
        for seq in range(model.head + 2):
            assert find_record(life.topic, seq, now + later) == model.record(seq, now + later)
        answers = [model.record(seq, now + later) for seq in range(model.head + 2)]
        fragments = [answer if isinstance(answer, bytes) else None for answer in answers]
        assert find_live(life.topic, range(model.head + 2), now + later) == fragments
        assert find_live(life.topic, range(model.head + 1, -1, -1), now + later) == fragments[::-1]
    picture_now = picture(warm.topic, now)
    assert picture(cold.topic, now) == picture_now
    again = replayed(warm, config)
    for topic in (warm.topic, again):
        topic.expire(now)
    assert picture(again, now) == picture(warm.topic, now)
