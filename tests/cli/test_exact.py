"""Every byte that goes in comes out again, over every way through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import HARD, Daemon

pytestmark = pytest.mark.slow

LINES = b"\n".join(HARD) + b"\n"
TEXTS = [
    b"",
    b"plain",
    b" spaces ",
    b"tab\there",
    b"cr\r",
    "ключ 日本 😀".encode(),
    b"\xff\xfe\x00bin",
    b'quo"te\\',
    b"\x1b[31m",
]


def test_json_values_come_back_byte_for_byte_through_standard_input_and_tail(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--json", stdin=LINES)
    assert shared.ok("tail", topic, "--from", "0", "-o", "raw") == LINES


def test_json_values_come_back_byte_for_byte_from_a_file_and_over_get(shared: Daemon, topic: str, place: Path) -> None:
    (place / "in.ndjson").write_bytes(LINES)
    shared.ok("write", topic, "--json", "-f", str(place / "in.ndjson"))
    seqs = [str(seq) for seq in range(1, len(HARD) + 1)]
    assert shared.ok("get", topic, *seqs, "--raw") == LINES


def test_json_values_come_back_byte_for_byte_from_arguments_and_over_diff(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--json", "--", *HARD)
    assert shared.ok("diff", topic, "-o", "raw", "--limit", "1000") == LINES
    page = shared.ok("diff", topic, "--limit", "1000")
    assert all(b'"data":' + value in page for value in HARD)


def test_json_values_come_back_byte_for_byte_in_a_json_body(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--json", "--ack", "fsync", "--meta", "a=b", stdin=LINES)
    assert shared.ok("tail", topic, "--from", "0", "-o", "raw") == LINES


def test_whole_records_make_a_pipe_from_one_topic_to_another(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--json", "--tag", "t", "--node", "n", "--meta", "k=v", stdin=LINES)
    whole = shared.ok("tail", topic, "--from", "0", "-o", "ndjson")
    shared.ok("write", topic + "-copy", "--records", stdin=whole)
    copy = shared.ok("tail", topic + "-copy", "--from", "0", "-o", "ndjson")

    def without_ts(lines: bytes) -> list[bytes]:
        return [line[: line.index(b'"$ts":')] + line[line.index(b'"$node":') :] for line in lines.splitlines()]

    assert without_ts(copy) == without_ts(whole)
    assert len(copy.splitlines()) == len(HARD)


def test_records_that_another_program_rendered_again_are_read_too(shared: Daemon, topic: str) -> None:
    record = b'{ "data" : 1.10 , "$tag":"t\\u0041", "meta":{"a":1}, "$seq":5 }\n{"$tombstone":{"gap_from":1}}\n'
    shared.ok("write", topic, "--records", stdin=record)
    line = shared.ok("get", topic, "1")
    assert line.endswith(b'"data":1.10,"meta":{"a":1},"$tag":"tA"}\n')


def test_lines_of_text_come_back_byte_for_byte_even_when_they_are_not_utf8(shared: Daemon, topic: str) -> None:
    lines = b"\n".join(text for text in TEXTS if b"\n" not in text) + b"\n"
    shared.ok("write", topic, stdin=lines)
    assert shared.ok("tail", topic, "--from", "0") == lines


@pytest.mark.parametrize("framing", ["-0", "--length"])
def test_records_with_line_breaks_come_back_in_their_framing(shared: Daemon, topic: str, framing: str) -> None:
    texts = [text for text in [*TEXTS, b"two\nlines", b"\r\n"] if framing != "-0" or b"\0" not in text]
    frames = b"".join(text + b"\0" if framing == "-0" else b"%d\n%b" % (len(text), text) for text in texts)
    shared.ok("write", topic, framing, stdin=frames)
    assert shared.ok("tail", topic, "--from", "0", framing) == frames


def test_json_with_raw_line_breaks_comes_back_exactly_in_nul_framing(shared: Daemon, topic: str) -> None:
    frames = b'{\n "a": 1,\r\n "b": [ ]\n}\0"x"\0'
    shared.ok("write", topic, "--json", "-0", stdin=frames)
    assert shared.ok("tail", topic, "--from", "0", "-0", "-o", "raw") == frames
    assert shared.ok("tail", topic, "--from", "0", "-o", "raw").count(b"\n") == 2


def test_bytes_that_are_not_utf8_are_marked_in_meta_and_keep_the_given_meta(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--meta", "k=v", b"\xff\xfe")
    record = json.loads(shared.ok("get", topic, "1"))
    assert record["data"] == {"$base64": "//4="}
    assert record["meta"] == {"k": "v", "encoding": "base64"}
    assert shared.ok("get", topic, "1", "-o", "text") == b"\xff\xfe\n"
    assert shared.ok("tail", topic, "-t", "{seq} {data}{{") == b"1 \xff\xfe{\n"
    assert shared.ok("tail", topic, "--fields", "seq,data") == b"1\t\xff\xfe\n"


def test_an_object_that_only_looks_like_base64_stays_json(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--json", '{"$base64":"//4="}')
    assert shared.ok("tail", topic) == b'{"$base64":"//4="}\n'
    assert shared.ok("tail", topic, "-t", "{data}") == b'{"$base64":"//4="}\n'


def test_a_value_that_would_end_its_record_is_refused_and_writes_nothing(shared: Daemon, topic: str) -> None:
    shared.ok("create", topic)
    for words in (["--ack", "fsync"], ["--tag-from", "/a"], []):
        done = shared.run("write", topic, "--json", *words, stdin=b'{"a":"1"},{"data":2}\n')
        assert done.returncode == 1
    assert shared.ok("tail", topic, "--from", "0") == b""
