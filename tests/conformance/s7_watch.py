"""§7 Watch many topics: sessions, what a stream shows, and in which order."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from tests.conformance import rawjson
from tests.conformance.kit import Api, Failed, Needs, case, each, has, holds, part, same
from tests.conformance.sse import Stream, create, watch
from tests.conformance.wire import Connection, render_request


@case("7 session")
def the_answer_of_watch(api: Api) -> None:
    """→ `{wid, stream_url, session_ttl_ms: 300000, topics:{name:{from_seq, head_seq, earliest_seq, epoch}}}`."""
    topic = api.topic()
    epoch = api.write(topic, 1, 2)["epoch"]
    made = create(api, {topic: {"from_seq": 1}})
    holds(re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", made["wid"]) is not None, f"wid {made['wid']}")
    same(made["stream_url"], f"/v0/watch/{made['wid']}", "stream_url")
    same(made["session_ttl_ms"], 300_000, "session_ttl_ms")
    same(made["topics"], {topic: {"from_seq": 1, "head_seq": 2, "earliest_seq": 1, "epoch": epoch}}, "topics")
    holds(create(api, {topic: {}})["wid"] != made["wid"], "two sessions have the same wid")


@case("7 session")
def from_seq_defaults_to_0_and_tail_wins(api: Api) -> None:
    """`from_seq` defaults to 0, `tail` wins over it."""
    topic = api.topic()
    api.write(topic, 1, 2, 3)
    for asked, want in (({}, 0), ({"from_seq": 2}, 2), ({"tail": True}, 3), ({"tail": True, "from_seq": 1}, 3)):
        same(create(api, {topic: asked})["topics"][topic]["from_seq"], want, f"from_seq for {asked}")
    same(create(api, {topic: {"tail": False, "from_seq": 1}})["topics"][topic]["from_seq"], 1, "tail:false")


@case("7 session")
def unknown_topics_are_404_unless_lenient(api: Api) -> None:
    """Unknown topics are 404 unless `lenient` drops them."""
    topic, absent = api.topic(), api.topic()
    api.put(topic)
    both: dict[str, Any] = {"topics": {topic: {}, absent: {}}}
    detail = api.refused("POST", "/v0/watch", both, status=404, code="topic_not_found")
    same(detail.get("topic"), absent, "detail.topic")
    same(list(create(api, both["topics"], "?lenient=true")["topics"]), [topic], "topics of a lenient session")
    api.refused("POST", "/v0/watch?lenient=false", both, status=404, code="topic_not_found")
    api.refused("GET", f"/v0/topics/{absent}", status=404, code="topic_not_found")


BAD_SESSIONS: list[tuple[str, dict[str, Any]]] = [
    ("no topics", {}),
    ("empty", {"topics": {}}),
    ("list", {"topics": ["a"]}),
    ("257 topics", {"topics": {f"t{index}": {} for index in range(257)}}),
    ("bad name", {"topics": {"../x": {}}}),
    ("bad from_seq", {"topics": {"THERE": {"from_seq": -1}}}),
    ("bad tail", {"topics": {"THERE": {"tail": 1}}}),
    ("bad limit", {"topics": {"THERE": {}}, "limit": "x"}),
    ("bad consistency", {"topics": {"THERE": {}}, "consistency": "weak"}),
    ("bad heartbeat", {"topics": {"THERE": {}}, "heartbeat_ms": -1}),
]


@each("7 session", BAD_SESSIONS)
def a_bad_session_is_400(api: Api, body: dict[str, Any]) -> None:
    """`topics` (1 … 256 of `name → {from_seq?, tail?, from_ts?, epoch?}`), types and ranges: else 400."""
    topic = api.topic()
    api.put(topic)
    raw = json.dumps(body).replace("THERE", topic).encode()
    api.refused("POST", "/v0/watch", raw, status=400, code="invalid_request")


@each("7 session", [("json", "application/json"), ("html", "text/html"), ("q=0", "text/event-stream;q=0")])
def accept_must_allow_an_event_stream(api: Api, accept: str) -> None:
    """`Accept` must allow `text/event-stream`, else 406."""
    topic = api.topic()
    api.put(topic)
    url = create(api, {topic: {}})["stream_url"]
    api.refused("GET", url, headers=(("Accept", accept),), status=406, code="not_acceptable")


@each(
    "7 session",
    [
        ("exact", "text/event-stream"),
        ("any", "*/*"),
        ("text", "text/*"),
        ("list", "text/html, text/event-stream;q=0.5"),
        ("none", ""),
    ],
)
def an_event_stream_is_given_where_allowed(api: Api, accept: str) -> None:
    """`Accept` must allow `text/event-stream`: itself, a range that holds it, or no `Accept` at all."""
    topic = api.topic()
    api.put(topic)
    url = create(api, {topic: {}})["stream_url"]
    headers = (*api.auth(), *((("Accept", accept),) if accept else ()))
    with api.connect() as connection:
        connection.send(render_request("GET", url, api.target.host_header, headers))
        same(connection.read_head(time.monotonic() + 5)[0], 200, "status")


@case("7 stream")
def the_head_of_a_stream(api: Api) -> None:
    """`Cache-Control: no-store`, `X-Accel-Buffering: no`, first `retry: 2000`."""
    topic = api.topic()
    api.put(topic)
    with watch(api, {topic: {}}) as stream:
        same((stream.head.header("content-type") or "").partition(";")[0], "text/event-stream", "Content-Type")
        same(stream.head.header("cache-control"), "no-store", "Cache-Control")
        same(stream.head.header("x-accel-buffering"), "no", "X-Accel-Buffering")
        same(stream.head.header("content-encoding"), None, "Content-Encoding")
        first = stream.maybe_next()
        same(first.lines[0] if first else None, b"retry: 2000", "first line")


@case("7 stream")
def a_record_event(api: Api) -> None:
    """`record`: `{topic, records, from_seq, to_seq, head_seq}`; `from_seq` exclusive, `to_seq` the last examined."""
    topic = api.topic()
    api.write(topic, "a", "b", "c")
    with watch(api, {topic: {"from_seq": 1}}) as stream:
        event = stream.next_named("record")
        same(set(event.data), {"topic", "records", "from_seq", "to_seq", "head_seq"}, "fields")
        part(event.data, {"topic": topic, "from_seq": 1, "to_seq": 3, "head_seq": 3}, "data")
        same([(one["$seq"], one["data"]) for one in event.data["records"]], [(2, "b"), (3, "c")], "records")
        holds(not rawjson.has_white(event.raw), "white space of ours")
        same(stream.next_named("caught-up").data, {"topic": topic, "head_seq": 3}, "caught-up")


@case("7 stream")
def live_records_follow(api: Api) -> None:
    """After the backlog a stream shows what is written, in order, nothing missed or repeated."""
    topic = api.topic()
    api.write(topic, 0)
    with watch(api, {topic: {}}) as stream:
        stream.next_named("record")
        stream.next_named("caught-up")
        for n in range(1, 30):
            api.write(topic, n)
        seen = [rawjson.parse(one)["data"] for one in stream.records(29)]
        same(seen, list(range(1, 30)), "data")


@case("7 stream")
def frames_join_without_gaps(api: Api) -> None:
    """A backlog comes in frames of up to `limit`; each frame's `from_seq` is the `to_seq` before it."""
    topic = api.topic()
    api.write(topic, *range(100))
    with watch(api, {topic: {}}, limit=30) as stream:
        cursor, sizes = 0, []
        while cursor < 100:
            data = stream.next_named("record").data
            same(data["from_seq"], cursor, "from_seq")
            sizes.append(len(data["records"]))
            cursor = data["to_seq"]
        holds(max(sizes) <= 30 and sum(sizes) == 100, f"sizes {sizes}")
        stream.next_named("caught-up")


