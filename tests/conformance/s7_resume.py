"""§7 Watch: ids and resuming, taking over, loss, dropped topics, heartbeats, line breaks."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any

from tests.conformance import rawjson
from tests.conformance.kit import Api, case, each, has, holds, part, same
from tests.conformance.sse import Stream, create, decoded_id, watch
from tests.conformance.wire import render_request


def datas(stream: Stream, count: int) -> list[Any]:
    """The data of the next `count` records."""
    return [rawjson.parse(one)["data"] for one in stream.records(count)]


def token(cursors: dict[str, int]) -> str:
    """An event id for these cursors."""
    return base64.urlsafe_b64encode(json.dumps(cursors, separators=(",", ":")).encode()).rstrip(b"=").decode()


@case("7 resume")
def ids_hold_all_cursors(api: Api) -> None:
    """`id:` is unpadded base64url of `{"topic":seq,…}` for all topics of the session."""
    one, two = api.topic(), api.topic()
    api.write(one, 1, 2, 3)
    api.put(two)
    with watch(api, {one: {}, two: {}}) as stream:
        event = stream.seek("record")
        same(decoded_id(event), {one: 3, two: 0}, "id")
        api.write(two, 1)
        same(decoded_id(stream.seek("record")), {one: 3, two: 1}, "id after the other topic")


@case("7 resume")
def the_sessions_own_cursors_count(api: Api) -> None:
    """On reconnect the session's own cursors count."""
    topic = api.topic()
    api.write(topic, 1, 2)
    url = create(api, {topic: {}})["stream_url"]
    with Stream(api, url) as stream:
        same(datas(stream, 2), [1, 2], "first stream")
        stream.next_named("caught-up")
    api.write(topic, 3)
    with Stream(api, url) as stream:
        same(datas(stream, 1), [3], "second stream")
        part(stream.next_named("caught-up").data, {"topic": topic, "head_seq": 3}, "caught-up at every open")


@case("7 resume")
def last_event_id_rewinds(api: Api) -> None:
    """`Last-Event-ID` only ever rewinds them."""
    topic = api.topic()
    api.write(topic, 1, 2, 3, 4)
    url = create(api, {topic: {}}, limit=1)["stream_url"]
    with Stream(api, url) as stream:
        ids = [stream.next_named("record").id for _ in range(4)]
    with Stream(api, url, (("Last-Event-ID", ids[1] or ""),)) as stream:
        same(datas(stream, 2), [3, 4], "after the second id")
    with Stream(api, url, (("Last-Event-ID", token({topic: 1})),)) as stream:
        same(datas(stream, 3), [2, 3, 4], "after an id of our own making")
    again = create(api, {topic: {"from_seq": 1}})["stream_url"]
    with Stream(api, again, (("Last-Event-ID", token({topic: 4})),)) as stream:
        same(datas(stream, 3), [2, 3, 4], "an id ahead of the session does not skip")


@each("7 resume", [("nonsense", "%%%"), ("empty", ""), ("not JSON", "AAAA"), ("other topic", token({"elsewhere": 9})),
                   ("negative", token({"x": -1})), ("huge", "A" * 3000)])  # fmt: skip
def a_strange_last_event_id_does_no_harm(api: Api, value: str) -> None:
    """An id that is none of the session's never skips anything: it is refused, or the session's own cursors count."""
    topic = api.topic()
    api.write(topic, 1)
    with api.connect() as connection:
        url = create(api, {topic: {}})["stream_url"]
        headers = (*api.auth(), ("Accept", "text/event-stream"), ("Last-Event-ID", value))
        connection.send(render_request("GET", url, api.target.host_header, headers))
        status, _ = connection.read_head(time.monotonic() + 5)
    holds(status in (200, 400), f"status {status}")
    if status == 200:
        with Stream(api, create(api, {topic: {}})["stream_url"], (("Last-Event-ID", value),)) as stream:
            same(datas(stream, 1), [1], "data")


@case("7 resume")
def an_id_of_many_long_names_comes_back_as_it_is(api: Api) -> None:
    """`id:` is unpadded base64url of `{"topic":seq,…}` for all topics of the session, which a browser sends back."""
    prefix = api.topic()
    names = [api.also_drop(f"{prefix}-{number:02}".ljust(255, "x")) for number in range(64)]
    for name in names:
        api.put(name)
    api.write(names[0], 1, 2)
    url = create(api, {name: {} for name in names}, limit=1)["stream_url"]
    with Stream(api, url) as stream:
        first = stream.seek("record")
        same(len(decoded_id(first)), 64, "topics in the id")
        stream.seek("record")
    with Stream(api, url, (("Last-Event-ID", first.id or ""),)) as stream:
        same(datas(stream, 1), [2], "after the first id")


