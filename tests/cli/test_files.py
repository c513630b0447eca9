"""`fsck` and `wal-inspect`: exit codes, lines and objects; damaged and foreign files; nothing is written."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from engine import Engine
from engine.tools.recover import LostRange, Report
from tests.cli import support
from tests.cli.support import Daemon, Terminal, clean_environment
from topics_cli.commands.recover import lines_of as recovered_lines

pytestmark = pytest.mark.slow


def run(*words: str) -> subprocess.CompletedProcess[bytes]:
    return support.run(*words, environment=clean_environment())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A small store, stopped in good order."""
    path = tmp_path / "store"
    with Engine(str(path)) as log:
        for number in range(5):
            log.write("orders", [number, "x" * 100, "\x1b[31mred"])
            log.write("audit", [{"secret": "hidden word"}])
    return path


def log_file(store: Path) -> Path:
    return next((store / "wal" / "shard-00").iterdir())


def contents(store: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def test_a_whole_store_and_its_files_have_no_problems(store: Path) -> None:
    before = contents(store)
    checked = run("fsck", str(store))
    assert checked.returncode == 0
    assert checked.stdout.splitlines()[-1] == b"no problems found"
    assert run("wal-inspect", str(log_file(store))).returncode == 0
    assert contents(store) == before


def test_damage_is_a_line_an_object_and_exit_4(store: Path) -> None:
    whole = log_file(store).read_bytes()
    flip(log_file(store), whole.index(b"xxx"))
    before = contents(store)
    checked = run("fsck", str(store))
    assert checked.returncode == 4
    line = checked.stdout.decode().splitlines()[0]
    fields, _, rest = line.partition(": ")
    name = f"wal/shard-00/{log_file(store).name}"
    assert fields.split() == ["damage", "wal-frame", name, "4552", "orders", "1-3"]
    assert "; " in rest
    lines = run("fsck", str(store), "-o", "ndjson").stdout.splitlines()
    # On a busy machine it has time to say how far it is.
    objects = [one for line in lines if (one := json.loads(line))["type"] != "progress"]
    assert [one["type"] for one in objects] == ["finding", "summary"]
    assert objects[0]["seqs"] == [1, 3]
    assert objects[1]["verdict"] == "isolate"
    assert [one["type"] for one in json.loads(run("fsck", str(store), "--json").stdout)] == ["finding", "summary"]
    inspected = run("wal-inspect", str(log_file(store)))
    assert inspected.returncode == 4
    assert b"damage wal-frame" in inspected.stdout
    assert contents(store) == before


def test_payload_is_hidden_unless_it_is_asked_for(store: Path) -> None:
    path = str(log_file(store))
    shown = run("wal-inspect", path, "--records")
    assert b"seq 1\t" in shown.stdout
    assert b"secret" not in shown.stdout
    assert b"secret" in run("wal-inspect", path, "--at", "1", "--payload").stdout
    flip(log_file(store), log_file(store).read_bytes().index(b"hidden word"))
    assert b"word" not in run("wal-inspect", path, "--hex").stdout
    assert b"word" in run("wal-inspect", path, "--hex", "--payload").stdout


def test_a_terminal_gets_a_strip_and_no_control_bytes_of_records(store: Path) -> None:
    dressed = clean_environment() | {"TERM": "xterm", "LANG": "C.UTF-8"}
    code, screen = Terminal(dressed, "wal-inspect", str(log_file(store)), "--records", "--payload").end()
    assert code == 0
    assert "\x1b[0;32m█".encode() in screen
    assert b"\x1b[31mred" not in screen


def test_what_is_no_store_and_no_file_is_refused(tmp_path: Path) -> None:
    assert run("fsck", str(tmp_path)).returncode == 1
    assert run("fsck", str(tmp_path / "none")).returncode == 1
    assert run("wal-inspect", str(tmp_path)).returncode == 1
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"not ours" * 1000)
    assert run("wal-inspect", str(foreign)).returncode == 4
    looked = run("segment-inspect", str(foreign))
    assert looked.returncode == 4
    assert b"put the right file in its place" in looked.stdout
    assert b"readers" not in looked.stdout, "nothing says that it is of a store"
    (tmp_path / "empty").write_bytes(b"")
    assert run("wal-inspect", str(tmp_path / "empty")).returncode == 4


