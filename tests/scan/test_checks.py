"""The checks of rows that are made in one call are those that `xxhash` makes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from random import Random

import pytest
from xxhash import xxh3_64_intdigest

from engine import scan
from engine.segment.build import Run, build
from tests.scan.fuzz import compiler

LENGTHS = [*range(2200), 4095, 4096, 4097, 65_536, 1 << 20]


@pytest.fixture(autouse=True)
def _compiled() -> Iterator[None]:
    why = f"it is not compiled here ({compiler() or 'pip install --editable . compiles it'})"
    pytest.importorskip("engine._checks", reason=why)
    scan.choose(compiled=True)
    yield
    scan.choose(compiled=True)


def _low(data: bytes) -> int:
    return xxh3_64_intdigest(data) & 0xFFFFFFFF


def test_each_length_has_the_check_that_the_library_gives() -> None:
    chance = Random(1)
    parts = [chance.randbytes(length) for length in LENGTHS]
    strides = array("I", [len(part) + 1 for part in parts])
    wanted = array("I", map(_low, parts)).tobytes()
    data = b",".join(parts)
    for kind in (data, bytearray(data), memoryview(b"xx" + data + b"xx")[2:-2]):
        assert scan.checks(kind, strides) == wanted


@pytest.mark.parametrize("strides", [(5, 5), (4, 0), (10,), (2**32 - 1, 1), (0,)])
def test_strides_of_other_data_are_not_its_own(strides: tuple[int, ...]) -> None:
    assert scan.checks(b"abc,def", array("I", strides)) is None
    assert scan.checks(b"abc,def", array("I", (4, 4))) is not None


def test_a_segment_is_the_same_with_and_without_it() -> None:
    chance = Random(2)
    made = (
        b'{"$seq":%d,"$ts":1748450000000,"data":"%s"}' % (seq, b"x" * chance.randrange(400)) for seq in range(1, 900)
    )
    fragments = list(made)
    data = b",".join(fragments)
    found = []
    for compiled in (True, False):
        scan.choose(compiled=compiled)
        run = Run(1, data, array("I", [len(one) + 1 for one in fragments]), 1_748_450_000_000)
        built = build(7, 1, len(fragments), [run])
        found.append((built.index, built.data_check))
    assert found[0] == found[1]