@case("7 stream")
def max_batch_bytes_bounds_a_frame(api: Api) -> None:
    """`max_batch_bytes` 262144 bounds a frame; one record is always given."""
    topic = api.topic()
    api.write(topic, *["x" * 1000] * 40)
    with watch(api, {topic: {}}, max_batch_bytes=5000) as stream:
        count = len(stream.next_named("record").data["records"])
        holds(3 <= count <= 5, f"{count} records of 1000 bytes in a frame of 5000")
    with watch(api, {topic: {}}, max_batch_bytes=1) as stream:
        same(len(stream.next_named("record").data["records"]), 1, "records in a frame of 1 byte")


@case("7 stream")
def caught_up_comes_once_for_each_topic(api: Api) -> None:
    """`caught-up`: once per topic at every open even with nothing to send."""
    empty, full, tailed = api.topic(), api.topic(), api.topic()
    api.put(empty)
    api.write(full, 1)
    api.write(tailed, 1, 2)
    with watch(api, {empty: {}, full: {}, tailed: {"tail": True}}) as stream:
        seen: dict[str, int] = {}
        while len(seen) < 3:
            event = stream.next()
            if event.name == "caught-up":
                holds(event.data["topic"] not in seen, "caught-up twice for a topic")
                seen[event.data["topic"]] = event.data["head_seq"]
            else:
                same((event.name, event.data["topic"]), ("record", full), "event")
        same(seen, {empty: 0, full: 1, tailed: 2}, "heads")
        holds(stream.silent_for(0.2), "something after caught-up though nothing was written")


@case("7 stream")
def record_events_are_never_empty(api: Api) -> None:
    """`record` is never empty: what the session's `node` filters makes no event."""
    topic = api.topic()
    api.write_records(topic, [{"data": 1, "node": "me"}])
    with watch(api, {topic: {}}, node="me") as stream:
        stream.next_named("caught-up")
        api.write_records(topic, [{"data": 2, "node": "me"}])
        api.write_records(topic, [{"data": 3, "node": "other"}])
        data = stream.next_named("record").data
        same([one["data"] for one in data["records"]], [3], "data")
        same(data["to_seq"], 3, "to_seq")


