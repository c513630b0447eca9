"""§8 WebSocket: commands, what a socket is told, and in which order."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from tests.conformance import rawjson
from tests.conformance.kit import Api, Failed, Needs, case, each, has, holds, part, same
from tests.conformance.sse import watch
from tests.conformance.ws import BINARY, CONT, PING, PONG, TEXT, Socket, frame


@case("8 websocket")
def it_opens_and_offers_no_compression(api: Api) -> None:
    """`GET /v0/ws`: text frames of JSON; permessage-deflate is not offered."""
    with Socket(api, "Sec-WebSocket-Extensions: permessage-deflate", "Sec-WebSocket-Protocol: chat") as socket:
        same(socket.head.header("sec-websocket-extensions"), None, "Sec-WebSocket-Extensions")
        same(socket.head.header("sec-websocket-protocol"), None, "Sec-WebSocket-Protocol")
        same(socket.ask("ping")["op"], "pong", "answer to ping")


@each("8 websocket", [("number", 7), ("string", "a"), ("object", {"a": [1]}), ("null", None)])
def request_id_comes_back(api: Api, value: Any) -> None:
    """Each may carry `request_id`, which comes back."""
    with Socket(api) as socket:
        same(socket.ask("ping", request_id=value)["request_id"], value, "request_id of pong")
        same(socket.ask("nonsense", request_id=value)["request_id"], value, "request_id of error")
        holds("request_id" not in socket.ask("ping"), "a request_id that nobody gave")


@case("8 websocket")
def publish_is_acked_with_the_write_answer(api: Api) -> None:
    """`publish` (the write body plus `topic`, `return_seqs`) → `ack` (the write answer + `op`, `request_id`)."""
    topic = api.topic()
    with Socket(api) as socket:
        ack = socket.ask("publish", topic=topic, records=[{"data": 1, "tag": "a"}, {"data": 2}], request_id=1)
        part(ack, {"op": "ack", "request_id": 1, "topic": topic, "first_seq": 1, "last_seq": 2}, "ack")
        part(ack, {"seqs": [1, 2], "head_seq": 2, "count": 2, "created": True, "deduped": False}, "ack")
        has(ack, ("epoch", "performance"), "ack")
        holds("seqs" not in socket.ask("publish", topic=topic, records=[{"data": 3}], return_seqs=False), "seqs")
        twice = [socket.ask("publish", topic=topic, records=[{"data": 4}], idempotency_key="k") for _ in range(2)]
        same([answer["deduped"] for answer in twice], [False, True], "deduped")
    same(api.state(topic)["head_seq"], 4, "head_seq")


@case("8 websocket")
def bytes_survive(api: Api) -> None:
    """`data`: its bytes come back exactly as they were sent."""
    topic = api.topic()
    api.put(topic)
    for value in ("1.10", "1e3", "12345678901234567890", '{ "b":1,"a" :2,"a":3}', '"\\ud800 \\u00e9"'):
        with Socket(api) as socket:
            socket.send(frame(f'{{"op":"publish","topic":"{topic}","records":[{{"data":{value}}}]}}'))
            ack = socket.next()
            same(ack["op"], "ack", f"answer to {value}")
            socket.say("subscribe", topic=topic, from_seq=ack["first_seq"] - 1)
            socket.raw()
            holds(f'"data":{value}}}'.encode() in socket.raw(), f"{value} did not come back as it was sent")


@case("8 websocket")
def subscribed_precedes_the_frames_and_caught_up_follows(api: Api) -> None:
    """`subscribed` precedes that topic's frames; `caught_up` also at once after subscribe."""
    topic, empty = api.topic(), api.topic()
    api.write(topic, 1, 2, 3)
    api.put(empty)
    with Socket(api) as socket:
        heard = [socket.ask("subscribe", topic=topic, from_seq=1), socket.next(), socket.next()]
        same([message["op"] for message in heard], ["subscribed", "record", "caught_up"], "order")
        same([record["$seq"] for record in heard[1]["records"]], [2, 3], "seqs")
        same(socket.ask("subscribe", topic=empty)["op"], "subscribed", "answer")
        part(socket.next(), {"op": "caught_up", "topic": empty, "head_seq": 0}, "caught_up of an empty topic")


