"""§1 Errors, `performance`, idempotency."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.kit import JSON, LINES, NDJSON, Api, case, each, has, holds, part, same

RECORDS: list[dict[str, Any]] = [{"data": {"a": 1}, "tag": "t", "node": "n", "meta": {"m": 1}}, {"data": 2}]


@case("1 errors")
def a_404_says_the_topic(api: Api) -> None:
    """404 carries `detail.topic`; `message` says what to do."""
    topic = api.topic()
    error = api.call("GET", f"/v0/topics/{topic}", status=404).json["error"]
    same(error["detail"]["topic"], topic, "detail.topic")
    holds(topic in error["message"], f"the message does not name the topic: {error['message']}")


@case("1 errors")
def invalid_requests_name_the_field(api: Api) -> None:
    """`invalid_request` (bad JSON, type, range, name; `detail.field`)."""
    topic = api.topic()
    api.put(topic)
    for tail, body, field in (
        ("/diff", {"limit": "many"}, "limit"),
        ("/diff", {"include_data": 1}, "include_data"),
        ("/diff", {"match": ["tag", "Like", "x"]}, "match"),
        ("/delete", {"seqs": "1"}, "seqs"),
        ("", {"records": 1}, "records"),
        ("", {"records": [{"data": 1}], "idempotency_key": 7}, "idempotency_key"),
    ):
        detail = api.refused("POST", f"/v0/topics/{topic}{tail}", body, status=400, code="invalid_request")
        same(detail.get("field"), field, f"detail.field for {body}")
    router = {"source": topic, "dest": api.topic(), "filter": 5}
    detail = api.refused("PUT", f"/v0/routers/{topic}", router, status=400, code="invalid_request")
    same(detail.get("field"), "filter", "detail.field of a router")
    detail = api.refused("PUT", f"/v0/topics/{topic}", {"ttl_ms": -1}, status=400, code="invalid_request")
    same(detail.get("field"), "ttl_ms", "detail.field")


BAD_BODIES = [
    ("cut", b'{"records":[{"data":1}'),
    ("empty", b""),
    ("array", b"[]"),
    ("string", b'"x"'),
    ("null", b"null"),
    ("number", b"1"),
    ("not UTF-8", b'{"records":[{"data":"\xff"}]}'),
    ("UTF-16", '{"records":[{"data":1}]}'.encode("utf-16")),
    ("two values", b'{"records":[{"data":1}]} {}'),
    ("BOM", b'\xef\xbb\xbf{"records":[{"data":1}]}'),
    ("deep", b'{"records":' + b"[" * 100_000),
]


@each("1 errors", BAD_BODIES)
def a_bad_body_is_400(api: Api, body: bytes) -> None:
    """400 `invalid_request`: bad JSON or type; nothing changes, the connection goes on."""
    topic = api.topic()
    api.refused("POST", f"/v0/topics/{topic}", body, status=400, code="invalid_request")
    if body:
        api.refused("PUT", f"/v0/topics/{topic}", body[:-1] or b"[", status=400, code="invalid_request")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")


@case("1 errors")
def an_error_has_nothing_but_the_error(api: Api) -> None:
    """Every answer from 400 up has one body: `{"error":{"code","message","detail"?},"performance"?}`."""
    body = api.call("GET", f"/v0/topics/{api.topic()}", status=404).json
    holds(set(body) <= {"error", "performance"}, f"fields {sorted(body)}")


@case("1 performance")
def every_answer_has_performance(api: Api) -> None:
    """`performance` in every JSON answer: `server_total_ms`."""
    topic = api.topic()
    for method, path, body in (
        ("PUT", f"/v0/topics/{topic}", {}),
        ("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}),
        ("GET", f"/v0/topics/{topic}", None),
        ("POST", f"/v0/topics/{topic}/diff", {}),
        ("POST", "/v0/write", {"topics": {topic: {"records": [{"data": 1}]}}}),
        ("POST", "/v0/diff", {"topics": {topic: {}}}),
        ("POST", f"/v0/topics/{topic}/delete", {"seqs": [1]}),
        ("POST", "/v0/watch", {"topics": {topic: {}}}),
        ("GET", f"/v0/topics?prefix={topic}", None),
        ("DELETE", f"/v0/topics/{topic}", None),
    ):
        answer = api.call(method, path, body, status=(200, 201)).json
        has(answer, ["performance"], f"{method} {path}")
        total = answer["performance"].get("server_total_ms")
        holds(isinstance(total, float | int) and 0 <= total < 15_000, f"{method} {path}: server_total_ms {total!r}")


@case("1 performance")
def writes_say_what_the_disk_took(api: Api) -> None:
    """Where they apply `wal_append_ms`, `fsync_ms` (0.0 unless the ack waited for a sync)."""
    disk, synced = api.topic(), api.topic()
    api.put(synced, durability="fsync")
    api.write(disk, 0)
    answer = api.write(disk, 1)["performance"]
    has(answer, ["server_total_ms", "wal_append_ms", "fsync_ms"], "performance of a write")
    same(answer["fsync_ms"], 0.0, "fsync_ms of class disk")
    holds(answer["wal_append_ms"] > 0, f"wal_append_ms {answer['wal_append_ms']}")
    answer = api.write(synced, 1)["performance"]
    holds(0 < answer["fsync_ms"] <= answer["server_total_ms"] + 0.01, f"performance of class fsync: {answer}")
    holds(api.write(disk, 2, ack="fsync")["performance"]["fsync_ms"] > 0, 'fsync_ms with ack "fsync"')


@case("1 performance")
def reads_say_what_they_scanned(api: Api) -> None:
    """Where they apply … `records_scanned`."""
    topic = api.topic()
    api.write_records(topic, [{"data": n, "node": "a" if n % 2 else "b"} for n in range(20)])
    same(api.diff(topic)["performance"]["records_scanned"], 20, "records_scanned")
    same(api.diff(topic, node="a")["performance"]["records_scanned"], 20, "records_scanned with a filter")
    same(api.diff(topic, from_seq=20)["performance"]["records_scanned"], 0, "records_scanned at the head")


@case("1 idempotency")
def a_key_makes_a_retry_harmless(api: Api) -> None:
    """The same key inside the window gives the first answer's seqs and `deduped: true` and appends nothing."""
    topic = api.topic()
    first = api.write_records(topic, RECORDS, idempotency_key="k")
    part(first, {"first_seq": 1, "last_seq": 2, "deduped": False, "created": True}, "first")
    api.write(topic, "between")
    second = api.call("POST", f"/v0/topics/{topic}", {"records": RECORDS, "idempotency_key": "k"}, status=200).json
    want = {"first_seq": 1, "last_seq": 2, "seqs": [1, 2], "count": 2, "deduped": True, "created": False, "head_seq": 3}
    part(second, want, "a deduped answer is 200, created:false, with the present head_seq")
    same(api.seqs(topic), [1, 2, 3], "seqs")


