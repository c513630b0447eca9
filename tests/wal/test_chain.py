"""Which file owns a position."""

from __future__ import annotations

import itertools

from engine.wal.chain import (
    DATA_START,
    LogFile,
    log_path,
    owners,
    parse_log_name,
    parse_shard_dir,
    pieces,
    shard_dir,
)

SIZE = DATA_START + 100


def log(first_lsn: int, run: int, room: int = 100) -> LogFile:
    return LogFile(0, first_lsn, run, DATA_START + room)


def test_names_are_parsed_as_they_are_made_and_nothing_else_is() -> None:
    name = log_path(3, 4096, 7).rpartition("/")[2]
    assert parse_log_name(name) == (4096, 7)
    assert parse_shard_dir(shard_dir(3).rpartition("/")[2]) == 3
    for other in ("wal-1-1.log", name + ".tmp", name + "~", "x" + name, name.replace("-", "_"), ""):
        assert parse_log_name(other) is None
    for other in ("shard-1", "shard-001", "shards", "shard-ab", ""):
        assert parse_shard_dir(other) is None


def test_the_highest_run_owns_what_it_begins_and_ends_the_older_ones_there() -> None:
    chain, superseded = owners([log(0, 1), log(100, 1), log(200, 1), log(150, 2), log(250, 2)])
    assert [(file.first_lsn, file.run) for file in chain] == [(0, 1), (100, 1), (150, 2), (250, 2)]
    assert [(file.first_lsn, file.run) for file in superseded] == [(200, 1)]
    assert [piece.end_lsn for piece in pieces(chain)] == [100, 150, 250, 350]


def test_a_run_that_begins_where_a_file_begins_supersedes_it_whole() -> None:
    chain, superseded = owners([log(0, 1), log(0, 2)])
    assert [file.run for file in chain] == [2]
    assert [file.run for file in superseded] == [1]


def test_ownership_is_the_rule_of_the_format_for_every_small_set_of_files() -> None:
    every = [log(first, run, 40) for first in (0, 10, 20, 30) for run in (1, 2, 3)]
    for files in itertools.chain.from_iterable(itertools.combinations(every, size) for size in (1, 2, 3, 4)):
        chain, superseded = owners(files)
        assert sorted([*chain, *superseded]) == sorted(files)
        owned = pieces(chain)
        for lsn in range(min(file.first_lsn for file in files), 70):
            begun = [file for file in files if file.first_lsn <= lsn]
            owner = max(begun, key=lambda file: (file.run, file.first_lsn))
            found = [piece.file for piece in owned if piece.file.first_lsn <= lsn < piece.end_lsn]
            assert found in ([owner], []), (files, lsn)
            assert found or lsn >= owned[-1].end_lsn


def test_an_offset_is_arithmetic() -> None:
    assert log(4096, 1).offset(4096) == DATA_START
    assert log(4096, 1).offset(5000) == DATA_START + 904
    assert log(4096, 1).end_lsn == 4196
