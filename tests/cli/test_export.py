"""`topics export` against a running daemon and without one; `--verify` finds what was touched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Daemon, clean_environment
from tests.extras import extra

extra("pyarrow")
pytestmark = pytest.mark.slow


@pytest.fixture
def lake(mortal: Daemon, tmp_path: Path) -> Path:
    """A lake that was exported from a daemon in two runs, the second one after more writes and deletes."""
    mortal.run("create", "orders", "--cap-records", "15")
    mortal.run("write", "orders", *(f"order {number}" for number in range(20)), "--tag", "t")
    mortal.run("write", "odd", "1", "--json")
    mortal.ok("export", "*", "--to", str(tmp_path / "lake"))
    mortal.run("write", "orders", "more", "and more")
    mortal.run("delete", "orders", "--seq", "21", "--yes")
    mortal.ok("export", "orders", "--to", str(tmp_path / "lake"))
    return tmp_path / "lake"


def test_the_sum_of_every_topic_is_right_and_the_pin_is_gone(mortal: Daemon, lake: Path) -> None:
    assert mortal.ok("export", "*", "--to", str(lake), "--verify").decode().splitlines() == [
        "odd\tepoch 2\t1-1\t1 exported + 0 deleted + 0 in gaps\t1 seqs",
        "orders\tepoch 1\t1-22\t16 exported + 1 deleted + 5 in gaps\t22 seqs",
        "no problems found",
    ]
    assert list((mortal.directory / "data" / "exports").iterdir()) == []
    assert mortal.ok("export", "orders", "--to", str(lake)) == b"orders\tnothing new behind seq 22\n"


def test_verify_names_the_file_that_was_touched(mortal: Daemon, lake: Path) -> None:
    path = max(lake.rglob("part-*.parquet"))
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    found = mortal.run("export", "orders", "--to", str(lake), "--verify", "-o", "ndjson")
    assert found.returncode == 4
    (topic,) = [json.loads(line) for line in found.stdout.splitlines()]
    assert topic["wrong"] == [f"{path} was touched: it is not the file that was written"]
    path.unlink()
    next(Path(f"{lake}.gaps").rglob("*.parquet")).unlink()
    found = mortal.run("export", "orders", "--to", str(lake), "--verify")
    assert found.returncode == 4
    assert f"{path} is missing".encode() in found.stdout
    assert b"gaps table" in found.stdout


def test_a_dry_run_writes_nothing(mortal: Daemon, tmp_path: Path) -> None:
    mortal.run("write", "t", "a", "b")
    shown = mortal.ok("export", "t", "--to", str(tmp_path / "lake"), "--dry-run")
    assert shown == b"t\t1-2\t2 records\t0 deleted\t0 in gaps\tnothing was written (--dry-run)\n"
    assert list(tmp_path.iterdir()) == []


def test_options_say_where_a_run_begins_and_ends(mortal: Daemon, tmp_path: Path) -> None:
    mortal.run("write", "t", *"abcdefghij")
    lake, other = str(tmp_path / "lake"), str(tmp_path / "other")

    def told(*words: str) -> list[str]:
        return mortal.ok("export", "t", *words).decode().split("\t")[1:3]

    assert told("--to", lake, "--from", "4", "--until", "6") == ["4-6", "3 records"]
    # Where a topic goes on is known: --from is for the first time.
    assert told("--to", lake, "--from", "2", "--since-last", "--max-rows", "1") == ["7-7", "1 record"]
    assert told("--to", lake, "--until", "3") == ["nothing new behind seq 7\n"]
    assert told("--to", lake, "--dry-run") == ["8-10", "3 records"]
    assert told("--to", other, "--full", "--from", "9") == ["9-10", "2 records"]
    assert mortal.ok("export", "t", "--to", lake).startswith(b"t\t8-10\t3 records")
    assert b"4-10\t7 exported + 0 deleted + 0 in gaps\t7 seqs" in mortal.ok("export", "t", "--to", lake, "--verify")
    full = mortal.run("export", "t", "--to", lake, "--full")
    assert (full.returncode, b"has batches of topic 't' already (conflict)" in full.stderr) == (1, True)
    for words in (("--full", "--since-last"), ("--from", "0"), ("--from", "9", "--until", "8"), ("--from", "-1")):
        assert mortal.run("export", "t", "--to", str(tmp_path / "none"), *words).returncode == 2, words
    assert not (tmp_path / "none").exists()


def test_a_backup_and_a_stopped_store_give_the_same(mortal: Daemon, lake: Path, tmp_path: Path) -> None:
    mortal.ok("backup", "--to", str(tmp_path / "backup"))
    refused = mortal.run("export", "orders", "--to", str(tmp_path / "x"), "--dir", str(mortal.directory / "data"))
    assert (refused.returncode, b"store_locked" in refused.stderr) == (1, True)
    mortal.stop()
    for number, source in enumerate((tmp_path / "backup", mortal.directory / "data")):
        words = ("export", "orders", "--to", str(tmp_path / f"lake{number}"), "--dir", str(source), "-o", "ndjson")
        answer = mortal.run(*words)
        assert answer.returncode == 0, answer
        topic, summary = map(json.loads, answer.stdout.splitlines())
        assert (topic["rows"], topic["deleted"], topic["in_gaps"], topic["last"]) == (14, 1, 7, 22)
        assert summary["rows"] == 14


def test_without_its_packages_it_says_which_extra_to_install() -> None:
    script = "import sys; sys.modules['pyarrow'] = None; from topics_cli.app import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", script, "export", "t", "--to", "/nonexistent/lake"]
    answer = subprocess.run(words, capture_output=True, env=clean_environment())
    assert answer.returncode == 1
    assert b"pyarrow is not installed (missing_package)\n  pip install 'topics[export]'" in answer.stderr


def test_batches_are_joined_and_what_cannot_be_is_said(mortal: Daemon, lake: Path) -> None:
    dry = mortal.ok("lake", "compact", "*", "--to", str(lake), "--dry-run").decode().splitlines()
    assert dry == [
        "odd\t1 batch -> 1\t1 file -> ?\tnothing was written (--dry-run)",
        "orders\t2 batches -> 1\t2 files -> ?\tnothing was written (--dry-run)",
    ]
    lines = mortal.ok("lake", "compact", "orders", "--to", str(lake), "-o", "ndjson").splitlines()
    done = [json.loads(line) for line in lines]
    assert [(each["topic"], each["batches_before"], each["batches"], each["files"]) for each in done] == [
        ("orders", 2, 1, 1)
    ]
    assert b"no problems found" in mortal.ok("export", "*", "--to", str(lake), "--verify")
    assert mortal.run("lake", "compact", "nobody", "--to", str(lake)).returncode == 3
    assert mortal.run("lake", "compact", "orders").returncode == 2