@case("8 websocket")
def what_is_delivered_is_the_sse_data(api: Api) -> None:
    """`record caught_up tombstone topic_deleted` carry the SSE data."""
    topic = api.topic()
    api.put(topic, cap_records=2)
    api.write(topic, 1, 2, 3, 4)
    with Socket(api) as socket, watch(api, {topic: {}}) as stream:
        socket.ask("subscribe", topic=topic)

        def both(*ops: str) -> None:
            for op in ops:
                event = stream.seek(op.replace("_", "-"))
                same(socket.next(), {"op": op, **event.data}, op)

        both("tombstone", "record", "caught_up")
        api.write(topic, 5)
        both("record")
        api.call("DELETE", f"/v0/topics/{topic}", status=200)
        both("topic_deleted")


@case("8 websocket")
def an_ack_precedes_the_records_that_it_caused(api: Api) -> None:
    """On the publishing socket `ack` precedes the records that it caused."""
    topic = api.topic()
    api.put(topic)
    with Socket(api) as socket:
        socket.ask("subscribe", topic=topic)
        socket.until("caught_up")
        for number in range(1, 21):
            socket.say("publish", topic=topic, records=[{"data": number}], **({"ack": "fsync"} if number % 2 else {}))
            heard = [socket.next(), socket.next()]
            same([message["op"] for message in heard], ["ack", "record"], f"order of publish {number}")


@case("8 websocket")
def an_ack_precedes_the_copies_that_it_caused(api: Api) -> None:
    """`ack` precedes the records that it caused, those that routers make included, and they follow it."""
    topics = [api.topic() for _ in range(3)]
    for source, dest in pairwise(topics):
        api.call("PUT", f"/v0/routers/{source}", {"source": source, "dest": dest}, status=201)
    with Socket(api) as socket:
        for topic in topics:
            socket.ask("subscribe", topic=topic)
            socket.until("caught_up")
        for number in range(1, 11):
            socket.say("publish", topic=topics[0], records=[{"data": number}], ack="fsync")
            same(socket.next()["op"], "ack", f"answer to publish {number}")
            heard = [socket.next() for _ in topics]
            same([(message["op"], message["to_seq"]) for message in heard], [("record", number)] * 3, "records")
            same({message["topic"] for message in heard}, set(topics), "topics")


@case("8 websocket")
def nothing_follows_unsubscribed(api: Api) -> None:
    """Nothing of it follows `unsubscribed`."""
    topic = api.topic()
    api.put(topic)
    with Socket(api) as socket:
        for number in range(10):
            socket.ask("subscribe", topic=topic, tail=True)
            api.write(topic, number)
            socket.say("unsubscribe", topic=topic)
            socket.until("unsubscribed")
            api.write(topic, number)
            same(socket.ask("ping")["op"], "pong", "the next message")


@case("8 websocket")
def several_topics_and_lenient(api: Api) -> None:
    """`subscribe` (`topic` or `topics`, `from_seq`, `tail`, …, `lenient`)."""
    one, two, absent = api.topic(), api.topic(), api.topic()
    for topic in (one, two):
        api.write(topic, 1, 2)
    with Socket(api) as socket:
        places = socket.ask("subscribe", topics=[one, two], from_seq=1)["topics"]
        same({name: place["from_seq"] for name, place in places.items()}, {one: 1, two: 1}, "places")
    with Socket(api) as socket:
        same(socket.ask("subscribe", topics=[one, absent])["code"], "topic_not_found", "code")
        same(list(socket.ask("subscribe", topics=[one, absent], lenient=True, tail=True)["topics"]), [one], "topics")


