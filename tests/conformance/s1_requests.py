"""§1 Conventions: order of checks, names, media types, compression, shapes of answers, unknown fields."""

from __future__ import annotations

import gzip
import time

from tests.conformance import rawjson
from tests.conformance.kit import JSON, LINES, NDJSON, U64_MAX, Api, Needs, case, each, has, holds, part, same

UNKNOWN_PATHS = ["/", "/v0", "/v0/", "/v0/nope", "/v1/topics", "/v0/topics/a/nope", "/v0/topics/a/diff/x", "/V0/health"]


@each("1 order", [(path, path) for path in UNKNOWN_PATHS])
def unknown_path_is_404(api: Api, path: str) -> None:
    """Unknown path 404 `not_found`, whatever the method, the type and the body are."""
    for method in ("GET", "POST", "PATCH"):
        body = b"not json" if method == "POST" else None
        api.refused(method, path, body, media="text/plain", status=404, code="not_found")


ROUTES = [
    ("/v0/topics", {"GET"}, ("POST", "PUT", "DELETE", "PATCH")),
    ("/v0/topics/{t}", {"GET", "PUT", "POST", "DELETE"}, ("PATCH",)),
    ("/v0/topics/{t}/diff", {"POST"}, ("GET", "PUT", "DELETE")),
    ("/v0/topics/{t}/delete", {"POST"}, ("GET", "DELETE")),
    ("/v0/topics/{t}/records/1", {"GET"}, ("POST", "PUT", "DELETE")),
    ("/v0/write", {"POST"}, ("GET", "PUT")),
    ("/v0/diff", {"POST"}, ("GET", "DELETE")),
    ("/v0/watch", {"POST"}, ("GET", "PUT")),
    ("/v0/health", {"GET"}, ("POST", "DELETE")),
    ("/v0/ready", {"GET"}, ("POST",)),
]


@each("1 order", [(route[0], route) for route in ROUTES])
def wrong_method_is_405_with_allow(api: Api, route: tuple[str, set[str], tuple[str, ...]]) -> None:
    """405 `method_not_allowed` (+ `Allow`), before existence and before the body is looked at."""
    path, allowed, wrong = route
    path = path.replace("{t}", api.topic())
    for method in wrong:
        body = b"{" if method in ("POST", "PUT", "PATCH") else None
        answer = api.call(method, path, body, media="text/plain", status=405)
        same(answer.json["error"]["code"], "method_not_allowed", "code")
        allow = {name.strip() for name in (answer.response.header("allow") or "").split(",")}
        holds(allowed <= allow and method not in allow, f"{method} {path}: Allow is {sorted(allow)}, want {allowed}")


@case("1 order")
def existence_comes_after_the_method(api: Api) -> None:
    """Existence 404 comes last: a well-formed request for an absent topic is `topic_not_found`, `detail.topic`."""
    topic = api.topic()
    for method, path, body in (
        ("GET", f"/v0/topics/{topic}", None),
        ("POST", f"/v0/topics/{topic}/diff", {}),
        ("POST", f"/v0/topics/{topic}/delete", {"before_seq": 1}),
        ("GET", f"/v0/topics/{topic}/records/1", None),
        ("POST", f"/v0/topics/{topic}?create=false", {"records": [{"data": 1}], "create": False}),
    ):
        detail = api.refused(method, path, body, status=404, code="topic_not_found")
        same(detail.get("topic"), topic, f"detail.topic of {method} {path}")


@case("1 order")
def unknown_wid_is_404(api: Api) -> None:
    """An unknown `wid` is 404 `not_found` before any key is looked at."""
    for wid in ("wid_" + "A" * 22, "wid_x", "nope"):
        api.refused("GET", f"/v0/watch/{wid}", status=404, code="not_found", headers=(("Accept", "text/event-stream"),))


