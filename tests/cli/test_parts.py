"""The parts that need no daemon: cutting, framing, walking JSON, times, places, and what starts without what."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.support import HARD, PYTHON, ROOT, clean_environment
from topics_cli.bundle import MODULES
from topics_cli.cut import bare_data, end_of, number, seq_of, text_of, text_to_json, texts, ts_of
from topics_cli.exits import Failure
from topics_cli.framing import LENGTH, LINE, NULL, Cutter, frame
from topics_cli.options import read_duration
from topics_cli.pages import read_json_page, read_page
from topics_cli.pump import Pump
from topics_cli.rawjson import NotJson, check, elements, maybe_pick, members, read_pointer
from topics_cli.render import read_template
from topics_cli.table import COMMANDS
from topics_cli.table_quick import QUICK
from topics_cli.talk import escape
from topics_cli.times import read_time
from topics_cli.where import Where, find

NODES = [b"", b'"$node":"n",', b'"$node":"\\"data\\":1,",']
METAS = [b"", b',"meta":{"a":"}\\"","b":1}']
TAGS = [b"", b',"$tag":"t\\"x"']


@pytest.mark.parametrize("value", HARD)
def test_the_data_of_a_record_is_cut_out_exactly_whatever_stands_around_it(value: bytes) -> None:
    for node in NODES:
        assert bare_data([b'{"$seq":7,"$ts":1748450000000,%b"data":%b}' % (node, value)]) == [value]
        for meta in METAS:
            for tag in TAGS:
                line = b'{"$seq":7,"$ts":1748450000000,%b"data":%b%b%b}' % (node, value, meta, tag)
                at = line.index(b'"data":') + 7
                assert line[at : end_of(line, at)] == value
                assert (seq_of(line), ts_of(line)) == (7, 1748450000000)
                assert texts([line]) == [text_of(line, at)]


@pytest.mark.parametrize("framing", [LINE, NULL, LENGTH])
def test_framing_is_the_same_whole_and_byte_by_byte(framing: str) -> None:
    records = [b"", b"a", b"bc", b"12\x01", b"x" * 300]
    stream = frame(records, framing)
    assert Cutter(framing, 1000).feed(stream) == records
    for size in (1, 2, 7):
        cutter, found = Cutter(framing, 1000), []
        for at in range(0, len(stream), size):
            found += cutter.feed(stream[at : at + size])
        assert found + cutter.end() == records
    if framing != LENGTH:
        assert Cutter(framing, 10).feed(b"ab") == []
        unended = Cutter(framing, 10)
        unended.feed(b"ab")
        assert unended.end() == [b"ab"]


def test_framing_refuses_what_is_too_long_or_no_length() -> None:
    with pytest.raises(Failure, match="longer than 4 bytes"):
        Cutter(LINE, 4).feed(b"12345")
    for stream in (b"x\n", b"5000000\n", b"-1\nx", b"12345678901234"):
        with pytest.raises(Failure):
            Cutter(LENGTH, 4000).feed(stream)
    half = Cutter(LENGTH, 10)
    half.feed(b"5\nab")
    with pytest.raises(Failure, match="ends inside a record"):
        half.end()


def test_json_is_walked_without_changing_it() -> None:
    text = ' { "a" : 1.10 , "b\\u0062" :[ 1e3 , {"c/d":"\\ud83d"} ], "a":2 } '
    assert members(text) == {"a": "2", "bb": '[ 1e3 , {"c/d":"\\ud83d"} ]'}
    assert elements("[ 1e3 , [] ]") == ["1e3", "[]"]
    assert maybe_pick(text, read_pointer("/bb/1/c~1d")) == '"\\ud83d"'
    assert maybe_pick(text, ["bb", "7"]) is None
    assert maybe_pick(text, ["a", "x"]) is None
    for wrong in ("", "{", '{"a"}', '{"a":1,}', '{"a":1}x', "[1,]", "1 2", '{"a":1} {', '"\x01"', "01", "[" * 100_000):
        with pytest.raises(NotJson):
            check(wrong)


@pytest.mark.parametrize("value", HARD)
def test_every_hard_value_passes_the_check(value: bytes) -> None:
    check(value.decode("utf-8", "surrogatepass"))


def test_pages_are_read_alike_as_ndjson_and_as_json() -> None:
    tombstone = b'{"gap_from":2,"gap_to":90,"reason":"cap","missed_estimate":89,"earliest_seq":91,"head_seq":92}'
    records = [b'{"$seq":91,"$ts":5,"data":{"$page":{"next_from_seq":1}}}', b'{"$seq":92,"$ts":6,"data":"x"}']
    ends = b'"next_from_seq":92,"head_seq":99,"earliest_seq":91,"caught_up":false,'
    lines = b'{"$tombstone":%b}\n%b\n%b\n{"$page":{%b"lag":7,"epoch":3}}\n' % (tombstone, *records, ends)
    whole = b'{"topic":"t","epoch":3,"records":[%b],%b"tombstone":%b,"lag":7}' % (b",".join(records), ends, tombstone)
    for page, epoch in (read_page(lines), read_json_page(whole)):
        assert page.gap is not None
        assert (page.gap.first, page.gap.last, page.gap.reason) == (2, 90, "cap")
        assert (page.lines, page.next_from_seq, page.head_seq, epoch) == (records, 92, 99, 3)
    empty, _ = read_page(b'{"$page":{"next_from_seq":0,"head_seq":0,"epoch":3}}\n')
    assert (empty.lines, empty.gap, empty.caught_up) == ([], None, True)
    with pytest.raises(Failure):
        read_page(b'{"$seq":1}\n')


def test_text_is_encoded_so_that_json_reads_it_back() -> None:
    for text in ("", 'q"\\', "\0\x1f\x7f", "é😀\u2028"):
        data, is_base64 = text_to_json(text.encode())
        assert (json.loads(data), is_base64) == (text, False)
    assert text_to_json(b"\xff") == (b'{"$base64":"/w=="}', True)
    assert number(b'{"a":12,"b":x}', "a") == 12
    assert number(b'{"a":12,"b":x}', "b") is None


def test_escaping_leaves_nothing_that_a_terminal_obeys() -> None:
    assert escape("plain é 日本 😀") == "plain é 日本 😀"
    assert escape("\x1b[31m\r\n\t\x7f\x9b\u202e\u2066\ud83d") == "\\x1b[31m\\r\\n\\t\\x7f\\u009b\\u202e\\u2066\\ud83d"


def test_times_are_read() -> None:
    assert read_time("2h", 10_000_000) == 2_800_000
    assert read_time("now", 5) == 5
    assert read_time("@1748450000", 0) == read_time("1748450000000", 0) == 1_748_450_000_000
    assert read_time("2025-05-28T16:33:20Z", 0) == 1_748_450_000_000
    assert read_duration("1m") == 60_000
    with pytest.raises(ValueError, match="is not a time"):
        read_time("yesterday", 0)


def test_progress_is_not_drawn_anew_for_each_batch() -> None:
    drawn: list[str] = []
    talk = SimpleNamespace(is_live=True, progress=drawn.append)
    intake = SimpleNamespace(size=10, read_bytes=5, source=None)
    parts: Any = SimpleNamespace(talk=talk), intake, None, SimpleNamespace(key="k"), print
    pump = Pump(*parts)
    pump._begun -= 1
    for _ in range(50):
        pump._show_progress()
    assert len(drawn) == 1
    pump._drawn_at -= 1
    pump._show_progress()
    assert len(drawn) == 2


def test_templates_are_read() -> None:
    assert read_template("a{seq}\\t{{{data.x}}}") == ["a", ("seq",), "\t{", ("data.x",), "}"]
    with pytest.raises(Failure):
        read_template("{open")


def test_the_place_of_the_daemon_is_found_in_order(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def shown(where: Where) -> tuple[str, str]:
        return where.label, where.why

    monkeypatch.chdir(place)
    env = {"XDG_RUNTIME_DIR": str(place / "run"), "TOPICS_DATA_DIR": str(place / "data")}
    if not Path("/run/topics/topics.sock").exists():
        assert shown(find(None, None, env)) == ("http://127.0.0.1:4000", "the default: no socket was found")
    (place / "data").mkdir()
    with socket.socket(socket.AF_UNIX) as data_socket, socket.socket(socket.AF_UNIX) as run_socket:
        data_socket.bind(str(place / "data" / "topics.sock"))
        if not Path("/run/topics/topics.sock").exists():
            assert shown(find(None, None, env)) == (str(place / "data" / "topics.sock"), "found in TOPICS_DATA_DIR")
        (place / "run" / "topics").mkdir(parents=True)
        run_socket.bind(str(place / "run" / "topics" / "topics.sock"))
        assert find(None, None, env).why == "found in XDG_RUNTIME_DIR"
    (place / ".topics.toml").write_text('url = "http://[::1]:4100"\nkey_file = "key"\n')
    (place / "below").mkdir()
    monkeypatch.chdir(place / "below")
    context = find(None, None, env)
    assert shown(context) == ("http://[::1]:4100", str(place / ".topics.toml"))
    assert context.key_file == str(place / "key")
    env["TOPICS_URL"] = "http://example.test"
    assert shown(find(None, None, env)) == ("http://example.test:80", "TOPICS_URL")
    env["TOPICS_SOCKET"] = "/s"
    assert shown(find(None, None, env)) == ("/s", "TOPICS_SOCKET")
    assert find(None, "http://h:1", env).why == "--url"
    assert find("/x", None, env).label == "/x"
    for wrong in ("https://h", "http://", "http://h:x", "http://u@h:1", "http://h:1/path"):
        with pytest.raises(Failure):
            find(None, wrong, {})


CALLS = {
    "write": ["x"],
    "tail": [],
    "diff": [],
    "get": ["1"],
    "claim": [],
    "ack": ["1"],
    "nack": ["1", "--reason", "no"],
    "extend": ["1"],
}


def test_the_fast_commands_are_those_that_must_be() -> None:
    assert {command.name for command in COMMANDS.values() if command.is_light} == set(QUICK) == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_the_fast_commands_start_without_anything_heavy(name: str) -> None:
    words = [name, "t", *CALLS[name]]
    heavy = (
        "typer rich httpx anyio msgspec click pydantic json re enum typing collections dataclasses argparse socket ssl "
        "asyncio subprocess threading logging inspect pathlib encodings.idna importlib.metadata difflib "
        "hypothesis engine"
    )
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from topics_cli.app import main; code = main({words!r}); "
        f"print(code, sorted(set(sys.modules) & set({heavy.split()!r})), "
        f"[name for name in sys.modules if name.startswith('topics_cli') and name not in {MODULES!r}])"
    )
    for place in ({"TOPICS_SOCKET": "/nowhere/at/all"}, {"TOPICS_URL": "http://127.0.0.1:9"}):
        environment = {**clean_environment(), **place}
        done = subprocess.run(
            [PYTHON, "-I", "-S", "-c", script], env=environment, capture_output=True, timeout=20, check=False
        )
        assert done.stdout == b"69 [] []\n", done


def test_a_list_that_finds_no_daemon_has_imported_little() -> None:
    """Completions ask at a key. What `site` brings with it is not ours, so that is said to be there already."""
    script = (
        f"import sys; sys.modules['site'] = sys; sys.path.insert(0, {str(ROOT)!r}); from topics_cli.app import main; "
        "code = main(['-q', '--retry-for', '0', 'ls', '-t', '{topic}', 'x']); "
        "print(code, sorted(set(sys.modules) & {'json', 're', 'enum', 'typing', 'contextlib', 'difflib', 'rich'}))"
    )
    environment = {**clean_environment(), "TOPICS_SOCKET": "/nowhere"}
    done = subprocess.run([PYTHON, "-I", "-S", "-c", script], env=environment, capture_output=True, timeout=20)
    assert done.stdout == b"69 []\n", done
