"""What is compiled says what Python says, or nothing; whatever it is given, it neither fails nor keeps anything."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from engine import scan
from tests.scan.bodies import Maker, Tally, round_of
from tests.scan.fuzz import SOURCE, compiler
from tests.scan.planted import PLANTED

SHAPES = (
    b'{"records":[{"data":1}]}',
    b'{"records":[{"data":{"a":[1,2]},"tag":"t","node":"n","meta":{"k":"v"}},{"data":"x"}],"node":"d"}',
    b'{"records":[{"data":"\xc3\xa9","tag":"\xc3\xa9"},{"data":null,"tag":"u"},{"data":0,"tag":"u"}],"create":true}',
    b'{"records":[{"data":1,"tag":"t"},{"data":1,"tag":7}]}',
    b'{"records":[{"data":1,"meta":{}},{"tag":"t"}]}',
    b'{"records":[{"data":1}],"records":[]}',
    b'"t":{"records":[{"data":1}]},"\xc3\xa9":1}',
    b'1\n{"a":"b"}\n"\xc3\xa9"\n',
    b'"long enough to be a block or two"\n1x\n',
)
"""What ends in each of the ways that there are."""


@pytest.fixture(autouse=True)
def _compiled() -> Iterator[None]:
    if not scan.is_built():
        pytest.skip(f"nothing is compiled here ({compiler() or 'pip install --editable . compiles it'})")
    scan.choose(compiled=True)
    yield
    scan.choose(compiled=True)


def _ask(body: bytes) -> None:
    scan.lines(body, 8, 100)
    scan.member(body, 8, 0)
    found = scan.write(body, 8, 100)
    if found:
        scan.render(*found[:4], 99, 1_748_450_000_000)


def test_what_it_says_is_what_python_says() -> None:
    """A slice of `python -m tests.scan.fuzz`: made bodies, and spoilt ones."""
    tallies = Tally(), Tally(), Tally(), Tally()
    for seed in range(12):
        maker = Maker(Random(seed))
        for _ in range(25):
            round_of(maker, *tallies)
    for tally in tallies:
        assert tally.taken > tally.cases // 10, "it is asked for nothing that it knows"


def test_it_takes_numbers_of_json_and_no_others() -> None:
    number = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
    for length in range(1, 6):
        for letters in itertools.product(b"01.-+eE", repeat=length):
            text = bytes(letters)
            assert (scan.lines(text, 1, 100) is not None) == (number.fullmatch(text) is not None), text


def test_it_takes_utf8_and_nothing_else() -> None:
    """Each first byte, with each second one, and with the edges of all others."""
    edges = [bytes((byte,)) for byte in b"\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0"]
    ends = [b"".join(end) for length in range(3) for end in itertools.product(edges, repeat=length)]
    for first in range(0x80, 0x100):
        texts = [bytes((first, second)) for second in range(0x20, 0x100) if second not in b'"\\']
        texts += [bytes((first,)) + second + end for second in edges for end in ends]
        for text in texts:
            try:
                text.decode()
                good = True
            except UnicodeDecodeError:
                good = False
            assert (scan.lines(b'"' + text + b'"', 1, 100) is not None) == good, text


def test_it_takes_the_escapes_of_json_and_no_others() -> None:
    for byte in range(256):
        for text, letters in ((b'"\\%c"', b'"\\/bfnrt'), (b'"\\u12%c4"', b"0123456789abcdefABCDEF")):
            assert (scan.lines(text % byte, 1, 100) is not None) == (byte in letters), (text, byte)
    for text in (b'"\\ud800"', b'"\\udc00\\udc00"', b'{"\\ud83d":"\\ud83d\\ude00"}'):
        assert scan.lines(text, 1, 100) == [text]


@pytest.mark.parametrize("place", range(0, 40, 3))
def test_whatever_is_no_character_is_seen_wherever_it_stands(place: int) -> None:
    for byte in range(256):
        text = b'"' + b"a" * place + bytes((byte,)) + b"a" * (40 - place) + b'"'
        assert (scan.lines(text, 1, 100) is not None) == (byte >= 0x20 and byte not in b'"\\' and byte < 0x80), byte


def test_the_bound_of_nesting_is_exact_and_has_a_bound() -> None:
    for depth in (0, 1, 2, 128, 256):
        for text in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
            if depth:
                assert scan.lines(text, depth, 100) == [text]
                assert scan.lines(text, depth - 1, 100) is None
    assert scan.lines(b"1", 257, 100) is None
    assert scan.lines(b"1", -1, 100) is None
    assert scan.lines(b"[" * 1_000_000, 256, 100) is None


def test_every_text_of_a_tag_is_rendered_as_python_does() -> None:
    codes = [*range(0x300), *range(0x2000, 0x2100), 0xD7FF, *range(0xD800, 0xD810), 0xE000, 0xFFFF, 0x10000, 0x10FFFF]
    for code in codes:
        text = f"a{chr(code)}b"
        found = scan.render([b"1"], [text], None, None, 1, 1)
        if code < 0x20 or text[1] in '"\\' or 0xD800 <= code <= 0xDFFF:
            assert found is None, hex(code)
        else:
            assert found is not None
            assert found[0] == b'{"$seq":1,"$ts":1,"data":1,"$tag":"%b"}' % text.encode(), hex(code)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (b"1",),
        (bytearray(b"1"), 8),
        ("1", 8),
        (b"1", "8"),
        (b"1", 2**80),
        (b"1", None),
        ([b"1"], None, None, None, 1),
    ],
)
def test_arguments_that_it_does_not_know_are_not_its_own(arguments: tuple[Any, ...]) -> None:
    asked: tuple[Callable[..., object], ...] = (scan.write, scan.lines, scan.member, scan.render)
    for ask in asked:
        assert ask(*arguments) is None


def test_batches_that_it_does_not_know_are_not_its_own() -> None:
    one: list[Any] = [b"1"]
    for datas, tags, nodes, metas, seq, ts in (
        ([], None, None, None, 1, 1),
        ((b"1",), None, None, None, 1, 1),
        (["1"], None, None, None, 1, 1),
        ([None], None, None, None, 1, 1),
        (one, ["t", "t"], None, None, 1, 1),
        (one, None, [b"n"], None, 1, 1),
        (one, None, None, ["{}"], 1, 1),
        (one, None, None, None, -1, 1),
        (one, None, None, None, 10**18, 1),
        (one, None, None, None, 1, 10**18),
        (one, None, None, None, 1, 1.5),
    ):
        assert scan.render(datas, tags, nodes, metas, seq, ts) is None  # type: ignore[arg-type]  # on purpose


def test_nothing_is_kept_of_what_was_read() -> None:
    for body in SHAPES:
        for _ in range(3):
            _ask(body)
        before = sys.getallocatedblocks()
        for _ in range(2000):
            _ask(body)
        assert sys.getallocatedblocks() - before < 50, body


def test_references_to_what_is_shared_are_given_back() -> None:
    tag = "a tag of its own"
    datas: list[bytes] = [b"[1]"]
    tags: list[str | None] = [tag]
    counted = [sys.getrefcount(thing) for thing in (None, tag, datas, tags, datas[0])]
    for _ in range(500):
        scan.render(datas, tags, [None], None, 1, 1)
        scan.render(datas, tags, ['"'], None, 1, 1)
        scan.write(SHAPES[1], 8, 100)
    after = [sys.getrefcount(thing) for thing in (None, tag, datas, tags, datas[0])]
    assert all(abs(new - old) < 20 for old, new in zip(counted, after, strict=True)), (counted, after)


def test_without_memory_it_is_not_its_own_and_nothing_is_lost() -> None:
    """Each allocation fails once, in every shape."""
    limited = pytest.importorskip("_testcapi", reason="this Python has no _testcapi, which refuses memory")
    failed = 0
    for body in SHAPES:
        for ask, last in ((scan.write, 100), (scan.lines, 100), (scan.member, 0)):
            whole = ask(body, 8, last)
            before = sys.getallocatedblocks()
            for count in range(40):
                limited.set_nomemory(count, count + 1)
                try:
                    found = ask(body, 8, last)
                finally:
                    limited.remove_mem_hooks()
                failed += found is None and whole is not None
                assert found is None or found == whole
                del found
            assert sys.getallocatedblocks() - before < 20, body
        columns = scan.write(body, 8, 100)
        if not columns:
            continue
        datas, tags, nodes, metas, _ = columns
        for count in range(12):
            limited.set_nomemory(count, count + 1)
            try:
                parts = scan.render(datas, tags, nodes, metas, 1, 1)
            finally:
                limited.remove_mem_hooks()
            failed += parts is None
    assert failed > 40


def test_without_it_everything_is_pythons() -> None:
    script = (
        "import sys; sys.modules['engine._scan'] = None\n"
        "from engine import scan\n"
        "from engine.limits import Limits\n"
        "from topics_daemon.decode import decode_ndjson\n"
        "scan.choose(compiled=True)\n"
        'print(scan.is_built(), scan.is_compiled(), decode_ndjson(b"[1]", Limits()))'
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False False [b'[1]']\n"


def test_what_was_compiled_from_an_older_source_is_not_used() -> None:
    script = (
        "import sys, types; sys.modules['engine._scan'] = types.SimpleNamespace(write=None, lines=None, render=None)\n"
        "from engine import scan\n"
        "print(scan.is_built(), scan.is_compiled())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False False\n"


def test_every_planted_mistake_has_its_place() -> None:
    """They are run by `python -m tests.scan.planted`; here, that the C file did not leave them behind."""
    text = SOURCE.read_text()
    for name, old, _ in PLANTED:
        assert text.count(old) == 1, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["takes overlong UTF-8 of three bytes", "nests one deeper", "loses a carry"])
def test_a_planted_mistake_is_found(name: str) -> None:
    from tests.scan.planted import find

    if (missing := compiler()) is not None:
        pytest.skip(f"nothing can be planted: {missing}")
    (planted,) = (planted for planted in PLANTED if planted[0] == name)
    assert find(planted, 60) is not None
