"""Bodies into batches: bytes come through untouched, and what must be refused is refused with its field."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Code, Refused
from engine.limits import Limits
from topics_daemon.decode import (
    RUN_LINES,
    decode,
    decode_ndjson,
    decode_text_lines,
    decode_write,
    is_deeper,
    read_members,
    read_publish,
    write_of,
)
from topics_daemon.decode_many import decode_many
from topics_daemon.routes.asked import READ
from topics_daemon.unknown import NAMES_MAX, WARNINGS_MAX

pytestmark = pytest.mark.usefixtures("each_way")

LIMITS = Limits()

HARD = [
    *(b"1.10", b"1e3", b"12345678901234567890123", b"-0", b"1E+5", b"1e999", b'"\\u0041\\/"', b"true", b"null"),
    *(b'{"b":1,"a":2,"b":3}', b"[ 1 ,\t2 ]", b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', '"é😀"'.encode()),
    *(b'"\\\\ud800"', b'{"\\ud800":"\\udfff"}', b'"\x7f"', b'""', b"[]", b"{}", b'"\\u0000"'),
]


@pytest.mark.parametrize("value", HARD)
def test_data_comes_through_byte_for_byte_in_every_kind_of_body(value: bytes) -> None:
    alone = decode_write(b'{"records":[{"data":%b}]}' % value, LIMITS)
    assert alone.batch.datas == [value]
    among = decode_write(b'{"records":[{"data":1},{"tag":"t","data": %b }]}' % value, LIMITS)
    assert among.batch.datas == [b"1", value]
    assert decode_ndjson(b"1\n %b \r\n\n2" % value, LIMITS) == [b"1", value, b"2"]
    many, _ = decode_many(b'{"topics":{"a":{"records":[{"data":%b}]}}}' % value, LIMITS, [])
    assert decode_write(many["a"], LIMITS).batch.datas == [value]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.tuples(json_values, st.booleans()), min_size=1, max_size=5))
def test_any_json_comes_through_as_it_was_written(values: list[tuple[Any, bool]]) -> None:
    texts = [
        json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for value, ascii_only in values
    ]
    texts = [text for text in texts if text.isascii() or _is_utf8(text)]
    if not texts:
        return
    body = b'{"records":[' + b",".join(b'{"data":' + text + b"}" for text in texts) + b"]}"
    assert decode_write(body, LIMITS).batch.datas == texts
    assert decode_ndjson(b"\n".join(texts), LIMITS) == texts


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_refused_or_taken_but_never_break_it(data: bytes) -> None:
    for decoder in (decode_write, decode_ndjson):
        try:
            decoder(data, LIMITS)
        except Refused:
            pass
    try:
        decode_text_lines(data, LIMITS)
    except Refused:
        pass


def test_columns_are_there_only_where_a_record_has_them() -> None:
    plain = decode_write(b'{"records":[{"data":1},{"data":2,"tag":null,"node":null,"meta":null}]}', LIMITS).batch
    assert (plain.tags, plain.nodes, plain.metas) == (None, None, None)
    mixed = decode_write(
        b'{"node":"n","records":[{"data":1,"tag":"t"},{"data":2,"node":"m","meta":{ "a":1.0 }}]}', LIMITS
    ).batch
    assert mixed.tags == ["t", None]
    assert mixed.nodes == ["n", "m"]
    assert mixed.metas == [None, b'{ "a":1.0 }']
    alone = decode_write(b'{"node":"n","records":[{"data":1}]}', LIMITS).batch
    assert alone.nodes == ["n"]


def test_unknown_fields_are_named_once_each_and_do_no_harm() -> None:
    write = decode_write(b'{"x":1,"records":[{"data":1,"y":2},{"data":2,"y":3,"z":[]}],"config":{"w":1}}', LIMITS)
    assert write.batch.datas == [b"1", b"2"]
    assert write.warnings == [
        "unknown field x",
        "unknown field records[].y",
        "unknown field records[].z",
        "unknown field config.w",
    ]
    hidden = decode_write(b'{"records":[{"data":"\\ud800","y":2}]}', LIMITS)
    assert hidden.batch.datas == [b'"\\ud800"']
    assert hidden.warnings == ["unknown field records[].y"]
    assert (
        len(
            decode_write(
                json.dumps({"records": [{"data": 1}], **{f"x{n}": 1 for n in range(99)}}).encode(), LIMITS
            ).warnings
            or []
        )
        == 16
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"records":1}', "records"),
        (b'{"records":[{"tag":"a"}]}', "records"),
        (b'{"records":[{"data":1,"tag":1}]}', "records"),
        (b'{"records":[{"data":1}],"idempotency_key":7}', "idempotency_key"),
        (b'{"records":[{"data":1}],"idempotency_key":""}', "idempotency_key"),
        (b'{"records":[{"data":1}],"ack":"never"}', "ack"),
        (b'{"records":[{"data":1}],"create":"yes"}', "create"),
        (b'{"records":[{"data":1}],"config":{"ttl_ms":-1}}', "ttl_ms"),
        (b'{"records":[{"data":1}],"config":7}', "config"),
        (b'{"records":[{"data":1}],"config":[]}', "config"),
        (b"{}", "records"),
    ],
)
def test_a_refusal_names_the_field(body: bytes, field: str | None) -> None:
    with pytest.raises(Refused) as caught:
        decode_write(body, LIMITS)
    assert (caught.value.detail or {}).get("field") == field


@pytest.mark.parametrize(
    "body", [b"1,2\n3", b"[1\n2]\n3,4", b"1 2", b"{\n}", b"x", b"'a'", b"NaN", b"\xff", b"[" * 200 + b"]" * 200]
)
def test_lines_that_are_not_a_value_each_are_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        decode_ndjson(body, LIMITS)


def test_a_bad_line_is_named() -> None:
    with pytest.raises(Refused, match="line 3 "):
        decode_ndjson(b"1\n\nx\n", LIMITS)
    many = b"1\n\n" * (2 * RUN_LINES)
    with pytest.raises(Refused, match=f"line {4 * RUN_LINES + 1} is not JSON"):
        decode_ndjson(many + b"x\n", LIMITS)
    with pytest.raises(Refused, match="line 109 nests too deep"):
        decode_ndjson(b"\n" * 99 + many[:14] + b"[" * 100_000 + b"\n" + many, LIMITS)
    assert (
        decode_ndjson(many + b'"\\ud800"\n' + many, LIMITS)
        == [b"1"] * 2 * RUN_LINES + [b'"\\ud800"'] + [b"1"] * 2 * RUN_LINES
    )


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\r\nb\n\nc", ["a", "b", "", "c"]),
        (b"a\rb\r", ["a\rb\r"]),
        ('é"\\\t\n'.encode(), ['é"\\\t']),
    ],
)
def test_lines_are_strings(body: bytes, lines: list[str]) -> None:
    assert [json.loads(data) for data in decode_text_lines(body, LIMITS)] == lines


@pytest.mark.parametrize("depth", [1, 2, 127, 128])
def test_depth_is_measured_exactly(depth: int) -> None:
    for value in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
        assert not is_deeper(value, depth)
        assert is_deeper(value, depth - 1)
    wide = b"[" + b",".join([b'{"]]]":"[[["}'] * 500) + b"]"
    assert not is_deeper(wide, 2)
    assert is_deeper(wide, 1)
    with pytest.raises(Refused):
        decode_write(b'{"records":[{"data":' + b"[" * 129 + b"]" * 129 + b"}]}", LIMITS)
    assert len(decode_write(b'{"records":[{"data":' + b"[" * 128 + b"]" * 128 + b"}]}", LIMITS).batch) == 1


HEAD = b'{"op":"publish","topic":"t","request_id":[1.0],'


@pytest.mark.parametrize(
    "rest",
    [
        b'"records":[{"data":1.10}]}',
        b'"records":[{"data":"a","tag":"x","meta":{"a":1}},{"data":2,"node":"n"}],"node":"m","return_seqs":false}',
        b'"records":[{"data":1}],"idempotency_key":"k","ack":"fsync","create":false,"disable_backpressure":true}',
        b'"records":[{"data":1}],"config":{"cap_records":7,"new":1}}',
        b'"records":[],"op":"publish"}',
    ],
)
def test_a_publish_read_in_one_go_is_the_write_that_its_members_are(rest: bytes) -> None:
    read = read_publish(HEAD + rest, LIMITS.batch_records)
    assert read is not None
    assert (read.topic, bytes(read.request_id)) == ("t", b"[1.0]")
    members = read_members(HEAD + rest)
    own = {name: members[name] for name in members if name not in ("op", "topic", "request_id")}
    once, twice = write_of(read, LIMITS), decode_write(msgspec.json.encode(own), LIMITS)
    assert msgspec.structs.asdict(once.batch) == msgspec.structs.asdict(twice.batch)
    assert msgspec.structs.replace(once, batch=twice.batch) == twice


@pytest.mark.parametrize(
    "message",
    [
        b'{"op":"claim","topic":"publish"}',
        b'{"op":"publish","topic":"t"}',
        b'{"op":"publish","records":[{"data":1}]}',
        b'{"op":"publish","topic":7,"records":[{"data":1}]}',
        HEAD + b'"records":[{"data":1}],"unknown":1}',
        HEAD + b'"records":[{"data":1,"unknown":1}]}',
        HEAD + b'"records":[{"data":"\\ud800"}]}',
        HEAD + b'"records":[{"data":1}]',
        HEAD + b'"records":[{"data":' + b"[" * 5000 + b"]" * 5000 + b"}]}",
        b'{"records":[{"data":"' + b"x" * 300 + b'"}],"op":"publish","topic":"t"}',
        b'["publish"]',
    ],
)
def test_a_publish_that_needs_a_second_look_is_not_read_in_one_go(message: bytes) -> None:
    assert read_publish(message, LIMITS.batch_records) is None


FEW = Limits(batch_records=3)
TOO_MANY = [
    b'{"records":[' + b",".join([b'{"data":1}'] * 9) + b"]}",
    b'{"records":[' + b",".join([b'{"data":1,"unknown":1}'] * 9) + b"]}",
    b'{"records":[' + b",".join([rb'{"data":"\ud800"}'] * 9) + b"]}",
    b'{"records":[' + b",".join([rb'{"data":"\ud800","unknown":1}'] * 9) + b"]}",
    b'{"records":[' + b",".join([rb'{"\u0064ata":1}'] * 9) + b"]}",
]


@pytest.mark.parametrize("body", TOO_MANY)
def test_of_too_many_records_no_more_are_decoded_than_there_may_be(body: bytes) -> None:
    # What is behind the fourth record is not even JSON: nobody has looked at it.
    at = len(b"".join(body.partition(b"},")[:2])) * 5
    with pytest.raises(Refused) as refused:
        decode_write(body[:at] + b"?" * 100, FEW)
    assert refused.value.code is Code.BATCH_TOO_LARGE
    assert refused.value.detail == {"limit": "max_batch_records", "max": 3}


def test_values_with_many_brackets_are_no_records() -> None:
    data = b'{"a":[{},{},{},{},{},{},{}]}'
    assert decode_write(b'{"records":[{"data":%b},{"data":%b}]}' % (data, data), FEW).batch.datas == [data, data]
    unknown = decode_write(b'{"records":[{"data":%b,"b":%b}]}' % (data, data), FEW)
    assert (unknown.batch.datas, unknown.warnings) == ([data], ["unknown field records[].b"])


def test_of_too_many_lines_no_more_are_made_than_there_may_be() -> None:
    for body in (b"1\n" * 4, b"1\n\n \r\n\t2\n3 \n4", b"1\n2\n3\n4\n?\n" + b"\n" * 100):
        with pytest.raises(Refused) as refused:
            decode_ndjson(body, FEW)
        assert refused.value.code is Code.BATCH_TOO_LARGE
    assert decode_ndjson(b"\n" * 50 + b" 1 \r\n" + b" \t\r\n" * 50 + b"2\n" + b"\n" * 50 + b"3", FEW) == [
        b"1",
        b"2",
        b"3",
    ]
    with pytest.raises(Refused, match="line 103 is not JSON"):
        decode_ndjson(b"\n" * 50 + b" 1 \r\n" + b" \t\r\n" * 51 + b"?\n", FEW)
    assert len(decode_text_lines(b"a\n\nb\n", FEW)) == 3
    with pytest.raises(Refused) as refused:
        decode_text_lines(b"a\n\nb\n\n", FEW)
    assert refused.value.code is Code.BATCH_TOO_LARGE


def test_a_publish_of_perhaps_too_many_records_is_not_read_in_one_go() -> None:
    message = HEAD + b'"records":[' + b",".join([b'{"data":1}'] * 9) + b"]}"
    assert read_publish(message, 9) is not None
    assert read_publish(message, 3) is None


LONE_AND_PAIR = rb'{"records":[{"data":"\ud800"},{"data":"\\ud800","tag":"\ud83d\ude00","node":"\ud55c"}]}'


def test_escapes_of_pairs_in_names_are_read_beside_lone_ones_in_values() -> None:
    batch = decode_write(LONE_AND_PAIR, LIMITS).batch
    assert (batch.datas, batch.tags, batch.nodes) == ([rb'"\ud800"', rb'"\\ud800"'], [None, "😀"], [None, "한"])
    many, node = decode_many(rb'{"topics":{"a":{"x":"\udc00\ud800"}},"node":"\ud83d\ude00"}', LIMITS, [])
    assert (many, node) == ({"a": rb'{"x":"\udc00\ud800"}'}, "😀")


@pytest.mark.parametrize(
    "body", [rb'{"topics":{"\ud800":{}}}', rb'{"topics":{},"node":"\ud83d\ud83d"}', rb'{"topics":{},"\ud800":1}']
)
def test_lone_surrogates_in_names_of_a_write_to_many_are_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        decode_many(body, LIMITS, [])


def test_a_world_of_escapes_costs_little() -> None:
    body = b'{"records":[{"data":"' + rb"\ud800" * 1_000_000 + b'"}]}'
    before = time.thread_time()
    assert len(decode_write(body, LIMITS).batch.datas[0]) == 6_000_002
    # 0.1 s; told apart one by one it took 2 s.
    assert time.thread_time() - before < 0.7
    with pytest.raises(Refused):
        decode_write(body.replace(b'"}]', rb'","tag":"\ud83d\ude00"}]'), LIMITS)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


ODD = st.text('[]{}"\\,:\n', max_size=6)


@given(st.recursive(ODD, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD, inner, max_size=4)))
def test_depth_is_measured_exactly_whatever_strings_hold(value: Any) -> None:
    depth, text = _depth(value), json.dumps(value).encode()
    assert not is_deeper(text, depth)
    assert not depth or is_deeper(text, depth - 1)


@pytest.mark.parametrize("write", [True, False])
def test_of_a_world_of_unknown_fields_only_the_first_are_looked_at(write: bool) -> None:
    fields = b"".join(b',"f%d":1' % number for number in range(2 * NAMES_MAX)) + b',"a":1}'
    if write:
        warnings = decode_write(b'{"records":[{"data":1}]' + fields, LIMITS).warnings or []
    else:
        warnings = []
        decode(READ, b'{"limit":5' + fields, LIMITS, warnings)
    assert len(warnings) == WARNINGS_MAX
    assert all(warning.startswith("unknown field f") for warning in warnings)
    with pytest.raises(Refused):
        decode_write(b'{"records":[{"data":1}]' + fields[:-1], LIMITS)  # what comes after them is judged all the same


def test_an_unknown_field_behind_one_that_comes_again_and_again_is_told() -> None:
    body = b'{"records":[{"data":1}]' + b',"node":"n"' * 2 * NAMES_MAX + b',"a":1}'
    assert decode_write(body, LIMITS).warnings == ["unknown field a"]
