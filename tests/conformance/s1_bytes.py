"""§1, the row `data`: the bytes of a value come back exactly, over every way in and every way out.

Ways in: a JSON body, an NDJSON body, one topic of `/v0/write`, and `text/x-lines` for strings. Ways out: diff as JSON,
diff as NDJSON, `/v0/diff`, a single record, an event stream.
"""

from __future__ import annotations

import json

from tests.conformance import rawjson
from tests.conformance.kit import JSON, LINES, NDJSON, Api, each, holds, same
from tests.conformance.sse import watch
from tests.conformance.values import BROKEN_LINES, STRINGS, VALUES, as_event_data, as_line


def put_in(api: Api, topic: str, raw: bytes, way: str) -> None:
    """Write one value over one way in."""
    path = f"/v0/topics/{topic}"
    if way == "json":
        api.call("POST", path, b'{"records":[{"data":' + raw + b"}]}", status=(200, 201))
    elif way == "ndjson":
        api.call("POST", path, raw + b"\n", media=NDJSON, status=(200, 201))
    else:
        body = b'{"topics":{"' + topic.encode() + b'":{"records":[{"data":' + raw + b"}]}}}"
        api.call("POST", "/v0/write", body, status=(200, 201))


def out_of(api: Api, topic: str, count: int) -> dict[str, list[bytes]]:
    """All values of a topic over every way out, as their exact bytes."""
    path = f"/v0/topics/{topic}"
    found: dict[str, list[bytes]] = {}
    page = api.call("POST", f"{path}/diff", {"limit": 1000}, status=200)
    found["diff"] = [rawjson.member(one, "data") for one in rawjson.elements(rawjson.member(page.raw, "records"))]
    several = api.call("POST", "/v0/diff", {"topics": {topic: {"limit": 1000}}}, status=200)
    inner = rawjson.member(rawjson.member(several.raw, "topics"), topic)
    found["several"] = [rawjson.member(one, "data") for one in rawjson.elements(rawjson.member(inner, "records"))]
    lines = api.call("POST", f"{path}/diff", {"limit": 1000}, headers=(("Accept", NDJSON),), status=200).lines
    found["ndjson"] = [rawjson.member(line, "data") for line in lines[:-1]]
    found["record"] = [
        rawjson.member(api.call("GET", f"{path}/records/{seq}", status=200).raw, "data") for seq in range(1, count + 1)
    ]
    with watch(api, {topic: {}}) as stream:
        found["sse"] = [rawjson.member(one, "data") for one in stream.records(count)]
    return found


@each("1 bytes", VALUES)
def a_value_comes_back_exactly(api: Api, raw: bytes) -> None:
    """`data`: any JSON value; its bytes come back exactly as they were sent, over every way in and out."""
    topic = api.topic()
    for way in ("json", "ndjson", "several"):
        put_in(api, topic, raw, way)
    for way, got in out_of(api, topic, 3).items():
        same(got, [raw] * 3, f"out by {way} after json, ndjson, /v0/write")


@each("1 bytes", BROKEN_LINES)
def raw_line_breaks_become_spaces_in_lines(api: Api, raw: bytes) -> None:
    """Raw CR/LF between tokens become spaces in line formats; elsewhere the bytes are exact; SSE splits lines."""
    topic = api.topic()
    for way in ("json", "several"):
        put_in(api, topic, raw, way)
    found = out_of(api, topic, 2)
    want = {"ndjson": as_line(raw), "sse": as_event_data(raw)}
    for way, got in found.items():
        same(got, [want.get(way, raw)] * 2, f"out by {way}")


@each("1 bytes", VALUES[:20:3] + VALUES[36:48])
def white_space_around_a_value_is_not_part_of_it(api: Api, raw: bytes) -> None:
    """`data` is the value; white space around it in the body is not."""
    topic = api.topic()
    body = b' { "records" :\n[ { "data" : \t ' + raw + b' \r\n , "tag" : "t" } ] } '
    api.call("POST", f"/v0/topics/{topic}", body, status=201)
    api.call("POST", f"/v0/topics/{topic}", b" \t" + raw + b" \r\n", media=NDJSON, status=200)
    page = api.call("POST", f"/v0/topics/{topic}/diff", status=200)
    got = [rawjson.member(one, "data") for one in rawjson.elements(rawjson.member(page.raw, "records"))]
    same(got, [raw, raw], "data")