@case("7 resume")
def many_topics_have_an_opaque_token(api: Api) -> None:
    """Above 64 topics the id is an opaque token, which rewinds as well."""
    names = [api.topic() for _ in range(70)]
    for name in names:
        api.put(name)
    api.write(names[0], 1)
    url = create(api, {name: {} for name in names})["stream_url"]
    with Stream(api, url) as stream:
        first = stream.seek("record")
        holds(first.id is not None and len(first.id) < 1000, f"id {first.id}")
        api.write(names[1], 2)
        same(stream.seek("record").data["topic"], names[1], "topic")
    with Stream(api, url, (("Last-Event-ID", first.id or ""),)) as stream:
        same(stream.seek("record").data["topic"], names[1], "topic after rewinding")


@case("7 resume")
def a_second_stream_takes_over(api: Api) -> None:
    """One stream per session: a second one takes over, the first gets a terminal error event."""
    topic = api.topic()
    api.write(topic, 1)
    url = create(api, {topic: {}})["stream_url"]
    with Stream(api, url) as first:
        first.seek("caught-up")
        with Stream(api, url) as second:
            error = first.next_named("error")
            has(error.data, ["code", "error"], "error event")
            holds(first.ends(), "the first stream goes on")
            api.write(topic, 2)
            same(datas(second, 1), [2], "data of the second")


@case("7 loss")
def loss_before_the_cursor_is_said_at_connect(api: Api) -> None:
    """`tombstone`: `{topic, reason, gap_from, gap_to, missed_estimate, earliest_seq, head_seq}`, right at connect."""
    topic = api.topic()
    api.put(topic, cap_records=2)
    api.write(topic, *range(6))
    with watch(api, {topic: {"from_seq": 1}}) as stream:
        data = stream.next_named("tombstone").data
        fields = {"topic", "reason", "gap_from", "gap_to", "missed_estimate", "earliest_seq", "head_seq"}
        same(set(data), fields, "fields")
        want = {"topic": topic, "gap_from": 2, "gap_to": 4, "missed_estimate": 3, "earliest_seq": 5, "head_seq": 6}
        part(data, want, "tombstone")
        holds(data["reason"] in ("cap", "from_seq_too_old"), f"reason {data['reason']}")
        same(datas(stream, 2), [4, 5], "records after the loss")


@case("7 loss")
def loss_while_live_is_said(api: Api) -> None:
    """What is lost before a stream could show it is a tombstone, never a silent gap."""
    topic = api.topic()
    api.put(topic, cap_records=3)
    with watch(api, {topic: {}}) as stream:
        stream.next_named("caught-up")
        api.write(topic, *range(10))
        covered: list[int] = []
        while len(covered) < 10:
            event = stream.next()
            if event.name == "tombstone":
                covered += range(event.data["gap_from"], event.data["gap_to"] + 1)
            elif event.name == "record":
                covered += [one["$seq"] for one in event.data["records"]]
        same(covered, list(range(1, 11)), "seqs covered by records and tombstones")


@case("7 loss")
def a_recreated_topic_is_a_tombstone(api: Api) -> None:
    """An `epoch` that is not the topic's shows as `recreated`."""
    topic = api.topic()
    old = api.write(topic, 1)["epoch"]
    api.call("DELETE", f"/v0/topics/{topic}", status=200)
    api.write(topic, 2)
    with watch(api, {topic: {"from_seq": 1, "epoch": old}}) as stream:
        same(stream.next_named("tombstone").data["reason"], "recreated", "reason")
        same(datas(stream, 1), [2], "data")


@case("7 loss")
def the_id_of_a_recreated_topic_loses_nothing(api: Api) -> None:
    """`recreated`: reading goes on from `earliest_seq`, which is where the tombstone's id stands."""
    topic = api.topic()
    api.write(topic, 1, 2, 3)
    api.delete(topic, before_seq=2)
    with watch(api, {topic: {"from_seq": 99}}) as stream:
        event = stream.next_named("tombstone")
        part(event.data, {"reason": "recreated", "gap_from": 1, "gap_to": 3}, "tombstone")
        same(decoded_id(event), {topic: 1}, "id of the tombstone")
        same(decoded_id(stream.next_named("record")), {topic: 3}, "id of the records")
    with watch(api, {topic: {"from_seq": decoded_id(event)[topic]}}) as stream:
        same(datas(stream, 2), [2, 3], "a session of its own from that id")