@case("1 order", Needs.KEYS)
def without_a_key_it_is_401(api: Api) -> None:
    """Unknown path 404, method 405, 401, scope 403, prefix 403, then existence 404; an unknown wid before any key."""
    topic = api.topic()
    host = (f"Host: {api.target.host_header}\r\n").encode()

    def status(line: bytes) -> int:
        with api.connect() as connection:
            connection.send(line + b" HTTP/1.1\r\n" + host + b"\r\n")
            return connection.read_response().status

    same(status(b"GET /v0/nope"), 404, "unknown path without a key")
    same(status(b"PATCH /v0/topics/" + topic.encode()), 405, "wrong method without a key")
    same(status(b"GET /v0/topics/" + topic.encode()), 401, "absent topic without a key")
    same(status(b"GET /v0/watch/wid_" + b"A" * 22), 404, "unknown wid without a key")
    same(status(b"GET /v0/health"), 200, "probe without a key")
    same(status(b"GET /v0/ready"), 200, "probe without a key")
    api.refused("GET", f"/v0/topics/{topic}", status=401, code="unauthorized", key="wrong-key")


@case("1 order", Needs.KEYS)
def scope_then_prefix_then_existence(api: Api) -> None:
    """401, scope 403, prefix 403, then existence 404."""
    topic = api.topic()
    read, write, prefixed = api.keys.read, api.keys.write, api.keys.prefixed
    api.refused("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}, status=403, code="forbidden", key=read)
    api.refused("POST", f"/v0/topics/{topic}/diff", {}, status=403, code="forbidden", key=write)
    api.refused("PUT", f"/v0/topics/{topic}", {}, status=403, code="forbidden", key=write)
    api.refused("DELETE", f"/v0/topics/{topic}", status=403, code="forbidden", key=write)
    api.refused("POST", f"/v0/topics/{topic}/delete", {"seqs": [1]}, status=403, code="forbidden", key=read)
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found", key=read)
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found", key=prefixed)
    api.refused("GET", "/v0/topics/outside-of-the-prefix", status=403, code="forbidden", key=prefixed)


@case("1 order", Needs.KEYS)
def one_forbidden_name_refuses_the_whole_request(api: Api) -> None:
    """One forbidden name refuses the whole request; prefixes apply to names in bodies and to list results."""
    topic = api.topic()
    api.put(topic)
    bodies = {"records": [{"data": 1}]}
    both = {"topics": {topic: bodies, "outside-of-the-prefix": bodies}}
    prefixed = api.keys.prefixed
    api.refused("POST", "/v0/write", both, status=403, code="forbidden", key=prefixed)
    api.refused("POST", "/v0/diff", {"topics": {topic: {}, "outside": {}}}, status=403, code="forbidden", key=prefixed)
    api.refused("POST", "/v0/watch", {"topics": {topic: {}, "outside": {}}}, status=403, code="forbidden", key=prefixed)
    same(api.state(topic)["head_seq"], 0, "head after the refused write")
    listed = api.call("GET", "/v0/topics", key=prefixed, status=200).json["topics"]
    holds(all(one["topic"].startswith(api.keys.prefix) for one in listed), "a list shows names outside of the prefix")


@case("1 names")
def times_are_integer_milliseconds(api: Api) -> None:
    """Times: integer milliseconds since the Unix epoch."""
    topic = api.topic()
    before = int(time.time() * 1000)
    api.write(topic, 1)
    stamp = api.diff(topic)["records"][0]["$ts"]
    holds(type(stamp) is int and before - 2000 <= stamp <= before + 10_000, f"$ts {stamp} against {before}")
    state = api.state(topic)
    same(state["last_write_ts"], stamp, "last_write_ts")
    holds(type(state["last_read_ts"]) is int, "last_read_ts is not an integer")


@case("1 names")
def seqs_start_at_1(api: Api) -> None:
    """`seq`: unsigned 64-bit, JSON number, starts at 1; 0 means "before everything"."""
    topic = api.topic()
    same(api.write(topic, "a", "b")["first_seq"], 1, "first_seq")
    same(api.seqs(topic, from_seq=0), [1, 2], "seqs after 0")
    same(api.diff(topic, from_seq=U64_MAX)["tombstone"]["reason"], "recreated", "from_seq 2^64-1")


BAD_SEQS = [
    ("minus", b"-1"),
    ("2^64", b"18446744073709551616"),
    ("fraction", b"1.5"),
    ("string", b'"1"'),
    ("true", b"true"),
]


@each("1 names", [*BAD_SEQS, ("array", b"[1]")])
def a_seq_out_of_range_is_400(api: Api, raw: bytes) -> None:
    """400 `invalid_request` (bad JSON, type, range, name; `detail.field`)."""
    topic = api.topic()
    api.put(topic)
    detail = api.refused(
        "POST", f"/v0/topics/{topic}/diff", b'{"from_seq":' + raw + b"}", status=400, code="invalid_request"
    )
    same(detail.get("field"), "from_seq", "detail.field")


GOOD_NAMES = ["a", "9", "A.b_c:d-e", "x" * 255, "a..b", "a:", "Z-", "CON", "a.json"]


@each("1 names", [(name[:20], name) for name in GOOD_NAMES])
def a_name_of_the_grammar_is_taken(api: Api, tail: str) -> None:
    """Topic names: `^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$`."""
    if api.keys.prefix or len(tail) < 255:
        name = (api.topic() + tail)[:255]
    else:
        name = (api.topic() + "x" * 255)[:255]
    api.also_drop(name)
    same(api.put(name)["topic"], name, "topic")
    api.write(name, 1)
    same(api.state(name)["topic"], name, "topic")


BAD_NAMES = [
    ("starts with a dot", ".a"),
    ("starts with a dash", "-a"),
    ("starts with an underscore", "_a"),
    ("256 long", "x" * 256),
    ("blank", "a%20b"),
    ("slash", "a%2Fb"),
    ("dots and slash", "..%2f..%2fetc"),
    ("router sign", "a%3Eb"),
    ("NUL", "a%00b"),
    ("line break", "a%0Ab"),
    ("letter beyond ASCII", "%C3%A9"),
    ("invalid UTF-8", "a%FF"),
    ("decoded once only", "a%2541"),
    ("at sign", "a@b"),
    ("percent alone", "a%"),
    ("bad percent", "a%zz"),
]


@each("1 names", BAD_NAMES)
def a_name_outside_of_the_grammar_is_400(api: Api, name: str) -> None:
    """Percent-encoding in paths is decoded once, then checked: 400 `invalid_request` for a bad name."""
    api.refused("PUT", f"/v0/topics/{name}", {}, status=400, code="invalid_request")
    api.refused("GET", f"/v0/topics/{name}", status=400, code="invalid_request")
    api.refused("POST", f"/v0/topics/{name}", {"records": [{"data": 1}]}, status=400, code="invalid_request")


@case("1 names")
def percent_encoding_is_decoded(api: Api) -> None:
    """Percent-encoding in paths is decoded once."""
    topic = api.topic(":x")
    api.put(topic)
    encoded = "".join(f"%{byte:02X}" if index % 2 else chr(byte) for index, byte in enumerate(topic.encode()))
    same(api.call("GET", f"/v0/topics/{encoded}", status=200).json["topic"], topic, "topic")
    same(api.call("GET", f"/v0/topics/{topic.replace(':', '%3a')}", status=200).json["topic"], topic, "topic")


GOOD_TYPES = [
    "application/json",
    "application/json; charset=utf-8",
    "Application/JSON;charset=UTF-8",
    'application/json; charset="utf-8"',
]


@each("1 media", [(media, media) for media in GOOD_TYPES])
def json_type_is_taken(api: Api, media: str) -> None:
    """Request bodies: `application/json` (a `charset=utf-8` parameter is fine)."""
    topic = api.topic()
    api.call("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}, media=media, status=201)


BAD_TYPES = [
    "text/plain",
    "text/plain;charset=UTF-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/jsonx",
    "text/json",
    "*/*",
    "json",
    "application/json; charset=utf-16",
]


@each("1 media", [(media, media) for media in BAD_TYPES] + [("missing", None)])
def another_type_is_415(api: Api, media: str | None) -> None:
    """Anything else, `text/plain` and a missing type with a body included, `415` – on every route that takes a body."""
    topic = api.topic()
    api.put(topic)
    for method, path, body in (
        ("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}),
        ("PUT", f"/v0/topics/{topic}", {}),
        ("POST", f"/v0/topics/{topic}/diff", {}),
        ("POST", f"/v0/topics/{topic}/delete", {"seqs": [1]}),
        ("POST", "/v0/write", {"topics": {topic: {"records": [{"data": 1}]}}}),
        ("POST", "/v0/diff", {"topics": {topic: {}}}),
        ("POST", "/v0/watch", {"topics": {topic: {}}}),
    ):
        api.refused(method, path, body, media=media, status=415, code="unsupported_media_type")
    same(api.state(topic)["head_seq"], 0, "head after refused writes")


@each("1 media", [("ndjson", NDJSON), ("lines", LINES)])
def line_types_are_for_write_only(api: Api, media: str) -> None:
    """Write also takes `application/x-ndjson` and `text/x-lines`; other routes do not."""
    topic = api.topic()
    api.call("POST", f"/v0/topics/{topic}", b"1\n", media=media, status=201)
    for path in (f"/v0/topics/{topic}/diff", "/v0/write", "/v0/diff", "/v0/watch"):
        api.refused("POST", path, b"{}\n", media=media, status=415, code="unsupported_media_type")
    api.refused("PUT", f"/v0/topics/{topic}", b"{}\n", media=media, status=415, code="unsupported_media_type")


@case("1 media")
def no_body_needs_no_type(api: Api) -> None:
    """No body needs no type."""
    topic = api.topic()
    api.call("PUT", f"/v0/topics/{topic}", media=None, status=201)
    api.call("POST", f"/v0/topics/{topic}/diff", media=None, status=200)
    api.call("POST", f"/v0/topics/{topic}/diff", b"", media=None, status=200)


@case("1 media")
def answers_are_json_without_envelope(api: Api) -> None:
    """Response bodies: JSON without envelope, compact outside of `data` and `meta`."""
    topic = api.topic()
    bodies = [
        api.call("PUT", f"/v0/topics/{topic}", {}, status=201),
        api.call("POST", f"/v0/topics/{topic}", {"records": [{"data": 1, "tag": "t", "node": "n"}]}, status=200),
        api.call("GET", f"/v0/topics/{topic}", status=200),
        api.call("POST", f"/v0/topics/{topic}/diff", {"include_tags": True}, status=200),
        api.call("GET", f"/v0/topics/{topic}/records/1", status=200),
        api.call("POST", f"/v0/topics/{topic}/delete", {"seqs": [1]}, status=200),
        api.call("GET", f"/v0/topics?prefix={topic}", status=200),
        api.call("POST", f"/v0/topics/{topic}/diff", b"{", status=400),
    ]
    for answer in bodies:
        holds(isinstance(answer.json, dict), f"not an object: {answer.raw!r}")
        holds(not rawjson.has_white(answer.raw), f"white space of ours in {answer.raw!r}")


@case("1 media")
def lists_are_ndjson_when_asked(api: Api) -> None:
    """Diff and lists also NDJSON when `Accept: application/x-ndjson`."""
    topics = sorted(api.topic() for _ in range(3))
    for topic in topics:
        api.put(topic)
    for topic in topics:
        lines = api.call("GET", f"/v0/topics?prefix={topic}", headers=(("Accept", NDJSON),), status=200).lines
        shown = [rawjson.parse(line) for line in lines]
        same([one["topic"] for one in shown if "topic" in one], [topic], "topics of the NDJSON list")


@case("1 media")
def json_is_the_default_answer(api: Api) -> None:
    """JSON unless NDJSON is asked for: `*/*`, `application/json` and no `Accept` are JSON."""
    topic = api.topic()
    api.write(topic, 1)
    for accept in ("*/*", JSON, "text/html, application/json;q=0.5, */*;q=0.1", None):
        headers = (("Accept", accept),) if accept else ()
        has(
            api.call("POST", f"/v0/topics/{topic}/diff", {}, headers=headers, status=200).json, ["records"], f"{accept}"
        )


@case("1 compression")
def request_bodies_may_be_gzip(api: Api) -> None:
    """Request `Content-Encoding: gzip`."""
    topic = api.topic()
    packed = gzip.compress(b'{"records":[{"data":"packed"}]}')
    for name in ("gzip", "GZIP"):
        api.call("POST", f"/v0/topics/{topic}", packed, headers=(("Content-Encoding", name),), status=(200, 201))
    lines = gzip.compress(b"1.10\n2\n")
    api.call("POST", f"/v0/topics/{topic}", lines, media=NDJSON, headers=(("Content-Encoding", "gzip"),), status=200)
    same(api.datas(topic), ["packed", "packed", 1.10, 2], "data")


@case("1 compression")
def a_bad_gzip_body_is_400(api: Api) -> None:
    """A body that is not what its `Content-Encoding` says is 400; nothing is written."""
    topic = api.topic()
    whole = gzip.compress(b'{"records":[{"data":"packed"}]}' * 3)
    for body in (
        b"not gzip",
        whole[:-6],
        whole[:-1],
        whole[:12] + b"\xff\xff" + whole[14:],
        b'{"records":[{"data":1}]}',
    ):
        api.refused(
            "POST",
            f"/v0/topics/{topic}",
            body,
            headers=(("Content-Encoding", "gzip"),),
            status=400,
            code="invalid_request",
        )
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")


@each("1 compression", [(name, name) for name in ("br", "deflate", "zstd", "gzip, gzip", "nonsense")])
def another_encoding_is_415(api: Api, name: str) -> None:
    """`Content-Encoding: gzip` is the only one; another is 415."""
    topic = api.topic()
    body = b'{"records":[{"data":1}]}'
    api.refused(
        "POST",
        f"/v0/topics/{topic}",
        body,
        headers=(("Content-Encoding", name),),
        status=415,
        code="unsupported_media_type",
    )


@case("1 compression")
def the_inflated_size_is_what_the_limit_counts(api: Api) -> None:
    """Inflated size is what the body limit counts: a bomb is 413, and the server goes on."""
    topic = api.topic()
    bomb = gzip.compress(b" " * (65 << 20), 1)
    api.refused(
        "POST",
        f"/v0/topics/{topic}",
        bomb,
        headers=(("Content-Encoding", "gzip"),),
        status=413,
        code="payload_too_large",
    )
    api.call("GET", "/v0/health", status=200)


@case("1 compression")
def answers_are_gzip_only_when_asked(api: Api) -> None:
    """Response gzip only when asked."""
    topic = api.topic()
    api.write(topic, *["compressible " * 20] * 100)
    path, body = f"/v0/topics/{topic}/diff", {"limit": 100}
    plain = api.call("POST", path, body, status=200)
    same(plain.response.header("content-encoding"), None, "Content-Encoding when not asked")
    for refusal in (
        "identity",
        "gzip;q=0",
        "br",
        "gzip;q=0.000, *",
        "*;q=0",
        "deflate, br;q=1",
        "gzip;q=0.1, identity",
    ):
        answer = api.call("POST", path, body, headers=(("Accept-Encoding", refusal),), status=200)
        same(answer.response.header("content-encoding"), None, f"Content-Encoding with Accept-Encoding {refusal}")
    for wish in ("gzip, br", "gzip", "GZIP;q=0.5", "br;q=1, gzip;q=0.001", "gzip, identity;q=0"):
        asked = api.call("POST", path, body, headers=(("Accept-Encoding", wish),), status=200)
        encoding = asked.response.header("content-encoding")
        holds(encoding in (None, "gzip"), f"Content-Encoding {encoding}")
        if encoding:
            holds("accept-encoding" in (asked.response.header("vary") or "").lower(), "Vary of a compressed answer")
        raw = gzip.decompress(asked.raw) if encoding else asked.raw
        same(rawjson.member(raw, "records"), rawjson.member(plain.raw, "records"), "records of the gzip answer")


@case("1 compression")
def lines_and_lists_may_be_gzip_too(api: Api) -> None:
    """Diff and lists also NDJSON; response gzip only when asked."""
    topic = api.topic()
    api.write(topic, *["compressible " * 20] * 100)
    headers = (("Accept", NDJSON), ("Accept-Encoding", "gzip"))
    for method, path, body in (("POST", f"/v0/topics/{topic}/diff", {"limit": 100}), ("GET", "/v0/topics", None)):
        packed = api.call(method, path, body, headers=headers, status=200).response
        text = gzip.decompress(packed.body) if packed.header("content-encoding") == "gzip" else packed.body
        holds(text.endswith(b"\n") and b'"$page"' in text.splitlines()[-1], f"{path}: not the lines of a page")


@case("1 fields")
def server_fields_start_with_a_dollar(api: Api) -> None:
    """`$seq $ts $node $tag` are the server's on reads; `node tag` are the client's on writes."""
    topic = api.topic()
    api.write_records(topic, [{"data": {"a": 1}, "tag": "t1", "node": "n1", "meta": {"k": "v"}}])
    record = api.diff(topic, include_tags=True)["records"][0]
    part(record, {"$seq": 1, "$node": "n1", "$tag": "t1", "data": {"a": 1}, "meta": {"k": "v"}}, "record")
    same(set(record), {"$seq", "$ts", "$node", "$tag", "data", "meta"}, "fields")


@case("1 fields")
def absent_fields_are_left_out(api: Api) -> None:
    """Absent ones are left out, never `null`; `data` is always there."""
    topic = api.topic()
    api.write(topic, None)
    same(set(api.diff(topic, include_tags=True)["records"][0]), {"$seq", "$ts", "data"}, "fields of a bare record")
    same(
        set(api.call("GET", f"/v0/topics/{topic}/records/1").json) - {"performance"}, {"$seq", "$ts", "data"}, "fields"
    )


UNKNOWN_FIELD_REQUESTS = [
    ("write", ("POST", "", {"records": [{"data": 1}], "colour": 1})),
    ("PUT", ("PUT", "", {"colour": 1})),
    ("diff", ("POST", "/diff", {"colour": 1})),
    ("delete", ("POST", "/delete", {"seqs": [1], "colour": 1})),
]


@each("1 fields", UNKNOWN_FIELD_REQUESTS)
def an_unknown_field_is_ignored_with_a_warning(api: Api, request: tuple[str, str, object]) -> None:
    """A request field that the server does not know is ignored too, but the answer carries `warnings`."""
    topic = api.topic()
    api.write(topic, 0)
    method, tail, body = request
    answer = api.call(method, f"/v0/topics/{topic}{tail}", body, status=200).json
    warnings = answer.get("warnings")
    holds(isinstance(warnings, list) and len(warnings) == 1, f"warnings: {warnings!r}")
    holds(warnings[0].startswith("unknown field") and "colour" in warnings[0], f"warning {warnings[0]!r}")


@case("1 fields")
def an_unknown_field_of_watch_is_ignored_with_a_warning(api: Api) -> None:
    """The same for a watch, and for several topics at once."""
    topic = api.topic()
    api.write(topic, 0)
    made = api.call("POST", "/v0/watch", {"topics": {topic: {}}, "colour": 1}, status=(200, 201)).json
    holds("colour" in " ".join(made.get("warnings", [])), f"no warning in {made}")
    several = api.call("POST", "/v0/diff", {"topics": {topic: {}}, "colour": 1}, status=200).json
    holds("colour" in " ".join(several.get("warnings", [])), f"no warning in {several}")
    written = api.call(
        "POST", "/v0/write", {"topics": {topic: {"records": [{"data": 1}]}}, "colour": 1}, status=200
    ).json
    holds("colour" in " ".join(written.get("warnings", [])), f"no warning in {written}")


@case("1 fields")
def an_unknown_field_of_a_record_is_ignored_with_a_warning(api: Api) -> None:
    """Unknown fields inside records are never silent either."""
    topic = api.topic()
    answer = api.write_records(topic, [{"data": 1, "colour": "red"}, {"data": 2, "colour": "blue"}])
    same(answer["count"], 2, "count")
    holds("colour" in " ".join(answer.get("warnings", [])), f"no warning in {answer}")
    same(set(api.diff(topic)["records"][0]), {"$seq", "$ts", "data"}, "fields")


@case("1 fields")
def known_fields_make_no_warning(api: Api) -> None:
    """Only unknown fields are warned of."""
    topic = api.topic()
    fields = {
        "node": "n",
        "idempotency_key": "k",
        "create": True,
        "config": {"ttl_ms": 0},
        "disable_backpressure": True,
    }
    holds("warnings" not in api.write(topic, 1, ack="fsync", return_seqs=True, **fields), "a warning on write")
    known = {
        "from_seq": 0,
        "limit": 1,
        "max_bytes": 1,
        "node": ["x"],
        "match": "t*",
        "from_ts": 0,
        "to_seq": 9,
        "epoch": None,
    }
    known |= {"include_tags": True, "include_meta": False, "include_data": True, "wait_ms": 0}
    del known["epoch"]
    holds("warnings" not in api.diff(topic, **known), "a warning on diff")
