"""STORE, LOCK and MANIFEST: readable, and one flipped bit is noticed."""

from __future__ import annotations

import msgspec
import pytest

from engine.formats.manifest import (
    BadMeta,
    LockInfo,
    LockState,
    Manifest,
    ShardEntry,
    StoreInfo,
    decode_meta,
    encode_meta,
)

ENTRY = ShardEntry(shard=1, start_lsn=0, first_lsn=4096, run=2, size=65536, end_lsn=5000)
VALUES: list[msgspec.Struct] = [
    StoreInfo(store_id="00" * 16, format=1, created_ms=5),
    LockInfo(boot_id="", state=LockState.STOPPED, pid=1, started_ms=2),
    Manifest(store_id="00" * 16, shards=[ENTRY]),
]


@pytest.mark.parametrize("value", VALUES)
def test_a_file_comes_back_and_no_flipped_bit_or_cut_does(value: msgspec.Struct) -> None:
    data = encode_meta(value)
    assert decode_meta(data, type(value)) == value
    for bit in range(len(data) * 8):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadMeta):
            decode_meta(bytes(bad), type(value))
    for length in range(len(data)):
        with pytest.raises(BadMeta):
            decode_meta(data[:length], type(value))
    with pytest.raises(BadMeta):
        decode_meta(data + b"\n", type(value))


def test_a_good_check_over_the_wrong_content_is_refused() -> None:
    with pytest.raises(BadMeta):
        decode_meta(encode_meta(VALUES[0]), Manifest)


def test_a_shard_is_found_by_its_number() -> None:
    manifest = Manifest(store_id="", shards=[ENTRY])
    assert manifest.entry(1) == ENTRY
    assert manifest.entry(0) is None