@each("1 bytes", STRINGS)
def a_line_comes_back_as_its_string(api: Api, raw: bytes) -> None:
    """Lines body (`text/x-lines`): one string per line."""
    topic = api.topic()
    api.call("POST", f"/v0/topics/{topic}", raw + b"\n", media=LINES, status=201)
    for way, got in out_of(api, topic, 1).items():
        same([json.loads(one) for one in got], [raw.decode()], f"out by {way}")


@each("1 bytes", [("meta", b'{ "b" : 1.10, "a":"\\u0041" , "n":12345678901234567890,"a":2 }'), ("empty", b"{}")])
def meta_comes_back_exactly(api: Api, meta: bytes) -> None:
    """`meta` is kept byte for byte as received."""
    topic = api.topic()
    body = b'{"records":[{"data":1,"meta":' + meta + b"}]}"
    api.call("POST", f"/v0/topics/{topic}", body, status=201)
    page = api.call("POST", f"/v0/topics/{topic}/diff", status=200)
    record = rawjson.elements(rawjson.member(page.raw, "records"))[0]
    same(rawjson.member(record, "meta"), meta, "meta by diff")
    single = api.call("GET", f"/v0/topics/{topic}/records/1", status=200)
    same(rawjson.member(single.raw, "meta"), meta, "meta by record")
    with watch(api, {topic: {}}) as stream:
        same(rawjson.member(stream.records(1)[0], "meta"), meta, "meta by SSE")


MEMBER_ORDERS = [
    ("data last", b'{"tag":"t","node":"n","meta":{"k":1},"data":[1.0]}'),
    ("data first", b'{"data":[1.0],"meta":{"k":1},"node":"n","tag":"t"}'),
    ("white space", b'{ "meta" : {"k":1} , "data" : [1.0] , "tag" : "t" , "node" : "n" }'),
    ("escaped names", b'{"d\\u0061ta":[1.0],"met\\u0061":{"k":1},"t\\u0061g":"t","nod\\u0065":"n"}'),
]


@each("1 bytes", MEMBER_ORDERS)
def the_order_of_members_does_not_matter(api: Api, record: bytes) -> None:
    """A record is `{data, tag?, node?, meta?}` in whatever order and spelling JSON allows."""
    topic = api.topic()
    api.call("POST", f"/v0/topics/{topic}", b'{"records":[' + record + b"]}", status=201)
    single = api.call("GET", f"/v0/topics/{topic}/records/1", status=200)
    shown = dict(rawjson.members(single.raw))
    want = {"data": b"[1.0]", "meta": b'{"k":1}', "$tag": b'"t"', "$node": b'"n"'}
    same({name: shown.get(name) for name in want}, want, "record")


BAD_DATA = [
    ("NaN", b"NaN"),
    ("Infinity", b"-Infinity"),
    ("leading zero", b"01"),
    ("plus", b"+1"),
    ("bare dot", b"1."),
    ("no digits before the dot", b".5"),
    ("hex", b"0x10"),
    ("single quotes", b"'a'"),
    ("trailing comma", b"[1,]"),
    ("comment", b"1/*x*/"),
    ("unended string", b'"abc'),
    ("raw newline in a string", b'"a\nb"'),
    ("raw tab in a string", b'"a\tb"'),
    ("bad escape", b'"\\x41"'),
    ("short \\u", b'"\\u12"'),
    ("invalid UTF-8", b'"\xff"'),
    ("overlong UTF-8", b'"\xc0\xaf"'),
    ("raw surrogate", b'"\xed\xa0\x80"'),
    ("cut UTF-8", b'"\xe2\x82"'),
    ("two values", b"1 2"),
    ("nothing", b""),
    ("True", b"True"),
    ("too deep", b"[" * 200 + b"]" * 200),
    ("far too deep", b"[" * 100_000 + b"]" * 100_000),
    ("unbalanced", b"[1}"),
]


@each("1 bytes", BAD_DATA)
def what_is_not_json_is_refused(api: Api, raw: bytes) -> None:
    """400 `invalid_request`: bad JSON – as data in a JSON body, and as a line of NDJSON; nothing is written."""
    topic = api.topic()
    path = f"/v0/topics/{topic}"
    api.write(topic, "before")
    for media, body in ((JSON, b'{"records":[{"data":1},{"data":' + raw + b"}]}"), (NDJSON, b"1\n" + raw + b"\n2\n")):
        if media is NDJSON and raw == b"":
            continue
        api.refused("POST", path, body, media=media, status=400, code="invalid_request")
    same(api.state(topic)["head_seq"], 1, "head after refused writes")
    holds(api.call("GET", "/v0/health").status == 200, "the server no longer answers")
