"""Reading log files piecewise and frame by frame, checked after reading."""

from __future__ import annotations

import pytest

from engine.errors import StoreDamaged
from engine.formats.frame import FrameHeader, body_check, frame_len, pack_header, padding, parse_header, seed_of
from engine.fs import Fs, OpenMode
from engine.limits import KIB
from engine.wal.chain import DATA_START, LogFile
from engine.wal.reader import HANDLES_MAX, PIECE, WINDOW, FrameReader, Window, body_of
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs

SEED = seed_of(b"store id, 16 byt")
TS = 1_748_450_000_000


def a_frame(lsn: int, body: bytes) -> bytes:
    header = pack_header(SEED, len(body), 1, 0, 1, 1, lsn, 0, 1, 1, 1, 1, TS, 0)
    return header + body + padding(len(body)) + body_check(body, SEED)


def a_log(content: bytes, room: int) -> tuple[FakeDisk, LogFile]:
    log = LogFile(0, 8192, 1, DATA_START + room)
    disk = FakeDisk()
    disk.mkdir("wal")
    disk.mkdir("wal/shard-00")
    handle = disk.open(log.path, OpenMode.CREATE)
    disk.allocate(handle, 0, log.size)
    disk.pwritev(handle, [content], DATA_START)
    return disk, log


def test_a_window_gives_every_byte_of_a_file_larger_than_itself() -> None:
    content = bytes(number * 7 % 251 for number in range(WINDOW + 300 * KIB))
    disk, log = a_log(content, len(content))
    window = Window(disk, log)
    for lsn in range(8192, log.end_lsn, 65_000):
        buffer, start = window.at(lsn, 700)
        assert buffer[start : start + 700] == content[lsn - 8192 : lsn - 8192 + 700]
    buffer, start = window.at(8192, len(content))
    assert buffer[start : start + len(content)] == content, "longer than a window, and backwards"
    buffer, start = window.at(log.end_lsn - 10, 80)
    assert buffer[start : start + 80] == content[-10:], "fewer at the end of the file"
    window.close()


def read_frame(fs: Fs, seed: int, log: LogFile, lsn: int) -> tuple[FrameHeader, bytes]:
    """One frame, by a reader of its own."""
    reader = FrameReader(fs, seed)
    try:
        return reader.read(log, lsn)
    finally:
        reader.close()


@pytest.mark.parametrize("size", [2, 1000, PIECE - 89, PIECE, 300 * KIB, 2048 * KIB])
def test_a_frame_of_any_length_is_read_and_checked(size: int) -> None:
    body = b"x" * size
    disk, log = a_log(a_frame(8192, body), frame_len(size) + 4096)
    header, found = read_frame(disk, SEED, log, 8192)
    assert found == body
    assert header.body_len == size
    assert disk._handles.keys() == {3}, "no handle is left open"


def test_F26_a_damaged_or_absent_frame_is_an_error_that_names_its_place() -> None:
    frame = a_frame(8192, b"x" * 100)
    for at in (0, 20, 79, 80, 179, len(frame) - 1):
        bad = bytearray(frame)
        bad[at] ^= 2
        disk, log = a_log(bytes(bad), 4096)
        with pytest.raises(StoreDamaged, match=f"{log.path}.*offset {DATA_START}"):
            read_frame(disk, SEED, log, 8192)
    disk, log = a_log(frame, 4096)
    with pytest.raises(StoreDamaged):
        read_frame(disk, SEED, log, 8192 + len(frame))
    with pytest.raises(StoreDamaged):
        read_frame(disk, seed_of(b"another store id"), log, 8192)


def test_F37_an_error_of_the_disk_is_not_damage() -> None:
    disk, log = a_log(a_frame(8192, b"x"), 4096)
    for call in (Call.OPEN, Call.READ):
        with pytest.raises(OSError, match="Input/output"):
            read_frame(FaultFs(disk, [Fault(call, 0, Effect.EIO, lasting=True)]), SEED, log, 8192)


def test_F37_a_bad_sector_behind_a_frame_does_not_cost_the_frame() -> None:
    """The first read takes more than the frame; only when that fails it is read by itself."""
    disk, log = a_log(a_frame(8192, b"x"), 4096)
    assert read_frame(FaultFs(disk, [Fault(Call.READ, 0, Effect.EIO)]), SEED, log, 8192) == read_frame(
        disk, SEED, log, 8192
    )


def test_a_body_is_given_only_whole() -> None:
    frame = a_frame(0, b"abc")
    header = parse_header(SEED, frame, 0, 0)
    assert header is not None
    assert body_of(frame + b"more", 0, header, SEED) == b"abc"
    for length in range(len(frame)):
        assert body_of(frame[:length], 0, header, SEED) is None


def test_neighbouring_frames_cost_one_read_and_few_files_stay_open() -> None:
    frames, lsn = [], 8192
    for number in range(100):
        frames.append((lsn, b"x" * (number + 1)))
        lsn += frame_len(number + 1)
    disk, log = a_log(b"".join(a_frame(lsn, body) for lsn, body in frames), lsn)
    fs = FaultFs(disk)
    reader = FrameReader(fs, SEED)
    for lsn, body in frames:
        assert reader.read(log, lsn)[1] == body
    assert fs.calls[Call.READ] == 1
    assert fs.calls[Call.OPEN] == 1
    for shard in range(1, 10):
        other = log._replace(shard=shard)
        disk.mkdir(f"wal/shard-{shard:02d}")
        disk.link(log.path, other.path)
        assert reader.read(other, 8192)[1] == b"x"
    assert len(disk._handles) == 1 + HANDLES_MAX
    reader.close()
    assert len(disk._handles) == 1


def test_a_piece_that_was_read_before_a_frame_was_written_does_not_hide_it() -> None:
    first = a_frame(8192, b"first")
    disk, log = a_log(first, 4096)
    reader = FrameReader(disk, SEED)
    assert reader.read(log, 8192)[1] == b"first"
    with pytest.raises(StoreDamaged):
        reader.read(log, 8192 + len(first))
    assert reader.read(log, 8192)[1] == b"first"
    disk.pwritev(3, [a_frame(8192 + len(first), b"second")], DATA_START + len(first))
    assert reader.read(log, 8192 + len(first))[1] == b"second"
