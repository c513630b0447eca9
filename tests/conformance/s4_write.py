"""§4 Write: JSON, NDJSON, lines; limits; caps; `/v0/write`."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.conformance.kit import JSON, LINES, NDJSON, Api, case, each, has, holds, part, same

MIB = 1 << 20


@case("4 write")
def the_answer_of_a_write(api: Api) -> None:
    """`200`, or `201` when it created the topic: `{topic, first_seq, last_seq, seqs, head_seq, count, created, …}`."""
    topic = api.topic()
    path, body = f"/v0/topics/{topic}", {"records": [{"data": 1}, {"data": 2}, {"data": 3}]}
    first = api.call("POST", path, body, status=201).json
    want = {"topic": topic, "first_seq": 1, "last_seq": 3, "seqs": [1, 2, 3], "head_seq": 3, "count": 3}
    part(first, {**want, "created": True, "deduped": False}, "first")
    fields = {*want, "created", "deduped", "epoch", "performance"}
    same(set(first), fields, "fields")
    second = api.call("POST", path, body, status=200).json
    want = {"first_seq": 4, "last_seq": 6, "seqs": [4, 5, 6], "head_seq": 6, "count": 3, "created": False}
    part(second, {**want, "epoch": first["epoch"]}, "second")
    same(set(second), fields, "fields")


@case("4 write")
def return_seqs_false_leaves_them_out(api: Api) -> None:
    """`?return_seqs=false` (also a body field) leaves `seqs` out."""
    topic = api.topic()
    path = f"/v0/topics/{topic}"
    for query, fields in (("?return_seqs=false", {}), ("", {"return_seqs": False})):
        answer = api.call("POST", path + query, {"records": [{"data": 1}], **fields}, status=(200, 201)).json
        holds("seqs" not in answer, "seqs is there")
        has(answer, ["first_seq", "last_seq", "count"], "answer")
    holds("seqs" in api.call("POST", f"{path}?return_seqs=true", {"records": [{"data": 1}]}).json, "seqs is missing")
    lines = api.call("POST", f"{path}?return_seqs=false", b"1\n", media=NDJSON, status=200).json
    holds("seqs" not in lines, "seqs is there for NDJSON")


@case("4 write")
def node_is_the_default_of_records(api: Api) -> None:
    """`node` (default for records without one)."""
    topic = api.topic()
    api.write_records(topic, [{"data": 1}, {"data": 2, "node": "own"}], node="default")
    same([one["$node"] for one in api.diff(topic)["records"]], ["default", "own"], "nodes")


@each(
    "4 write",
    [("none", {}), ("empty list", {"records": []}), ("object", {"records": {"data": 1}}), ("null", {"records": None})],
)
def a_write_without_records_is_400(api: Api, body: dict[str, Any]) -> None:
    """`records` (1 … 10000 of `{data, tag?, node?, meta?}`)."""
    topic = api.topic()
    api.refused("POST", f"/v0/topics/{topic}", body, status=400, code="invalid_request")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")


BAD_RECORDS: list[tuple[str, Any]] = [
    ("no data", {"tag": "t"}),
    ("not an object", 5),
    ("tag number", {"data": 1, "tag": 5}),
    ("node number", {"data": 1, "node": 5}),
    ("meta list", {"data": 1, "meta": []}),
    ("meta text", {"data": 1, "meta": "x"}),
    ("tag of 257 bytes", {"data": 1, "tag": "t" * 257}),
    ("tag of 258 bytes in 129 letters", {"data": 1, "tag": "é" * 129}),
    ("node of 129 bytes", {"data": 1, "node": "n" * 129}),
    ("meta of 65 keys", {"data": 1, "meta": {f"k{index}": 1 for index in range(65)}}),
    ("meta over 16 KiB", {"data": 1, "meta": {"k": "v" * (16 << 10)}}),
]


@each("4 write", BAD_RECORDS)
def a_bad_record_refuses_the_whole_write(api: Api, record: Any) -> None:
    """All of it or nothing; limits of `meta`, `tag`, `node`: 400."""
    topic = api.topic()
    body = {"records": [{"data": 0}, record, {"data": 2}]}
    api.refused("POST", f"/v0/topics/{topic}", body, status=400, code="invalid_request")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")
    api.write(topic, 0)
    api.refused("POST", f"/v0/topics/{topic}", body, status=400, code="invalid_request")
    same(api.state(topic)["head_seq"], 1, "head")


@case("4 write")
def limits_are_inclusive(api: Api) -> None:
    """Limits: `meta` at most 64 keys and 16 KiB, `tag` 256 bytes, `node` 128 bytes – exactly that is taken."""
    topic = api.topic()
    filler = "v" * ((16 << 10) - len(b'{"k":""}'))
    body = json.dumps(
        {
            "records": [
                {"data": 1, "tag": "t" * 256, "node": "n" * 128},
                {"data": 2, "tag": "é" * 128, "node": "é" * 64},
                {"data": 3, "meta": {f"k{index}": index for index in range(64)}},
                {"data": 4, "meta": {"k": filler}},
            ]
        },
        separators=(",", ":"),
    ).encode()
    same(api.call("POST", f"/v0/topics/{topic}", body, status=201).json["count"], 4, "count")
    record = api.call("GET", f"/v0/topics/{topic}/records/2", status=200).json
    part(record, {"$tag": "é" * 128, "$node": "é" * 64}, "record")


@case("4 write")
def a_batch_has_at_most_10000_records(api: Api) -> None:
    """400 `batch_too_large` above 10000 records; 10000 are taken."""
    topic = api.topic()
    one = b'{"data":1},'
    path = f"/v0/topics/{topic}"
    body = b'{"records":[' + (one * 10_001)[:-1] + b"]}"
    detail = api.refused("POST", path, body, status=400, code="batch_too_large")
    same(detail.get("max"), 10_000, "detail.max")
    api.refused("POST", path, b"1\n" * 10_001, media=NDJSON, status=400, code="batch_too_large")
    body = b'{"records":[' + (one * 10_000)[:-1] + b"]}"
    same(api.call("POST", path, body, status=201).json["last_seq"], 10_000, "last_seq")
    same(api.call("POST", path, b"1\n" * 10_000, media=NDJSON, status=200).json["last_seq"], 20_000, "last_seq")


@case("4 write")
def a_record_has_at_most_a_mebibyte(api: Api) -> None:
    """Record `data`+`meta` 1 MiB: 400 `record_too_large` above, taken at exactly that."""
    topic = api.topic()
    path = f"/v0/topics/{topic}"
    detail = api.refused(
        "POST", path, b'{"records":[{"data":"' + b"x" * (MIB - 1) + b'"}]}', status=400, code="record_too_large"
    )
    same(detail.get("max"), MIB, "detail.max")
    meta = b'{"k":1}'
    short = b'{"records":[{"data":"' + b"x" * (MIB - 2 - len(meta) + 1) + b'","meta":' + meta + b"}]}"
    api.refused("POST", path, short, status=400, code="record_too_large")
    api.refused("POST", path, b'"' + b"x" * (MIB - 1) + b'"\n', media=NDJSON, status=400, code="record_too_large")
    exact = b'{"records":[{"data":"' + b"x" * (MIB - 2 - len(meta)) + b'","meta":' + meta + b"}]}"
    api.call("POST", path, exact, status=201)
    api.call("POST", path, b'"' + b"x" * (MIB - 2) + b'"\n', media=NDJSON, status=200)
    same(api.state(topic)["bytes"], 2 * MIB, "bytes")


@case("4 write")
def nesting_has_a_bound(api: Api) -> None:
    """Nesting 128 deep, of a record's data: one more is refused with 400."""
    topic = api.topic()
    path = f"/v0/topics/{topic}"
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        for depth in (128, 129):
            inner = opening * depth + b"1" + closing * depth
            for body, media in ((b'{"records":[{"data":' + inner + b"}]}", JSON), (inner + b"\n", NDJSON)):
                if depth == 128:
                    api.call("POST", path, body, media=media, status=(200, 201))
                else:
                    api.refused("POST", path, body, media=media, status=400, code="invalid_request")
    text = json.dumps("[" * 500 + '\\"{' * 500)
    api.call("POST", f"/v0/topics/{topic}", f'{{"records":[{{"data":{text}}}]}}'.encode(), status=200)