@case("7 stream")
def match_filters_a_stream(api: Api) -> None:
    """`match` filters by tag."""
    topic = api.topic()
    records = [{"data": n, "tag": tag} for n, tag in enumerate(["x1", "y", "x2"])]
    api.write_records(topic, records)
    with watch(api, {topic: {}}, match="x*") as stream:
        same([rawjson.parse(one)["data"] for one in stream.records(2)], [0, 2], "backlog")
        api.write_records(topic, records)
        same([rawjson.parse(one)["data"] for one in stream.records(2)], [0, 2], "live")


CHOICES: list[tuple[str, tuple[dict[str, bool], set[str]]]] = [
    ("default", ({}, {"$seq", "$ts", "$node", "data", "meta"})),
    ("tags", ({"include_tags": True}, {"$seq", "$ts", "$node", "data", "meta", "$tag"})),
    ("no meta", ({"include_meta": False}, {"$seq", "$ts", "$node", "data"})),
    ("no data", ({"include_data": False}, {"$seq", "$ts", "$node", "meta"})),
]


@each("7 stream", CHOICES)
def parts_can_be_chosen_for_a_stream(api: Api, choice: tuple[dict[str, bool], set[str]]) -> None:
    """`include_meta` true, `include_tags` false, `include_data` true – backlog and live alike."""
    fields, want = choice
    topic = api.topic()
    record = {"data": 1, "tag": "t", "node": "n", "meta": {"k": 1}}
    api.write_records(topic, [record])
    with watch(api, {topic: {}}, **fields) as stream:
        same(set(rawjson.parse(stream.records(1)[0])), want, "backlog")
        api.write_records(topic, [record])
        same(set(rawjson.parse(stream.records(1)[0])), want, "live")


@case("7 stream")
def several_topics_in_one_stream(api: Api) -> None:
    """Watch many topics: each topic's records come in its order, events say which topic."""
    names = [api.topic() for _ in range(3)]
    for name in names:
        api.put(name)
    with watch(api, {name: {} for name in names}) as stream:
        for n in range(12):
            api.write(names[n % 3], n)
        seen: dict[str, list[int]] = {name: [] for name in names}
        while sum(map(len, seen.values())) < 12:
            data = stream.seek("record").data
            seen[data["topic"]] += [one["data"] for one in data["records"]]
        same(list(seen.values()), [list(range(start, 12, 3)) for start in range(3)], "data by topic")


@case("7 stream")
def from_ts_starts_a_stream_at_a_time(api: Api) -> None:
    """`topics`: `name → {from_seq?, tail?, from_ts?, epoch?}`."""
    topic = api.topic()
    for n in range(3):
        api.write(topic, n)
        time.sleep(0.005)
    stamp = api.diff(topic)["records"][1]["$ts"]
    with watch(api, {topic: {"from_ts": stamp}}) as stream:
        same([rawjson.parse(one)["data"] for one in stream.records(2)], [1, 2], "data")


@each("7 stream", [("memory", "memory"), ("disk", "disk"), ("fsync", "fsync"), ("ephemeral", "ephemeral")])
def strong_shows_only_synced_records(api: Api, durability: str) -> None:
    """`consistency` `eventual` | `strong` (only synced records): they come, once the sync is done."""
    topic = api.topic()
    api.put(topic, durability=durability)
    with watch(api, {topic: {}}, consistency="strong") as stream:
        stream.next_named("caught-up")
        for first in (1, 3):
            api.write(topic, first, first + 1)
            same([rawjson.parse(one)["data"] for one in stream.records(2)], [first, first + 1], "data")


@case("7 session", Needs.KEYS)
def the_wid_is_no_credential(api: Api) -> None:
    """The key that made the session must be presented (`Authorization`, or `?token=`); the `wid` alone is none."""
    topic = api.topic()
    api.put(topic)
    url = create(api, {topic: {}})["stream_url"]

    def status(path: str, *headers: tuple[str, str]) -> int:
        with Connection(api.target) as connection:
            sent = (("Accept", "text/event-stream"), *headers)
            connection.send(render_request("GET", path, api.target.host_header, sent))
            return connection.read_head(time.monotonic() + 5)[0]

    same(status(url), 401, "without a key")
    holds(status(url, *api.auth(api.keys.read)) in (401, 403), "another key opens the stream")
    same(status(f"{url}?token={api.keys.full}"), 200, "?token=")
    same(status(url, *api.auth()), 200, "Authorization")
    api.refused("POST", "/v0/watch", {"topics": {topic: {}}}, status=403, code="forbidden", key=api.keys.write)


@case("7 stream")
def a_stream_outlives_other_requests_closing(api: Api) -> None:
    """A session belongs to no connection: the one that made it may close before the stream is opened."""
    topic = api.topic()
    api.write(topic, 1)
    maker = Api(api.target, api.keys)
    url = create(maker, {topic: {}})["stream_url"]
    maker.close()
    with Stream(api, url) as stream:
        has(stream.next_named("record").data, ["records"], "event")
    if create(api, {topic: {}})["stream_url"] == url:
        raise Failed("a wid came twice")
