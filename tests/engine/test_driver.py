"""`Engine` in a script, on a real directory."""

from pathlib import Path

import pytest

from engine import Engine
from engine.errors import StoreLocked


def test_a_script_writes_reads_deletes_and_finds_it_all_again(tmp_path: Path) -> None:
    with Engine(str(tmp_path / "data")) as log:
        log.create("t", durability="fsync")
        assert log.write("t", [{"a": 1}, {"a": 2}, {"a": 3}], tag="x", key="once").last_seq == 3
        assert log.write("t", [{"a": 1}, {"a": 2}, {"a": 3}], tag="x", key="once").deduped
        assert log.delete("t", seqs=[2]).deleted == 1
    with Engine(str(tmp_path / "data")) as log:
        assert [(record["$seq"], record["data"]["a"], record["$tag"]) for record in log.read("t")] == [
            (1, 1, "x"),
            (3, 3, "x"),
        ]
        assert log.delete("t", match="x*").deleted == 2
        assert [state.topic for state in log.topics()] == ["t"]
        assert log.drop("t").deleted


def test_a_second_owner_of_the_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        with pytest.raises(StoreLocked) as refused:
            Engine(str(tmp_path))
        assert refused.value.exit_code == 73
        assert log.write("t", [1]).first_seq == 1


def test_reading_meets_a_loss_as_a_tombstone(tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        log.create("t", cap_records=2)
        log.write("t", [1, 2, 3])
        gap, *rest = log.read("t")
        assert gap["$tombstone"]["reason"] == "cap"
        assert [record["data"] for record in rest] == [2, 3]
