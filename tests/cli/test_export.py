"""`topics export` against a running daemon and without one; `--verify` finds what was touched."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Daemon, clean_environment, running
from tests.extras import extra

extra("pyarrow")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path]]:
    """A daemon whose topics were exported in two runs, the second one after more writes and deletes, and where to."""
    place = tmp_path_factory.mktemp("exported")
    for daemon in running():
        daemon.run("create", "orders", "--cap-records", "15")
        daemon.run("write", "orders", *(f"order {number}" for number in range(20)), "--tag", "t")
        daemon.run("write", "odd", "1", "--json")
        daemon.ok("export", "*", "--to", str(place / "lake"))
        daemon.run("write", "orders", "more", "and more")
        daemon.run("delete", "orders", "--seq", "21", "--yes")
        daemon.ok("export", "orders", "--to", str(place / "lake"))
        yield daemon, place


@pytest.fixture
def exporter(exported: tuple[Daemon, Path]) -> Daemon:
    """The daemon that was exported; its topics stay as they are."""
    return exported[0]


@pytest.fixture
def lake(exported: tuple[Daemon, Path], tmp_path: Path) -> Path:
    """A copy of the lake, and of what lies beside it."""
    shutil.copytree(exported[1], tmp_path, dirs_exist_ok=True)
    return tmp_path / "lake"


def test_the_sum_of_every_topic_is_right_and_the_pin_is_gone(exporter: Daemon, lake: Path) -> None:
    verified = exporter.ok("export", "*", "--to", str(lake), "--verify").decode()
    assert re.sub(r"epoch [0-9]+", "epoch E", verified).splitlines() == [
        "odd\tepoch E\t1-1\t1 exported + 0 deleted + 0 in gaps\t1 seqs",
        "orders\tepoch E\t1-22\t16 exported + 1 deleted + 5 in gaps\t22 seqs",
        "no problems found",
    ]
    assert list((exporter.directory / "data" / "exports").iterdir()) == []
    assert exporter.ok("export", "orders", "--to", str(lake)) == b"orders\tnothing new behind seq 22\n"


def test_verify_names_the_file_that_was_touched(exporter: Daemon, lake: Path) -> None:
    path = max(lake.rglob("part-*.parquet"))
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    found = exporter.run("export", "orders", "--to", str(lake), "--verify", "-o", "ndjson")
    assert found.returncode == 4
    (topic,) = [json.loads(line) for line in found.stdout.splitlines()]
    assert topic["wrong"] == [f"{path} was touched: it is not the file that was written"]
    path.unlink()
    next(Path(f"{lake}.gaps").rglob("*.parquet")).unlink()
    found = exporter.run("export", "orders", "--to", str(lake), "--verify")
    assert found.returncode == 4
    assert f"{path} is missing".encode() in found.stdout
    assert b"gaps table" in found.stdout


def test_a_dry_run_writes_nothing(shared: Daemon, topic: str, tmp_path: Path) -> None:
    shared.run("write", topic, "a", "b")
    shown = shared.ok("export", topic, "--to", str(tmp_path / "lake"), "--dry-run")
    assert shown == f"{topic}\t1-2\t2 records\t0 deleted\t0 in gaps\tnothing was written (--dry-run)\n".encode()
    assert list(tmp_path.iterdir()) == []


def test_options_say_where_a_run_begins_and_ends(shared: Daemon, topic: str, tmp_path: Path) -> None:
    shared.run("write", topic, *"abcdefghij")
    lake, other = str(tmp_path / "lake"), str(tmp_path / "other")

    def told(*words: str) -> list[str]:
        return shared.ok("export", topic, *words).decode().split("\t")[1:3]

    assert told("--to", lake, "--from", "4", "--until", "6") == ["4-6", "3 records"]
    # Where a topic goes on is known: --from is for the first time.
    assert told("--to", lake, "--from", "2", "--since-last", "--max-rows", "1") == ["7-7", "1 record"]
    assert told("--to", lake, "--until", "3") == ["nothing new behind seq 7\n"]
    assert told("--to", lake, "--dry-run") == ["8-10", "3 records"]
    assert told("--to", other, "--full", "--from", "9") == ["9-10", "2 records"]
    assert shared.ok("export", topic, "--to", lake).startswith(f"{topic}\t8-10\t3 records".encode())
    assert b"4-10\t7 exported + 0 deleted + 0 in gaps\t7 seqs" in shared.ok("export", topic, "--to", lake, "--verify")
    full = shared.run("export", topic, "--to", lake, "--full")
    assert (full.returncode, f"has batches of topic '{topic}' already (conflict)".encode() in full.stderr) == (1, True)
    for words in (("--full", "--since-last"), ("--from", "0"), ("--from", "9", "--until", "8"), ("--from", "-1")):
        assert shared.run("export", topic, "--to", str(tmp_path / "none"), *words).returncode == 2, words
    assert not (tmp_path / "none").exists()


def test_a_backup_and_a_stopped_store_give_the_same(exporter: Daemon, tmp_path: Path) -> None:
    exporter.ok("backup", "--to", str(tmp_path / "backup"))
    refused = exporter.run("export", "orders", "--to", str(tmp_path / "x"), "--dir", str(exporter.directory / "data"))
    assert (refused.returncode, b"store_locked" in refused.stderr) == (1, True)
    exporter.stop()
    try:
        for number, source in enumerate((tmp_path / "backup", exporter.directory / "data")):
            words = ("export", "orders", "--to", str(tmp_path / f"lake{number}"), "--dir", str(source), "-o", "ndjson")
            answer = exporter.run(*words)
            assert answer.returncode == 0, answer
            topic, summary = map(json.loads, answer.stdout.splitlines())
            assert (topic["rows"], topic["deleted"], topic["in_gaps"], topic["last"]) == (14, 1, 7, 22)
            assert summary["rows"] == 14
    finally:
        exporter.start()


def test_without_its_packages_it_says_which_extra_to_install() -> None:
    script = "import sys; sys.modules['pyarrow'] = None; from topics_cli.app import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", script, "export", "t", "--to", "/nonexistent/lake"]
    answer = subprocess.run(words, capture_output=True, env=clean_environment())
    assert answer.returncode == 1
    what, todo = answer.stderr.decode().splitlines()
    assert what == "topics: pyarrow is not installed (missing_package)"
    assert todo == "  in a clone: make setup-spark; elsewhere: pip install 'topics[export]'"


def test_batches_are_joined_and_what_cannot_be_is_said(exporter: Daemon, lake: Path) -> None:
    dry = exporter.ok("lake", "compact", "*", "--to", str(lake), "--dry-run").decode().splitlines()
    assert dry == [
        "odd\t1 batch -> 1\t1 file -> ?\tnothing was written (--dry-run)",
        "orders\t2 batches -> 1\t2 files -> ?\tnothing was written (--dry-run)",
    ]
    lines = exporter.ok("lake", "compact", "orders", "--to", str(lake), "-o", "ndjson").splitlines()
    done = [json.loads(line) for line in lines]
    assert [(each["topic"], each["batches_before"], each["batches"], each["files"]) for each in done] == [
        ("orders", 2, 1, 1)
    ]
    assert b"no problems found" in exporter.ok("export", "*", "--to", str(lake), "--verify")
    assert exporter.run("lake", "compact", "nobody", "--to", str(lake)).returncode == 3
    assert exporter.run("lake", "compact", "orders").returncode == 2


def test_spark_is_not_started_for_what_cannot_be(shared: Daemon, topic: str, tmp_path: Path) -> None:
    shared.ok("write", topic, "x")
    for words, said in (
        ([topic, "--to", str(tmp_path), "--format", "delta"], b"(unsupported)"),
        ([topic, "--to", "s3a://bucket/x"], b"(unsupported)"),
        ([topic + "-none", "--to", str(tmp_path)], b"(topic_not_found)"),
        ([topic], b"where to?"),
    ):
        done = shared.run("spark-export", *words)
        assert done.returncode in (1, 2), done
        assert said in done.stderr
        assert b"Spark on" not in done.stderr