@case("1 idempotency")
def the_key_may_be_a_header(api: Api) -> None:
    """`idempotency_key` (body, or header `Idempotency-Key`; body wins)."""
    topic = api.topic()
    path, header = f"/v0/topics/{topic}", (("Idempotency-Key", "from-header"),)
    body: dict[str, Any] = {"records": [{"data": 1}]}
    same(api.call("POST", path, body, headers=header, status=201).json["deduped"], False, "first")
    same(api.call("POST", path, body, headers=header, status=200).json["deduped"], True, "again")
    same(api.call("POST", path, {**body, "idempotency_key": "from-header"}).json["deduped"], True, "in the body")
    other = {**body, "idempotency_key": "from-body"}
    same(api.call("POST", path, other, headers=header, status=200).json["deduped"], False, "body wins")
    same(api.call("POST", path, other, status=200).json["deduped"], True, "by the body's key")


@each("1 idempotency", [("ndjson", (NDJSON, b"1.10\n{}\n", b"1.1\n{}\n")), ("lines", (LINES, b"a\nb\n", b"a\nc\n"))])
def the_key_may_be_a_query_parameter(api: Api, way: tuple[str, bytes, bytes]) -> None:
    """For NDJSON and lines `idempotency_key` comes as a query parameter."""
    media, body, other = way
    path = f"/v0/topics/{api.topic()}?idempotency_key=k%201"
    same(api.call("POST", path, body, media=media, status=201).json["deduped"], False, "first")
    same(api.call("POST", path, body, media=media, status=200).json["deduped"], True, "again")
    api.refused("POST", path, other, media=media, status=422, code="idempotency_mismatch")
    without = path.partition("?")[0]
    same(api.call("POST", without, other, media=media, status=200).json["deduped"], False, "without a key")


MISMATCHES = [
    ("data", [{**RECORDS[0], "data": {"a": 2}}, RECORDS[1]]),
    ("tag", [{**RECORDS[0], "tag": "u"}, RECORDS[1]]),
    ("node", [{**RECORDS[0], "node": "m"}, RECORDS[1]]),
    ("meta", [{**RECORDS[0], "meta": {"m": 2}}, RECORDS[1]]),
    ("meta left out", [{"data": {"a": 1}, "tag": "t", "node": "n"}, RECORDS[1]]),
    ("order", RECORDS[::-1]),
    ("fewer", RECORDS[:1]),
    ("more", [*RECORDS, RECORDS[1]]),
    ("tag for node", [{"data": {"a": 1}, "tag": "n", "node": "t", "meta": {"m": 1}}, RECORDS[1]]),
]


@each("1 idempotency", MISMATCHES)
def the_same_key_with_other_records_is_422(api: Api, records: list[dict[str, Any]]) -> None:
    """The same key with other records (`data meta node tag`) is `422 idempotency_mismatch`."""
    topic = api.topic()
    api.write_records(topic, RECORDS, idempotency_key="k")
    body = {"records": records, "idempotency_key": "k"}
    api.refused("POST", f"/v0/topics/{topic}", body, status=422, code="idempotency_mismatch")
    same(api.state(topic)["head_seq"], 2, "head")
    same(api.write_records(topic, RECORDS, idempotency_key="k")["deduped"], True, "the right retry afterwards")


