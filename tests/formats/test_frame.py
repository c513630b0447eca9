"""Frames: headers that are believed only after their check, and slices that are never all zero."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.commands import Batch
from engine.formats.append import encode_append_body
from engine.formats.frame import (
    BODY_LEN_MAX,
    FRAME_ALIGN,
    HEAD_LEN,
    HEADER_LEN,
    NO_FRAME,
    SECTOR,
    FrameType,
    align_block,
    back_to,
    body_check,
    frame_len,
    header_misses_bytes,
    misses_bytes,
    pack_header,
    padding,
    parse_header,
    resembles_header,
    seed_of,
)
from engine.fragment import render

SEED = seed_of(b"store id, 16 byt")
TS = 1_748_450_000_000


def a_frame(body: bytes, lsn: int = 4096, back: int = 200, seed: int = SEED) -> bytes:
    header = pack_header(seed, len(body), FrameType.APPEND, 8, 2, 3, lsn, back, 5, 6, 7, 8, TS, 4096)
    return header + body + padding(len(body)) + body_check(body, seed)


def test_a_header_comes_back_as_it_was_packed() -> None:
    header = parse_header(SEED, b"xx" + a_frame(b"{}"), 2, 4096)
    assert header is not None
    assert header[1:] == (2, 1, 8, 2, 0, 3, 4096, 200, 0, 5, 6, 7, 8, TS, 4096)
    assert (header.body_len, header.type, header.records, header.first_seq) == (2, FrameType.APPEND, 3, 8)


def test_F28_no_flipped_bit_and_no_cut_of_a_header_is_believed() -> None:
    frame = a_frame(b'{"a":1}')
    for bit in range(HEADER_LEN * 8):
        bad = bytearray(frame)
        bad[bit // 8] ^= 1 << bit % 8
        assert parse_header(SEED, bytes(bad), 0, 4096) is None, bit
    for length in range(HEADER_LEN):
        assert parse_header(SEED, frame[:length], 0, 4096) is None
    assert parse_header(SEED, frame[:HEADER_LEN], 0, 4096) is not None


def test_F04_F29_a_header_of_another_place_or_store_is_none() -> None:
    frame = a_frame(b"{}")
    assert parse_header(SEED, frame, 0, 4104) is None
    assert parse_header(seed_of(b"another id......"), frame, 0, 4096) is None


@pytest.mark.parametrize("body_len", [0, BODY_LEN_MAX + 1])
def test_a_length_out_of_bounds_is_not_believed_even_under_a_good_check(body_len: int) -> None:
    header = pack_header(SEED, body_len, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1, TS, 0)
    assert parse_header(SEED, header, 0, 0) is None


@given(st.integers(1, 10_000))
def test_a_frame_is_aligned_and_as_long_as_it_says(body_len: int) -> None:
    length = frame_len(body_len)
    assert length % FRAME_ALIGN == 0
    assert length == HEADER_LEN + body_len + len(padding(body_len)) + 8
    assert 0 <= len(padding(body_len)) < FRAME_ALIGN


def test_blocks_and_back_pointers() -> None:
    assert [align_block(lsn) for lsn in (0, 1, 4095, 4096, 4097)] == [0, 4096, 4096, 4096, 8192]
    assert back_to(NO_FRAME, 8192) == 0
    assert back_to(0, 8192) == 8192
    assert back_to(8192, 8400) == 208


def some_frames() -> list[bytes]:
    frames = [a_frame(b"{}")]
    for size in (1, 3, 100, 700, 5000):
        batch = Batch([b'"' + b"x" * size + b'"'] * 7, tags=["t", None] * 3 + [None], nodes=["n"] * 7)
        frames.append(a_frame(encode_append_body(b"k", b"\0" * 15 + b"\1", render(batch, 1, TS))[1]))
    return frames


def test_no_slice_between_sectors_of_a_whole_frame_is_all_zero() -> None:
    for frame in some_frames():
        for position in range(0, SECTOR, FRAME_ALIGN):
            assert not misses_bytes(frame, position, len(frame))
            assert not header_misses_bytes(frame[:HEAD_LEN], position)


def test_F03_every_missing_sector_and_every_missing_end_is_seen() -> None:
    for frame in some_frames():
        for position in random.Random(1).sample(range(0, SECTOR, FRAME_ALIGN), 12):
            bounds = [0, *range(SECTOR - position, len(frame), SECTOR), len(frame)]
            for start, end in pairwise(bounds):
                torn = frame[:start] + bytes(end - start) + frame[end:]
                assert misses_bytes(torn, position, len(frame))
                if start == 0:
                    assert header_misses_bytes(torn[:HEAD_LEN], position)
        for length in range(0, len(frame) - 8, 3):
            assert misses_bytes(frame[:length].ljust(len(frame), b"\0"), 0, len(frame))
            assert misses_bytes(frame[:length], 0, len(frame)), "what lies behind the end of a file is missing"


def test_F27_damage_to_a_byte_is_not_taken_for_missing_bytes() -> None:
    rng = random.Random(2)
    for frame in some_frames():
        for at in rng.sample(range(len(frame)), min(len(frame), 60)):
            bad = bytearray(frame)
            bad[at] ^= 1 << rng.randrange(8)
            assert not misses_bytes(bytes(bad), rng.randrange(0, SECTOR, 8), len(frame))


def test_a_header_with_a_damaged_field_still_resembles_one_and_a_body_does_not() -> None:
    frame = a_frame(b'{"a":1}')
    for at in range(HEADER_LEN):
        bad = bytearray(frame)
        bad[at] ^= 0xFF
        assert resembles_header(bytes(bad[:HEADER_LEN]), 4096, 200)
    rng = random.Random(3)
    for frame in some_frames()[2:]:
        for _ in range(200):
            at = rng.randrange(HEADER_LEN, len(frame) - HEADER_LEN)
            assert not resembles_header(frame[at : at + HEADER_LEN], 4096, 200)
    assert not resembles_header(frame[:70], 4096, 200)
