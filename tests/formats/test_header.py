"""The header of every file."""

from __future__ import annotations

from engine.formats.header import FILE_HEADER_LEN, FileHeader, FileKind, pack_file_header, parse_file_header

HEADER = FileHeader(1, FileKind.WAL, 3, bytes(range(16)), 2, 4096, 1_748_450_000_000)


def test_a_header_comes_back_whatever_follows_it() -> None:
    packed = pack_file_header(HEADER)
    assert len(packed) == FILE_HEADER_LEN
    assert parse_file_header(packed) == HEADER
    assert parse_file_header(packed + b"more") == HEADER


def test_F36_no_flipped_bit_and_no_cut_is_believed() -> None:
    packed = pack_file_header(HEADER)
    for bit in range(FILE_HEADER_LEN * 8):
        bad = bytearray(packed)
        bad[bit // 8] ^= 1 << bit % 8
        assert parse_file_header(bytes(bad)) is None, bit
    for length in range(FILE_HEADER_LEN):
        assert parse_file_header(packed[:length]) is None
    assert parse_file_header(bytes(FILE_HEADER_LEN)) is None


def test_F39_a_newer_version_is_read_so_that_it_can_be_named() -> None:
    found = parse_file_header(pack_file_header(HEADER._replace(version=9)))
    assert found is not None
    assert found.version == 9
