"""§1 to §5: what the text leaves open, and was decided (docs/adr/0037)."""

from __future__ import annotations

from typing import Any

from tests.conformance.kit import Api, case, each, part, same

NOT_WHOLE = ("1.0", "1e0", '"1"', "true", "18446744073709551616", "-1")


@each("1 numbers", [(text, text.encode()) for text in NOT_WHOLE])
def a_seq_is_written_in_digits(api: Api, text: bytes) -> None:
    """`seq`: unsigned 64-bit, JSON number; another type, a fraction, an exponent and what is out of range are 400."""
    topic = api.topic()
    api.write(topic, 1)
    for tail, body, field in (
        ("/diff", b'{"from_seq":' + text + b"}", "from_seq"),
        ("/delete", b'{"before_seq":' + text + b"}", "before_seq"),
        ("/delete", b'{"seqs":[' + text + b"]}", "seqs"),
    ):
        detail = api.refused("POST", f"/v0/topics/{topic}{tail}", body, status=400, code="invalid_request")
        same(detail.get("field"), field, "detail.field")
    path = f"/v0/topics/{topic}/cursors/c"
    api.refused("PUT", path, b'{"seq":' + text + b"}", status=400, code="invalid_request")
    same(api.state(topic)["count"], 1, "records after what was refused")


@case("1 numbers")
def minus_zero_is_zero(api: Api) -> None:
    """`seq`: 0 means "before everything", also with a sign."""
    topic = api.topic()
    api.write(topic, 1)
    page = api.call("POST", f"/v0/topics/{topic}/diff", b'{"from_seq":-0}', status=200).json
    same(page["next_from_seq"], 1, "next_from_seq")


@case("1 numbers")
def what_is_clamped_is_not_refused(api: Api) -> None:
    """`limit` is clamped 1 … 1000, `max_bytes` to 8 MiB, at least one record is always given; `wait_ms` ≥ 0."""
    topic = api.topic()
    api.write(topic, 1, 2)
    for limit, count in ((-1, 1), (2**64, 2), (1001, 2), (0, 2)):
        same(len(api.diff(topic, limit=limit)["records"]), count, f"records of limit {limit}")
    for size, count in ((-1, 1), (1, 1), (2**64, 2), (0, 2)):
        same(len(api.diff(topic, max_bytes=size)["records"]), count, f"records of max_bytes {size}")
    detail = api.refused("POST", f"/v0/topics/{topic}/diff", {"wait_ms": -1}, status=400, code="invalid_request")
    same(detail.get("field"), "wait_ms", "detail.field")


@each("1 fields", [(name, name) for name in ("ttl_ms", "durability", "durable", "type", "lease_ms", "auto_create")])
def null_is_no_configuration(api: Api, name: str) -> None:
    """Fields left out keep their value; `null` is a value of `priority` and `dead_letter` alone."""
    topic = api.topic()
    api.put(topic, priority=None, dead_letter=None)
    detail = api.refused("PUT", f"/v0/topics/{topic}", {name: None}, status=400, code="invalid_request")
    same(detail.get("field"), name, "detail.field")


@case("1 fields")
def null_is_left_out_in_reads_and_writes(api: Api) -> None:
    """Members of a write or a read that may be left out may be `null` as well; no answer shows a `null` for them."""
    topic = api.topic()
    optional: dict[str, Any] = dict.fromkeys(("node", "idempotency_key", "create", "config", "ack"))
    api.write_records(topic, [{"data": None, "tag": None, "node": None, "meta": None}], **optional)
    nothing = dict.fromkeys(
        ("from_seq", "limit", "max_bytes", "node", "match", "from_ts", "to_seq", "wait_ms", "epoch")
    )
    (record,) = api.diff(topic, include_tags=True, **nothing)["records"]
    same(sorted(record), ["$seq", "$ts", "data"], "fields")
    same(record["data"], None, "data")


@each("4 write", [(value, value) for value in ("disk", "memory", "ephemeral", "none", "")])
def ack_is_fsync_and_nothing_else(api: Api, value: str) -> None:
    """`ack: "fsync"` strengthens this write's acknowledgement beyond the class (never weakens it)."""
    topic = api.topic()
    api.put(topic, durability="fsync")
    body = {"records": [{"data": 1}], "ack": value}
    detail = api.refused("POST", f"/v0/topics/{topic}", body, status=400, code="invalid_request")
    same(detail.get("field"), "ack", "detail.field")
    same(api.state(topic)["head_seq"], 0, "head")


@case("4 several")
def where_no_part_went_in_the_status_is_theirs_if_they_agree(api: Api) -> None:
    """Status 200 when all went in, 207 when some did, the common error's status when none did; 207 if there is none."""
    full, absent = api.topic(), api.topic()
    api.put(full, cap_records=1, discard="reject")
    api.write(full, 1)
    one = {"records": [{"data": 1}]}
    body = {"topics": {full: one, absent: {**one, "create": False}}}
    answer = api.call("POST", "/v0/write", body, status=207).json
    part(answer, {"ok": 0, "failed": 2}, "answer")
    same(answer["topics"][full]["error"]["code"], "topic_full", "code")
    body = {"topics": {api.topic(): {**one, "create": False}, absent: {**one, "create": False}}}
    part(api.call("POST", "/v0/write", body, status=404).json, {"ok": 0, "failed": 2}, "answer")


@each("1 order", [(method, method) for method in ("OPTIONS", "TRACE", "PATCH")])
def other_methods_are_405(api: Api, method: str) -> None:
    """405 `method_not_allowed` (+ `Allow`) for methods that a path does not list; unknown path 404 comes before."""
    topic = api.topic()
    answer = api.call(method, f"/v0/topics/{topic}/diff", status=405)
    same(answer.response.header("allow"), "POST", "Allow")
    api.call(method, "/v0/nothing-here", status=404)


@case("1 order")
def a_parameter_that_is_given_twice_is_400(api: Api) -> None:
    """What two of them mean is for nobody to guess."""
    topic = api.topic()
    api.put(topic)
    api.refused("GET", f"/v0/topics/{topic}?touch=true&touch=false", status=400, code="invalid_request")
    api.refused("GET", "/v0/topics?prefix=a&prefix=b", status=400, code="invalid_request")