@case("4 write")
def create_decides_whether_a_write_creates(api: Api) -> None:
    """`create`: whether this write may make the topic; the default is yes."""
    topic = api.topic()
    body: dict[str, Any] = {"records": [{"data": 1}]}
    api.refused("POST", f"/v0/topics/{topic}", {**body, "create": False}, status=404, code="topic_not_found")
    same(api.call("POST", f"/v0/topics/{topic}", {**body, "create": True}, status=201).json["created"], True, "created")
    same(
        api.call("POST", f"/v0/topics/{topic}", {**body, "create": False}, status=200).json["created"], False, "exists"
    )


@case("4 write")
def config_counts_only_when_this_call_creates(api: Api) -> None:
    """`config` (only if this call creates)."""
    topic = api.topic()
    same(api.write(topic, 1, config={"cap_records": 5, "durability": "memory"})["created"], True, "created")
    part(api.state(topic)["config"], {"cap_records": 5, "durability": "memory"}, "config")
    api.write(topic, 2, config={"cap_records": 9})
    same(api.state(topic)["config"]["cap_records"], 5, "cap_records after a second write")
    other = api.topic()
    body = {"records": [{"data": 1}], "config": {"ttl_ms": -1}}
    api.refused("POST", f"/v0/topics/{other}", body, status=400, code="invalid_request")
    api.refused("GET", f"/v0/topics/{other}", status=404, code="topic_not_found")