def test_a_store_in_use_is_checked_through_a_pin(mortal: Daemon) -> None:
    mortal.run("write", "orders", "a", "b", "c")
    checked = mortal.run("fsck", str(mortal.directory / "data"))
    assert checked.returncode == 0, checked
    assert b"no problems found" in checked.stdout
    assert b"exports/" in checked.stderr
    told = mortal.run("explain", "orders", "2", "--dir", str(mortal.directory / "data"))
    assert b"state\tlive" in told.stdout
    told = mortal.run("explain", "orders", "2")
    named = dict(line.split(b"\t", 1) for line in told.stdout.splitlines())
    file = mortal.directory / "data" / named[b"file"].decode()
    at, length = int(named[b"offset"]), int(named[b"length"])
    assert file.read_bytes()[at : at + length].startswith(b'{"$seq":2,'), told.stdout
    assert mortal.run("explain", "orders", "9").returncode == 3
    elsewhere = run("fsck", str(mortal.directory / "data"))
    assert elsewhere.returncode == 69
    refused = mortal.run("recover", str(mortal.directory / "data"), "--dry-run")
    assert refused.returncode == 1
    assert b"store_locked" in refused.stderr


def test_recover_of_a_whole_store_loses_nothing(store: Path, tmp_path: Path) -> None:
    before = contents(store)
    new = tmp_path / "new"
    saved = run("recover", str(store), "--to", str(new))
    assert saved.returncode == 0
    assert b"nothing was lost" in saved.stdout
    assert contents(store) == before
    with Engine(str(store)) as old, Engine(str(new)) as log:
        assert [state.topic for state in log.topics()] == ["audit", "orders"]
        for topic in ("audit", "orders"):
            assert list(log.read(topic)) == list(old.read(topic))
            assert log.state(topic).epoch == old.state(topic).epoch


def test_recover_says_what_is_lost_keeps_the_bytes_and_ends_with_5(store: Path, tmp_path: Path) -> None:
    flip(log_file(store), log_file(store).read_bytes().index(b"xxx"))
    tried = run("recover", str(store), "--dry-run")
    assert tried.returncode == 5
    assert b"lost\torders\t1-3" in tried.stdout
    [would] = [line for line in tried.stdout.splitlines() if line.startswith(b"would save\t")]
    twin = run("recover", str(store), "--to", str(tmp_path / "twin"))
    assert would.removeprefix(b"would save") in twin.stdout, "a dry run counts what is saved then"
    new = tmp_path / "new"
    saved = run("recover", str(store), "--to", str(new), "-o", "ndjson")
    assert saved.returncode == 5
    report = json.loads(saved.stdout.splitlines()[0])
    assert report["lost"] == [{"topic": "orders", "from": 1, "to": 3}]
    assert json.loads((new / "lost" / "report.json").read_bytes())["lost"] == report["lost"]
    assert (new / "lost" / report["kept"][0]["file"]).stat().st_size == report["kept"][0]["length"]
    with Engine(str(new)) as log:
        first = next(log.read("orders"))
        assert first["$tombstone"]["reason"] == "corruption"
        assert (first["$tombstone"]["gap_from"], first["$tombstone"]["gap_to"]) == (1, 3)
        assert len(list(log.read("audit"))) == 5


def test_recover_says_where_doubtful_records_are_and_what_keeps_them() -> None:
    one = LostRange(topic="orders", first=1, last=9)
    report = Report(topics=1, lost=[one], doubtful=[one])
    for dry_run, where in ((False, "are"), (True, "would be")):
        lines = recovered_lines(report, 20, dry_run)
        assert "lost\torders\t1-9\tmay have been deleted" in lines
        assert [line for line in lines if f"{where} in lost/doubtful-" in line and "--keep-doubtful" in line]
    assert "doubtful" not in " ".join(recovered_lines(Report(topics=1), 20))


def test_recover_swaps_and_refuses_a_target_that_is_not_empty(store: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").write_bytes(b"")
    assert run("recover", str(store), "--to", str(full)).returncode == 1
    assert run("recover", str(store), "--to", str(store / "inside")).returncode == 1
    assert run("recover", str(store)).returncode == 2
    swapped = run("recover", str(store), "--to", str(tmp_path / "new"), "--swap", "--topic", "orders")
    assert swapped.returncode == 0
    assert not (tmp_path / "new").exists()
    [kept] = [path for path in tmp_path.iterdir() if path.name.startswith("store.damaged-")]
    with Engine(str(store)) as log:
        assert [state.topic for state in log.topics()] == ["orders"]
    assert run("fsck", str(kept)).returncode == 0