@case("7 loss")
def a_dropped_topic_ends_alone(api: Api) -> None:
    """`topic-deleted`: `{topic, head_seq, reason:"deleted"}`; ends that topic only."""
    one, two = api.topic(), api.topic()
    api.write(one, 1)
    api.put(two)
    with watch(api, {one: {}, two: {}}) as stream:
        for _ in range(2):
            stream.seek("caught-up")
        api.call("DELETE", f"/v0/topics/{one}", status=200)
        same(stream.next_named("topic-deleted").data, {"topic": one, "head_seq": 1, "reason": "deleted"}, "data")
        api.write(one, "a new incarnation is another topic")
        api.write(two, 2)
        data = stream.seek("record").data
        same((data["topic"], data["records"][0]["data"]), (two, 2), "the other topic goes on")


@case("7 heartbeat")
def a_silent_stream_has_heartbeats(api: Api) -> None:
    """`: hb <ms>` comment after `heartbeat_ms` of silence; never an id; clamped 1000 … 60000."""
    topic = api.topic()
    api.put(topic)
    with watch(api, {topic: {}}, heartbeat_ms=1) as stream:
        stream.next_named("caught-up")
        started = time.monotonic()
        beat = stream.maybe_next(4)
        took = time.monotonic() - started
        holds(beat is not None and beat.comment is not None, f"no comment but {beat}")
        if beat is not None:
            same(len(beat.lines), 1, "lines of a heartbeat")
            holds(re.fullmatch(rb": hb \d{13}", beat.lines[0]) is not None, f"heartbeat {beat.lines[0]!r}")
        holds(0.8 < took < 3, f"heartbeat after {took:.2f} s, clamped to 1 s")
        # Silence begins with the last thing that was said, not with the last heartbeat.
        time.sleep(0.4)
        started = time.monotonic()
        api.write(topic, 1)
        stream.next_named("record")
        beat = stream.maybe_next(4)
        took = time.monotonic() - started
        holds(beat is not None and beat.comment is not None and took >= 1, f"{beat} {took:.2f} s after a record")


@case("7 lines")
def line_breaks_in_data_become_data_lines(api: Api) -> None:
    """A JSON payload with raw line breaks inside becomes several `data:` lines; lines end in LF."""
    topic = api.topic()
    api.write_raw(topic, [b'{"a":\n1,\r\n"b":\r2}'])
    with watch(api, {topic: {}}) as stream:
        event = stream.next_named("record")
        same(sum(line.startswith(b"data: ") for line in event.lines), 4, "data lines")
        same(event.data["records"][0]["data"], {"a": 1, "b": 2}, "data")


@case("7 lines")
def a_payload_cannot_make_events(api: Api) -> None:
    """Data that looks like an event stays data: an id, an event name or a comment cannot be smuggled in."""
    topic = api.topic()
    api.write_raw(topic, [b'{"x":\n\n\n"event: error",\n"y":\n"id: x"\n}', b'"\\nevent: error\\ndata: x\\n\\n"'])
    with watch(api, {topic: {}}) as stream:
        event = stream.next_named("record")
        same(event.data["records"][0]["data"], {"x": "event: error", "y": "id: x"}, "data")
        same(event.data["records"][1]["data"], "\nevent: error\ndata: x\n\n", "data")
        stream.next_named("caught-up")


@case("7 slow")
def a_slow_reader_catches_up_from_the_log(api: Api) -> None:
    """Streams queue *positions*, not frames; a slow one catches up from the log when it drains."""
    topic = api.topic()
    api.put(topic)
    with watch(api, {topic: {}}) as stream:
        stream.next_named("caught-up")
        for n in range(12):
            api.write(topic, *[f"{n}-{index}-" + "x" * 20_000 for index in range(40)])
        seen = datas(stream, 480)
        want = [f"{n}-{index}" for n in range(12) for index in range(40)]
        same([text.rsplit("-", 1)[0] for text in seen], want, "data")


@case("7 slow")
def others_are_served_beside_a_slow_reader(api: Api) -> None:
    """A stream that nobody reads does not hold up another one."""
    topic = api.topic()
    api.put(topic)
    with watch(api, {topic: {}}), watch(api, {topic: {}}) as reader:
        reader.next_named("caught-up")
        for _ in range(10):
            api.write(topic, *["y" * 20_000] * 40)
        same(len(datas(reader, 400)), 400, "records of the reader")
        same(api.state(topic)["head_seq"], 400, "head")