@case("4 write")
def ack_fsync_strengthens_one_write(api: Api) -> None:
    """`ack: "fsync"` strengthens this write's acknowledgement beyond the class (never weakens it)."""
    topic = api.topic()
    for durability in ("memory", "disk", "fsync"):
        api.put(topic, durability=durability)
        holds(api.write(topic, 1, ack="fsync")["performance"]["fsync_ms"] > 0, f"no sync for class {durability}")
    body = {"records": [{"data": 1}], "ack": "nonsense"}
    api.refused("POST", f"/v0/topics/{topic}", body, status=400, code="invalid_request")


@case("4 ndjson")
def ndjson_is_one_data_per_line(api: Api) -> None:
    """NDJSON body: one `data` per line, blank lines skipped; the last line may be unended."""
    topic = api.topic()
    body = b'{"a":1}\n\n  \n[1,2]\r\n\r\n"x"\nnull\n1.5'
    answer = api.call("POST", f"/v0/topics/{topic}", body, media=NDJSON, status=201).json
    same(answer["count"], 5, "count")
    same(api.datas(topic), [{"a": 1}, [1, 2], "x", None, 1.5], "data")


@each("4 ndjson", [("ndjson", (NDJSON, b'"a"\n"b"\n')), ("lines", (LINES, b"a\nb\n"))])
def the_rest_comes_as_query_parameters(api: Api, way: tuple[str, bytes]) -> None:
    """For these two, `tag node meta idempotency_key create` come as query parameters."""
    media, body = way
    topic = api.topic(":w")
    path = f"/v0/topics/{topic}"
    api.refused("POST", f"{path}?create=false", body, media=media, status=404, code="topic_not_found")
    query = "?tag=a%20tag&node=n%C3%A9&meta=%7B%22k%22%3A1%7D&create=true"
    api.call("POST", path + query, body, media=media, status=201)
    for record in api.diff(topic, include_tags=True)["records"]:
        part(record, {"$tag": "a tag", "$node": "né", "meta": {"k": 1}}, "record")
    for bad in ("?meta=[]", "?meta=%7B", f"?tag={'t' * 257}", f"?node={'n' * 129}", "?create=maybe"):
        api.refused("POST", path + bad, body, media=media, status=400, code="invalid_request")
    same(api.state(topic)["head_seq"], 2, "head")


@each("4 ndjson", [("empty", b""), ("blank lines", b"\n \n\r\n")])
def ndjson_without_records_is_400(api: Api, body: bytes) -> None:
    """A write has at least one record."""
    topic = api.topic()
    api.refused("POST", f"/v0/topics/{topic}", body, media=NDJSON, status=400, code="invalid_request")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")


@case("4 lines")
def lines_are_strings(api: Api) -> None:
    """Lines body: one string per line (`\\r\\n` and `\\n` end a line; the last may be unended)."""
    topic = api.topic()
    answer = api.call("POST", f"/v0/topics/{topic}", b'one\r\ntwo\n\n {"x":1} \nlast', media=LINES, status=201).json
    same(answer["count"], 5, "count")
    same(api.datas(topic), ["one", "two", "", ' {"x":1} ', "last"], "data")