@case("1 idempotency")
def nothing_else_of_the_body_counts(api: Api) -> None:
    """… over `data meta node tag`, nothing else of the body."""
    topic = api.topic()
    api.write_records(topic, RECORDS, idempotency_key="k")
    retry = api.write_records(topic, RECORDS, idempotency_key="k", ack="fsync", disable_backpressure=True, create=True)
    same(retry["deduped"], True, "deduped with other options")
    raw = b'{ "idempotency_key":"k","records":[{"meta":{"m": 1},"node":"n","data":{"a": 1},"tag":"t"}, {"data":2} ] }'
    same(api.call("POST", f"/v0/topics/{topic}", raw, status=200).json["deduped"], True, "other order and white space")


@case("1 idempotency")
def keys_are_scoped_to_the_topic(api: Api) -> None:
    """Idempotency keys are scoped to the topic."""
    one, two = api.topic(), api.topic()
    same(api.write(one, 1, idempotency_key="k")["deduped"], False, "in the first topic")
    same(api.write(two, 2, idempotency_key="k")["deduped"], False, "in the second topic")
    api.call("DELETE", f"/v0/topics/{one}", status=200)
    same(api.write(one, 3, idempotency_key="k")["deduped"], False, "in a new topic of the same name")


@case("1 idempotency")
def a_key_ends_with_its_window(api: Api) -> None:
    """The same key inside `idempotency_window_ms` – and no longer."""
    topic = api.topic()
    api.put(topic, idempotency_window_ms=300)
    api.write(topic, 1, idempotency_key="k")
    same(api.write(topic, 1, idempotency_key="k")["deduped"], True, "inside the window")
    time.sleep(0.45)
    same(api.write(topic, 2, idempotency_key="k")["deduped"], False, "after the window, with other records")
    same(api.seqs(topic), [1, 2], "seqs")


@case("1 idempotency")
def a_key_has_at_most_256_bytes(api: Api) -> None:
    """`idempotency_key` ≤ 256 bytes."""
    topic = api.topic()
    api.write(topic, 1, idempotency_key="k" * 256)
    api.write(topic, 1, idempotency_key="é" * 128)
    for key in ("k" * 257, "é" * 129):
        body = {"records": [{"data": 1}], "idempotency_key": key}
        api.refused("POST", f"/v0/topics/{topic}", body, status=400, code="invalid_request")
    same(api.state(topic)["head_seq"], 2, "head")


@case("1 idempotency")
def a_refused_write_uses_no_key(api: Api) -> None:
    """What was refused may be sent again under the same key."""
    topic = api.topic()
    api.put(topic, cap_records=1, discard="reject")
    api.write(topic, "fills")
    body = {"records": [{"data": 1}], "idempotency_key": "k"}
    api.refused("POST", f"/v0/topics/{topic}", body, status=422, code="topic_full")
    api.delete(topic, seqs=[1])
    part(api.call("POST", f"/v0/topics/{topic}", body, status=200).json, {"deduped": False, "first_seq": 2}, "retry")


@case("1 idempotency")
def a_retry_beside_the_first_waits_for_it(api: Api) -> None:
    """A retry that arrives while the first is still being committed waits for it."""
    topic = api.topic()
    api.put(topic, durability="fsync")
    request = api.bytes_of("POST", f"/v0/topics/{topic}", {"records": RECORDS, "idempotency_key": "k"}, media=JSON)
    statuses: list[tuple[int, bool, int]] = []

    def send(other: Api) -> None:
        answer = other.exchange(request).json
        statuses.append((answer["first_seq"], answer["deduped"], answer["last_seq"]))

    for thread in [api.later(0.0, send) for _ in range(8)]:
        thread.join()
    same(sorted(statuses), [(1, False, 2)] + [(1, True, 2)] * 7, "answers of eight at once")
    same(api.state(topic)["head_seq"], 2, "head")


@case("1 idempotency")
def several_topics_dedupe_each(api: Api) -> None:
    """`/v0/write` takes a key for each topic."""
    one, two = api.topic(), api.topic()
    body = {"topics": {name: {"records": [{"data": 1}], "idempotency_key": "k"} for name in (one, two)}}
    api.call("POST", "/v0/write", body, status=(200, 201))
    again = api.call("POST", "/v0/write", body, status=200).json["topics"]
    same([again[one]["deduped"], again[two]["deduped"]], [True, True], "deduped")
    body["topics"][two]["records"] = [{"data": 2}]
    mixed = api.call("POST", "/v0/write", body, status=207).json
    same(mixed["topics"][two]["error"]["code"], "idempotency_mismatch", "code")
    same((mixed["ok"], mixed["failed"]), (1, 1), "ok, failed")