@case("8 websocket")
def a_subscription_is_cut_and_filtered_as_asked(api: Api) -> None:
    """`subscribe` (…, `node`, `limit` 1000, `max_batch_bytes`, `include_*`): frames and records are as asked for."""
    topic = api.topic()
    api.write_records(topic, [{"data": n, "tag": "t", "node": "own" if n == 2 else "n"} for n in range(1, 6)])

    def frames(**how: Any) -> list[list[dict[str, Any]]]:
        with Socket(api) as socket:
            socket.ask("subscribe", topic=topic, **how)
            return [message["records"] for message in socket.until("caught_up")[:-1]]

    same([len(records) for records in frames()], [5], "by default")
    same([len(records) for records in frames(limit=2)], [2, 2, 1], "limit")
    same([len(records) for records in frames(max_batch_bytes=1)], [1] * 5, "max_batch_bytes")
    same([record["$seq"] for record in frames(node="own")[0]], [1, 3, 4, 5], "node")
    same(set(frames()[0][0]), {"$seq", "$ts", "$node", "data"}, "fields")
    bare = frames(include_tags=True, include_data=False)[0][0]
    same(set(bare), {"$seq", "$ts", "$node", "$tag"}, "fields that were asked for")


@case("8 websocket")
def jobs_over_a_socket(api: Api) -> None:
    """Queue replies are `claimed acked nacked extended`."""
    topic = api.topic()
    api.put(topic, type="queue")
    api.write(topic, "a", "b", "c")
    with Socket(api) as socket:
        claimed = socket.ask("claim", topic=topic, node="n", max=3, request_id=1)
        part(claimed, {"op": "claimed", "request_id": 1, "count": 3}, "claimed")
        leases = [job["lease_id"] for job in claimed["claimed"]]
        for op, reply, seq in (("ack", "acked", 1), ("nack", "nacked", 2), ("extend", "extended", 3)):
            answer = socket.ask(op, topic=topic, node="n", seqs=[seq], lease_ids=leases[seq - 1 : seq])
            part(answer, {"op": reply, reply: 1, "skipped": []}, reply)


@case("8 websocket")
def errors_have_code_message_and_request_id(api: Api) -> None:
    """`error` (`code`, `message`, `request_id`); the socket goes on."""
    absent = api.topic()
    with Socket(api) as socket:
        for text, code in (
            ("{", "invalid_request"),
            ("[]", "invalid_request"),
            ('{"op":"publish","request_id":1}', "invalid_request"),
            (json.dumps({"op": "subscribe", "topic": absent, "request_id": 1}), "topic_not_found"),
            (json.dumps({"op": "claim", "topic": absent, "node": "n", "request_id": 1}), "topic_not_found"),
        ):
            socket.send(frame(text))
            error = socket.next()
            part(error, {"op": "error", "code": code}, f"error for {text}")
            holds(isinstance(error["message"], str) and error["message"] != "", "message")
            holds(("request_id" in text) == (error.get("request_id") == 1), "request_id")
        same(socket.ask("ping")["op"], "pong", "after errors")


@case("8 websocket")
def unknown_fields_are_said(api: Api) -> None:
    """A request field that the server does not know is ignored, but never silently: `warnings`."""
    topic = api.topic()
    with Socket(api) as socket:
        ack = socket.ask("publish", topic=topic, records=[{"data": 1}], newer=True)
        same(ack["warnings"], ["unknown field newer"], "warnings")
        same(socket.ask("ping", newer=True)["warnings"], ["unknown field newer"], "warnings of a pong")
        holds("warnings" not in socket.ask("ping"), "a warning for nothing")


@case("8 websocket")
def fragments_and_control_frames_between_them(api: Api) -> None:
    """Text frames of JSON, as RFC 6455 lets a client send them."""
    with Socket(api) as socket:
        socket.send(frame('{"op":', fin=False) + frame("x", PING) + frame('"ping"}', CONT))
        heard = dict(socket.frame() for _ in range(2))
        same(heard.get(PONG), b"x", "answer to a ping between fragments")
        same(rawjson.parse(heard.get(TEXT, b"{}")).get("op"), "pong", "answer to the fragments")