@case("4 lines")
def an_unended_last_line_is_like_an_ended_one(api: Api) -> None:
    """The last may be unended: `a` and `a\\n` are one line each."""
    topic = api.topic()
    for body in (b"a", b"a\n", b"a\r\n"):
        same(api.call("POST", f"/v0/topics/{topic}", body, media=LINES).json["count"], 1, f"count of {body!r}")
    same(api.datas(topic), ["a", "a", "a"], "data")


@each(
    "4 lines",
    [("\\xff", b"ok\n\xff\n"), ("cut", b"caf\xc3"), ("surrogate", b"\xed\xa0\x80\n"), ("overlong", b"\xc0\x80\n")],
)
def invalid_utf8_lines_are_400(api: Api, body: bytes) -> None:
    """Invalid UTF-8 is 400; nothing is written."""
    topic = api.topic()
    api.refused("POST", f"/v0/topics/{topic}", body, media=LINES, status=400, code="invalid_request")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")


@case("4 write")
def seqs_are_contiguous_and_times_never_fall(api: Api) -> None:
    """Seqs are contiguous; `$ts` never falls."""
    topic = api.topic()
    for size in (1, 5, 100, 2, 300):
        api.write(topic, *range(size))
        time.sleep(0.002)
    records = api.diff(topic, limit=1000)["records"]
    same([one["$seq"] for one in records], list(range(1, 409)), "seqs")
    stamps = [one["$ts"] for one in records]
    holds(stamps == sorted(stamps), "$ts falls")


@case("4 caps")
def a_batch_larger_than_the_caps_is_taken(api: Api) -> None:
    """With `discard:"old"` a batch larger than the caps is taken, and its own first records are evicted at once."""
    topic = api.topic()
    api.put(topic, cap_records=3)
    same(api.write(topic, *range(10))["last_seq"], 10, "last_seq")
    part(api.state(topic), {"count": 3, "earliest_seq": 8, "head_seq": 10}, "state")
    page = api.diff(topic)
    same([one["$seq"] for one in page["records"]], [8, 9, 10], "seqs")
    want = {"gap_from": 1, "gap_to": 7, "reason": "cap", "missed_estimate": 7, "earliest_seq": 8, "head_seq": 10}
    same(page["tombstone"], want, "tombstone")


@case("4 caps")
def caps_are_exact(api: Api) -> None:
    """`cap_records`, `cap_bytes`: exact logical caps; whichever is reached first."""
    topic = api.topic()
    api.put(topic, cap_records=10, cap_bytes=100)
    for _ in range(12):
        api.write(topic, "12345678")
    part(api.state(topic), {"count": 10, "bytes": 100, "earliest_seq": 3}, "at both caps")
    api.write(topic, "x" * 88)
    part(api.state(topic), {"count": 2, "bytes": 100, "earliest_seq": 12}, "bytes reached first")
    api.put(topic, cap_records=1)
    part(api.state(topic), {"count": 1, "earliest_seq": 13}, "a lower cap counts at once")
    api.put(topic, cap_records=0, cap_bytes=0)
    same(api.seqs(topic), [13], "nothing comes back")


@case("4 caps")
def reject_and_full_is_422(api: Api) -> None:
    """`reject` and full is `422 topic_full` (`detail`: caps, head_seq, earliest_seq), before a seq is assigned."""
    topic = api.topic()
    api.put(topic, cap_records=3, discard="reject")
    api.write(topic, 1, 2)
    body = {"records": [{"data": 3}, {"data": 4}]}
    detail = api.refused("POST", f"/v0/topics/{topic}", body, status=422, code="topic_full")
    part(detail, {"head_seq": 2, "earliest_seq": 1}, "detail")
    same(detail.get("caps", detail).get("cap_records"), 3, "the cap in detail")
    same(api.write(topic, 3)["first_seq"], 3, "no seq was used")
    api.refused("POST", f"/v0/topics/{topic}", {"records": [{"data": 4}]}, status=422, code="topic_full")
    api.delete(topic, seqs=[1])
    same(api.write(topic, 4)["first_seq"], 4, "room after a delete")


@case("4 caps")
def what_can_never_fit_is_400(api: Api) -> None:
    """A single record larger than `cap_bytes`, or with `reject` a batch larger than a cap: `400 record_too_large`."""
    old, reject = api.topic(), api.topic()
    api.put(old, cap_bytes=50)
    body = {"records": [{"data": "ok"}, {"data": "x" * 60}]}
    api.refused("POST", f"/v0/topics/{old}", body, status=400, code="record_too_large")
    same(api.state(old)["head_seq"], 0, "head")
    api.put(reject, cap_bytes=50, cap_records=3, discard="reject")
    for batch in ([{"data": n} for n in range(4)], [{"data": "x" * 24}] * 2):
        api.refused("POST", f"/v0/topics/{reject}", {"records": batch}, status=400, code="record_too_large")
    same(api.write(reject, "x" * 48)["first_seq"], 1, "exactly the cap fits")


@case("4 caps")
def age_expires_exactly(api: Api) -> None:
    """`ttl_ms`: records with `now - $ts > ttl_ms` are expired – in `count` and reads without any write."""
    topic = api.topic()
    api.put(topic, ttl_ms=400)
    api.write(topic, 1, 2)
    same(api.state(topic)["count"], 2, "count while young")
    time.sleep(0.6)
    part(api.state(topic), {"count": 0, "bytes": 0, "earliest_seq": 3, "head_seq": 2}, "state when old")
    page = api.diff(topic)
    same(page["records"], [], "records when old")
    part(page["tombstone"], {"reason": "ttl", "gap_from": 1, "gap_to": 2, "missed_estimate": 2}, "tombstone")
    same(api.write(topic, 3)["first_seq"], 3, "seqs go on")
    same(api.seqs(topic), [3], "seqs")


@case("4 several")
def several_topics_at_once(api: Api) -> None:
    """`POST /v0/write` → `{"topics":{name:{…write answer…}}, "ok":n, "failed":n}`; 200 when all went in."""
    one, two = api.topic(), api.topic()
    body = {"topics": {one: {"records": [{"data": 1}]}, two: {"records": [{"data": 2}, {"data": 3, "node": "own"}]}}}
    answer = api.call("POST", "/v0/write", {**body, "node": "n"}, status=200).json
    same((answer["ok"], answer["failed"]), (2, 0), "ok, failed")
    part(answer["topics"][one], {"topic": one, "first_seq": 1, "count": 1, "created": True, "deduped": False}, one)
    part(answer["topics"][two], {"topic": two, "seqs": [1, 2], "head_seq": 2}, two)
    same([record["$node"] for record in api.diff(two)["records"]], ["n", "own"], "nodes")


@case("4 several")
def some_failed_is_207(api: Api) -> None:
    """207 when some did, each topic atomic by itself."""
    good, absent, full = api.topic(), api.topic(), api.topic()
    api.put(full, cap_records=1, discard="reject")
    api.write(full, 0)
    records = {"records": [{"data": 1}]}
    body = {"topics": {good: records, absent: {**records, "create": False}, full: records}}
    answer = api.call("POST", "/v0/write", body, status=207).json
    same((answer["ok"], answer["failed"]), (1, 2), "ok, failed")
    same(answer["topics"][good]["first_seq"], 1, "good")
    same(answer["topics"][absent]["error"]["code"], "topic_not_found", "absent")
    same(answer["topics"][full]["error"]["code"], "topic_full", "full")
    has(answer["topics"][full]["error"], ["message", "detail"], "error of a topic")


@case("4 several")
def none_went_in_is_the_common_status(api: Api) -> None:
    """The common error's status when none did."""
    one, two = api.topic(), api.topic()
    records = {"records": [{"data": 1}], "create": False}
    response = api.call("POST", "/v0/write", {"topics": {one: records, two: records}}, status=404)
    answer = response.json
    same(answer["error"]["code"], "topic_not_found", "code")
    same([answer["topics"][name]["error"]["code"] for name in (one, two)], ["topic_not_found"] * 2, "each topic")
    same((answer["ok"], answer["failed"]), (0, 2), "ok, failed")


@each(
    "4 several",
    [("no topics", {}), ("empty", {"topics": {}}), ("list", {"topics": []}), ("number", {"topics": {"a": 1}})],
)
def a_bad_write_of_several_is_400(api: Api, body: dict[str, Any]) -> None:
    """`{"topics":{name:{…write body…}}, "node"?}`: anything else is 400."""
    api.refused("POST", "/v0/write", body, status=400, code="invalid_request")