CLOSINGS = [
    ("unmasked", frame('{"op":"ping"}', mask=False), 1002),
    ("reserved bit", frame('{"op":"ping"}', reserved=0x40), 1002),
    ("binary", frame('{"op":"ping"}', BINARY), 1003),
    ("not UTF-8", frame(b'"\xff"'), 1007),
    ("too big", b"\x81\xff" + (1 << 40).to_bytes(8, "big") + b"\0\0\0\0", 1009),
]


@each("8 websocket", [(name, (data, code)) for name, data, code in CLOSINGS])
def rules_that_are_broken_close_the_socket(api: Api, sent: tuple[bytes, int]) -> None:
    """Close codes: 1009 too big, and those of RFC 6455."""
    with Socket(api) as socket:
        socket.send(sent[0])
        same(socket.closing(), sent[1], "close code")


@case("8 websocket")
def a_subscribe_with_work_leases_jobs_to_the_socket(api: Api) -> None:
    """The WebSocket has the same as `/work` in `subscribe` with `work: {max, lease_ms}`."""
    queue = api.topic()
    api.put(queue, type="queue")
    api.write(queue, "a", "b", "c")
    with Socket(api) as socket:
        same(socket.ask("subscribe", topic=queue, node="w", work={"max": 2})["op"], "subscribed", "answer")
        jobs = [socket.next() for _ in range(2)]
        same([(job["op"], job["topic"], job["$seq"]) for job in jobs], [("job", queue, 1), ("job", queue, 2)], "jobs")
        for job in jobs:
            has(job, ("lease_id", "deadline", "deliveries", "$ts", "data"), "job")
        socket.say("ack", topic=queue, node="w", seqs=[1])
        same({socket.next().get("op"), socket.next().get("op")}, {"acked", "job"}, "after the ack")
        same(socket.ask("unsubscribe", topic=queue)["op"], "unsubscribed", "answer")
        shown = api.state(queue)["queue"]
        same((shown["ready"], shown["in_flight"]), (2, 0), "ready and in flight behind it")


def refused(api: Api, *headers: str, key: str | None = None) -> str:
    try:
        with Socket(api, *headers, key=key):
            return "101"
    except Failed as why:
        return str(why).partition("→ ")[2].partition(",")[0]


@case("8 websocket")
def a_foreign_origin_is_refused(api: Api) -> None:
    """An `Origin` header that is not allowed is refused on WebSockets."""
    same(refused(api, "Origin: http://evil.example"), "403", "a foreign origin")
    same(refused(api, "Origin: null"), "403", "the null origin")
    same(refused(api, f"Origin: http://{api.target.host_header}"), "101", "our own origin")


@case("8 websocket")
def a_plain_get_is_400(api: Api) -> None:
    """`GET /v0/ws` without an upgrade opens nothing."""
    api.refused("GET", "/v0/ws", status=400, code="invalid_request")


@case("8 websocket", Needs.KEYS)
def opening_needs_a_key_and_commands_their_scopes(api: Api) -> None:
    """Opening needs a valid key; every command is checked for scope and prefix; `publish` with `config` needs admin."""
    topic = api.topic()
    api.write(topic, 1)
    same(refused(api, key="wrong"), "401", "a wrong key")
    with Socket(api, path=f"/v0/ws?token={api.keys.read}") as socket:
        same(socket.ask("publish", topic=topic, records=[{"data": 1}])["code"], "forbidden", "publish with read")
        same(socket.ask("subscribe", topic=topic, tail=True)["op"], "subscribed", "subscribe with read")
    with Socket(api, key=api.keys.write) as socket:
        same(socket.ask("subscribe", topic=topic)["code"], "forbidden", "subscribe with write")
        config = {"records": [{"data": 1}], "config": {"cap_records": 9}}
        same(socket.ask("publish", topic=topic, **config)["code"], "forbidden", "config with write")
        same(socket.ask("publish", topic=topic, records=[{"data": 1}])["op"], "ack", "publish with write")
    with Socket(api, key=api.keys.prefixed) as socket:
        for op, members in (("subscribe", {}), ("publish", {"records": [{"data": 1}]})):
            answer = socket.ask(op, topic=f"not{api.keys.prefix}x", **members)
            same(answer["code"], "forbidden", f"{op} outside of the prefix")
